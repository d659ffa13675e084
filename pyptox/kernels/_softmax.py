"""Softmax of rows, ``exp(x - max) / sum(exp(x - max))``, in float32."""

from .. import lang as pl
from ._rows import load_wide, matrix, over_columns, store_narrow, walk_rows

_LOWEST = -3.4028234663852886e38
"""The lowest float32: a running maximum that starts there, not at -inf, never yields inf - inf."""


@pl.kernel(outputs={"out": lambda x: matrix("x", x)}, tile={"m": 8}, ranges={"steps": (1, 64), "stages": (1, 4)})
def softmax(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2) -> None:
    """Softmax of each row of ``x``, with whole rows on chip: each element is read once.

    Parameters: ``m`` rows a tile; ``steps`` row tiles a block, in a pipeline of ``stages`` slots.

    >>> import numpy as np, pyptox as px
    >>> float(px.run(px.kernels.softmax, np.zeros((2, 8), np.float32))[1, 3])
    0.125
    """
    m, n = x.shape

    def block(i):
        def rows(r):
            wide = load_wide(x, (r * tile.m, 0), (tile.m, n))
            powers = pl.exp(pl.subtract(wide, pl.row_max(wide)))
            store_narrow(out, (r * tile.m, 0), pl.multiply(powers, pl.reciprocal(pl.row_sum(powers))))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(m, steps * tile.m),), block)


def _scale(x: pl.Tensor, out: pl.Tensor, row, tile: pl.TileSizes, stages, largest: pl.Tile, total: pl.Tile) -> None:
    """The last pass over the column tiles of a row tile: write ``exp(x - largest) / total``."""

    def step(column, carry):
        top, share = carry
        wide = load_wide(x, (row, column), (tile.m, tile.n))
        store_narrow(out, (row, column), pl.multiply(pl.exp(pl.subtract(wide, top)), share))
        return carry

    over_columns(x, tile, stages, step, (largest, pl.reciprocal(total)))


@pl.kernel(outputs={"out": lambda x: matrix("x", x)}, tile={"m": 16, "n": 512}, ranges={"stages": (1, 4)})
def softmax_two_pass(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2) -> None:
    """Softmax in column tiles: a pass for the maximum, one for the sum, and one that writes.

    Parameters: ``m`` rows a block, ``n`` columns a tile; ``stages`` slots of the pipelines over columns.
    """

    def block(i):
        def peak(column, largest):
            return pl.maximum_of(pl.row_max(load_wide(x, (i * tile.m, column), (tile.m, tile.n))), largest)

        largest = over_columns(x, tile, stages, peak, pl.full((tile.m, 1), _LOWEST, "fp32"))

        def accumulate(column, carry):
            top, total = carry
            wide = load_wide(x, (i * tile.m, column), (tile.m, tile.n))
            return top, pl.add(pl.row_sum(pl.exp(pl.subtract(wide, top))), total)

        largest, total = over_columns(x, tile, stages, accumulate, (largest, pl.zeros((tile.m, 1), "fp32")))
        _scale(x, out, i * tile.m, tile, stages, largest, total)

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


@pl.kernel(outputs={"out": lambda x: matrix("x", x)}, tile={"m": 16, "n": 512}, ranges={"stages": (1, 4)})
def softmax_online(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2) -> None:
    """Softmax in column tiles: one pass for a running maximum and sum, and one that writes.

    When the maximum rises from ``a`` to ``b`` the sum is scaled by ``exp(a - b)`` (Milakov and Gimelshein 2018).
    Parameters as in ``softmax_two_pass``.
    """

    def block(i):
        def accumulate(column, carry):
            before, total = carry
            wide = load_wide(x, (i * tile.m, column), (tile.m, tile.n))
            top = pl.maximum_of(pl.row_max(wide), before)
            local = pl.row_sum(pl.exp(pl.subtract(wide, top)))
            return top, pl.add(local, pl.multiply(total, pl.exp(pl.subtract(before, top))))

        start = pl.full((tile.m, 1), _LOWEST, "fp32"), pl.zeros((tile.m, 1), "fp32")
        largest, total = over_columns(x, tile, stages, accumulate, start)
        _scale(x, out, i * tile.m, tile, stages, largest, total)

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)
