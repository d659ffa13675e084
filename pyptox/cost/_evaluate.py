"""The cost reading: from a kernel, shapes, a configuration and a chip to a prediction.

One function, :func:`predict`, serves every use: on plain numbers it is the reading that ``explain`` and the full
simulation start from, on traced scalars it is what :mod:`pyptox.cost._batch` jits and vmaps over candidates.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._dtypes import dtype_of
from .._errors import KernelError
from .._scalar import Scalar, cdiv, is_number, maximum, minimum, where
from ..hardware import Hardware, Sizes, a2a3
from ..lang._kernel import Kernel
from ..lang._record import Instruction, Loop, Recorder, over_iterations, tensors_with_shapes
from ..lang._types import Spec
from ..lang.rules import CUBE_PIPES, VECTOR_PIPES, RuleContext
from ._hand_out import makespan, traced_makespan
from ._machine import busy, closed_form
from ._occupancy import HARD, narrowest_row, occupancy, uses
from ._traffic import Transfer, from_hbm, transfers, written_back

Rule = Callable[[RuleContext, Instruction], list]


@dataclass(frozen=True)
class Options:
    """What is fixed when a cost reading is traced.

    Attributes:
        warm: iterations simulated in each loop before its period is taken (2 fast, 4 accurate).
        sync: ``"manual"`` for hand-placed flags, ``"auto"`` for automatic barriers: each instruction that depends
            on another pipe then pays one barrier.
        relaxed: exact values with a straight-through slope for roundings (:func:`pyptox._scalar.relaxed`).
        rules: ``(operation name, rule)`` pairs that replace built-in cost rules.
        cores: cores to use; None for all of the chip.
        choices: values of the parameters that are fixed at trace time, as ``(name, value)`` pairs.
        dirty: share of L2 that holds modified lines of an earlier kernel at the start, 0 to 1: each must be written
            back to make room. 1 after a benchmark has flushed L2 by writing.
        resident: tensors of which an earlier kernel left a share in L2, as ``(name, share)`` pairs.
        lanes: room for so many cores where blocks that differ are handed out under a trace.
    """

    warm: int = 2
    sync: str = "manual"
    relaxed: bool = False
    rules: tuple[tuple[str, Rule], ...] = ()
    cores: int | None = None
    choices: tuple[tuple[str, Any], ...] = ()
    dirty: float = 0.0
    resident: tuple[tuple[str, float], ...] = ()
    lanes: int = 64

    def __post_init__(self) -> None:
        if self.sync not in ("manual", "auto"):
            raise ValueError(f"`sync` must be 'manual' or 'auto'; got {self.sync!r}")
        if self.warm < 2:
            raise ValueError(f"`warm` must be at least 2, to see a period; got {self.warm}")


@dataclass(frozen=True)
class Cost:
    """A prediction. Leaves are scalars, or arrays over candidates.

    Attributes:
        time_us: launch and execution, µs.
        cycles: execution on the busiest core, or of HBM where that takes longer.
        hbm_cycles: cycles that HBM is busy with the reads and the writes of all cores.
        blocks, waves: blocks of the grid, and how many one core executes at most.
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


@dataclass
class Nest:
    """A recorded kernel with its costs filled in, for everything that looks inside a prediction."""

    recorder: Recorder
    kind: str
    active: Scalar
    traffic: dict[int, Transfer]

    @property
    def walk(self) -> Loop:
        assert self.recorder.walk is not None
        return self.recorder.walk


def instructions(nodes: list):
    """Every instruction of a nest, in text order, first and last reading of each loop."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from instructions(node.first)
            if node.last is not node.first:
                yield from instructions(node.last)
        else:
            yield node


@functools.lru_cache(maxsize=512)
def resource_kind(kernel: Kernel, tensors: tuple[tuple[str, str, bool, int], ...], choices: tuple) -> str:
    """``AIC``, ``AIV`` or ``MIX``: which cores a kernel's pipes belong to. Found by reading it on small shapes."""
    chip = a2a3()
    specs = {name: Spec((64,) * rank, dtype, (1,) * 64 if control else None) for name, dtype, control, rank in tensors}
    values = kernel.configuration(dict(choices))
    recorder = Recorder.of_integers(kernel, specs, values, chip)
    context = RuleContext(chip.times, chip.sizes, chip.clock_mhz, 1, 1, 0.0)
    assert recorder.walk is not None
    pipes = {p for node in instructions([recorder.walk]) for p, _ in node.operation.cost(context, node)}
    cube, vector = bool(pipes & CUBE_PIPES), bool(pipes & VECTOR_PIPES)
    return "MIX" if cube and vector else "AIV" if vector else "AIC"


