"""The regions reading: which slice of which tensor each block reads and writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hardware import Hardware, a2a3
from ._kernel import Kernel
from ._record import Loop, Recorder
from ._run import block_coordinates
from ._types import DataTerm, Index, LookupTerm, Spec


@dataclass(frozen=True)
class Regions:
    """The part of one tensor that one load or store touches, block by block in walk order.

    Attributes:
        tensor: name of the tensor.
        mode: ``read``, ``write`` or ``add`` (atomic).
        starts, sizes: ``[blocks, axes]`` ints: first element and extent along every axis, clipped to the tensor. A
            block that touches nothing has size zero.
    """

    tensor: str
    mode: str
    starts: np.ndarray
    sizes: np.ndarray


def regions(
    kernel: Kernel, specs: Mapping[str, Spec], values: Mapping[str, Any], hardware: Hardware | None = None
) -> list[Regions]:
    """The regions of every load and store of ``kernel``.

    Args:
        kernel: a kernel.
        specs: every tensor's spec, from :meth:`Kernel.specs`.
        values: configuration; defaults where left out.

    >>> import pyptox as px
    >>> kernel = px.kernels.matmul
    >>> specs = kernel.specs(px.spec((20, 64), "bf16"), px.spec((64, 32), "bf16"))
    >>> [r.sizes.tolist() for r in regions(kernel, specs, {"m": 16, "n": 32}) if r.tensor == "out"]
    [[[16, 32], [4, 32]]]
    """
    config, chip = kernel.configuration(values), hardware or a2a3()
    recorder = Recorder.of_integers(kernel, specs, config, chip)
    if not recorder.alone:
        return _regions(recorder, specs)
    # trip counts differ along the first axis of the grid: each position has a reading of its own
    result: list[Regions] = []
    for group in range(int(recorder.extents[0])):
        recorder = Recorder.of_integers(kernel, specs, config, chip, group)
        part = _regions(recorder, specs)
        here = _coordinates(recorder)[0] == group
        result = result or part
        for whole, mine in zip(result, part, strict=True):
            whole.starts[here], whole.sizes[here] = mine.starts[here], mine.sizes[here]
    return result


def _coordinates(recorder: Recorder) -> list:
    """Grid coordinates of every block, in walk order."""
    extents = [int(extent) for extent in recorder.extents]
    return block_coordinates(np.arange(int(np.prod(extents))), extents, recorder.order)


def _regions(recorder: Recorder, specs: Mapping[str, Spec]) -> list[Regions]:
    coordinates = _coordinates(recorder)
    blocks: dict[Any, np.ndarray] = dict(zip(recorder.axes, coordinates, strict=True))
    assert recorder.walk is not None
    # lengths from data end inside a tile, which only what the last iteration stores can tell
    stored = _stored(recorder.walk.last) if recorder.data else {}
    result = []
    for access in recorder.accesses():
        spans = {loop.axis: int(loop.count) - 1 for loop in access.loops}
        never = any(loop.count < 1 for loop in access.loops)
        starts, stops = [], []
        for axis, (offset, size) in enumerate(zip(access.offsets, access.shape, strict=True)):
            limit = int(access.tensor.shape[axis])
            first, last = _span(offset, blocks, spans, specs)
            if isinstance(offset, Index) and offset.looked_up:  # it may be anywhere
                first, last = np.zeros_like(first), np.full_like(last, limit)
            if access.instruction.key in stored and axis >= access.tensor.rank - 2:
                size = stored[access.instruction.key][axis - access.tensor.rank]
            valid = access.instruction.attributes.get("valid")
            starts.append(np.clip(first, 0, limit))
            stop = np.clip(last + int(size), 0, limit)
            if valid is not None and isinstance(valid[axis], Index):
                # a limit that shrinks as the offset grows ends at a fixed element
                end, _ = _span(offset + valid[axis], blocks, {}, specs)
                stop = np.minimum(stop, end)
            stops.append(stop)
        start = np.stack(np.broadcast_arrays(*starts, coordinates[0])[:-1], axis=1)
        stop = np.stack(np.broadcast_arrays(*stops, coordinates[0])[:-1], axis=1)
        sizes = np.zeros_like(start) if never else np.maximum(stop - start, 0)
        result.append(Regions(access.tensor.name, access.mode, start, sizes))
    return result


def _stored(nodes: list) -> dict[int, tuple]:
    """Valid rows and columns of what each store writes in the last iteration of the loops around it, by key."""
    found: dict[int, tuple] = {}
    for node in nodes:
        if isinstance(node, Loop):
            found |= _stored(node.last)
        elif "tensor" in node.attributes and node.tiles and not node.by_row:
            found[node.key] = node.tiles[0].valid
    return found


def _span(offset: Any, blocks: Mapping, spans: Mapping, specs: Mapping[str, Spec]) -> tuple[Any, Any]:
    """Smallest and largest value of an offset over the loops of each block; what is looked up counts as zero."""
    if not isinstance(offset, Index):
        return np.asarray(offset), np.asarray(offset)
    first = last = np.asarray(offset.constant)
    for variable, factor in offset.terms:
        if isinstance(variable, LookupTerm):
            continue
        if isinstance(variable, DataTerm):
            table = np.asarray(specs[variable.tensor].values)
            table = np.cumsum(table) - table if variable.kind == "prefix" else table
            amount = table[blocks[variable.axis]] * factor
            first, last = first + amount, last + amount
        elif variable in blocks:
            amount = blocks[variable] * factor
            first, last = first + amount, last + amount
        else:
            reach = spans.get(variable, 0) * factor
            first, last = first + min(reach, 0), last + max(reach, 0)
    return first, last
