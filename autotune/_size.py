"""Tuning parameters with a scale: powers of two, multiples of a step, integers."""

import dataclasses
import math
from typing import Any, ClassVar, final

import numpy as np

from ._parameter import AbstractParameter, assign


@final
@dataclasses.dataclass(frozen=True, init=False)
class PowerOfTwo(AbstractParameter):
    """The powers of two from `low` to `high`; the default is the smallest.

    >>> PowerOfTwo(16, 100).values.tolist()
    [16, 32, 64]
    """

    low: int
    high: int
    default: int
    ordered: ClassVar[bool] = True
    relaxable: ClassVar[bool] = True

    def __init__(self, low: int, high: int, *, default: int | None = None):
        _positive(low, "PowerOfTwo")
        assign(self, low=low, high=high)
        assign(self, default=_range(low, high, self._legal_list(), default, "PowerOfTwo"))

    def _legal_list(self) -> list[int]:
        first = (self.low - 1).bit_length()
        return [1 << exponent for exponent in range(first, max(self.high, 0).bit_length())]

    def _legal(self) -> tuple[int, ...]:
        return tuple(self._legal_list())

    def encode(self, values: Any) -> np.ndarray:
        return np.log2(values)

    def decode(self, codes: Any) -> Any:
        return 2.0**codes


@final
@dataclasses.dataclass(frozen=True, init=False)
class Multiple(AbstractParameter):
    """The multiples of `step` from `low` to `high`; the default is the smallest.

    >>> Multiple(16, 64, 16).neighbours(32)
    (16, 48)
    """

    low: int
    high: int
    step: int
    default: int
    ordered: ClassVar[bool] = True
    relaxable: ClassVar[bool] = True

    def __init__(self, low: int, high: int, step: int, *, default: int | None = None):
        _positive(low, "Multiple")
        if step <= 0:
            raise ValueError(f"`step` of Multiple must be positive, got {step}")
        assign(self, low=low, high=high, step=step)
        assign(self, default=_range(low, high, self._legal_range(), default, "Multiple"))

    def _legal_range(self) -> range:
        return range(math.ceil(self.low / self.step) * self.step, self.high + 1, self.step)

    def _legal(self) -> tuple[int, ...]:
        return tuple(self._legal_range())

    def encode(self, values: Any) -> np.ndarray:
        return np.log2(values)

    def decode(self, codes: Any) -> Any:
        return 2.0**codes


@final
@dataclasses.dataclass(frozen=True, init=False)
class Integer(AbstractParameter):
    """The integers from `low` to `high`, both included; the default is the smallest.

    >>> Integer(0, 4, default=2).neighbours(4)
    (3,)
    """

    low: int
    high: int
    default: int
    ordered: ClassVar[bool] = True
    relaxable: ClassVar[bool] = True

    def __init__(self, low: int, high: int, *, default: int | None = None):
        assign(self, low=low, high=high)
        assign(self, default=_range(low, high, range(low, high + 1), default, "Integer"))

    def _legal(self) -> tuple[int, ...]:
        return tuple(range(self.low, self.high + 1))

    def encode(self, values: Any) -> np.ndarray:
        return np.asarray(values, np.float64)

    def decode(self, codes: Any) -> Any:
        return codes


def _range(low: int, high: int, legal: range | list[int], default: int | None, kind: str) -> int:
    """Check a numeric range and return its default."""
    if not legal:
        raise ValueError(f"`low` and `high` of {kind} must enclose a legal value, got {low} and {high}; widen them")
    if default is None:
        return legal[0]
    if default not in legal:
        raise ValueError(f"`default` of {kind} must be a legal value from {legal[0]} to {legal[-1]}, got {default}")
    return default


def _positive(low: int, kind: str) -> None:
    if low <= 0:
        raise ValueError(f"`low` of {kind} must be positive, got {low}; use Integer for a range holding zero")
