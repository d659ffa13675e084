"""The regions reading: which slice of which tensor each block reads and writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hardware import Hardware, a2a3
from ._kernel import Kernel
from ._record import Recorder
from ._run import block_coordinates
from ._types import DataTerm, Index, Spec


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
    config = kernel.configuration(values)
    recorder = Recorder.of_integers(kernel, specs, config, hardware or a2a3())
    extents = [int(extent) for extent in recorder.extents]
    coordinates = block_coordinates(np.arange(int(np.prod(extents))), extents, recorder.order)
    blocks: dict[Any, np.ndarray] = dict(zip(recorder.axes, coordinates, strict=True))
    result = []
    for access in recorder.accesses():
        spans = {loop.axis: int(loop.count) - 1 for loop in access.loops}
        if recorder.data:  # trip counts differ between blocks: a loop spans its longest count
            spans = _longest(kernel, specs, config, hardware or a2a3(), access.instruction.key)
        starts, stops = [], []
        for axis, (offset, size) in enumerate(zip(access.offsets, access.shape, strict=True)):
            first, last = _span(offset, blocks, spans, specs)
            limit = int(access.tensor.shape[axis])
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
        result.append(Regions(access.tensor.name, access.mode, start, np.maximum(stop - start, 0)))
    return result


def _span(offset: Any, blocks: Mapping, spans: Mapping, specs: Mapping[str, Spec]) -> tuple[Any, Any]:
    """Smallest and largest value of an offset over the loops of each block."""
    if not isinstance(offset, Index):
        return np.asarray(offset), np.asarray(offset)
    first = last = np.asarray(offset.constant)
    for variable, factor in offset.terms:
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


def _longest(kernel, specs, config, hardware, key) -> dict:
    groups = len(next(s.values for s in specs.values() if s.values is not None))
    longest: dict[Any, int] = {}
    names: dict[int, Any] = {}
    base = Recorder.of_integers(kernel, specs, config, hardware)
    for access in base.accesses():
        if access.instruction.key == key:
            names = {loop.key: loop.axis for loop in access.loops}
    for group in range(groups):
        for access in Recorder.of_integers(kernel, specs, config, hardware, group).accesses():
            if access.instruction.key == key:
                for loop in access.loops:
                    axis = names.get(loop.key, loop.axis)
                    longest[axis] = max(longest.get(axis, 0), int(loop.count) - 1)
    return longest
