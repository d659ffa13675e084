"""What a chip is: a pytree of numbers.

Names and sources are static; every number is a leaf, so that ``jax.grad`` reaches each one. The numbers are
grouped by what they do to a prediction:

* ``counts``: how many cores there are;
* ``sizes``: capacities and granularities, which decide *how much* moves or is computed;
* ``times``: what one unit of work costs. Every duration in the model is a sum and maximum of terms that are each
  linear in one of these. A prediction is therefore homogeneous of degree one in ``times``, and the constants
  times their gradients add up to it exactly (Euler), which is what :func:`pyptox.cost.attribute` uses.

A bandwidth is stored as its reciprocal (cycles or microseconds a byte) for that reason.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

import jax
import numpy as np

from .._checks import MOST_US
from .._dtypes import dtype_of
from .._dual import Dual

Number = Any  # a float, or a traced scalar when a gradient in the constants is taken


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Cores of one die."""

    aic: Number  # cube cores
    aiv: Number  # vector cores


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Capacities (bytes) and granularities of one core and of the die's L2."""

    mat: Number  # L1, bytes
    left: Number  # L0A, bytes
    right: Number  # L0B, bytes
    acc: Number  # L0C, bytes
    vec: Number  # UB that a compiler may use, bytes
    l2: Number  # L2 of the die, bytes
    l2_usable: Number  # share of L2 that a streaming kernel keeps before lines that it will need are evicted
    l2_ramp: Number  # width of the transition from all hits to all misses, as a share of the usable L2
    line: Number  # GM transfer granule, bytes
    fractal_rows: Number  # rows (and output columns) of a cube fractal, elements
    fractal_bytes: Number  # reduction bytes of a cube fractal
    page: Number  # address range beyond which two rows have nothing in common, bytes
    min_row: Number  # smallest innermost row of an on-chip tile, bytes
    repeat: Number  # bytes of one vector instruction repeat
    fp32_passes: Number  # cube passes over a 4-byte fractal
    cross_slots: Number  # slots of the buffer between cube and vector cores


@dataclass(frozen=True, kw_only=True)
class Times:
    """What one unit of work costs. Units: cycles of the core clock, except where the name says ``us``."""

    launch_us: Number  # a kernel launch, µs
    block: Number  # start of one block on a core, cycles
    load_start: Number  # one GM transfer on MTE2, cycles
    load_wait: Number  # one GM transfer to Vec that is waited for before the next, cycles on top of load_start
    load_row: Number  # one row of a strided GM transfer, cycles
    load_stride: Number  # one row of a strided GM transfer, cycles a byte between it and the next
    load_byte: Number  # L2 to a core, cycles a byte
    l2_us: Number  # L2 to all cores together, µs a byte
    hbm_us: Number  # HBM to L2, all cores together, µs a byte; the first time in a kernel
    refetch_us: Number  # the same for a byte that L2 has held in this kernel and lost
    writeback_us: Number  # L2 to HBM, a modified line that makes room for another, all cores together, µs a byte
    miss_byte: Number  # HBM to one core alone, on top of load_byte, cycles a byte
    store_start: Number  # one GM store on MTE3, cycles
    store_byte: Number  # UB to L2, cycles a byte
    atomic_byte: Number  # extra cost of an atomic add to GM, cycles a byte
    move_start: Number  # one MTE1 transfer, cycles
    left_byte: Number  # L1 to L0A, cycles a byte
    right_byte: Number  # L1 to L0B, cycles a byte
    cube_fractal: Number  # one 16 x 16 x 32-byte fractal, cycles
    cube_head: Number  # one cube instruction, cycles
    drain_start: Number  # FIXPIPE, one output tile, cycles
    drain_row: Number  # FIXPIPE, one row, cycles
    drain_byte: Number  # FIXPIPE, one accumulator byte, cycles
    drain_odd: Number  # FIXPIPE, one row and odd pass (misaligned N), cycles
    vector_start: Number  # one vector instruction, cycles
    vector_repeat: Number  # one 256-byte repeat, cycles
    barrier: Number  # one automatic barrier between pipes, cycles


