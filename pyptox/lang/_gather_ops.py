"""Loads and stores of rows whose numbers are in a tile: one transfer a row."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from .._errors import KernelError
from .._scalar import Scalar, clip
from . import rules
from ._reading import Operation, TileType, current
from ._types import Index, Tensor, Tile, Vec
from ._vector_ops import _is_one, _require_vec


def _numbers(rows: Tile) -> int:
    """The axis along which a tile of row numbers runs."""
    return 1 if _is_one(rows.shape[0]) else 0


def _check(name: str, tensor: Tensor, rows: Tile) -> None:
    _require_vec(name, rows)
    if not isinstance(tensor, Tensor) or tensor.rank != 2 or tensor.layout != "rows":
        raise KernelError(f"`{name}` expects a matrix argument of the kernel, stored by rows")
    if rows.dtype != "int32" or not (_is_one(rows.shape[0]) or _is_one(rows.shape[1])):
        raise KernelError(f"`{name}` expects an int32 tile of one row or column of row numbers; got {rows.dtype}")


def _position(context: Any, rows: Tile, offsets: tuple) -> tuple[Any, Any]:
    """Row numbers, -1 where none is valid, and the first column."""
    axis, column = _numbers(rows), offsets[1]
    numbers = rows.payload.reshape(-1).astype(jnp.int32)
    valid = jnp.arange(numbers.shape[0], dtype=jnp.int32) < rows.valid[axis]
    first = context.value(column) if isinstance(column, Index) else column
    return jnp.where(valid, numbers, jnp.int32(-1)), jnp.asarray(first, jnp.int32)


def _load_infer(rows: Tile, *, tensor: Tensor, offsets, shape, by_row: bool, wait: bool) -> TileType:
    _check("load_rows", tensor, rows)
    axis, column = _numbers(rows), offsets[1]
    first = current().value(column) if isinstance(column, Index) else column
    width = shape[1]
    valid = rows.valid[axis], clip(tensor.shape[1] - first, 0, width)
    return TileType((rows.shape[axis], width), valid, tensor.dtype, Vec)


def _load_run(context: Any, rows: Tile, *, tensor: Tensor, offsets, shape, by_row: bool, wait: bool):
    return context.read_rows(tensor, *_position(context, rows, offsets), shape[1])


def _load_cost(context: rules.RuleContext, instruction: Any) -> list:
    count, width = instruction.out.valid
    row = dataclasses.replace(instruction, out=dataclasses.replace(instruction.out, valid=(1, width)))
    each = dataclasses.replace(context, vector_split=1)  # a row is one core's; the cores share out the rows
    waited = context.times.load_wait if instruction.attributes["wait"] else 0.0
    return [(pipe, count * (cycles + waited) / context.vector_split) for pipe, cycles in rules.load(each, row)]


_load_rows = Operation("load_rows", infer=_load_infer, run=_load_run, cost=_load_cost, exact=True)


def load_rows(tensor: Tensor, rows: Tile, column: Index | Scalar, width: Scalar, *, wait: bool = False) -> Tile:
    """Gather: ``out[r] = tensor[rows[r], column : column + width]`` in Vec, one transfer a row.

    Rows that ``tensor`` does not have are zero.

    Args:
        tensor: a matrix argument of the kernel.
        rows: row numbers, an int32 tile in Vec of one row or one column.
        column: the first column.
        width: columns a row.
        wait: each row is waited for before the next is asked for; else they are on their way together.
    """
    shape = tensor.shape[0], width
    return _load_rows(rows, tensor=tensor, offsets=(0, column), shape=shape, by_row=True, wait=wait)


def _store_infer(tile: Tile, rows: Tile, *, tensor: Tensor, offsets, shape, atomic: None, by_row: bool) -> None:
    _require_vec("store_rows", tile)
    _check("store_rows", tensor, rows)
    if not tensor.is_output:
        raise KernelError(f"`store_rows` to `{tensor.name}`: declare it as an output of the kernel")
    if tile.dtype != tensor.dtype:
        raise KernelError(f"`store_rows` to `{tensor.name}` expects {tensor.dtype}; the tile is {tile.dtype}")


def _store_run(context: Any, tile: Tile, rows: Tile, *, tensor: Tensor, offsets, shape, atomic: None, by_row: bool):
    context.write_rows(tensor, *_position(context, rows, offsets), tile)


def _store_cost(context: rules.RuleContext, instruction: Any) -> list:
    tile = instruction.tiles[0]
    count, width = tile.valid
    row = dataclasses.replace(instruction, tiles=(dataclasses.replace(tile, valid=(1, width)),))
    each = dataclasses.replace(context, vector_split=1)
    return [(pipe, count * cycles / context.vector_split) for pipe, cycles in rules.store(each, row)]


_store_rows = Operation("store_rows", infer=_store_infer, run=_store_run, cost=_store_cost, exact=True)


def store_rows(tensor: Tensor, rows: Tile, column: Index | Scalar, tile: Tile) -> None:
    """Scatter: ``tensor[rows[r], column : column + width] = tile[r]``, one transfer a row.

    Rows that ``tensor`` does not have, such as -1, are dropped. Row numbers must differ: of two writes to one row
    either may be the last.
    """
    _store_rows(
        tile,
        rows,
        tensor=tensor,
        offsets=(0, column),
        shape=(tensor.shape[0], tile.shape[1]),
        atomic=None,
        by_row=True,
    )
