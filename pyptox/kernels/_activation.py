"""Elementwise kernels between the matrix products of a layer."""

from .. import lang as pl
from ._rows import like, load_wide, store_narrow, walk_rows

_TILE = {"m": 16, "n": 512}
_RANGES = {"steps": (1, 64), "stages": (1, 4)}


def _elementwise(out: pl.Tensor, tile: pl.TileSizes, steps, stages, inputs: tuple[pl.Tensor, ...], function) -> None:
    """``out = function(*inputs)`` in float32, tile by tile; a block walks ``steps`` row tiles of one column tile."""
    m, n = out.shape

    def block(i, j):
        def rows(r):
            at = (r * tile.m, j * tile.n)
            parts = [load_wide(tensor, at, (tile.m, tile.n)) for tensor in inputs]
            store_narrow(out, at, function(*parts))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(m, steps * tile.m), pl.cdiv(n, tile.n)), block)


@pl.kernel(outputs={"out": lambda gate, up: like(gate=gate, up=up)}, tile=_TILE, ranges=_RANGES)
def swiglu(
    gate: pl.Tensor, up: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2
) -> None:
    """``out = silu(gate) up`` with ``silu(g) = g / (1 + exp(-g))``, in float32.

    Parameters: the tile ``m, n``; ``steps`` row tiles a block, in a pipeline of ``stages`` slots.

    >>> import numpy as np, pyptox as px
    >>> gate, up = np.zeros((3, 16), np.float32), np.ones((3, 16), np.float32)
    >>> float(px.run(px.kernels.swiglu, gate, up)[2, 5])
    0.0
    """

    def gated(g, u):
        return pl.multiply(pl.divide(g, pl.add(pl.exp(pl.negative(g)), 1.0)), u)

    _elementwise(out, tile, steps, stages, (gate, up), gated)


@pl.kernel(outputs={"out": lambda residual, x: like(residual=residual, x=x)}, tile=_TILE, ranges=_RANGES)
def residual_add(
    residual: pl.Tensor, x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2
) -> None:
    """``out = residual + x``, added in float32, in the element type of ``residual``. Parameters as in ``swiglu``.

    >>> import jax.numpy as jnp, pyptox as px
    >>> stream, x = jnp.ones((3, 16), jnp.float32), jnp.ones((3, 16), jnp.bfloat16)
    >>> px.run(px.kernels.residual_add, stream, x).dtype.name
    'float32'
    """
    _elementwise(out, tile, steps, stages, (residual, x), pl.add)
