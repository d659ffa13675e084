"""Kernels whose blocks differ, with control data or along an axis: each kind of block is costed, then all are shared
out to the cores."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import KernelError
from .._scalar import Scalar, cdiv, is_number, maximum, minimum, where
from ..hardware import Hardware
from ._hand_out import makespan, traced_makespan
from ._machine import closed_form
from ._nest import Nest, record
from ._summary import Cost, least_of, summary


def predict_groups(kernel, specs, shapes, values, hardware, options, control) -> Cost:
    """A grid axis whose blocks differ with the data: cost one block for each entry, then share them out."""
    lengths = {len(array) for array in control.values()}
    if len(lengths) != 1:
        raise KernelError(f"control inputs of `{kernel.name}` must have one length; got {sorted(lengths)}")

    def one(element: Mapping[str, Any], before: Mapping[str, Any], like: Cost | None = None):
        data = {(name, "element"): element[name] for name in element}
        data |= {(name, "prefix"): before[name] for name in before}
        nest = record(kernel, specs, shapes, values, hardware, options, data)
        cycles = closed_form(nest.walk, options.warm)
        cost = summary(nest, hardware, options, cycles, 1, like)
        work, reads = least_of(nest, hardware)
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


def _runs(entries: tuple, order: list[int]) -> list[tuple[Scalar, Scalar]]:
    """Cycles and number of the blocks of each entry, in the order in which they are handed out."""
    costs, blocks_each, *_ = entries
    return [(costs.cycles[n], blocks_each[n]) for n in order]


SPLITS, STRATA = 3, 8
"""How finely an uneven axis is costed: cuts on plain numbers, each where most can be missed; parts on traced ones."""


def predict_positions(kernel, specs, shapes, values, hardware, options, longest: Nest) -> Cost:
    """A grid axis whose trip counts depend on its index: cost blocks along it, then share all of them out.

    The first block, which alone may be ragged, is costed for itself. The others are cut into parts whose first and
    last block are costed; in between, cost is taken to be linear.
    """
    extent = longest.recorder.extents[0]

    def one(position: Scalar, like: Cost | None = None):
        nest = record(kernel, specs, shapes, values, hardware, options, None, position, longest.traffic)
        cost = summary(nest, hardware, options, closed_form(nest.walk, options.warm), 1, like)
        return cost, blocks_each(nest), nest.active, least_of(nest, hardware)

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


def blocks_each(nest: Nest) -> Scalar:
    """Blocks at one position of the grid's first axis."""
    return nest.recorder.blocks / nest.recorder.extents[0]


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
        cores=active[0],
        busy={p: _total(leaf, blocks_each, weights) / whole * cycles for p, leaf in costs.busy.items()},
        moved=mean(costs.moved),
        useful=mean(costs.useful),
        occupancy={name: _largest(leaf) for name, leaf in costs.occupancy.items()},
        row=-_largest([-r for r in costs.row] if isinstance(costs.row, list) else -costs.row),
        legal=all(costs.legal) if isinstance(costs.legal, list) else jnp.all(costs.legal),
        bound_us=minimum(launch + maximum(work, reads), time_us),
    )


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
