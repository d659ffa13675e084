"""Tuning parameters without a scale: a choice among named alternatives, and yes or no."""

import dataclasses
from typing import Any, ClassVar, final

from ._parameter import AbstractParameter, Scalar, assign


class AbstractUnordered(AbstractParameter):
    """Values without an order, which cannot be relaxed."""

    ordered: ClassVar[bool] = False
    relaxable: ClassVar[bool] = False

    def encode(self, values: Any) -> Any:
        raise self._not_relaxable()

    def decode(self, codes: Any) -> Any:
        raise self._not_relaxable()

    def slope(self, codes: Any) -> Any:
        raise self._not_relaxable()

    def _not_relaxable(self) -> TypeError:
        return TypeError(f"`{self}` has no continuous code; keep its value and relax the other parameters")


@final
@dataclasses.dataclass(frozen=True, init=False)
class Choice(AbstractUnordered):
    """One of the given values, without an order; the default is the first.

    >>> Choice("mnk", "nmk", "kmn").neighbours("nmk")
    ('mnk', 'kmn')
    """

    options: tuple[Scalar, ...]
    default: Scalar

    def __init__(self, *values: Scalar, **settings: Scalar):
        default = settings.pop("default", values[0] if values else None)
        if settings:
            raise TypeError(f"`Choice` takes values and `default=`, got {', '.join(settings)}")
        if not values or len(set(values)) < len(values):
            raise ValueError(f"`values` of Choice must be distinct and at least one, got {values}")
        if default not in values:
            raise ValueError(f"`default` of Choice must be one of {values}, got {default!r}")
        assign(self, options=values, default=default)

    def _legal(self) -> tuple[Scalar, ...]:
        return self.options


@final
@dataclasses.dataclass(frozen=True)
class Boolean(AbstractUnordered):
    """False or True.

    >>> Boolean().values.tolist()
    [False, True]
    """

    default: bool = False

    def _legal(self) -> tuple[bool, ...]:
        return (False, True)
