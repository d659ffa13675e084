"""Typed tuning parameters.

A parameter is a finite, ordered row of legal values. It knows its default, which values are adjacent to
which, and, where it can be relaxed, a continuous code for gradient search: `log2` for sizes, since doubling
a tile of 16 and a tile of 256 are the same kind of step, and the identity for plain integers.
"""

import abc
import functools
from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias

import numpy as np

Scalar: TypeAlias = bool | int | float | str | None

# A float32 exp2(log2(x)) comes back up to this far from a legal x; further away is a value in between.
_ROUNDING = 4e-6


class AbstractParameter(abc.ABC):
    """The contract of a tuning parameter; `_legal` lists its values in order.

    `ordered` says that neighbours are the values just below and above (otherwise every other value is one),
    and `relaxable` that `encode`, `decode`, `slope` and `snap` are defined.
    """

    ordered: ClassVar[bool]
    relaxable: ClassVar[bool]
    default: Any

    @abc.abstractmethod
    def _legal(self) -> tuple[Scalar, ...]:
        """Every legal value, in order."""

    @abc.abstractmethod
    def encode(self, values: Any) -> Any:
        """Legal values to continuous codes (NumPy)."""

    @abc.abstractmethod
    def decode(self, codes: Any) -> Any:
        """Continuous codes to continuous values (NumPy)."""

    @abc.abstractmethod
    def slope(self, codes: Any) -> Any:
        """The derivative of `decode` (NumPy)."""

    @functools.cached_property
    def values(self) -> np.ndarray:
        """The legal values, read-only, in order."""
        legal = self._legal()
        plain = len({type(value) for value in legal}) == 1 and legal[0] is not None
        values = np.array(legal) if plain else np.empty(len(legal), object)
        values[:] = legal
        values.flags.writeable = False
        return values

    @functools.cached_property
    def cardinality(self) -> int:
        """How many legal values there are."""
        return len(self.values)

    def digits(self, values: Any) -> np.ndarray:
        """The position of each value among the legal ones, -1 where it is none of them."""
        values = np.asarray(values)
        if self.ordered and values.dtype.kind in "biuf":
            digits = np.minimum(np.searchsorted(self.values, values), self.cardinality - 1)
            return np.where(self.values[digits] == values, digits, -1)
        match = np.zeros((*values.shape, self.cardinality), bool)
        for digit, legal in enumerate(self._legal()):
            match[..., digit] = values == legal
        return np.where(match.any(-1), match.argmax(-1), -1)

    def neighbours(self, value: Scalar) -> tuple[Scalar, ...]:
        """The legal values adjacent to `value`; every other value where there is no order."""
        digit, legal = int(self.digits(value)), self._legal()
        if digit < 0:
            raise ValueError(
                f"`value` must be one of the {self.cardinality} legal values of {self}, got {value!r}; see its `values`"
            )
        if not self.ordered:
            return legal[:digit] + legal[digit + 1 :]
        return legal[max(digit - 1, 0) : digit] + legal[digit + 1 : digit + 2]

    def snap_digits(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the legal values just below and just above each `x`; equal where `x` is legal."""
        if not self.relaxable:
            raise TypeError(
                f"`x` cannot be snapped to {self}: it has no order or scale; "
                "keep its value and try the others with a local search"
            )
        x, legal = np.asarray(x, np.float64), self.values.astype(np.float64)
        gap = np.diff(legal).min() if self.cardinality > 1 else 1.0
        slack = np.minimum(_ROUNDING * np.abs(x), gap / 4)
        below = np.searchsorted(legal, x + slack, side="right") - 1
        above = np.searchsorted(legal, x - slack, side="left")
        last = self.cardinality - 1
        return np.clip(below, 0, last), np.clip(above, 0, last)

    def snap(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """The legal values just below and just above each continuous `x`, which is clipped to the range.

        >>> from autotune import Multiple
        >>> below, above = Multiple(16, 256, 16).snap([40.0, 48.0, 999.0])
        >>> below.tolist(), above.tolist()
        ([32, 48, 256], [48, 48, 256])
        """
        below, above = self.snap_digits(x)
        return self.values[below], self.values[above]


def names(parameters: Iterable[tuple[str, AbstractParameter]]) -> str:
    """The parameter names in backticks, for messages."""
    return ", ".join(f"`{name}`" for name, _ in parameters)


def assign(instance: Any, **fields: Any) -> None:
    """Set the fields of a frozen dataclass from its own `__init__`."""
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
