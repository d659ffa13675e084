"""Normalisation of rows. A ``_tiled`` kernel takes rows that do not fit on chip, in two passes over them."""

from .. import lang as pl
from ._rows import load_wide, over_columns, store_narrow, walk_rows, with_vectors

_EPSILONS = (1e-6, 1e-5, 1e-8, 1e-12)
_RANGES = {"steps": (1, 64), "stages": (1, 4)}


def _inverse_rms(squares: pl.Tile, columns, epsilon: float) -> pl.Tile:
    """``1 / sqrt(mean of squares + epsilon)`` of each row, from the sums of its squares."""
    return pl.rsqrt(pl.add(pl.divide(squares, columns), epsilon))


@pl.kernel(
    outputs={"out": lambda x, weight: with_vectors(x, weight=weight)},
    tile={"m": 8},
    ranges=_RANGES,
    choices={"epsilon": _EPSILONS},
)
def rms_norm(
    x: pl.Tensor,
    weight: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    steps: int = 2,
    stages: int = 2,
    epsilon: float = 1e-6,
) -> None:
    """``out = x / sqrt(mean(x², of a row) + epsilon) weight``, in float32, with whole rows on chip.

    Parameters: ``m`` rows a tile; ``steps`` row tiles a block, in a pipeline of ``stages`` slots; ``epsilon``.

    >>> import numpy as np, pyptox as px
    >>> x, weight = np.full((3, 16), 2.0, np.float32), np.ones(16, np.float32)
    >>> round(float(px.run(px.kernels.rms_norm, x, weight)[2, 5]), 5)
    1.0
    """
    m, n = x.shape

    def block(i):
        scale = load_wide(weight, (0,), (n,))

        def rows(r):
            wide = load_wide(x, (r * tile.m, 0), (tile.m, n))
            inverse = _inverse_rms(pl.row_sum(pl.multiply(wide, wide)), n, epsilon)
            store_narrow(out, (r * tile.m, 0), pl.multiply(pl.multiply(wide, inverse), scale))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(m, steps * tile.m),), block)


@pl.kernel(
    outputs={"out": lambda x, weight: with_vectors(x, weight=weight)},
    tile={"m": 16, "n": 512},
    ranges={"stages": (1, 4)},
    choices={"epsilon": _EPSILONS},
)
def rms_norm_tiled(
    x: pl.Tensor, weight: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2, epsilon: float = 1e-6
) -> None:
    """``rms_norm`` in column tiles: one pass sums the squares, the next one scales.

    Parameters: ``m`` rows a block, ``n`` columns a tile; ``stages`` slots of the pipeline over columns; ``epsilon``.
    """
    m, n = x.shape

    def block(i):
        def square(column, total):
            wide = load_wide(x, (i * tile.m, column), (tile.m, tile.n))
            return pl.add(pl.row_sum(pl.multiply(wide, wide)), total)

        def scale(column, inverse):
            wide = load_wide(x, (i * tile.m, column), (tile.m, tile.n))
            gain = load_wide(weight, (column,), (tile.n,))
            store_narrow(out, (i * tile.m, column), pl.multiply(pl.multiply(wide, inverse), gain))
            return inverse

        squares = over_columns(x, tile, stages, square, pl.zeros((tile.m, 1), "fp32"))
        over_columns(x, tile, stages, scale, _inverse_rms(squares, n, epsilon))

    pl.grid((pl.cdiv(m, tile.m),), block)


@pl.kernel(
    outputs={"out": lambda x, weight, bias: with_vectors(x, weight=weight, bias=bias)},
    tile={"m": 8},
    ranges=_RANGES,
    choices={"epsilon": _EPSILONS},
)
def layer_norm(
    x: pl.Tensor,
    weight: pl.Tensor,
    bias: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    steps: int = 2,
    stages: int = 2,
    epsilon: float = 1e-5,
) -> None:
    """``out = (x - mean) / sqrt(variance + epsilon) weight + bias`` over each row, with whole rows on chip.

    In float32; the variance is that of the centred row, so that a large mean cancels nothing. Parameters as in
    ``rms_norm``.

    >>> import numpy as np, pyptox as px
    >>> x, ones = np.arange(32, dtype=np.float32).reshape(2, 16), np.ones(16, np.float32)
    >>> round(float(px.run(px.kernels.layer_norm, x, ones, ones)[1].mean()), 5)
    1.0
    """
    m, n = x.shape

    def block(i):
        gain, shift = load_wide(weight, (0,), (n,)), load_wide(bias, (0,), (n,))

        def rows(r):
            wide = load_wide(x, (r * tile.m, 0), (tile.m, n))
            centred = pl.subtract(wide, pl.divide(pl.row_sum(wide), n))
            inverse = _inverse_rms(pl.row_sum(pl.multiply(centred, centred)), n, epsilon)
            scaled = pl.multiply(pl.multiply(centred, inverse), gain)
            store_narrow(out, (r * tile.m, 0), pl.add(scaled, shift))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(m, steps * tile.m),), block)


@pl.kernel(
    outputs={"out": lambda x, weight, bias: with_vectors(x, weight=weight, bias=bias)},
    tile={"m": 16, "n": 512},
    ranges={"stages": (1, 4)},
    choices={"epsilon": _EPSILONS},
)
def layer_norm_tiled(
    x: pl.Tensor,
    weight: pl.Tensor,
    bias: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    stages: int = 2,
    epsilon: float = 1e-5,
) -> None:
    """``layer_norm`` in column tiles: one pass merges the tiles' means and variances, the next one scales.

    A tile of b columns after a of them: ``mean += (mean_b - mean) b / (a + b)`` and ``squares += squares_b +
    (mean_b - mean)² a b / (a + b)`` (Chan, Golub and LeVeque 1979). Parameters as in ``rms_norm_tiled``.
    """
    m, n = x.shape

    def block(i):
        def merge(column, carry):
            mean, squares = carry
            part = pl.load(x, (i * tile.m, column), (tile.m, tile.n), space=pl.Vec)
            wide, here = pl.cast(part, "fp32"), part.valid[1]
            local = pl.divide(pl.row_sum(wide), here)
            centred = pl.subtract(wide, local)
            apart = pl.subtract(local, mean)
            share = pl.divide(pl.multiply(apart, here), pl.minimum(column + tile.n, n))  # (mean_b - mean) b / (a + b)
            between = pl.multiply(pl.multiply(apart, share), column)
            inside = pl.row_sum(pl.multiply(centred, centred))
            return pl.add(share, mean), pl.add(pl.add(inside, between), squares)

        def scale(column, carry):
            mean, inverse = carry
            wide = load_wide(x, (i * tile.m, column), (tile.m, tile.n))
            gain, shift = load_wide(weight, (column,), (tile.n,)), load_wide(bias, (column,), (tile.n,))
            scaled = pl.multiply(pl.multiply(pl.subtract(wide, mean), inverse), gain)
            store_narrow(out, (i * tile.m, column), pl.add(scaled, shift))
            return carry

        start = pl.zeros((tile.m, 1), "fp32"), pl.zeros((tile.m, 1), "fp32")
        mean, squares = over_columns(x, tile, stages, merge, start)
        over_columns(x, tile, stages, scale, (mean, _inverse_rms(squares, n, epsilon)))

    pl.grid((pl.cdiv(m, tile.m),), block)
