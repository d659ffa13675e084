"""The tile operations. Each is a value with three rules: what it makes, its values, its cost."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._dtypes import dtype_of
from .._errors import KernelError
from .._scalar import Scalar, cdiv, ceil, clip, is_number, is_zero, maximum, minimum, round_up
from . import rules
from ._apart import apart
from ._loops import pipeline
from ._reading import Operation, TileType, current
from ._types import Acc, Index, Left, Mat, Right, Space, Tensor, Tile, Vec


# ---------------------------------------------------------------------------------------------------- GM access
def _check_access(name: str, tensor: Tensor, offsets: Sequence, shape: Sequence) -> None:
    if not isinstance(tensor, Tensor):
        raise KernelError(f"`{name}` expects a tensor argument of the kernel; got {type(tensor).__name__}")
    if len(offsets) != tensor.rank or len(shape) != tensor.rank:
        raise KernelError(
            f"`{name}` of `{tensor.name}` needs {tensor.rank} offsets and sizes, one per axis; got "
            f"{len(offsets)} and {len(shape)}"
        )
    if any(not (isinstance(size, int) and size == 1) for size in shape[:-2]):
        raise KernelError(f"`{name}` of `{tensor.name}`: axes before the last two must have size 1 in a tile")


def _valid_part(tensor: Tensor, offsets: Sequence, shape: Sequence, valid: Sequence | None) -> tuple[Scalar, Scalar]:
    reading = current()
    sizes = []
    for axis in range(tensor.rank - min(2, tensor.rank), tensor.rank):
        offset = offsets[axis]
        start = reading.value(offset) if isinstance(offset, Index) else offset
        size = shape[axis]
        if reading.holds(tensor, axis):
            inside = size
        elif is_number(start) and start == 0 and not is_number(tensor.shape[axis], size):
            inside = minimum(tensor.shape[axis], size)
        else:
            inside = clip(tensor.shape[axis] - start, 0, size)
        if valid is not None and valid[axis] is not None:
            limit = valid[axis]
            limit = reading.value(limit) if isinstance(limit, Index) else limit
            inside = clip(inside, 0, maximum(limit, 0))
        sizes.append(inside)
    if tensor.rank == 1:
        return 1, sizes[0]
    rows = sizes[0]
    for axis in range(tensor.rank - 2):  # beyond the end of a leading axis there is nothing
        offset = offsets[axis]
        start = reading.value(offset) if isinstance(offset, Index) else offset
        if not (is_number(start) and start == 0) and not reading.holds(tensor, axis):
            rows = rows * clip(tensor.shape[axis] - start, 0, 1)
    return rows, sizes[1]


def _load_infer(*, tensor: Tensor, offsets, shape, space: Space, valid) -> TileType:
    _check_access("load", tensor, offsets, shape)
    allocated = (1, shape[0]) if tensor.rank == 1 else (shape[-2], shape[-1])
    return TileType(allocated, _valid_part(tensor, offsets, shape, valid), tensor.dtype, space)


_load = Operation(
    "load",
    infer=_load_infer,
    run=lambda context, *, tensor, offsets, shape, space, valid: context.read(tensor, offsets, shape, valid),
    cost=rules.load,
    exact=True,
)


def load(
    tensor: Tensor,
    offsets: Sequence[Index | Scalar],
    shape: Sequence[Scalar],
    *,
    space: Space = Mat,
    valid: Sequence[Scalar | None] | None = None,
) -> Tile:
    """Copy ``shape`` elements of ``tensor``, starting at ``offsets``, into ``space``.

    What lies outside the tensor (or beyond ``valid``, one limit per axis or None) is zero and is not moved.

    Args:
        tensor: a tensor argument of the kernel.
        offsets: one element offset per axis.
        shape: allocated size per axis; axes before the last two must be 1.
        space: ``pl.Mat`` or ``pl.Vec``.
        valid: optional limits on the valid part, for lengths that come from data.
    """
    return _load(tensor=tensor, offsets=tuple(offsets), shape=tuple(shape), space=space, valid=valid)


def _store_infer(tile: Tile, *, tensor: Tensor, offsets, atomic: str | None) -> None:
    shape = (1,) * (tensor.rank - 2) + tuple(tile.shape) if tensor.rank > 1 else (tile.shape[1],)
    _check_access("store", tensor, offsets, shape)
    if not tensor.is_output:
        raise KernelError(f"`store` to `{tensor.name}`: declare it as an output of the kernel")
    if tile.dtype != tensor.dtype:
        raise KernelError(
            f"`store` to `{tensor.name}` expects {tensor.dtype}; the tile is {tile.dtype}. Use pl.cast first"
        )
    if tile.space not in (Acc, Vec):
        raise KernelError(f"`store` reads Acc or Vec; the tile is in {tile.space.value}")
    if atomic not in (None, "add"):
        raise KernelError(f"`atomic` of store must be None or 'add'; got {atomic!r}")


_store = Operation(
    "store",
    infer=_store_infer,
    run=lambda context, tile, *, tensor, offsets, atomic: context.write(tensor, offsets, tile, atomic),
    cost=rules.store,
    exact=True,
)


def store(tensor: Tensor, offsets: Sequence[Index | Scalar], tile: Tile, *, atomic: str | None = None) -> None:
    """Write the valid part of ``tile`` to ``tensor`` at ``offsets``; ``atomic="add"`` adds to what is there."""
    _store(tile, tensor=tensor, offsets=tuple(offsets), atomic=atomic)


# ----------------------------------------------------------------------------------------------- on-chip movement
def _move_infer(tile: Tile, *, space: Space, offset, shape, transpose: bool) -> TileType:
    allowed = {Mat: (Left, Right), Acc: (Vec,), Vec: (Space.GM,), Space.GM: (Mat,)}
    if space not in allowed.get(tile.space, ()):
        raise KernelError(f"`move` from {tile.space.value} to {space.value} is not a path of this core")
    reading = current()
    shape = tile.shape if shape is None else tuple(shape)
    valid = []
    for axis in range(2):
        start = reading.value(offset[axis]) if isinstance(offset[axis], Index) else offset[axis]
        if is_number(start) and start == 0:
            valid.append(
                tile.valid[axis] if shape[axis] is tile.shape[axis] else minimum(tile.valid[axis], shape[axis])
            )
        else:
            valid.append(clip(tile.valid[axis] - start, 0, shape[axis]))
    if transpose:
        shape, valid = (shape[1], shape[0]), valid[::-1]
    return TileType(shape, (valid[0], valid[1]), tile.dtype, space)


def _move_run(context, tile: Tile, *, space, offset, shape, transpose):
    shape = tile.shape if shape is None else tuple(shape)
    part = cut(context, tile.payload, offset, shape)
    return part.T if transpose else part


def cut(context: Any, array: jax.Array, offsets: Sequence[Index | Scalar], shape: Sequence[int]) -> jax.Array:
    """A slice of a tile's array. Its last step may reach past the array, which then is padded: a slice never shifts."""
    if all(is_zero(at) for at in offsets) and tuple(shape) == array.shape:
        return array
    past = [
        -extent % size if _in_steps_of(size, at) else size
        for extent, size, at in zip(array.shape, shape, offsets, strict=True)
    ]
    if any(past):
        array = jnp.pad(array, [(0, extra) for extra in past])
    starts = [jnp.asarray(context.value(at) if isinstance(at, Index) else at, jnp.int32) for at in offsets]
    return jax.lax.dynamic_slice(array, starts, tuple(shape))


