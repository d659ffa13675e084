"""GM traffic: whole lines that move, and the share of them that comes from HBM.

Blocks are walked in an order (rows of the grid, or strips of it), ``active`` of them at a time. A load is a miss
the first time that its bytes are touched. It is touched again by concurrent blocks (always a hit: they run in
step), and again on every pass of a level of the walk that its address does not depend on: a hit if what is touched
in between fits the usable L2, a miss if not, with a linear ramp between. A further pass of a block over tiles that
it has read hits as far as the tiles of all concurrent blocks fit; a second load of a tile in the same iteration always
does. This is the reuse analysis of loop nests
(as in Timeloop), applied to the walk over blocks and to the concurrency of the cores.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .._dtypes import dtype_of
from .._scalar import Scalar, clip, is_number, is_zero, maximum, minimum
from ..hardware import Sizes
from ..lang._record import Access, Instruction, Loop, Recorder, over_iterations
from ..lang._types import Index
from ..lang.rules import moved_bytes


@dataclass(frozen=True)
class Transfer:
    """Traffic of one load or store over the whole kernel, in bytes.

    Attributes:
        access: where it is.
        moved: bytes moved in whole lines.
        useful: bytes asked for.
        miss: share of the moved bytes that HBM supplies (loads).
        first: share of the moved bytes that are touched for the first time; of a load, those that HBM supplies.
        mean: useful bytes of the mean block as a share of those of the first.
    """

    access: Access
    moved: Scalar
    useful: Scalar
    miss: Scalar
    first: Scalar
    mean: Scalar


def _edge_factors(access: Access, recorder: Recorder) -> list[tuple[Scalar, Scalar, Scalar | None]]:
    """For each of the last two axes: valid size at the first block, at the ragged end, and blocks along it."""
    tile = access.instruction.out if access.mode == "read" else access.instruction.tiles[0]
    assert tile is not None
    result = []
    rank = access.tensor.rank
    for position, axis in enumerate((rank - 2, rank - 1)):
        valid = tile.valid[position]
        grid = []
        if axis >= 0 and isinstance(access.offsets[axis], Index):
            grid = [a for a in access.offsets[axis].variables if a.kind == "grid"]
        if len(grid) != 1 or recorder.data:
            result.append((valid, valid, None))
            continue
        extent = recorder.extents[recorder.axes.index(grid[0])]
        values = {**access.instruction.values, grid[0]: extent - 1}
        start = access.offsets[axis].at(values)
        result.append((valid, clip(access.tensor.shape[axis] - start, 0, access.shape[axis]), extent))
    return result


def _block_bytes(nodes: list, sizes: Sizes) -> dict[int, tuple[Scalar, Scalar]]:
    """Moved and useful bytes of one block by instruction key."""
    total: dict[int, tuple[Scalar, Scalar]] = {}
    for node in nodes:
        if isinstance(node, Loop):
            first, last = _block_bytes(node.first, sizes), _block_bytes(node.last, sizes)
            for key, (moved, useful) in first.items():
                m, u = last[key]
                total[key] = over_iterations(node, moved, m), over_iterations(node, useful, u)
        elif "tensor" in node.attributes:
            total[node.key] = _one(node, sizes)
    return total


def _one(node: Instruction, sizes: Sizes) -> tuple[Scalar, Scalar]:
    tensor = node.attributes["tensor"]
    tile = node.out if node.out is not None else node.tiles[0]
    rows, columns = tile.valid
    width = dtype_of(tensor.dtype).bytes
    if node.by_row:
        return rows * moved_bytes(sizes, tensor, 1, columns), rows * columns * width
    return moved_bytes(sizes, tensor, rows, columns), rows * columns * width


def transfers(
    recorder: Recorder, sizes: Sizes, active: Scalar, resident: Mapping[str, Scalar] | None = None
) -> dict[int, Transfer]:
    """The traffic of every load and store, by instruction key.

    ``resident`` names tensors that an earlier kernel left in L2, and the share of their bytes that are there.
    """
    assert recorder.walk is not None
    per_block = _block_bytes(recorder.walk.first, sizes)
    blocks = recorder.blocks
    accesses = list(recorder.accesses())
    axes = {a.instruction.key: a.axes for a in accesses}
    moved, useful, unique = {}, {}, {}
    for access in accesses:
        key = access.instruction.key
        moved[key], useful[key] = per_block[key]
        (rows, end_rows, row_blocks), (columns, end_columns, column_blocks) = _edge_factors(access, recorder)
        if row_blocks is not None:
            factor = 1 + (end_rows / rows - 1) / row_blocks
            moved[key], useful[key] = moved[key] * factor, useful[key] * factor
        if column_blocks is not None:
            tensor = access.tensor
            lines = moved_bytes(sizes, tensor, 1, end_columns) / moved_bytes(sizes, tensor, 1, columns)
            moved[key] = moved[key] * (1 + (lines - 1) / column_blocks)
            useful[key] = useful[key] * (1 + (end_columns / columns - 1) / column_blocks)
        unique[key] = moved[key]
        for loop in access.loops:
            if loop.axis not in axes[key]:
                unique[key] = unique[key] / maximum(loop.count, 1)
    repeated = _repeated(accesses)
    for key in repeated:
        unique[key] = 0.0  # the lines of the earlier load
    compulsory = _compulsory(recorder, unique, axes)
    misses = _misses(recorder, sizes, active, unique, axes, compulsory)
    together: Scalar = 0.0
    for size in unique.values():
        together = together + size * active
    for key, at_once in repeated.items():
        misses[key] = 0.0 if at_once else moved[key] * blocks * (1.0 - _kept(sizes, together))
    result = {}
    for access in accesses:
        key = access.instruction.key
        whole = maximum(moved[key], 1.0) * blocks
        first = minimum(compulsory[key] / whole, 1.0)
        miss = minimum(misses[key] / whole, 1.0) if access.mode == "read" else 0.0
        here = (resident or {}).get(access.tensor.name, 0.0)
        if access.mode == "read" and not is_zero(here):
            miss, first = miss - here * first, first * (1.0 - here)
        mean = useful[key] / maximum(per_block[key][1], 1.0)
        result[key] = Transfer(access, moved[key] * blocks, useful[key] * blocks, miss, first, mean)
    return result


def _place(access: Access) -> tuple:
    """Which tensor a load reads, and along which axes its address moves from a fixed start."""
    terms = []
    for offset in access.offsets:
        variables = offset.variables if isinstance(offset, Index) else frozenset()
        start = offset.constant if isinstance(offset, Index) else offset
        grid = frozenset(v for v in variables if v.kind == "grid")
        # traced starts have no value yet: only the very same one is equal
        terms.append((grid, len(variables) - len(grid), start if is_number(start) else id(start)))
    return access.tensor.name, tuple(terms)


def _repeated(accesses: list[Access]) -> dict[int, bool]:
    """Keys of the loads that read what an earlier one of the same block has read, and whether in the same iteration."""
    seen: dict[tuple, set[tuple]] = {}
    repeated = {}
    for access in accesses:
        if access.mode != "read" or access.instruction.by_row:
            continue
        earlier = seen.setdefault(_place(access), set())
        around = tuple(loop.key for loop in access.loops)
        if earlier:
            repeated[access.instruction.key] = around in earlier
        earlier.add(around)
    return repeated


def _kept(sizes: Sizes, footprint: Scalar) -> Scalar:
    """The share of what was touched that L2 still holds when so many bytes were touched since."""
    return clip((1.0 + sizes.l2_ramp - footprint / (sizes.l2 * sizes.l2_usable)) / sizes.l2_ramp, 0.0, 1.0)


def left_in_l2(transfers: Mapping[int, Transfer], sizes: Sizes) -> float:
    """The share of what a kernel has written that L2 supplies when it is read once more in the same order.

    All of it where it fits. Else each miss puts out any line of L2 with equal chance, so the share ``h`` that is met
    solves ``h = exp(-(1 - h) written / l2)``. What was only read leaves L2 before it. Plain numbers only.
    """
    fill = float(from_hbm(transfers)[2]) / float(sizes.l2)
    if fill <= 1.0:
        return 1.0
    share = 0.0
    for _ in range(200):
        share = math.exp(-(1.0 - share) * fill)
    return share


def dirty_after(transfers: Mapping[int, Transfer], sizes: Sizes, before: float) -> float:
    """The share of L2 that holds modified lines when a kernel ends, from that at its start. Plain numbers only."""
    first, again, written = (float(part) for part in from_hbm(transfers))
    brought = max(first + again + written, 1.0)
    replaced = min(brought / float(sizes.l2), 1.0)
    return before * (1.0 - replaced) + replaced * written / brought


def from_hbm(transfers: Mapping[int, Transfer]) -> tuple[Scalar, Scalar, Scalar]:
    """Bytes that HBM supplies for the first time, those it supplies again, and distinct bytes that are written."""
    first: Scalar = 0.0
    again: Scalar = 0.0
    written: Scalar = 0.0
    for transfer in transfers.values():
        if transfer.access.mode == "read":
            first = first + transfer.moved * transfer.first
            again = again + transfer.moved * (transfer.miss - transfer.first)
        else:
            written = written + transfer.moved * transfer.first
    return first, again, written


def written_back(sizes: Sizes, read: Scalar, written: Scalar, dirty: Scalar) -> Scalar:
    """Bytes that L2 writes back while a kernel brings in ``read`` and makes ``written`` bytes.

    Every line that comes in puts one out. Until L2 has been filled once that is an earlier kernel's, of which a share
    ``dirty`` is modified; from then on the kernel's own, of which a share is what it has written.
    """
    brought = read + written
    own = maximum(brought - sizes.l2, 0.0) * written / maximum(brought, 1.0)
    return own if is_zero(dirty) else own + minimum(brought, sizes.l2) * dirty


def _compulsory(recorder: Recorder, unique: dict, axes: dict) -> dict:
    """Bytes touched for the first time over the whole walk, by instruction key."""
    first = {}
    for key, size in unique.items():
        for level in recorder.levels:
            if level.axis in axes[key]:
                size = size * level.extent
        first[key] = size
    return first


def _misses(recorder: Recorder, sizes: Sizes, active: Scalar, unique: dict, axes: dict, compulsory: dict) -> dict:
    """Bytes from HBM over the whole walk, by instruction key."""
    levels = recorder.levels
    concurrent, rest = [], active
    for level in reversed(levels):
        here = minimum(level.extent, rest)
        concurrent.append(here)
        rest = maximum(rest / here, 1)
    concurrent = concurrent[::-1]
    misses = dict(compulsory)
    inside = dict(unique)  # bytes touched by one iteration of the level, per access
    for level, together in reversed(list(zip(levels, concurrent, strict=True))):
        footprint: Scalar = 0.0
        for key, size in inside.items():
            footprint = footprint + (size * together if level.axis in axes[key] else size)
        again = maximum(level.extent / together - 1.0, 0.0) * (1.0 - _kept(sizes, footprint))
        for key in inside:
            if level.axis in axes[key]:
                inside[key] = inside[key] * level.extent
            else:
                misses[key] = misses[key] * (1.0 + again)
    return misses