def kind_of(kernel: Kernel, specs: Mapping[str, Spec], options: Options) -> str:
    """The core kind of a kernel on tensors of these types."""
    described = tuple((n, s.dtype, s.values is not None, len(s.shape)) for n, s in specs.items())
    return resource_kind(kernel, described, options.choices)


def record(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    shapes: Mapping[str, tuple],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options,
    data: Mapping[tuple[str, str], Scalar] | None = None,
    position: Scalar = 0,
    longest: Mapping[int, Transfer] | None = None,
) -> Nest:
    """Read the kernel and fill in traffic and costs.

    ``specs`` gives element types and ranks; sizes come from ``shapes``, which may be traced. Of an uneven grid the
    block at ``position`` is read; ``longest`` is the traffic at its first one.
    """
    kind = kind_of(kernel, specs, options)
    cores = hardware.cores(kind) if options.cores is None else options.cores
    recorder = Recorder(hardware.sizes, cores, data, position)
    kernel.read(recorder, tensors_with_shapes(kernel, specs, shapes), values)
    if recorder.walk is None:
        raise KernelError(f"kernel `{kernel.name}` must call pl.grid")
    active = minimum(recorder.blocks, cores)
    traffic = transfers(recorder, hardware.sizes, active, longest, dict(options.resident))
    # fewer cores run in the last wave
    rest = recorder.blocks - (cdiv(recorder.blocks, cores) - 1) * cores
    rules = dict(options.rules)
    split = recorder.vector_split = 2 if kind == "MIX" else 1
    slices = recorder.vector_slices
    contexts: dict[tuple[int, bool], RuleContext] = {}
    producers: dict[int, str] = {}
    read = [(node, False) for node in instructions(recorder.walk.first)]
    if recorder.walk.last is not recorder.walk.first:
        read += [(node, True) for node in instructions(recorder.walk.last)]
    for node, last in read:
        miss, first = (traffic[node.key].miss, traffic[node.key].first) if node.key in traffic else (0.0, 0.0)
        together = rest if last else active
        context = contexts.setdefault(
            (node.key, last),
            RuleContext(hardware.times, hardware.sizes, hardware.clock_mhz, together, split, miss, first, slices),
        )
        rule: Rule = rules.get(node.operation.name) or node.operation.cost
        node.costs = list(rule(context, node))
        if options.sync == "auto" and node.costs:
            pipe = node.costs[0][0]
            crosses = any(producers.get(b.number, pipe) != pipe for b in node.reads) or not node.reads
            if crosses:
                node.stall = _barrier(node, hardware)
        if node.writes is not None and node.costs:
            producers[node.writes.number] = node.costs[-1][0]
    return Nest(recorder, kind, active, traffic)


def _barrier(node: Instruction, hardware: Hardware) -> Scalar:
    """What an automatic barrier costs an instruction.

    It keeps a pipe from running ahead. Where a tile has one slot the pipes take turns anyway, and it costs nothing:
    so the single-buffered rows of the published sweep say.
    """
    buffer = node.writes if node.fresh else node.reads[0]
    stages = 1 if buffer is None or buffer.loop is None else buffer.loop.stages
    return where(stages > 1, hardware.times.barrier, 0.0)


def options_for(kernel: Kernel, options: Options, values: Mapping[str, Any]) -> Options:
    """``options`` with the fixed choices of a configuration."""
    chosen = tuple((name, values[name]) for name in kernel.choices if name in values)
    return dataclasses.replace(options, choices=chosen) if chosen else options


def cost_of(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(warm=4),
) -> Cost:
    """The cost of one configuration, on the sizes and the control data that ``specs`` hold."""
    values = kernel.configuration(values)
    shapes = {name: spec.shape for name, spec in specs.items()}
    control = {name: np.asarray(spec.values, float) for name, spec in specs.items() if spec.values is not None}
    return predict(kernel, specs, shapes, values, hardware, options_for(kernel, options, values), control)


def predict(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    shapes: Mapping[str, tuple],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options,
    control: Mapping[str, Any] | None = None,
) -> Cost:
    """The cost of one candidate. Arguments as in :func:`record`; ``control`` holds the control inputs' arrays."""
    if control:
        return _predict_groups(kernel, specs, shapes, values, hardware, options, control)
    nest = record(kernel, specs, shapes, values, hardware, options)
    if nest.recorder.uneven:
        return _predict_positions(kernel, specs, shapes, values, hardware, options, nest)
    cycles = closed_form(nest.walk, options.warm)
    return _summary(nest, hardware, options, cycles, nest.walk.count)


def _hbm_us(nest: Nest, hardware: Hardware, options: Options) -> Scalar:
    """How long HBM takes for what all cores read and write."""
    t = hardware.times
    first, again, written = from_hbm(nest.traffic)
    back = written_back(hardware.sizes, first + again, written, options.dirty)
    return first * t.hbm_us + again * t.refetch_us + back * t.writeback_us