def _in_steps_of(size: int, offset: Index | Scalar) -> bool:
    """True when an offset is a multiple of ``size`` wherever its axes stand."""
    if not isinstance(offset, Index):
        return isinstance(offset, int) and offset % size == 0
    factors = [factor for _, factor in offset.terms]
    return all(isinstance(n, int) and n % size == 0 for n in (offset.constant, *factors))


_move = Operation("move", infer=_move_infer, run=_move_run, cost=rules.move, exact=True)


def move(
    tile: Tile,
    space: Space,
    *,
    offset: Sequence[Index | Scalar] = (0, 0),
    shape: Sequence[Scalar] | None = None,
    transpose: bool = False,
) -> Tile:
    """Copy (part of) a tile to another space: Mat to Left or Right, Acc to Vec, Vec to GM and from there to Mat.

    GM stands for the buffer between the vector cores and the cube core of a cluster.
    ``offset`` and ``shape`` are in the source's orientation; ``transpose`` turns the result round.
    """
    return _move(tile, space=space, offset=tuple(offset), shape=shape, transpose=transpose)


# ---------------------------------------------------------------------------------------------------------- cube
def _mad_infer(lhs: Tile, rhs: Tile, acc: Tile) -> TileType:
    if (lhs.space, rhs.space, acc.space) != (Left, Right, Acc):
        names = ", ".join(t.space.value for t in (lhs, rhs, acc))
        raise KernelError(f"`matmul` reads Left and Right and writes Acc; got {names}")
    if lhs.dtype != rhs.dtype:
        raise KernelError(f"`matmul` needs operands of one dtype; got {lhs.dtype} and {rhs.dtype}")
    expected = "int32" if lhs.dtype == "int8" else "fp32"
    if acc.dtype != expected:
        raise KernelError(f"`matmul` of {lhs.dtype} accumulates in {expected}; the accumulator is {acc.dtype}")
    return TileType(acc.shape, (lhs.valid[0], rhs.valid[1]), acc.dtype, Acc)


