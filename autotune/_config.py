"""One point of a tuning space as a frozen, hashable mapping with a stable identity."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Self, final

import numpy as np

from ._parameter import Scalar


@final
class Config(Mapping[str, Scalar]):
    """Parameter names and their values: frozen, hashable, the same in every process.

    The order of the names does not matter; NumPy scalars become Python ones. `id` is the first 16 hexadecimal
    digits of the SHA-256 of the canonical JSON, so it names the configuration in files and logs.

    >>> config = Config(tile_m=128, order="mnk")
    >>> config["tile_m"], config.id
    (128, 'b8791bcd467217c9')
    >>> Config.from_json(config.to_json()) == config
    True
    """

    __slots__ = ("_canonical", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None, /, **named: Any):
        merged = {**(values or {}), **named}
        plain = {name: _python(name, merged[name]) for name in sorted(merged)}
        object.__setattr__(self, "_values", plain)
        object.__setattr__(self, "_canonical", json.dumps(plain, separators=(",", ":"), allow_nan=False))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"`{name}` cannot be set: a Config is frozen; build a new one")

    def __getitem__(self, name: str) -> Scalar:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Config):
            return self._canonical == other._canonical
        return isinstance(other, Mapping) and self._values == dict(other)

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Scalar]]]:
        return type(self), (dict(self._values),)

    @property
    def id(self) -> str:
        """16 hexadecimal digits that name this configuration."""
        return hashlib.sha256(self._canonical.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Scalar]:
        """A plain dictionary, names sorted."""
        return dict(self._values)

    def to_json(self) -> str:
        """Canonical JSON: sorted names, no spaces."""
        return self._canonical

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        return cls(json.loads(text))


def _python(name: str, value: Any) -> Scalar:
    """`value` as a Python scalar that JSON carries unchanged."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    raise TypeError(
        f"`{name}` must be None or a finite boolean, number or string, got {value!r}; "
        "give a compound value a name and choose among the names"
    )
