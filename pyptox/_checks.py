"""Checks of plain arguments: each names the argument, what was expected, and what arrived."""

import operator
from numbers import Real
from typing import Any

import numpy as np

from ._errors import PyptoxError

MOST_BLOCKS = 1_000_000
"""Blocks of one task at most."""

MOST_CLUSTERS = 128
"""Clusters of a simulated chip at most."""

MOST_US = 1e9
"""The longest time, µs: a quarter of an hour. Sums of times on the simulator's grid are exact up to eight of them."""


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """``value`` as an int, which must be an integer from ``least`` to ``most``.

    >>> integer("parts", 2.5, 2)
    Traceback (most recent call last):
    pyptox._errors.PyptoxError: `parts` must be 2 or more, an integer; got 2.5
    """
    allowed = f"{least} or more" if most is None else f"{least:,} to {most:,}"
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        raise PyptoxError(f"`{name}` must be {allowed}, an integer; got {value!r}")
    return number


def microseconds(name: str, value: Any) -> float:
    """``value`` as a float, which must be a number from 0 to :data:`MOST_US`.

    >>> microseconds("duration_us", 1e30)
    Traceback (most recent call last):
    pyptox._errors.PyptoxError: `duration_us` must be a finite number of µs, not negative, 1e+09 at most; got 1e+30
    """
    if not is_time(value):
        raise PyptoxError(f"`{name}` must be a finite number of µs, not negative, {MOST_US:.0e} at most; got {value!r}")
    return float(value)


def is_time(value: Any) -> bool:
    """Whether ``value`` is a number from 0 to :data:`MOST_US`."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= MOST_US


def instance(name: str, value: Any, kinds: type | tuple[type, ...], expected: str) -> None:
    """Refuse a ``value`` that is none of ``kinds``."""
    if not isinstance(value, kinds):
        raise PyptoxError(f"`{name}` must be {expected}; got {value!r} ({type(value).__name__})")


def unmasked(name: str, value: Any) -> None:
    """Refuse a masked array: its mask would be dropped in silence."""
    if isinstance(value, np.ma.MaskedArray):
        raise PyptoxError(
            f"`{name}` must be an array without a mask; got a masked one. Try .filled(0) or .compressed()"
        )


def text(name: str, value: Any, such_as: str) -> str:
    """``value``, which must be a text."""
    if not isinstance(value, str) or not value:
        raise PyptoxError(f"`{name}` must be a text, such as {such_as!r}; got {value!r}")
    return value
