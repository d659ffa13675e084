"""Tuning parameters without a scale: a choice among named alternatives, and yes or no."""

import dataclasses
from typing import Any, ClassVar, final

from ._parameter import AbstractParameter, Scalar, assign


@final
@dataclasses.dataclass(frozen=True, init=False)
class Choice(AbstractParameter):
    """One of the given values, without an order; the default is the first.

    >>> Choice("mnk", "nmk", "kmn").neighbours("nmk")
    ('mnk', 'kmn')
    """

    options: tuple[Scalar, ...]
    default: Scalar
    ordered: ClassVar[bool] = False
    relaxable: ClassVar[bool] = False

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

    def encode(self, values: Any) -> Any:
        raise _not_relaxable(self)

    def decode(self, codes: Any) -> Any:
        raise _not_relaxable(self)


@final
@dataclasses.dataclass(frozen=True)
class Boolean(AbstractParameter):
    """False or True.

    >>> Boolean().values.tolist()
    [False, True]
    """

    default: bool = False
    ordered: ClassVar[bool] = False
    relaxable: ClassVar[bool] = False

    def _legal(self) -> tuple[bool, ...]:
        return (False, True)

    def encode(self, values: Any) -> Any:
        raise _not_relaxable(self)

    def decode(self, codes: Any) -> Any:
        raise _not_relaxable(self)


def _not_relaxable(parameter: AbstractParameter) -> TypeError:
    return TypeError(f"`{parameter}` has no continuous code; keep its value and relax the other parameters")
