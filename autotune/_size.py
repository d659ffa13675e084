"""Tuning parameters with a scale: powers of two, multiples of a step, integers."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np

from ._parameter import AbstractParameter, assign


class AbstractRange(AbstractParameter):
    """Integers in order; a member says which by `_integers`, and is checked by `_set` from its `__init__`."""

    ordered: ClassVar[bool] = True
    relaxable: ClassVar[bool] = True

    def _set(self, default: int | None, legal: Sequence[int], **fields: int) -> None:
        kind, low, high = type(self).__name__, fields["low"], fields["high"]
        if not legal:
            raise ValueError(f"`low` and `high` of {kind} must enclose a legal value, got {low} and {high}; widen them")
        if default is not None and default not in legal:
            raise ValueError(f"`default` of {kind} must be a legal value from {legal[0]} to {legal[-1]}, got {default}")
        assign(self, **fields, default=legal[0] if default is None else default)


class AbstractSize(AbstractRange):
    """Positive integers, relaxed by their logarithm."""

    def encode(self, values: Any) -> np.ndarray:
        return np.log2(values)

    def decode(self, codes: Any) -> Any:
        return 2.0**codes

    def slope(self, codes: Any) -> Any:
        return np.log(2.0) * 2.0**codes


@final
@dataclasses.dataclass(frozen=True, init=False)
class PowerOfTwo(AbstractSize):
    """The powers of two from `low` to `high`; the default is the smallest.

    >>> PowerOfTwo(16, 100).values.tolist()
    [16, 32, 64]
    """

    low: int
    high: int
    default: int

    def __init__(self, low: int, high: int, *, default: int | None = None):
        low, high = _whole("PowerOfTwo", low=low, high=high)
        _positive("PowerOfTwo", low=low)
        self._set(default, _powers(low, high), low=low, high=high)

    def _legal(self) -> tuple[int, ...]:
        return _powers(self.low, self.high)


@final
@dataclasses.dataclass(frozen=True, init=False)
class Multiple(AbstractSize):
    """The multiples of `step` from `low` to `high`; the default is the smallest.

    >>> Multiple(16, 64, 16).neighbours(32)
    (16, 48)
    """

    low: int
    high: int
    step: int
    default: int

    def __init__(self, low: int, high: int, step: int, *, default: int | None = None):
        low, high, step = _whole("Multiple", low=low, high=high, step=step)
        _positive("Multiple", low=low, step=step)
        self._set(default, _multiples(low, high, step), low=low, high=high, step=step)

    def _legal(self) -> tuple[int, ...]:
        return tuple(_multiples(self.low, self.high, self.step))


@final
@dataclasses.dataclass(frozen=True, init=False)
class Integer(AbstractRange):
    """The integers from `low` to `high`, both included; the default is the smallest.

    >>> Integer(0, 4, default=2).neighbours(4)
    (3,)
    """

    low: int
    high: int
    default: int

    def __init__(self, low: int, high: int, *, default: int | None = None):
        low, high = _whole("Integer", low=low, high=high)
        self._set(default, range(low, high + 1), low=low, high=high)

    def _legal(self) -> tuple[int, ...]:
        return tuple(range(self.low, self.high + 1))

    def encode(self, values: Any) -> np.ndarray:
        return np.asarray(values, np.float64)

    def decode(self, codes: Any) -> Any:
        return codes

    def slope(self, codes: Any) -> Any:
        return codes * 0.0 + 1.0


def _powers(low: int, high: int) -> tuple[int, ...]:
    return tuple(1 << exponent for exponent in range((low - 1).bit_length(), max(high, 0).bit_length()))


def _multiples(low: int, high: int, step: int) -> range:
    return range(-(-low // step) * step, high + 1, step)


def _whole(kind: str, **values: Any) -> tuple[int, ...]:
    """The values as Python integers."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"`{name}` of {kind} must be an integer, got {value!r}; round it, or name values by Choice")
    return tuple(int(value) for value in values.values())


def _positive(kind: str, **values: int) -> None:
    for name, value in values.items():
        if value <= 0:
            raise ValueError(
                f"`{name}` of {kind} must be positive, got {value}; use Integer for a range that holds zero"
            )
