"""Kernels that stream a tensor through the vector cores: copies and conversions."""

import functools

from .. import lang as pl
from .._dtypes import dtype_of
from ._rows import matrix, walk_rows

_TILE = {"m": 16, "n": 1024}
_RANGES = {"steps": (1, 64), "stages": (1, 4)}


def _stream(x: pl.Tensor, out: pl.Tensor, tile: pl.TileSizes, steps, stages, rounding: str) -> None:
    """``out = x`` in the element type of ``out``, tile by tile."""
    m, n = out.shape

    def block(i, j):
        def rows(r):
            at = (r * tile.m, j * tile.n)
            part = pl.load(x, at, (tile.m, tile.n), space=pl.Vec)
            pl.store(out, at, pl.cast(part, out.dtype, rounding=rounding))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(m, steps * tile.m), pl.cdiv(n, tile.n)), block)


@pl.kernel(outputs={"out": lambda x: matrix("x", x, floating=False)}, tile=_TILE, ranges=_RANGES)
def copy(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2) -> None:
    """``out = x``, through Vec.

    Parameters: the tile ``m, n``; ``steps`` row tiles a block, in a pipeline of ``stages`` slots.

    >>> import numpy as np, pyptox as px
    >>> int(px.run(px.kernels.copy, np.arange(32, dtype=np.int32).reshape(1, 32))[0, 7])
    7
    """
    _stream(x, out, tile, steps, stages, "rint")


@pl.kernel(outputs={"out": lambda x: matrix("x", x, floating=False)}, in_place={"out": "x"}, tile=_TILE, ranges=_RANGES)
def clear(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 1, stages: int = 2) -> None:
    """``x = 0`` in place: the seed of an output that blocks add to. Parameters as in ``copy``.

    >>> import numpy as np, pyptox as px
    >>> float(px.run(px.kernels.clear, np.ones((3, 32), np.float32)).sum())
    0.0
    """
    m, n = out.shape

    def block(i, j):
        def rows(r):
            pl.store(out, (r * tile.m, j * tile.n), pl.zeros((tile.m, tile.n), out.dtype))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(m, steps * tile.m), pl.cdiv(n, tile.n)), block)


@functools.cache
def convert(dtype: str, rounding: str = "rint") -> pl.Kernel:
    """The kernel that converts a matrix to ``dtype``; ``rounding`` as in :func:`pyptox.lang.cast`.

    Parameters of the kernel as in :func:`copy`.

    >>> import numpy as np, pyptox as px
    >>> px.run(px.kernels.convert("int8"), np.full((1, 32), 2.5, np.float32)).dtype.name
    'int8'
    """
    name = dtype_of(dtype).name

    @pl.kernel(
        outputs={"out": lambda x: pl.spec(matrix("x", x, floating=False).shape, name)},
        tile=_TILE,
        ranges=_RANGES,
        name=f"convert({name})" if rounding == "rint" else f"convert({name}, {rounding})",
    )
    def kernel(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2) -> None:
        _stream(x, out, tile, steps, stages, rounding)

    return kernel
