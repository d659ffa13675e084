"""Elementwise operations, row reductions and casts on tiles in Vec."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._dtypes import dtype_of
from .._errors import KernelError
from .._rounding import Rounding
from .._rounding import cast as cast_values
from .._scalar import Scalar
from . import rules
from ._apart import apart, quotient
from ._reading import Operation, TileType, current
from ._types import Acc, Index, Space, Tile, Vec


def _require_vec(name: str, *tiles: Tile) -> None:
    for tile in tiles:
        if tile.space is not Vec:
            raise KernelError(f"`{name}` works in Vec; the tile is in {tile.space.value}. Use pl.move first")


def _is_one(size: Scalar) -> bool:
    return isinstance(size, int) and size == 1


def _broadcast(name: str, a: Tile, b: Tile) -> TileType:
    _require_vec(name, a, b)
    if a.dtype != b.dtype:
        raise KernelError(f"`{name}` needs operands of one dtype; got {a.dtype} and {b.dtype}. Use pl.cast first")
    shape, valid = [], []
    for axis in (0, 1):
        one, other = _is_one(a.shape[axis]), _is_one(b.shape[axis])
        shape.append(b.shape[axis] if one else a.shape[axis])
        if one != other:
            valid.append(b.valid[axis] if one else a.valid[axis])
        else:  # what only one operand holds is padding
            valid.append(current().minimum(a.valid[axis], b.valid[axis]))
    return TileType((shape[0], shape[1]), (valid[0], valid[1]), a.dtype, Vec)


def _together(name: str, *tiles: Tile) -> Sequence[jax.Array]:
    """The values of some tiles, each broadcast to the shape of all."""
    try:
        return jnp.broadcast_arrays(*(tile.payload for tile in tiles))
    except ValueError:
        shapes = " and ".join(f"{t.dtype}[{','.join(map(str, t.payload.shape))}]" for t in tiles)
        raise KernelError(
            f"`{name}` needs operands of one shape, or of one row or column; got {shapes}. "
            "Use pl.slice_columns, or load tiles of one size"
        ) from None


def _added_product(context: Any, a: Tile, b: Tile, c: Tile) -> jax.Array:
    factor, other, term = _together("multiply_add", a, b, c)
    return factor * other + term


def _binary(
    name: str, function: Callable, passes: float = 2.0, by_element: bool = False, exact: bool = False
) -> Operation:
    return Operation(
        name,
        infer=lambda a, b: _broadcast(name, a, b),
        run=lambda context, a, b: function(*_together(name, a, b)),
        cost=rules.vector(passes, by_row=True, by_element=by_element),
        exact=exact,
    )


def _scalar_operand(name: str, function: Callable, passes: float = 1.0, by_element: bool = False) -> Operation:
    def infer(tile: Tile, *, value: Scalar | Index) -> TileType:
        _require_vec(name, tile)
        return TileType(tile.shape, tile.valid, tile.dtype, Vec)

    def run(context: Any, tile: Tile, *, value: Scalar | Index):
        value = context.value(value) if isinstance(value, Index) else value
        return function(tile.payload, apart(jnp.asarray(value, tile.payload.dtype)))

    return Operation(f"{name}_scalar", infer=infer, run=run, cost=rules.vector(passes, by_element=by_element))


def unary_operation(
    name: str, function: Callable, passes: float = 1.0, by_element: bool = False, *, exact: bool = False
) -> Operation:
    """An elementwise operation of one tile in Vec, from a ``jax.numpy`` function of the array.

    ``passes`` is its cycles for each 256 bytes of the tile, or, with ``by_element``, for each 64 elements; ``exact``
    says that it rounds nothing.
    """

    def infer(tile: Tile) -> TileType:
        _require_vec(name, tile)
        return TileType(tile.shape, tile.valid, tile.dtype, Vec)

    cost = rules.vector(passes, by_element=by_element)
    return Operation(name, infer=infer, run=lambda context, t: function(t.payload), cost=cost, exact=exact)


_BINARY = {
    "add": _binary("add", jnp.add),
    "subtract": _binary("subtract", jnp.subtract),
    "multiply": _binary("multiply", jnp.multiply),
    "divide": _binary("divide", quotient, 4.2, True),
    "maximum": _binary("maximum", jnp.maximum, exact=True),
    "minimum": _binary("minimum", jnp.minimum, exact=True),
}
_SCALAR = {
    "add": _scalar_operand("add", jnp.add),
    "subtract": _scalar_operand("subtract", jnp.subtract),
    "multiply": _scalar_operand("multiply", jnp.multiply),
    "divide": _scalar_operand("divide", quotient, 4.75, True),
    "maximum": _scalar_operand("maximum", jnp.maximum),
    "minimum": _scalar_operand("minimum", jnp.minimum),
}


def _dispatch(name: str, a: Tile, b: Tile | Index | Scalar) -> Tile:
    return _BINARY[name](a, b) if isinstance(b, Tile) else _SCALAR[name](a, value=b)


def add(a: Tile, b: Tile | Index | Scalar) -> Tile:
    """``a + b``; an operand with one row or one column is broadcast. ``b`` may be a number or a loop index."""
    return _dispatch("add", a, b)


def subtract(a: Tile, b: Tile | Index | Scalar) -> Tile:
    """``a - b``."""
    return _dispatch("subtract", a, b)


def multiply(a: Tile, b: Tile | Index | Scalar) -> Tile:
    """``a * b``."""
    return _dispatch("multiply", a, b)


def divide(a: Tile, b: Tile | Index | Scalar) -> Tile:
    """``a / b``."""
    return _dispatch("divide", a, b)


def maximum_of(a: Tile, b: Tile | Index | Scalar) -> Tile:
    """The larger of two tiles, element by element."""
    return _dispatch("maximum", a, b)


def minimum_of(a: Tile, b: Tile | Index | Scalar) -> Tile:
    """The smaller of two tiles, element by element."""
    return _dispatch("minimum", a, b)


def _multiply_add_infer(a: Tile, b: Tile, c: Tile) -> TileType:
    product = _broadcast("multiply_add", a, b)
    return _broadcast("multiply_add", c, dataclasses.replace(a, shape=product.shape, valid=product.valid))


multiply_add = Operation(
    "multiply_add",
    infer=_multiply_add_infer,
    run=_added_product,
    cost=rules.vector(3.0, by_row=True),
)
"""``a * b + c`` in one instruction; operands broadcast as in :func:`add`."""

exp = unary_operation("exp", jnp.exp, 2.0, True)
log = unary_operation("log", jnp.log, 2.0, True)
sqrt = unary_operation("sqrt", jnp.sqrt, 2.0, True)
rsqrt = unary_operation("rsqrt", jax.lax.rsqrt, 2.0, True)
reciprocal = unary_operation("reciprocal", lambda x: 1 / x, 2.0, True)
negative = unary_operation("negative", jnp.negative, exact=True)
absolute = unary_operation("absolute", jnp.abs, exact=True)


def _reduction(
    name: str, function: Callable, neutral: float, extra_start: float = 0.0, exact: bool = False
) -> Operation:
    def infer(tile: Tile) -> TileType:
        _require_vec(name, tile)
        return TileType((tile.shape[0], 1), (tile.valid[0], 1), tile.dtype, Vec)

    def run(context: Any, tile: Tile):
        inside = jnp.arange(tile.payload.shape[1], dtype=jnp.int32) < tile.valid[1]
        masked = jnp.where(inside[None, :], tile.payload, jnp.asarray(neutral, tile.payload.dtype))
        return function(masked, axis=1, keepdims=True)

    return Operation(name, infer=infer, run=run, cost=rules.row_reduction(extra_start), exact=exact)


def _sum(x: jax.Array, axis: int, keepdims: bool) -> jax.Array:
    return jnp.sum(x, axis, dtype=x.dtype, keepdims=keepdims)


row_sum = _reduction("row_sum", _sum, 0.0, extra_start=0.56)
row_max = _reduction("row_max", jnp.max, -jnp.inf, exact=True)


def _column_reduction(name: str, function: Callable, neutral: float, cost: Callable, exact: bool = False) -> Operation:
    def infer(tile: Tile) -> TileType:
        _require_vec(name, tile)
        return TileType((1, tile.shape[1]), (1, tile.valid[1]), tile.dtype, Vec)

    def run(context: Any, tile: Tile):
        inside = jnp.arange(tile.payload.shape[0], dtype=jnp.int32) < tile.valid[0]
        masked = jnp.where(inside[:, None], tile.payload, jnp.asarray(neutral, tile.payload.dtype))
        return function(masked, axis=0, keepdims=True)

    return Operation(name, infer=infer, run=run, cost=cost, exact=exact)


column_sum = _column_reduction("column_sum", _sum, 0.0, rules.column_reduction(19.4, 1.75))
column_max = _column_reduction("column_max", jnp.max, -jnp.inf, rules.column_reduction(17.2, 17.8), True)


def _expand_infer(tile: Tile, *, columns: Scalar) -> TileType:
    _require_vec("row_expand", tile)
    if not _is_one(tile.shape[1]):
        raise KernelError(f"`row_expand` expects a tile of one column; got {tile.shape[1]}")
    return TileType((tile.shape[0], columns), (tile.valid[0], columns), tile.dtype, Vec)


_row_expand = Operation(
    "row_expand",
    infer=_expand_infer,
    run=lambda context, tile, *, columns: jnp.broadcast_to(tile.payload, (tile.payload.shape[0], columns)),
    cost=rules.expand,
    exact=True,
)


def row_expand(tile: Tile, columns: Scalar) -> Tile:
    """A tile of one column, repeated over ``columns`` of them."""
    return _row_expand(tile, columns=columns)


def _rounding_of(name: str) -> Rounding:
    try:
        return Rounding(name)
    except ValueError as error:
        raise KernelError(str(error)) from None


def _cast_infer(tile: Tile, *, dtype: str, rounding: str) -> TileType:
    if tile.space not in (Acc, Vec):
        raise KernelError(
            f"`cast` works in Vec, or on an accumulator on its way out; the tile is in {tile.space.value}"
        )
    if _rounding_of(rounding) is Rounding.STOCHASTIC:
        raise KernelError("`rounding` of a kernel's cast cannot be stochastic: a kernel has no random numbers")
    return TileType(tile.shape, tile.valid, dtype_of(dtype).name, tile.space)


def _cast_run(context: Any, tile: Tile, *, dtype: str, rounding: str):
    if context.float64:
        return tile.payload
    return cast_values(tile.payload, dtype_of(dtype).jax, _rounding_of(rounding))


_cast_vec = Operation("cast", infer=_cast_infer, run=_cast_run, cost=rules.vector())
_cast_acc = Operation("cast_on_drain", infer=_cast_infer, run=_cast_run, cost=rules.free, alias=0)


def cast(tile: Tile, dtype: str, *, rounding: str = "rint") -> Tile:
    """Convert the elements of a tile.

    On an accumulator it is free: FIXPIPE converts while it drains. The reference reading leaves casts out.

    Args:
        tile: a tile in Vec or Acc.
        dtype: ``bf16``, ``fp16``, ``fp32``, ``int8`` or ``int32``; integers saturate.
        rounding: ``rint`` (ties to even), ``round`` (ties away, the toolchain's default), ``floor``, ``ceil``,
            ``trunc`` or ``odd`` (von Neumann: a discarded bit sets the last one), or any
            :class:`pyptox.precision.Rounding` but the stochastic one.
    """
    if dtype_of(dtype).name == tile.dtype:
        return tile
    return (_cast_acc if tile.space is Space.ACC else _cast_vec)(tile, dtype=dtype, rounding=rounding)
