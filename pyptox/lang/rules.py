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
        active: cores that run at the same time and share L2 and HBM, the mean over the waves.
        vector_split: vector cores that share the rows of one block's tiles (2 in a mixed kernel).
        miss: share of this instruction's GM bytes that come from HBM, 0 to 1.
        first: share of them that the kernel touches for the first time, 0 to 1.
    """

    times: Times
    sizes: Sizes
    clock_mhz: Scalar
    active: Scalar
    vector_split: int
    miss: Scalar
    first: Scalar = 0.0


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
    """On-chip copies: MTE1 from Mat to Left or Right; FIXPIPE and the vector cores' MTE2 from Acc to Vec."""
    (tile,), out = instruction.tiles, instruction.out
    rows, columns = out.valid
    t = context.times
    if out.space.value == "Vec":
        arrive = t.load_start + rows * columns * 4.0 * t.load_byte / context.vector_split
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


def vector(weight: float = 1.0):
    """The rule of a vector instruction that takes ``weight`` passes over its widest operand.

    ``start + weight ceil(bytes / repeat) repeat_cycles``, rows shared by the cluster's vector cores.
    """

    def rule(context: RuleContext, instruction: Any) -> list:
        widest = 0.0
        for tile in (*instruction.tiles, instruction.out):
            widest = maximum(widest, tile.valid[0] * tile.valid[1] * float(dtype_of(tile.dtype).bytes))
        repeats = cdiv(widest / context.vector_split, context.sizes.repeat)
        t = context.times
        return [("VECTOR", weight * (t.vector_start + repeats * t.vector_repeat))]

    return rule


def free(context: RuleContext, instruction: Any) -> list:
    """Costs nothing: a view, or a conversion that another instruction carries out on the way."""
    return []