class _Static(dict):
    """A mapping that may sit in a treedef: compared by value, hashed by its items."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A chip: ``name``, clock, :class:`Counts`, :class:`Sizes`, :class:`Times`, and where each number is from.

    >>> import pyptox as px
    >>> chip = px.hardware.a2a3()
    >>> round(chip.peak_tflops("fp16"), 1)
    353.9
    """

    name: str
    clock_mhz: Number
    counts: Counts
    sizes: Sizes
    times: Times
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    basis: str = "defaults"  # what predictions with this chip rest on
    seen: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)  # ranges it was fitted on

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", _Static(self.seen))
        object.__setattr__(self, "sources", _Static(self.sources))

    def numbers(self) -> "Hardware":
        """The numbers alone: all chips then share one treedef, so that jitted code is traced once for all."""
        return dataclasses.replace(self, name="", sources={}, basis="", seen={})

    def cores(self, kind: str) -> Number:
        """Cores of ``kind``: ``"AIC"``, ``"AIV"``, or ``"MIX"`` (clusters of one AIC and its AIVs)."""
        return self.counts.aiv if kind == "AIV" else self.counts.aic

    def peak_tflops(self, dtype: str) -> float:
        """Cube peak of the die in 1e12 operations a second (two per multiply-accumulate)."""
        width = dtype_of(dtype).bytes
        depth = self.sizes.fractal_bytes / width
        passes = self.sizes.fp32_passes if width == 4 else 1.0
        macs = self.sizes.fractal_rows**2 * depth / (passes * self.times.cube_fractal)
        return float(self.counts.aic * macs * 2 * self.clock_mhz * 1e-6)

    def replace(self, **numbers: Number) -> "Hardware":
        """A copy with some numbers changed; names are those of ``counts``, ``sizes`` and ``times``.

        >>> import pyptox as px
        >>> px.hardware.a2a3().replace(aic=20).counts.aic
        20
        """
        groups: dict[str, Any] = {"counts": {}, "sizes": {}, "times": {}}
        top: dict[str, Any] = {}
        for name, value in numbers.items():
            for group in groups:
                if name in {f.name for f in fields(getattr(self, group))}:
                    groups[group][name] = value
                    break
            else:
                if name not in ("name", "clock_mhz", "sources", "basis", "seen"):
                    known = sorted(f.name for g in groups for f in fields(getattr(self, g)))
                    raise ValueError(f"`{name}` is not a number of a chip; known: {', '.join(known)}, clock_mhz")
                top[name] = value
        for name, value in numbers.items():
            if name in ("name", "sources", "basis", "seen"):
                continue
            plain = isinstance(value, Real)
            if not plain and not isinstance(value, jax.Array | np.ndarray | Dual):
                raise ValueError(f"`{name}` of a chip must be a number; got {value!r}")
            if plain and name in groups["times"] and value > MOST_US:
                raise ValueError(f"`{name}` of a chip must be {MOST_US:.0e} at most; got {value!r}")
            if plain and not (0 <= value < float("inf") and (value > 0 or name not in ("aic", "aiv", "clock_mhz"))):
                raise ValueError(f"`{name}` of a chip must be a finite number, not negative; got {value!r}")
        changed = {g: dataclasses.replace(getattr(self, g), **v) for g, v in groups.items() if v}
        return dataclasses.replace(self, **changed, **top)

    def flat(self) -> dict[str, Number]:
        """Every number by name, in the order in which they are declared."""
        numbers: dict[str, Number] = {"clock_mhz": self.clock_mhz}
        for group in (self.counts, self.sizes, self.times):
            numbers |= {f.name: getattr(group, f.name) for f in fields(group)}
        return numbers


def _register(cls, data: tuple[str, ...], meta: tuple[str, ...] = ()) -> None:
    jax.tree_util.register_dataclass(cls, data_fields=list(data), meta_fields=list(meta))


for _group in (Counts, Sizes, Times):
    _register(_group, tuple(f.name for f in fields(_group)))
_register(Hardware, ("clock_mhz", "counts", "sizes", "times"), ("name", "sources", "basis", "seen"))
