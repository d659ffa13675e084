"""INT8: quantisation of activations and weights, and the product of what was quantised."""

from .. import lang as pl
from .._errors import KernelError
from ._matmul import _reduce
from ._rows import load_wide, matrix, over_columns, store_narrow, walk_rows

_TILE = {"m": 16, "n": 512}
_RANGES = {"steps": (1, 64), "stages": (1, 4)}
_LIMIT = 127.0
_FLOOR = 1e-4
"""Below this largest magnitude a row counts as having it, so that a row of zeros has a scale."""


def _row_scales(x: pl.Spec) -> pl.Spec:
    return pl.spec((x.shape[0], 1), "fp32")


def _quantized(x: pl.Spec) -> pl.Spec:
    return pl.spec(matrix("x", x).shape, "int8")


def _scaled(name: str, spec: pl.Spec, scale: pl.Spec, shape: tuple[int, ...]) -> pl.Spec:
    matrix(name, spec, floating=False)
    if scale.shape != shape or scale.dtype != "fp32":
        raise KernelError(f"`scale` must be fp32[{','.join(map(str, shape))}]; got {scale}")
    return spec


def _peak(wide: pl.Tile) -> pl.Tile:
    return pl.row_max(pl.absolute(wide))


@pl.kernel(
    outputs={"out": lambda x: _quantized(x), "scale": lambda x: _row_scales(x)},
    tile={"m": 8},
    ranges=_RANGES,
)
def quantize_per_token(
    x: pl.Tensor, out: pl.Tensor, scale: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2
) -> None:
    """``scale = max(|x|, of a row; at least 1e-4) / 127`` and ``out = round(x / scale)``, with whole rows on chip.

    ``out`` is int8 (ties to even), ``scale`` fp32 of shape (rows, 1). Parameters: ``m`` rows a tile; ``steps`` row
    tiles a block, in a pipeline of ``stages`` slots.

    >>> import numpy as np, pyptox as px
    >>> out, scale = px.run(px.kernels.quantize_per_token, np.full((2, 32), -254, np.float32))
    >>> int(out[1, 3]), float(scale[1, 0])
    (-127, 2.0)
    """
    m, n = x.shape

    def block(i):
        def rows(r):
            wide = load_wide(x, (r * tile.m, 0), (tile.m, n))
            row = pl.divide(pl.maximum_of(_peak(wide), _FLOOR), _LIMIT)
            pl.store(scale, (r * tile.m, 0), row)
            store_narrow(out, (r * tile.m, 0), pl.divide(wide, row))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(m, steps * tile.m),), block)


@pl.kernel(
    outputs={"out": lambda x: _quantized(x), "scale": lambda x: _row_scales(x)},
    tile=_TILE,
    ranges={"stages": (1, 4)},
)
def quantize_per_token_tiled(
    x: pl.Tensor, out: pl.Tensor, scale: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2
) -> None:
    """``quantize_per_token`` in column tiles: one pass finds the largest magnitude, the next one quantises.

    Parameters: ``m`` rows a block, ``n`` columns a tile; ``stages`` slots of the pipelines over columns.
    """

    def block(i):
        def peak(column, largest):
            return pl.maximum_of(_peak(load_wide(x, (i * tile.m, column), (tile.m, tile.n))), largest)

        def quantize(column, row):
            wide = load_wide(x, (i * tile.m, column), (tile.m, tile.n))
            store_narrow(out, (i * tile.m, column), pl.divide(wide, row))
            return row

        row = pl.divide(over_columns(x, tile, stages, peak, pl.full((tile.m, 1), _FLOOR, "fp32")), _LIMIT)
        pl.store(scale, (i * tile.m, 0), row)
        over_columns(x, tile, stages, quantize, row)

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


@pl.kernel(
    outputs={"out": lambda x, scale: pl.spec(_scaled("x", matrix("x", x), scale, x.shape[1:]).shape, "int8")},
    tile=_TILE,
    ranges=_RANGES,
)
def quantize_per_channel(
    x: pl.Tensor, scale: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2
) -> None:
    """``out = round(x / scale)`` in int8 (ties to even, saturated) with a given ``scale`` for each column.

    Parameters: the tile ``m, n``; ``steps`` row tiles a block, in a pipeline of ``stages`` slots.

    >>> import numpy as np, pyptox as px
    >>> x, scale = np.full((2, 32), 5, np.float32), np.full(32, 2, np.float32)
    >>> int(px.run(px.kernels.quantize_per_channel, x, scale)[1, 3])
    2
    """

    def block(i, j):
        column = pl.load(scale, (j * tile.n,), (tile.n,), space=pl.Vec)

        def rows(r):
            wide = load_wide(x, (r * tile.m, j * tile.n), (tile.m, tile.n))
            store_narrow(out, (r * tile.m, j * tile.n), pl.divide(wide, column))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(x.shape[0], steps * tile.m), pl.cdiv(x.shape[1], tile.n)), block)


