"""From a recorded nest and its cycles to a prediction."""

from dataclasses import dataclass, fields
from typing import Any

import jax

from .._dtypes import dtype_of
from .._scalar import Scalar, maximum, minimum
from ..hardware import Hardware, Sizes
from ..lang._record import Loop, Recorder, over_iterations
from ._machine import busy
from ._nest import Nest, Options
from ._occupancy import HARD, narrowest_row, occupancy, uses
from ._traffic import from_hbm, written_back


@dataclass(frozen=True)
class Cost:
    """A prediction. Leaves are scalars, or arrays over candidates.

    Attributes:
        time_us: launch and execution, µs.
        cycles: execution on the busiest core, or of HBM where that takes longer.
        hbm_cycles: cycles that HBM is busy with the reads and the writes of all cores.
        blocks, waves: blocks of the grid, and how many one core executes at most.
        cores: how many run a block each in a full wave.
        busy: cycles by pipe on that core.
        moved: bytes moved from and to GM by the whole kernel, whole lines: ``read``, ``write``; ``hbm`` of the read.
        useful: the bytes asked for: ``read``, ``write``.
        occupancy: bytes by on-chip space.
        row: smallest innermost row of an on-chip tile, bytes.
        legal: no hard space overflows and no row is below the minimum.
        bound_us: what no configuration can beat: launch plus the larger of compute and compulsory HBM reads.
    """

    time_us: Any
    cycles: Any
    hbm_cycles: Any
    blocks: Any
    waves: Any
    cores: Any
    busy: dict[str, Any]
    moved: dict[str, Any]
    useful: dict[str, Any]
    occupancy: dict[str, Any]
    row: Any
    legal: Any
    bound_us: Any

    @property
    def l2_hit(self) -> Any:
        """Share of the read bytes that L2 supplies; 1 where nothing is read."""
        return 1.0 - self.moved["hbm"] / maximum(self.moved["read"], 1.0)


jax.tree_util.register_dataclass(Cost, data_fields=[f.name for f in fields(Cost)], meta_fields=[])


def summary(
    nest: Nest, hardware: Hardware, options: Options, cycles: Scalar, waves: Scalar, like: Cost | None = None
) -> Cost:
    """The prediction for a nest; ``like`` is that of another block of the kernel, whose tiles are as large."""
    recorder, sizes, t = nest.recorder, hardware.sizes, hardware.times
    hbm_cycles = _hbm_us(nest, hardware, options) * hardware.clock_mhz
    cycles = cycles + waves * t.block
    if not (recorder.data or recorder.uneven):  # one kind of block says nothing about the whole kernel
        cycles = maximum(cycles, hbm_cycles)
    moved = {"read": 0.0, "write": 0.0, "hbm": 0.0}
    useful = {"read": 0.0, "write": 0.0}
    for transfer in nest.traffic.values():
        way = "read" if transfer.access.mode == "read" else "write"
        moved[way] = moved[way] + transfer.moved
        useful[way] = useful[way] + transfer.useful
        if way == "read":
            moved["hbm"] = moved["hbm"] + transfer.moved * transfer.miss
    used, row, legal = _fits(recorder, sizes) if like is None else (like.occupancy, like.row, like.legal)
    return Cost(
        time_us=t.launch_us + cycles / hardware.clock_mhz,
        cycles=cycles,
        hbm_cycles=hbm_cycles,
        blocks=recorder.blocks,
        waves=waves,
        cores=nest.active,
        busy=busy([nest.walk]),
        moved=moved,
        useful=useful,
        occupancy=used,
        row=row,
        legal=legal,
        bound_us=minimum(t.launch_us + maximum(*least_of(nest, hardware)), t.launch_us + cycles / hardware.clock_mhz),
    )


def _hbm_us(nest: Nest, hardware: Hardware, options: Options) -> Scalar:
    """How long HBM takes for what all cores read and write."""
    t = hardware.times
    first, again, written = from_hbm(nest.traffic)
    back = written_back(hardware.sizes, first + again, written, options.dirty)
    return first * t.hbm_us + again * t.refetch_us + back * t.writeback_us


def _fits(recorder: Recorder, sizes: Sizes) -> tuple[dict[str, Scalar], Scalar, Any]:
    """Occupancy by space, the narrowest row, and whether both are within the limits of the chip."""
    used, row = occupancy(uses(recorder, sizes)), narrowest_row(recorder)
    legal: Any = row >= sizes.min_row
    for space in HARD:
        legal = legal & (used[space] <= getattr(sizes, space.size_name))
    return {space.value: used[space] for space in used}, row, legal


def _ideal_cube(nodes: list, hardware: Hardware) -> Scalar:
    """Cube cycles of the useful multiply-accumulates alone: no padding, no heads."""
    total: Scalar = 0.0
    for node in nodes:
        if isinstance(node, Loop):
            first, last = _ideal_cube(node.first, hardware), _ideal_cube(node.last, hardware)
            total = total + over_iterations(node, first, last)
        elif node.operation.name == "matmul":
            lhs, rhs = node.tiles[:2]
            width = dtype_of(lhs.dtype).bytes
            f = hardware.sizes
            fractals = lhs.valid[0] * lhs.valid[1] * rhs.valid[1] * width / (f.fractal_rows**2 * f.fractal_bytes)
            passes = f.fp32_passes if width == 4 else 1.0
            total = total + fractals * passes * hardware.times.cube_fractal
    return total


def least_of(nest: Nest, hardware: Hardware) -> tuple[Scalar, Scalar]:
    """What no configuration does without, µs: the useful cube work over all cores, one HBM read of every input."""
    recorder, t = nest.recorder, hardware.times
    inputs: dict[str, Scalar] = {}
    picked: dict[str, Scalar] = {}
    share: Scalar = 1.0  # mean useful part of a block, from what it writes
    for transfer in nest.traffic.values():
        tensor = transfer.access.tensor
        if transfer.access.mode == "read":
            size: Scalar = 1.0
            for extent in tensor.shape:
                size = size * extent
            whole = size * dtype_of(tensor.dtype).bytes
            if transfer.access.instruction.by_lookup:
                # of a table no more is sure to be read than the rows or pages that are picked
                picked[tensor.name] = picked.get(tensor.name, 0.0) + transfer.useful
                whole = minimum(whole, picked[tensor.name])
            inputs[tensor.name] = whole
        else:
            share = transfer.mean
    reads: Scalar = 0.0
    for size in inputs.values():
        reads = reads + size
    cube = _ideal_cube(nest.walk.first, hardware) * recorder.blocks * share
    return cube / (hardware.cores(nest.kind) * hardware.clock_mhz), reads * t.hbm_us
