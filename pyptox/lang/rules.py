"""Cost rules: which pipes an operation occupies, and for how many cycles.

A rule is ``rule(context, instruction) -> [(pipe, cycles), ...]``. Every term is a count (bytes, lines, fractals,
rows, repeats) times one time constant of the chip, so that no cycle count is bare and the attribution of a
prediction to its constants is exact. Counts come from the valid part of a tile: what is padding does not move.

Sources: L0CostModel of the toolchain (drain, MTE1, cube head), its 512-byte line rule (PH001), and the vector
repeat of 256 bytes; see :mod:`pyptox.hardware`.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .._dtypes import dtype_of
from .._scalar import Scalar, cdiv, is_number, maximum, minimum, round_up, where
from ..hardware import Sizes, Times
from ._types import Tensor

PIPES = ("SCALAR", "MTE2", "MTE1", "CUBE", "FIXPIPE", "MTE2V", "VECTOR", "MTE3")
"""Pipes of a cluster in dataflow order. ``MTE2V`` is the MTE2 of the vector cores."""

CUBE_PIPES = frozenset({"MTE2", "MTE1", "CUBE", "FIXPIPE"})
VECTOR_PIPES = frozenset({"MTE2V", "VECTOR", "MTE3"})


@dataclass(frozen=True)
class RuleContext:
    """What a rule may know.

    Attributes:
        times, sizes: constants of the chip (:class:`pyptox.hardware.Times`, :class:`pyptox.hardware.Sizes`).
        clock_mhz: cycles a microsecond.
        active: cores that run at the same time and share L2 and HBM, in this wave.
        vector_split: vector cores that share the rows of one block's tiles (2 in a mixed kernel).
        miss: share of this instruction's GM bytes that come from HBM, 0 to 1.
        first: share of them that the kernel touches for the first time, 0 to 1.
        slices: in how many slices the vector cores go through the rows of a tile; each starts anew.
    """

    times: Times
    sizes: Sizes
    clock_mhz: Scalar
    active: Scalar
    vector_split: int
    miss: Scalar
    first: Scalar = 0.0
    slices: Scalar = 1


def pieces(sizes: Sizes, tensor: Tensor, rows: Scalar, columns: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """The separate pieces of GM that ``rows x columns`` of a tensor lie in: how many, bytes each, bytes apart.

    A tile as wide as its tensor's row is one piece. A zN tensor is cut into columns of one fractal's bytes.
    """
    width = float(dtype_of(tensor.dtype).bytes)
    if tensor.layout == "zN":
        height = tensor.shape[-2] if tensor.rank > 1 else 1
        return cdiv(columns * width, sizes.fractal_bytes), rows * sizes.fractal_bytes, height * sizes.fractal_bytes
    whole = columns >= tensor.shape[-1]
    return where(whole, 1.0, rows), columns * width * where(whole, rows, 1.0), tensor.shape[-1] * width


def moved_bytes(sizes: Sizes, tensor: Tensor, rows: Scalar, columns: Scalar) -> Scalar:
    """Bytes that a GM transfer moves: whole lines of each piece. A row of 64 bytes costs eight times its bytes."""
    count, size, _ = pieces(sizes, tensor, rows, columns)
    return count * round_up(size, sizes.line)


def load(context: RuleContext, instruction: Any) -> list:
    """GM to chip: start-up, rows, and whole lines at the rate of the core's link or of its share of L2.

    What misses L2 waits for HBM on top: at this core's share of it, or at the most that one core can ask for. Lines
    that L2 has held and lost come back faster than those it never held. A piece costs more the farther it is from
    the next (up to one page).
    """
    tensor, tile = instruction.attributes["tensor"], instruction.out
    moved = moved_bytes(context.sizes, tensor, *tile.valid)
    count, _, stride = pieces(context.sizes, tensor, *tile.valid)
    vector = tile.space.value == "Vec"
    t = context.times
    shared = context.active * context.clock_mhz
    rows = tile.valid[0] if tensor.layout == "rows" else count
    link = (
        rows * t.load_row
        + count * minimum(stride, context.sizes.page) * t.load_stride
        + moved * maximum(t.load_byte, shared * t.l2_us)
    )
    first, again = maximum(t.miss_byte, shared * t.hbm_us), maximum(t.miss_byte, shared * t.refetch_us)
    beyond = moved * (context.first * first + (context.miss - context.first) * again)
    # both vector cores of a cluster load their half of the rows at the same time
    cycles = t.load_start + (link + beyond) / (context.vector_split if vector else 1)
    return [("MTE2V" if vector else "MTE2", cycles)]


def _odd_part(value: Scalar) -> Scalar:
    """The largest odd divisor of a positive integer."""
    if is_number(value):
        whole = int(value)
        return float(whole // (whole & -whole)) if whole else 1.0
    whole = jnp.maximum(jnp.asarray(value, jnp.int32), 1)
    return (whole // (whole & -whole)).astype(jnp.float32)


def drain_cycles(context: RuleContext, rows: Scalar, columns: Scalar) -> Scalar:
    """FIXPIPE cycles to drain an accumulator tile of 4-byte elements.

    ``start + rows (max(row, 4 columns byte) + odd (odd_part(ceil(columns / 8)) - 1))``: the device-calibrated
    drain of the toolchain's L0CostModel.
    """
    t = context.times
    misaligned = (_odd_part(cdiv(columns, 8)) - 1.0) * t.drain_odd
    return t.drain_start + rows * (maximum(t.drain_row, columns * 4.0 * t.drain_byte) + misaligned)


def store(context: RuleContext, instruction: Any) -> list:
    """Chip to GM: FIXPIPE from Acc, MTE3 from Vec. An atomic add pays its bytes a second time."""
    (tile,) = instruction.tiles
    tensor = instruction.attributes["tensor"]
    rows, columns = tile.valid
    moved = moved_bytes(context.sizes, tensor, rows, columns)
    t = context.times
    atomic = moved * t.atomic_byte if instruction.attributes["atomic"] else 0.0
    if tile.space.value == "Acc":
        return [("FIXPIPE", drain_cycles(context, rows, columns) + atomic)]
    return [("MTE3", t.store_start + (moved * t.store_byte + atomic) / context.vector_split)]


def move(context: RuleContext, instruction: Any) -> list:
    """Copies inside a cluster: MTE1 from Mat to Left or Right; FIXPIPE and the vector cores' MTE2 from Acc to Vec.

    From Vec to the cube: MTE3 to GM, and MTE2 from there, which finds it in L2.
    """
    (tile,), out = instruction.tiles, instruction.out
    rows, columns = out.valid
    t = context.times
    if out.space.value in ("GM", "Mat"):
        size = rows * columns * float(dtype_of(tile.dtype).bytes)
        if out.space.value == "GM":
            return [("MTE3", context.slices * t.store_start + size * t.store_byte / context.vector_split)]
        return [("MTE2", t.load_start + rows * t.load_row + size * t.load_byte)]
    if out.space.value == "Vec":
        arrive = context.slices * t.load_start + rows * columns * 4.0 * t.load_byte / context.vector_split
        return [("FIXPIPE", drain_cycles(context, rows, columns)), ("MTE2V", arrive)]
    per_byte = t.left_byte if out.space.value == "Left" else t.right_byte
    f = context.sizes
    # each fractal is fractal_rows rows of fractal_bytes bytes, whichever way round the operand lies
    width = dtype_of(tile.dtype).bytes
    depth = f.fractal_bytes / width
    if out.space.value == "Left":
        padded = round_up(rows, f.fractal_rows) * round_up(columns, depth)
    else:
        padded = round_up(rows, depth) * round_up(columns, f.fractal_rows)
    return [("MTE1", t.move_start + padded * width * per_byte)]


def mad(context: RuleContext, instruction: Any) -> list:
    """One cube instruction: a head, then one pass (two for 4-byte elements) over each fractal."""
    lhs, rhs = instruction.tiles[:2]
    f, t = context.sizes, context.times
    width = dtype_of(lhs.dtype).bytes
    fractals = (
        cdiv(lhs.valid[0], f.fractal_rows)
        * cdiv(lhs.valid[1] * width, f.fractal_bytes)
        * cdiv(rhs.valid[1], f.fractal_rows)
    )
    passes = f.fp32_passes if width == 4 else 1.0
    return [("CUBE", t.cube_head + fractals * passes * t.cube_fractal)]


def spill(context: RuleContext, instruction: Any) -> list:
    """An accumulator larger than Acc is drained and taken back after every step; a fitting one costs nothing."""
    (tile,) = instruction.tiles
    too_large = tile.bytes > context.sizes.acc
    return [("FIXPIPE", where(too_large, 2.0 * drain_cycles(context, *tile.valid), 0.0))]


WIDE_START = 1.7
"""Start-ups of an instruction whose rows take more than one repeat: 42 cycles against 25."""

NARROW_ROW, ROW_REPEAT = 7.0, 1.5
"""Repeats' time that a row reduction takes a row: 7 cycles, and 1.5 more for every further repeat of the row."""