@pl.kernel(
    outputs={"out": lambda q, scale: pl.spec(_scaled("q", q, scale, (q.shape[0], 1)).shape, "fp32")},
    tile=_TILE,
    ranges=_RANGES,
)
def dequantize_per_token(
    q: pl.Tensor, scale: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2
) -> None:
    """``out = q scale`` in fp32 with a ``scale`` for each row, of shape (rows, 1). ``q`` is int8 or int32.

    Parameters as in ``quantize_per_channel``.
    """

    def block(i, j):
        def rows(r):
            row = pl.load(scale, (r * tile.m, 0), (tile.m, 1), space=pl.Vec)
            wide = load_wide(q, (r * tile.m, j * tile.n), (tile.m, tile.n))
            pl.store(out, (r * tile.m, j * tile.n), pl.multiply(wide, row))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(q.shape[0], steps * tile.m), pl.cdiv(q.shape[1], tile.n)), block)


@pl.kernel(
    outputs={"out": lambda q, scale: pl.spec(_scaled("q", q, scale, q.shape[1:]).shape, "fp32")},
    tile=_TILE,
    ranges=_RANGES,
)
def dequantize_per_channel(
    q: pl.Tensor, scale: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2
) -> None:
    """``out = q scale`` in fp32 with a ``scale`` for each column. ``q`` is int8 or int32.

    Parameters as in ``quantize_per_channel``.
    """

    def block(i, j):
        column = pl.load(scale, (j * tile.n,), (tile.n,), space=pl.Vec)

        def rows(r):
            wide = load_wide(q, (r * tile.m, j * tile.n), (tile.m, tile.n))
            pl.store(out, (r * tile.m, j * tile.n), pl.multiply(wide, column))

        walk_rows(steps, stages, rows, i)

    pl.grid((pl.cdiv(q.shape[0], steps * tile.m), pl.cdiv(q.shape[1], tile.n)), block)


# ------------------------------------------------------------------------------------------------------- the product
def _w8a8_spec(a: pl.Spec, b: pl.Spec, a_scale: pl.Spec, b_scale: pl.Spec, dtype: str) -> pl.Spec:
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or {a.dtype, b.dtype} != {"int8"}:
        raise KernelError(f"`a` (m, k) and `b` (k, n) of w8a8_matmul must be int8; got {a} and {b}")
    for name, scale, shape in (("a_scale", a_scale, (a.shape[0], 1)), ("b_scale", b_scale, (b.shape[1],))):
        if scale.shape != shape or scale.dtype != "fp32":
            raise KernelError(f"`{name}` must be {pl.spec(shape, 'fp32')}; got {scale}")
    return pl.spec((a.shape[0], b.shape[1]), dtype)


def _w8a8(a, b, a_scale, b_scale, out, tile, stages, group) -> None:
    m, n = out.shape

    def block(i, j):
        acc = _reduce(a, b, i * tile.m, j * tile.n, tile, stages)
        rows = pl.load(a_scale, (i * tile.m, 0), (tile.m, 1), space=pl.Vec)
        columns = pl.load(b_scale, (j * tile.n,), (tile.n,), space=pl.Vec)
        y = pl.multiply(pl.multiply(pl.cast(pl.move(acc, pl.Vec), "fp32"), rows), columns)
        store_narrow(out, (i * tile.m, j * tile.n), y)

    pl.grid((pl.cdiv(m, tile.m), pl.cdiv(n, tile.n)), block, order=pl.swizzled(group))


_PRODUCT_TILE = {"m": 64, "n": 256, "k": 512}
_PRODUCT_RANGES = {"stages": (1, 4), "group": (1, 64)}


@pl.kernel(
    outputs={"out": lambda a, b, a_scale, b_scale: _w8a8_spec(a, b, a_scale, b_scale, "bf16")},
    tile=_PRODUCT_TILE,
    ranges=_PRODUCT_RANGES,
)
def w8a8_matmul(
    a: pl.Tensor,
    b: pl.Tensor,
    a_scale: pl.Tensor,
    b_scale: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    stages: int = 2,
    group: int = 4,
) -> None:
    """``out[m, n] = (a[m, k] @ b[k, n]) a_scale[m, 1] b_scale[n]`` of int8, in bf16.

    The cube accumulates in int32; the vector cores of the cluster apply the scales in float32. Parameters as in
    ``matmul``.

    >>> import numpy as np, pyptox as px
    >>> a, b = np.full((3, 32), 2, np.int8), np.full((32, 5), 3, np.int8)
    >>> scales = np.full((3, 1), 0.5, np.float32), np.full(5, 0.25, np.float32)
    >>> float(px.run(px.kernels.w8a8_matmul, a, b, *scales)[2, 4])
    24.0
    """
    _w8a8(a, b, a_scale, b_scale, out, tile, stages, group)


@pl.kernel(
    outputs={"out": lambda a, b, a_scale, b_scale: _w8a8_spec(a, b, a_scale, b_scale, "fp32")},
    tile=_PRODUCT_TILE,
    ranges=_PRODUCT_RANGES,
)
def w8a8_matmul_fp32(
    a: pl.Tensor,
    b: pl.Tensor,
    a_scale: pl.Tensor,
    b_scale: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    stages: int = 2,
    group: int = 4,
) -> None:
    """``w8a8_matmul`` with an fp32 output."""
    _w8a8(a, b, a_scale, b_scale, out, tile, stages, group)