def _summary(
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
        busy=busy([nest.walk]),
        moved=moved,
        useful=useful,
        occupancy=used,
        row=row,
        legal=legal,
        bound_us=minimum(t.launch_us + maximum(*_least(nest, hardware)), t.launch_us + cycles / hardware.clock_mhz),
    )


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


def _least(nest: Nest, hardware: Hardware) -> tuple[Scalar, Scalar]:
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


def _predict_groups(kernel, specs, shapes, values, hardware, options, control) -> Cost:
    """A grid axis whose blocks differ with the data: cost one block for each entry, then share them out."""
    lengths = {len(array) for array in control.values()}
    if len(lengths) != 1:
        raise KernelError(f"control inputs of `{kernel.name}` must have one length; got {sorted(lengths)}")

    def one(element: Mapping[str, Any], before: Mapping[str, Any], like: Cost | None = None):
        data = {(name, "element"): element[name] for name in element}
        data |= {(name, "prefix"): before[name] for name in before}
        nest = record(kernel, specs, shapes, values, hardware, options, data)
        cycles = closed_form(nest.walk, options.warm)
        cost = _summary(nest, hardware, options, cycles, 1, like)
        work, reads = _least(nest, hardware)
        # an entry without rows needs no work, and its weight is not read
        some = cost.useful["write"] > 0
        least = where(some, work, 0.0), where(some, reads, 0.0)
        return cost, blocks_each(nest), nest.active, least

    groups = lengths.pop()
    if is_number(hardware.times.launch_us):
        # plain numbers: entries of equal value cost the same, so each value is costed once
        table = np.stack([np.asarray(array) for array in control.values()])
        distinct, first, place, share = np.unique(
            table, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        before = np.cumsum(table, axis=1) - table
        results: list = []
        for element, prefix in zip(distinct.T.tolist(), before[:, first].T.tolist(), strict=True):
            here, start = (dict(zip(control, numbers, strict=True)) for numbers in (element, prefix))
            results.append(one(here, start, results[0][0] if results else None))
        joined = jax.tree_util.tree_map(lambda *leaves: list(leaves), *results)
        return _shared_out(joined, share.tolist(), groups, hardware, _runs(joined, place.ravel().tolist()))
    arrays = {name: jnp.asarray(array, jnp.float32) for name, array in control.items()}
    joined = jax.vmap(one)(arrays, {name: jnp.cumsum(array) - array for name, array in arrays.items()})
    return _shared_out(joined, None, groups, hardware, lanes=options.lanes)


def _total(values: Any, *weights: Any) -> Scalar:
    """The sum of products along entries, of plain numbers in lists or of arrays."""
    if isinstance(values, list):
        result: Scalar = 0.0
        for n, value in enumerate(values):
            for weight in weights:
                value = value if weight is None else value * weight[n]
            result = result + value
        return result
    for weight in weights:
        values = values if weight is None else values * weight
    return jnp.sum(values)


def _largest(values: Any) -> Scalar:
    if isinstance(values, list):
        return functools.reduce(maximum, values)
    return jnp.max(values)


def blocks_each(nest: Nest) -> Scalar:
    """Blocks at one position of the grid's first axis."""
    return nest.recorder.blocks / nest.recorder.extents[0]


def _runs(entries: tuple, order: list[int]) -> list[tuple[Scalar, Scalar]]:
    """Cycles and number of the blocks of each entry, in the order in which they are handed out."""
    costs, blocks_each, *_ = entries
    return [(costs.cycles[n], blocks_each[n]) for n in order]


SPLITS, STRATA = 3, 8
"""How finely an uneven axis is costed: cuts on plain numbers, each where most can be missed; parts on traced ones."""


def _predict_positions(kernel, specs, shapes, values, hardware, options, longest: Nest) -> Cost:
    """A grid axis whose trip counts depend on its index: cost blocks along it, then share all of them out.

    The first block, which alone may be ragged, is costed for itself. The others are cut into parts whose first and
    last block are costed; in between, cost is taken to be linear.
    """
    extent = longest.recorder.extents[0]

    def one(position: Scalar, like: Cost | None = None):
        nest = record(kernel, specs, shapes, values, hardware, options, None, position, longest.traffic)
        cost = _summary(nest, hardware, options, closed_form(nest.walk, options.warm), 1, like)
        return cost, blocks_each(nest), nest.active, _least(nest, hardware)

    if is_number(hardware.times.launch_us, extent):
        costed, weights, runs = along_axis(one, int(extent))
        joined = jax.tree_util.tree_map(lambda *leaves: list(leaves), *costed.values())
        return _shared_out(joined, weights, extent, hardware, runs)
    parts = jnp.arange(STRATA, dtype=jnp.float32)
    low = jnp.maximum(jnp.floor(parts * extent / STRATA), 1)
    high = jnp.floor((parts + 1) * extent / STRATA) - 1
    places = jnp.stack([low, jnp.maximum(high, low)], axis=1).ravel()
    weights = jnp.repeat(jnp.maximum(high - low + 1, 0) / 2, 2)
    joined = jax.vmap(one)(jnp.concatenate([jnp.zeros(1), jnp.minimum(places, extent - 1)]))
    weights = jnp.concatenate([jnp.ones(1), weights])
    return _shared_out(joined, weights, extent, hardware, lanes=options.lanes)


def along_axis(one: Callable, extent: int) -> tuple[dict[int, tuple], list[float], list[tuple[Scalar, Scalar]]]:
    """Blocks along an uneven axis on plain numbers: the part in which cost falls most, for its length, is cut next.

    Args:
        one: from a position, and the cost of another block, to a cost and the number of blocks there.
        extent: positions of the axis.

    Returns:
        What ``one`` gave by position, how many positions each stands for, and runs as :func:`makespan` takes them.
    """
    costed = {0: one(0)}
    for place in sorted({min(1, extent - 1), extent - 1} - {0}):
        costed[place] = one(place, costed[0][0])
    parts = [(1, extent - 1)] if extent > 1 else []

    def missed(part: tuple[int, int]) -> Scalar:
        low, high = part
        return abs(costed[low][0].cycles - costed[high][0].cycles) * max(high - low - 1, 0)

    for _ in range(SPLITS):
        low, high = max(parts, key=missed, default=(0, 0))
        if high - low < 2:
            break
        # steps of several blocks are cut between two of them where the axis holds whole ones
        middle = ((low if low > 1 else 0) + high) // 2
        parts.remove((low, high))
        parts += [(low, middle), (middle + 1, high)]
        for place in (middle, middle + 1):
            if place not in costed:
                costed[place] = one(place, costed[0][0])
    weights, runs = dict.fromkeys(costed, 0.0), []
    for low, high in [(0, 0), *sorted(parts)]:
        weights[low] += (high - low + 1) / 2
        weights[high] += (high - low + 1) / 2
        for place in range(low, high + 1):
            share = (place - low) / max(high - low, 1)
            cycles = costed[low][0].cycles * (1 - share) + costed[high][0].cycles * share
            runs.append((cycles, costed[low][1]))
    return costed, list(weights.values()), runs


def _shared_out(
    entries: tuple, weights: Any, groups: Scalar, hardware: Hardware, runs: list | None = None, lanes: int = 0
) -> Cost:
    """The cost of all entries' blocks handed to the cores in turn; leaves of ``entries`` run along the entries.

    ``weights`` says how many entries each stands for, of ``groups`` in all; ``runs`` are the blocks as
    :func:`makespan` takes them, on plain numbers; traced numbers are handed to at most ``lanes`` cores. Work on the
    busiest core is as it is in all blocks.
    """
    costs, blocks_each, active, least = entries
    blocks = _total(blocks_each, weights)
    waves = cdiv(blocks, active[0])
    if runs is not None:
        cycles = makespan(runs, active[0])
    else:
        shares = blocks_each if weights is None else blocks_each * weights
        cycles = traced_makespan(costs.cycles, shares, active[0], lanes)
    hbm_cycles = _total(costs.hbm_cycles, weights) / groups
    cycles = maximum(cycles, hbm_cycles)
    launch = hardware.times.launch_us
    time_us = launch + cycles / hardware.clock_mhz
    work, reads = (_total(part, weights) / groups for part in least)
    whole = maximum(_total(costs.cycles, blocks_each, weights), 1e-9)  # empty entries may take no time at all

    def mean(tree: dict) -> dict:
        return {name: _total(leaf, weights) / groups for name, leaf in tree.items()}

    return Cost(
        time_us=time_us,
        cycles=cycles,
        hbm_cycles=hbm_cycles,
        blocks=blocks,
        waves=waves,
        busy={p: _total(leaf, blocks_each, weights) / whole * cycles for p, leaf in costs.busy.items()},
        moved=mean(costs.moved),
        useful=mean(costs.useful),
        occupancy={name: _largest(leaf) for name, leaf in costs.occupancy.items()},
        row=-_largest([-r for r in costs.row] if isinstance(costs.row, list) else -costs.row),
        legal=all(costs.legal) if isinstance(costs.legal, list) else jnp.all(costs.legal),
        bound_us=minimum(launch + maximum(work, reads), time_us),
    )