def _mad_run(context, lhs: Tile, rhs: Tile, acc: Tile):
    wide = context.dtype(acc.dtype)
    depth = minimum(lhs.valid[1], rhs.valid[0])
    a, b = lhs.payload, rhs.payload
    if not (isinstance(depth, int) and depth == a.shape[1]):
        inside = jnp.arange(a.shape[1], dtype=jnp.int32) < depth
        a = jnp.where(inside[None, :], a, jnp.zeros((), a.dtype))
        b = jnp.where(inside[:, None], b, jnp.zeros((), b.dtype))
    a, b = a.astype(wide), b.astype(wide)
    return acc.payload + jnp.dot(a, b, preferred_element_type=wide, precision=jax.lax.Precision.HIGHEST)


_mad = Operation("matmul", infer=_mad_infer, run=_mad_run, cost=rules.mad, alias=2)

_spill = Operation(
    "acc_spill",
    infer=lambda tile: TileType(tile.shape, tile.valid, tile.dtype, tile.space),
    run=lambda context, tile: tile.payload,
    cost=rules.spill,
    alias=0,
    exact=True,
)


def staging_depth(sizes: Any, rows: Scalar, columns: Scalar, depth: Scalar, width: int) -> Scalar:
    """The reduction length of one Left/Right tile that implicit staging picks, elements.

    The deepest that fits half of Left and half of Right (they are double buffered), in whole fractals, balanced
    over the steps it takes. It maximises the work of one cube instruction, whose head is then paid least often.
    """
    fractal = sizes.fractal_bytes // width if is_number(sizes.fractal_bytes) else sizes.fractal_bytes / width
    rows, columns = round_up(rows, sizes.fractal_rows), round_up(columns, sizes.fractal_rows)
    fits = minimum(sizes.left / rows, sizes.right / columns) / (2.0 * width)
    whole = maximum(-_ceil_exact(-fits / fractal), 1) * fractal
    steps = cdiv(depth, whole)
    return round_up(cdiv(depth, steps), fractal)


def _ceil_exact(value: Scalar) -> Scalar:
    rounded = ceil(value)
    return int(rounded) if is_number(rounded) else rounded


