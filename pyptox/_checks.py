"""Checks of plain arguments: each names the argument, what was expected, and what arrived."""

import operator
from numbers import Real
from typing import Any

from ._errors import PyptoxError

MOST_US = 1e9
"""The longest time, µs: a quarter of an hour. Sums of times on the simulator's grid are exact up to eight of them."""


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """``value`` as an int, which must be an integer from ``least`` to ``most``.

    >>> integer("parts", 2.5, 2)
    Traceback (most recent call last):
    pyptox._errors.PyptoxError: `parts` must be an integer, 2 or more; got 2.5
    """
    allowed = f", {least} or more" if most is None else f", {least:,} to {most:,}"
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        raise PyptoxError(f"`{name}` must be an integer{allowed}; got {value!r}")
    return number


def microseconds(name: str, value: Any, most: float = MOST_US) -> float:
    """``value`` as a float, which must be a number from 0 to :data:`MOST_US`.

    >>> microseconds("duration_us", 1e30)
    Traceback (most recent call last):
    pyptox._errors.PyptoxError: `duration_us` must be a number from 0 to 1e+09; got 1e+30
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= most:
        raise PyptoxError(f"`{name}` must be a number from 0 to {most:g}; got {value!r}")
    return float(value)


def text(name: str, value: Any, such_as: str) -> str:
    """``value``, which must be a text."""
    if not isinstance(value, str) or not value:
        raise PyptoxError(f"`{name}` must be a text, such as {such_as!r}; got {value!r}")
    return value
