"""Operations that rearrange the columns of tiles in Vec, and those that number them.

The weights are passes over the tile in units of one vector instruction. They are planning numbers: a mask pattern
takes every other element in one pass; what addresses element by element moves eight times fewer bytes a cycle.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import KernelError
from .._scalar import Scalar, clip, where
from . import rules
from ._ops import cut
from ._reading import Operation, TileType, current
from ._types import Index, Tile, Vec
from ._vector_ops import _require_vec

_BY_ELEMENT = 8.0
"""Passes of an operation that addresses each element: one 32-byte block a cycle, of eight."""


def _require_alike(name: str, a: Tile, b: Tile) -> None:
    _require_vec(name, a, b)
    if a.dtype != b.dtype:
        raise KernelError(f"`{name}` needs operands of one dtype; got {a.dtype} and {b.dtype}. Use pl.cast first")


# ------------------------------------------------------------------------------------------------- parts and wholes
def _slice_infer(tile: Tile, *, start: Index | Scalar, width: Scalar) -> TileType:
    _require_vec("slice_columns", tile)
    first = current().value(start) if isinstance(start, Index) else start
    return TileType((tile.shape[0], width), (tile.valid[0], clip(tile.valid[1] - first, 0, width)), tile.dtype, Vec)


def _slice_run(context: Any, tile: Tile, *, start: Index | Scalar, width: Scalar):
    return cut(context, tile.payload, (0, start), (tile.payload.shape[0], width))


_slice = Operation("slice_columns", infer=_slice_infer, run=_slice_run, cost=rules.free, alias=0, exact=True)


def slice_columns(tile: Tile, start: Index | Scalar, width: Scalar) -> Tile:
    """Columns ``start`` to ``start + width`` of a tile: a view, which costs nothing.

    On the chip a view begins at a multiple of 32 bytes.
    """
    return _slice(tile, start=start, width=width)


def _concat_infer(a: Tile, b: Tile) -> TileType:
    _require_alike("concat_columns", a, b)
    valid = current().minimum(a.valid[0], b.valid[0]), a.shape[1] + b.valid[1]
    return TileType((a.shape[0], a.shape[1] + b.shape[1]), valid, a.dtype, Vec)


_concat = Operation(
    "concat_columns",
    infer=_concat_infer,
    run=lambda context, a, b: jnp.concatenate([a.payload, b.payload], axis=1),
    cost=rules.vector(),
    exact=True,
)


def concat_columns(a: Tile, b: Tile) -> Tile:
    """The columns of ``a`` followed by those of ``b``, copied in one pass; all columns of ``a`` count as valid."""
    return _concat(a, b)


def _half(size: Scalar, which: int) -> Scalar:
    return (size + 1 - which) // 2


def _every_other(name: str, which: int) -> Operation:
    def infer(tile: Tile) -> TileType:
        _require_vec(name, tile)
        shape = tile.shape[0], _half(tile.shape[1], which)
        return TileType(shape, (tile.valid[0], _half(tile.valid[1], which)), tile.dtype, Vec)

    return Operation(name, infer=infer, run=lambda context, t: t.payload[:, which::2], cost=rules.vector(), exact=True)


_even, _odd = _every_other("even_columns", 0), _every_other("odd_columns", 1)


def deinterleave(tile: Tile) -> tuple[Tile, Tile]:
    """The even and the odd columns of a tile: two gathers by a mask pattern, each one pass over the whole tile."""
    return _even(tile), _odd(tile)


def _interleave_infer(a: Tile, b: Tile) -> TileType:
    _require_alike("interleave", a, b)
    rows = current().minimum(a.valid[0], b.valid[0])
    return TileType((a.shape[0], a.shape[1] + b.shape[1]), (rows, a.valid[1] + b.valid[1]), a.dtype, Vec)


_interleave = Operation(
    "interleave",
    infer=_interleave_infer,
    run=lambda context, a, b: jnp.stack([a.payload, b.payload], axis=2).reshape(a.payload.shape[0], -1),
    cost=rules.vector(_BY_ELEMENT),
    exact=True,
)


def interleave(a: Tile, b: Tile) -> Tile:
    """Columns ``a0 b0 a1 b1 ...`` of two tiles alike: the vector core has no pattern for it, so it goes by element."""
    return _interleave(a, b)


# -------------------------------------------------------------------------------------------------- numbers of columns
def _column_index_run(context: Any, *, shape, start):
    first = jnp.asarray(context.value(start) if isinstance(start, Index) else start, jnp.int32)
    numbers = first + jnp.arange(shape[1], dtype=jnp.int32)[None, :]
    return jnp.broadcast_to(numbers, shape).astype(context.dtype("int32"))


_column_index = Operation(
    "column_index",
    infer=lambda *, shape, start: TileType(tuple(shape), tuple(shape), "int32", Vec),
    run=_column_index_run,
    cost=rules.vector(),
    exact=True,
)


def column_index(shape: Sequence[Scalar], start: Index | Scalar = 0) -> Tile:
    """An int32 tile that holds ``start`` plus the number of the column."""
    return _column_index(shape=tuple(shape), start=start)


def _select_infer(a: Tile, b: Tile, x: Tile, y: Tile) -> TileType:
    _require_alike("select_greater", a, b)
    _require_alike("select_greater", x, y)
    reading = current()
    valid = tuple(reading.minimum(x.valid[n], reading.minimum(a.valid[n], b.valid[n])) for n in (0, 1))
    return TileType(x.shape, (valid[0], valid[1]), x.dtype, Vec)


_select_greater = Operation(
    "select_greater",
    infer=_select_infer,
    run=lambda context, a, b, x, y: jnp.where(a.payload > b.payload, x.payload, y.payload),
    cost=rules.vector(2.0),
    exact=True,
)


def select_greater(a: Tile, b: Tile, x: Tile, y: Tile) -> Tile:
    """``x`` where ``a > b``, ``y`` elsewhere: a comparison and a selection. All four tiles are of one shape."""
    return _select_greater(a, b, x, y)


def _row_argmax_infer(tile: Tile) -> TileType:
    _require_vec("row_argmax", tile)
    return TileType((tile.shape[0], 1), (tile.valid[0], 1), "int32", Vec)


def _row_argmax_run(context: Any, tile: Tile):
    inside = jnp.arange(tile.payload.shape[1], dtype=jnp.int32) < tile.valid[1]
    masked = jnp.where(inside[None, :], tile.payload, jnp.asarray(-jnp.inf, tile.payload.dtype))
    return jnp.argmax(masked, axis=1, keepdims=True).astype(context.dtype("int32"))


row_argmax = Operation("row_argmax", infer=_row_argmax_infer, run=_row_argmax_run, cost=rules.vector(3.0), exact=True)
"""The column of the largest float of each row, int32; the first one on ties."""


# ----------------------------------------------------------------------------------------------------------- order
def _order_infer(values: Tile, ranks: Tile, *, count: int) -> TileType:
    _require_vec("largest_columns", values, ranks)
    if ranks.dtype != "int32" or not isinstance(count, int) or count < 1:
        raise KernelError(f"`largest_columns` needs int32 ranks and a positive count; got {ranks.dtype} and {count!r}")
    return TileType((values.shape[0], count), (values.valid[0], count), "int32", Vec)


def _order_run(context: Any, values: Tile, ranks: Tile, *, count: int):
    dtype, shape = values.payload.dtype, values.payload.shape
    inside = jnp.arange(shape[1], dtype=jnp.int32)[None, :] < values.valid[1]
    keys = jnp.where(inside, -values.payload, jnp.asarray(jnp.inf, dtype))
    last = jnp.asarray(2**31 - 1, ranks.payload.dtype)
    positions = jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    _, _, order = jax.lax.sort((keys, jnp.where(inside, ranks.payload, last), positions), dimension=1, num_keys=2)
    return order[:, :count].astype(context.dtype("int32"))


def _order_cost(context: rules.RuleContext, instruction: Any) -> list:
    """Runs of 32 are sorted in two passes; each merge of four runs into one is two passes (pairs of 8 bytes)."""
    merges: Scalar = 0.0
    for level in range(8):
        merges = merges + where(instruction.tiles[0].shape[1] > 32.0 * 4**level, 1.0, 0.0)
    ((pipe, cycles),) = rules.vector()(context, instruction)
    return [(pipe, cycles * (2.0 + 2.0 * merges))]


_largest = Operation("largest_columns", infer=_order_infer, run=_order_run, cost=_order_cost, exact=True)


def largest_columns(values: Tile, ranks: Tile, count: int) -> Tile:
    """The columns of the ``count`` largest floats of each row, largest first, as an int32 tile.

    Equal values come in rising order of ``ranks``, an int32 tile of the same shape. The rows are sorted.
    """
    return _largest(values, ranks, count=count)


def _take_infer(tile: Tile, columns: Tile) -> TileType:
    _require_vec("take_columns", tile, columns)
    if columns.dtype != "int32":
        raise KernelError(f"`take_columns` needs int32 columns; got {columns.dtype}")
    return TileType(columns.shape, columns.valid, tile.dtype, Vec)


def _take_cost(context: rules.RuleContext, instruction: Any) -> list:
    # what is not taken is not touched
    return rules.vector(_BY_ELEMENT)(context, dataclasses.replace(instruction, tiles=instruction.tiles[1:]))


_take = Operation(
    "take_columns",
    infer=_take_infer,
    run=lambda context, tile, columns: jnp.take_along_axis(
        tile.payload, columns.payload.astype(jnp.int32), axis=1, mode="clip"
    ),
    cost=_take_cost,
    exact=True,
)


def take_columns(tile: Tile, columns: Tile) -> Tile:
    """``out[r, c] = tile[r, columns[r, c]]``, element by element."""
    return _take(tile, columns)