REDUCTION_START, REDUCTION_REPEAT = 1.3, 0.65
"""Start-ups of a row reduction: 33 cycles, and 16 more for every repeat of a row."""

EXPANDED_ROW, EXPAND_START = 14.0, 1.4
"""Repeats' time of one row filled from its first element, and start-ups: 14 and 36 cycles."""


def _widest(context: RuleContext, instruction: Any, least: float = 1.0) -> tuple[Scalar, Scalar]:
    """Rows for one vector core, and bytes of a row, of the largest tile, its elements of ``least`` bytes or more."""
    rows: Scalar = 0.0
    row_bytes: Scalar = 0.0
    for tile in (*instruction.tiles, instruction.out):
        rows = maximum(rows, tile.valid[0] * 1.0)
        row_bytes = maximum(row_bytes, tile.valid[1] * max(least, float(dtype_of(tile.dtype).bytes)))
    return rows / context.vector_split, row_bytes


def vector(passes: float = 1.0, *, by_row: bool = False, by_element: bool = False):
    """The rule of an elementwise instruction of ``passes`` cycles a repeat of 256 bytes.

    ``start (1 or WIDE_START) + passes repeats repeat_cycles``. One operand and a scalar take 1 pass, two operands, an
    exponential or a root 2, a division 4 to 5. From the published slope-and-bias table (formula_params.csv of
    pto-isa), whose slopes are whole numbers of cycles a repeat.

    Args:
        passes: cycles a repeat.
        by_row: a row shorter than a repeat takes one all the same, as in instructions of two operands; a tile of one
            column is packed.
        by_element: shorter elements are no faster than four-byte ones, as in divisions, exponentials and roots.
    """

    def rule(context: RuleContext, instruction: Any) -> list:
        rows, row_bytes = _widest(context, instruction, 4.0 if by_element else 1.0)
        size, t = context.sizes.repeat, context.times
        repeats = cdiv(rows * row_bytes, size)
        if by_row and not (is_number(instruction.out.shape[1]) and instruction.out.shape[1] == 1):
            repeats = maximum(repeats, rows)
        starts = where(row_bytes > size, WIDE_START, 1.0)
        starts = starts * context.slices
        return [("VECTOR", starts * t.vector_start + passes * repeats * t.vector_repeat)]

    return rule


