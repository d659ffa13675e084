"""Products with their vector epilogue in one mixed kernel: the result goes to the vector cores of the cluster."""

import functools

from .. import lang as pl
from .._dtypes import dtype_of
from .._errors import KernelError
from ._matmul import _product, _reduce

_TILE = {"m": 16, "n": 256, "k": 256}
_RANGES = {"stages": (1, 4)}


def _gated(a: pl.Spec, gate: pl.Spec, up: pl.Spec, inverse: pl.Spec, dtype: str) -> pl.Spec:
    out = _product(a, gate, dtype)
    if up != gate:
        raise KernelError(f"`up` must be as `gate`; got {up} and {gate}")
    if inverse.shape != (a.shape[0], 1) or inverse.dtype != "fp32":
        raise KernelError(f"`inverse` must be fp32[{a.shape[0]},1]; got {inverse}")
    return out


@functools.cache
def matmul_swiglu(dtype: str) -> pl.Kernel:
    """The kernel ``out = silu(a @ gate inverse) (a @ up inverse)`` with ``inverse[m, 0]`` of each row, in ``dtype``.

    Both products of a tile are one after the other on the cube. Parameters: the L1 tile ``m, n, k`` of each;
    ``stages`` slots of their K pipelines.

    >>> import numpy as np, pyptox as px
    >>> a, w, inverse = np.ones((3, 16), np.float32), np.ones((16, 32), np.float32), np.full((3, 1), 0.25, np.float32)
    >>> round(float(px.run(px.kernels.matmul_swiglu("fp32"), a, w, w, inverse, n=32, k=16)[2, 5]), 3)
    15.712
    """
    name = dtype_of(dtype).name

    @pl.kernel(
        outputs={"out": lambda a, gate, up, inverse: _gated(a, gate, up, inverse, name)},
        tile=_TILE,
        ranges=_RANGES,
        name=f"matmul_swiglu({name})",
    )
    def kernel(
        a: pl.Tensor,
        gate: pl.Tensor,
        up: pl.Tensor,
        inverse: pl.Tensor,
        out: pl.Tensor,
        *,
        tile: pl.TileSizes,
        stages: int = 2,
    ) -> None:
        def block(i, j):
            factor = pl.load(inverse, (i * tile.m, 0), (tile.m, 1), space=pl.Vec)
            g, u = (
                pl.multiply(pl.move(_reduce(a, w, i * tile.m, j * tile.n, tile, stages), pl.Vec), factor)
                for w in (gate, up)
            )
            y = pl.multiply(pl.divide(g, pl.add(pl.exp(pl.negative(g)), 1.0)), u)
            pl.store(out, (i * tile.m, j * tile.n), pl.cast(y, out.dtype))

        pl.grid((pl.cdiv(out.shape[0], tile.m), pl.cdiv(out.shape[1], tile.n)), block)

    return kernel


def _added(a: pl.Spec, b: pl.Spec, residual: pl.Spec) -> pl.Spec:
    out = _product(a, b, "fp32")
    if residual != out:
        raise KernelError(f"`residual` must be {out}; got {residual}")
    return out


@pl.kernel(outputs={"out": lambda a, b, residual: _added(a, b, residual)}, tile=_TILE, ranges=_RANGES)
def matmul_residual(
    a: pl.Tensor, b: pl.Tensor, residual: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2
) -> None:
    """``out = residual + a @ b`` in fp32. Parameters: the L1 tile ``m, n, k``; ``stages`` slots of its K pipeline.

    >>> import numpy as np, pyptox as px
    >>> a, b, x = np.ones((3, 16), np.float32), np.ones((16, 32), np.float32), np.ones((3, 32), np.float32)
    >>> float(px.run(px.kernels.matmul_residual, a, b, x, n=32, k=16)[2, 5])
    17.0
    """

    def block(i, j):
        acc = _reduce(a, b, i * tile.m, j * tile.n, tile, stages)
        stream = pl.load(residual, (i * tile.m, j * tile.n), (tile.m, tile.n), space=pl.Vec)
        pl.store(out, (i * tile.m, j * tile.n), pl.add(stream, pl.move(acc, pl.Vec)))

    pl.grid((pl.cdiv(out.shape[0], tile.m), pl.cdiv(out.shape[1], tile.n)), block)