def matmul(
    lhs: Tile, rhs: Tile, acc: Tile | None = None, *, transpose_lhs: bool = False, transpose_rhs: bool = False
) -> Tile:
    """``acc + lhs @ rhs`` on the cube, in float32 (int32 for int8 operands).

    Operands in Left and Right are used as they are. Operands in Mat are staged through Left and Right in steps
    along the reduction, double buffered, as the compiler does (:func:`staging_depth`). Without ``acc`` the
    accumulator starts at zero. A transposed operand is stored ``(n, k)`` (or ``(k, m)``) and turned on its way.
    """
    if lhs.space is Left and rhs.space is Right:
        if transpose_lhs or transpose_rhs:
            raise KernelError("`transpose` applies on the way into Left and Right; use it in pl.move")
        if acc is None:
            acc = zeros((lhs.shape[0], rhs.shape[1]), "int32" if lhs.dtype == "int8" else "fp32", space=Acc)
        return _spill(_mad(lhs, rhs, acc))
    if lhs.space is not Mat or rhs.space is not Mat:
        raise KernelError(f"`matmul` reads Mat, or Left and Right; got {lhs.space.value} and {rhs.space.value}")
    rows, depth = lhs.shape[::-1] if transpose_lhs else lhs.shape
    columns = rhs.shape[0] if transpose_rhs else rhs.shape[1]
    valid_depth = lhs.valid[0] if transpose_lhs else lhs.valid[1]
    if acc is None:
        acc = zeros((rows, columns), "int32" if lhs.dtype == "int8" else "fp32", space=Acc)
    reading = current()
    part = staging_depth(reading.sizes, rows, columns, depth, dtype_of(lhs.dtype).bytes)

    def step(kk, carried):
        at = kk * part
        left = move(
            lhs,
            Left,
            offset=(at, 0) if transpose_lhs else (0, at),
            shape=(part, rows) if transpose_lhs else (rows, part),
            transpose=transpose_lhs,
        )
        right = move(
            rhs,
            Right,
            offset=(0, at) if transpose_rhs else (at, 0),
            shape=(columns, part) if transpose_rhs else (part, columns),
            transpose=transpose_rhs,
        )
        return _mad(left, right, carried)

    return _spill(pipeline(cdiv(valid_depth, part), step, acc, stages=2))


# --------------------------------------------------------------------------------------------------------- names
def _named_infer(tile: Tile, *, title: str) -> TileType:
    if not isinstance(title, str) or not title:
        raise KernelError(f"`title` of a named tile must be a text; got {title!r}")
    return TileType(tile.shape, tile.valid, tile.dtype, tile.space)


_named = Operation(
    "named",
    infer=_named_infer,
    run=lambda context, tile, *, title: tile.payload,
    cost=rules.free,
    alias=0,
    exact=True,
)


def named(tile: Tile, title: str) -> Tile:
    """``tile``, known as ``title`` to :func:`pyptox.precision.intermediates`; it costs nothing."""
    return _named(tile, title=title)


# ------------------------------------------------------------------------------------------------------ creation
def _full_run(context, *, shape, value, dtype, space):
    return jnp.full(shape, apart(jnp.asarray(value, context.dtype(dtype))), context.dtype(dtype))


def _full_cost(context, instruction):
    return [] if instruction.out.space is Acc else rules.vector()(context, instruction)


_full = Operation(
    "full",
    infer=lambda *, shape, value, dtype, space: TileType(tuple(shape), tuple(shape), dtype_of(dtype).name, space),
    run=_full_run,
    cost=_full_cost,
)


def full(shape: Sequence[Scalar], value: float, dtype: str, *, space: Space = Vec) -> Tile:
    """A tile filled with ``value``; in Acc it is free, since the first matmul does not read it."""
    return _full(shape=tuple(shape), value=value, dtype=dtype, space=space)


def zeros(shape: Sequence[Scalar], dtype: str, *, space: Space = Vec) -> Tile:
    """A tile of zeros."""
    return full(shape, 0, dtype, space=space)