def column_reduction(row: float, row_repeat: float):
    """The rule of a reduction along columns.

    Args:
        row: cycles a row.
        row_repeat: further cycles for each repeat of the row after its first.
    """

    def rule(context: RuleContext, instruction: Any) -> list:
        rows, row_bytes = _widest(context, instruction)
        t = context.times
        repeats = cdiv(row_bytes, context.sizes.repeat)
        return [("VECTOR", 0.7 * t.vector_start + rows * (row + row_repeat * (repeats - 1)) * t.vector_repeat)]

    return rule


def expand(context: RuleContext, instruction: Any) -> list:
    """Fill each row from its first element: a fixed time a row, half a cycle more for every further repeat of it."""
    rows, row_bytes = _widest(context, instruction)
    t = context.times
    each = EXPANDED_ROW + 0.5 * (cdiv(row_bytes, context.sizes.repeat) - 1)
    return [("VECTOR", EXPAND_START * context.slices * t.vector_start + rows * each * t.vector_repeat)]


CARRY_START = 2.5
"""Start-ups of a row that waits for a number of the row before: the instruction, and the scalar unit's read, 62
cycles. Fitted to the scans of memory_streaming_910b4."""


def row_after_row(context: RuleContext, instruction: Any) -> list:
    """Each row takes an instruction of its own, after the scalar unit has read the last element of the row before."""
    rows, row_bytes = _widest(context, instruction)
    t = context.times
    repeats = cdiv(row_bytes, context.sizes.repeat)
    return [("VECTOR", rows * (CARRY_START * t.vector_start + repeats * t.vector_repeat))]


def row_reduction(extra_start: float = 0.0):
    """The rule of a reduction along rows: a fixed time a row, and a little more for every further repeat of it.

    ``extra_start`` is in start-ups (a sum takes 14 cycles more to start than a maximum). Source as for :func:`vector`.
    """

    def rule(context: RuleContext, instruction: Any) -> list:
        rows, row_bytes = _widest(context, instruction)
        t = context.times
        repeats = cdiv(row_bytes, context.sizes.repeat)
        starts = (REDUCTION_START + extra_start + REDUCTION_REPEAT * repeats) * context.slices
        each = NARROW_ROW + ROW_REPEAT * (repeats - 1)
        return [("VECTOR", starts * t.vector_start + rows * each * t.vector_repeat)]

    return rule


def free(context: RuleContext, instruction: Any) -> list:
    """Costs nothing: a view, or a conversion that another instruction carries out on the way."""
    return []
