"""Capacities of the rings, each with its default, and the codes of the errors that running out of them gives."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from .._errors import PyptoxError

RINGS = 4
"""Rings of the runtime; a task is on ring ``min(depth of its scope, 3)``."""

ALIGNMENT = 1024
"""Bytes that every output is aligned to in a heap."""

VISIBLE_BYTES = int(61.3 * 2**30)
"""Memory of a die that a program can have: about 61.3 of 64 GiB (hw-native-sys/simpler:src/a2a3/docs/hardware.md)."""

STALL_US = 500_000.0
"""The runtime calls it a deadlock when a submission has waited so long without any reclaim, µs."""

CODES = {
    1: "SCOPE_DEADLOCK",
    2: "HEAP_RING_DEADLOCK",
    3: "FLOW_CONTROL_DEADLOCK",
    4: "DEP_POOL_OVERFLOW",
    10: "SCOPE_TASKS_OVERFLOW",
    11: "TENSORMAP_OVERFLOW",
}
"""Errors of the orchestrator that are about capacities."""

_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_UNITS |= {"k": 2**10, "m": 2**20, "g": 2**30, "tib": 2**40, "tb": 10**12, "t": 2**40}

MOST = 2**56
"""The largest capacity."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Capacities by ring, and those that the rings share. Defaults: the runtime's (MULTI_RING.md of simpler).

    Attributes:
        heap: bytes of each ring's heap, which is allocated when the run starts.
        task_window: slots of each ring, a power of two; one of them is never used.
        dep_pool: entries of each ring's dependency pool, one for each producer of a task.
        tensormap: entries of the tensor map, one for each tensor that a task writes in place.
        scope_tasks: tasks of all open scopes together.

    >>> Limits().replace(heap=2**20).heap
    (1048576, 1048576, 1048576, 1048576)
    """

    heap: tuple[int, ...] = (256 * 2**20,) * RINGS
    task_window: tuple[int, ...] = (16384,) * RINGS
    dep_pool: tuple[int, ...] = (16384,) * RINGS
    tensormap: int = 65536
    scope_tasks: int = 65536

    def replace(self, **capacities: int | Sequence[int]) -> "Limits":
        """A copy with some capacities changed; one number serves all four rings.

        Raises:
            PyptoxError: an unknown name, another number of rings, a capacity that is not positive, or a window that is
                not a power of two.
        """
        known, changed = {f.name: f for f in fields(self)}, dict[str, Any]()
        for name, value in capacities.items():
            if name not in known:
                raise PyptoxError(f"`{name}` is not a capacity; known: {', '.join(known)}")
            values = (value,) if isinstance(value, int) else tuple(value)
            if name in PER_RING:
                values = values * RINGS if len(values) == 1 else values
                if len(values) != RINGS:
                    raise PyptoxError(f"`{name}` must be one number, or one for each of {RINGS} rings; got {value}")
            if any(type(v) is not int or not 1 <= v <= MOST for v in values):
                raise PyptoxError(f"`{name}` must be whole numbers above 0, 2^56 at most; got {value}")
            if name not in PER_RING and len(values) != 1:
                raise PyptoxError(
                    f"`{name}` is shared by the rings: not several whole numbers above 0 but one; got {value}"
                )
            if name == "task_window" and any(v & (v - 1) or v < 2 for v in values):
                raise PyptoxError(f"`task_window` must be powers of two, 2 at least; got {value}. Try 16384")
            changed[name] = values if name in PER_RING else values[0]
        return dataclasses.replace(self, **changed)

    @property
    def arena(self) -> int:
        """Bytes of the four heaps together, taken before the first task runs."""
        return sum(self.heap)

    def to_dict(self) -> dict[str, Any]:
        """Every capacity."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __str__(self) -> str:
        heaps = " + ".join(show_bytes(each) for each in self.heap)
        return f"heap {heaps}; window {_joined(self.task_window)}; dep pool {_joined(self.dep_pool)}"


PER_RING = ("heap", "task_window", "dep_pool")
"""Capacities that every ring has its own of."""


def _joined(values: Iterable[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)


def parse_bytes(text: str) -> int:
    """A size such as ``256 MiB``, ``4G`` or ``1048576``.

    Raises:
        PyptoxError: it is none.

    >>> parse_bytes("1.5 GiB"), parse_bytes("64k")
    (1610612736, 65536)
    """
    found = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*", text, re.ASCII)
    if found is None or found.group(2).lower() not in _UNITS:
        raise PyptoxError(f"a size must be such as 256MiB, 4GiB or 1048576; got {text!r}")
    size = Fraction(found.group(1)) * _UNITS[found.group(2).lower()]
    if size.denominator != 1 or size > MOST:
        raise PyptoxError(f"a size must be whole bytes, {MOST // 2**40:,} TiB at most; got {text!r}")
    return int(size)


def _parse_count(name: str, text: str) -> int:
    if re.fullmatch(r"\s*\d{1,30}\s*", text, re.ASCII) is None or int(text) > MOST:
        raise PyptoxError(f"`{name}` must be whole numbers without a unit, such as 16384; got {text!r}")
    return int(text)


def parse_limits(settings: Iterable[str], limits: Limits | None = None) -> Limits:
    """``heap=256MiB``, ``task_window=16384,16384,16384,131072``: changes to ``limits``, one number or one a ring.

    Raises:
        PyptoxError: an unknown name or a value that is no capacity.

    >>> parse_limits(["heap=1GiB", "task_window=1024"]).task_window
    (1024, 1024, 1024, 1024)
    """
    limits, known = limits or Limits(), [f.name for f in fields(Limits)]
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise PyptoxError(f"capacities are name=value with a name of {', '.join(known)}; got {text!r}")
        parts = [parse_bytes(part) if name == "heap" else _parse_count(name, part) for part in value.split(",")]
        limits = limits.replace(**{name: parts[0] if len(parts) == 1 else parts})
    return limits


def show_bytes(count: float) -> str:
    """A number of bytes for people.

    >>> show_bytes(1536), show_bytes(3 * 2**20)
    ('1.5 KiB', '3 MiB')
    """
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(count) >= size:
            return f"{count / size:,.4g} {unit}"
    return f"{count:g} B"
