"""What the kernels over rows share: checks of their inputs, the walk over row tiles, float32 in and out."""

from collections.abc import Callable
from typing import Any

from .. import lang as pl
from .._dtypes import dtype_of
from .._errors import KernelError
from .._scalar import Scalar


def matrix(name: str, spec: pl.Spec, *, floating: bool = True) -> pl.Spec:
    """``spec`` if it is a matrix (of floats)."""
    if len(spec.shape) != 2 or (floating and not dtype_of(spec.dtype).floating):
        raise KernelError(f"`{name}` must be a matrix{' of floats' if floating else ''}; got {spec}")
    return spec


def like(**specs: pl.Spec) -> pl.Spec:
    """The first spec, a float matrix that all others must equal in shape."""
    (name, first), *others = specs.items()
    matrix(name, first)
    for other, spec in others:
        matrix(other, spec)
        if spec.shape != first.shape:
            raise KernelError(f"`{other}` must have the shape of `{name}`; got {spec} and {first}")
    return first


def with_vectors(x: pl.Spec, **vectors: pl.Spec) -> pl.Spec:
    """``x``, a float matrix, whose columns each of ``vectors`` has one float for."""
    matrix("x", x)
    for name, spec in vectors.items():
        if spec.shape != x.shape[1:] or spec.dtype not in ("fp32", x.dtype):
            raise KernelError(f"`{name}` must be fp32[{x.shape[1]}] or {x.dtype}[{x.shape[1]}]; got {spec}")
    return x


def load_wide(tensor: pl.Tensor, offsets: tuple, shape: tuple) -> pl.Tile:
    """A tile of a tensor in Vec as float32."""
    return pl.cast(pl.load(tensor, offsets, shape, space=pl.Vec), "fp32")


def store_narrow(tensor: pl.Tensor, offsets: tuple, tile: pl.Tile, *, rounding: str = "rint") -> None:
    """Store a tile in the element type of the tensor."""
    pl.store(tensor, offsets, pl.cast(tile, tensor.dtype, rounding=rounding))


def walk_rows(steps: Scalar, stages: Scalar, body: Callable[[pl.Index], None], block: pl.Index) -> None:
    """Call ``body`` with the number of each of a block's ``steps`` row tiles, in a pipeline."""

    def step(r: pl.Index, nothing: Any) -> Any:
        body(block * steps + r)
        return nothing

    pl.pipeline(steps, step, (), stages=stages)


def over_columns(x: pl.Tensor, tile: pl.TileSizes, stages: Scalar, body: Callable, carry: Any) -> Any:
    """``carry`` after ``body(column, carry)`` at the first column of each column tile, in a pipeline."""
    return pl.pipeline(pl.cdiv(x.shape[1], tile.n), lambda j, c: body(j * tile.n, c), carry, stages=stages)
