"""Forward-mode numbers: a value with its derivative in several constants, carried through plain-number code.

The cost reading on plain numbers takes a few milliseconds and compiles nothing. With :class:`Dual` constants
the same code gives the derivative in every constant at once, which is what calibration and attribution need.
"""

import math
from typing import Any

import numpy as np


class Dual:
    """A number ``value`` and its ``gradient``; arithmetic follows the product and quotient rules.

    Comparisons look at the value alone, so branches and maxima choose as they do for plain numbers.

    >>> x, y = seeds([3.0, 2.0])
    >>> product = x * y + 1
    >>> product.value, product.gradient.tolist()
    (7.0, [2.0, 3.0])
    """

    __array_ufunc__ = None  # numpy scalars on the left defer to the reflected operators
    __slots__ = ("gradient", "value")

    def __init__(self, value: float, gradient: np.ndarray) -> None:
        self.value = value
        self.gradient = gradient

    def __add__(self, other: Any) -> "Dual":
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.gradient + other.gradient)
        return Dual(self.value + other, self.gradient)

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Dual":
        if isinstance(other, Dual):
            return Dual(self.value - other.value, self.gradient - other.gradient)
        return Dual(self.value - other, self.gradient)

    def __rsub__(self, other: Any) -> "Dual":
        return Dual(other - self.value, -self.gradient)

    def __mul__(self, other: Any) -> "Dual":
        if isinstance(other, Dual):
            return Dual(self.value * other.value, self.gradient * other.value + other.gradient * self.value)
        return Dual(self.value * other, self.gradient * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Dual":
        if isinstance(other, Dual):
            ratio = self.value / other.value
            return Dual(ratio, (self.gradient - ratio * other.gradient) / other.value)
        return Dual(self.value / other, self.gradient / other)

    def __rtruediv__(self, other: Any) -> "Dual":
        ratio = other / self.value
        return Dual(ratio, self.gradient * (-ratio / self.value))

    def __pow__(self, power: float) -> "Dual":
        return Dual(self.value**power, self.gradient * (power * self.value ** (power - 1)))

    def __neg__(self) -> "Dual":
        return Dual(-self.value, -self.gradient)

    def __pos__(self) -> "Dual":
        return self

    def __abs__(self) -> "Dual":
        return -self if self.value < 0 else self

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < float(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= float(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > float(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= float(other))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float | Dual) and float(self.value) == float(other)

    def __hash__(self) -> int:
        return hash(float(self.value))

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __ceil__(self) -> int:
        return math.ceil(self.value)

    def __floor__(self) -> int:
        return math.floor(self.value)

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.gradient!r})"


def seeds(values: list[float]) -> list[Dual]:
    """One :class:`Dual` for each value, with unit gradients: the independent variables of a derivative."""
    unit = np.eye(len(values))
    return [Dual(float(value), unit[i]) for i, value in enumerate(values)]


def value_of(number: Any) -> float:
    """The value of a number, dual or plain."""
    return float(number.value) if isinstance(number, Dual) else float(number)


def gradient_of(number: Any, size: int) -> np.ndarray:
    """The gradient of a number, zero for a plain one."""
    return np.asarray(number.gradient, float) if isinstance(number, Dual) else np.zeros(size)
