"""A prefix sum of a long vector, cut into rows: sums along rows on the cube, then the carry from row to row.

The vector is a matrix whose rows follow one another. :func:`scan_rows` multiplies it by the upper triangle of ones on
the cube, which makes the prefix sums of each row, while the vector cores of the cluster add up each part of the
matrix. :func:`scan_carry` adds to each row what comes before it.
"""

import functools
from typing import Any

import jax.numpy as jnp

from .. import lang as pl
from .._errors import KernelError
from .._scalar import clip
from ..lang import Tile
from ._rows import matrix

_RANGES = {"stages": (1, 4)}


def _wide(x: pl.Spec) -> str:
    return "int32" if x.dtype == "int8" else "fp32"


def _rows(x: pl.Spec, ones: pl.Spec) -> pl.Spec:
    matrix("x", x, floating=False)
    if ones.shape != (x.shape[1], x.shape[1]) or ones.dtype != x.dtype:
        raise KernelError(f"`ones` must be {x.dtype}[{x.shape[1]},{x.shape[1]}], the upper triangle; got {ones}")
    return pl.spec(x.shape, _wide(x))


@functools.cache
def scan_rows(parts: int) -> pl.Kernel:
    """The kernel that makes the prefix sums of each row of ``x``, and the sum of each of ``parts`` equal parts of it.

    ``ones`` is the upper triangle of ones, as wide as a row. Outputs: ``sums`` like ``x`` and ``total`` (parts), in
    fp32, or int32 for int8. Parts are runs of whole tiles. Parameters: ``m`` rows a tile (the column tile is a row);
    ``stages`` slots of the pipeline over the tiles of a part.

    >>> import numpy as np, pyptox as px
    >>> x, ones = np.ones((64, 16), np.float32), np.triu(np.ones((16, 16), np.float32))
    >>> sums, total = px.run(px.kernels.scan_rows(2), x, ones, m=16)
    >>> float(sums[3, 4]), np.asarray(total).tolist()
    (5.0, [512.0, 512.0])
    """
    if not isinstance(parts, int) or parts < 1:
        raise KernelError(f"`parts` of scan_rows must be a positive integer; got {parts!r}")

    @pl.kernel(
        outputs={
            "sums": lambda x, ones: _rows(x, ones),
            "total": lambda x, ones: pl.spec((parts,), _rows(x, ones).dtype),
        },
        tile={"m": 128},
        ranges=_RANGES,
        name=f"scan_rows({parts})",
    )
    def kernel(
        x: pl.Tensor, ones: pl.Tensor, sums: pl.Tensor, total: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2
    ) -> None:
        m, n = x.shape
        steps = pl.cdiv(pl.cdiv(m, parts), tile.m)

        def block(p):
            triangle = pl.load(ones, (0, 0), (n, n))

            def step(t, so_far):
                at = ((p * steps + t) * tile.m, 0)
                product = pl.matmul(pl.load(x, at, (tile.m, n)), triangle)
                pl.store(sums, at, product)
                wide = pl.cast(pl.load(x, at, (tile.m, n), space=pl.Vec), sums.dtype)
                return pl.add(so_far, pl.column_sum(wide))

            so_far = pl.pipeline(steps, step, pl.zeros((1, n), sums.dtype), stages=stages)
            pl.store(total, (p,), pl.row_sum(so_far))

        pl.grid((parts,), block)

    return kernel


def _carry_infer(tile: Tile, before: Tile) -> pl.TileType:
    return pl.TileType(tile.shape, tile.valid, tile.dtype, tile.space)


def _carry_run(context: Any, tile: Tile, before: Tile):
    x = tile.payload
    inside = jnp.arange(x.shape[0], dtype=jnp.int32)[:, None] < tile.valid[0]
    column = jnp.maximum(jnp.asarray(tile.valid[1], jnp.int32) - 1, 0)
    ends = jnp.where(inside, jnp.take(x, column, axis=1)[:, None], jnp.zeros((), x.dtype))
    return x + (before.payload + jnp.cumsum(ends, axis=0, dtype=x.dtype) - ends)


carry_rows = pl.Operation("carry_rows", infer=_carry_infer, run=_carry_run, cost=pl.rules.row_after_row)
"""To each row of a tile, whose last element is its sum, add ``before`` and the sums of the rows above it."""


def _last_infer(tile: Tile, before: Tile) -> pl.TileType:
    return pl.TileType((1, 1), (1, 1), tile.dtype, tile.space)


def _last_run(context: Any, tile: Tile, before: Tile):
    row, column = (jnp.asarray(size, jnp.int32) - 1 for size in tile.valid)
    last = tile.payload[clip(row, 0, tile.shape[0]), clip(column, 0, tile.shape[1])]
    return jnp.where((row >= 0) & (column >= 0), last, before.payload)


last_element = pl.Operation("last_element", infer=_last_infer, run=_last_run, cost=pl.rules.free, exact=True)
"""The last valid element of a tile, or ``before`` where it has none: the scalar unit has read it for the last row."""


@pl.kernel(
    outputs={"out": lambda sums, total: matrix("sums", sums, floating=False)},
    tile={"m": 128},
    ranges=_RANGES,
)
def scan_carry(sums: pl.Tensor, total: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2) -> None:
    """The prefix sums of a whole matrix, row after row, from those of its rows and the totals of its parts.

    ``sums`` and ``total`` as :func:`scan_rows` makes them with the same ``m``. Parameters as there.

    >>> import numpy as np, pyptox as px
    >>> sums, total = np.tile(np.arange(1, 17, dtype=np.float32), (64, 1)), np.full(2, 512, np.float32)
    >>> float(px.run(px.kernels.scan_carry, sums, total, m=16)[63, 15])
    1024.0
    """
    m, n = sums.shape
    parts = total.shape[0]
    steps = pl.cdiv(pl.cdiv(m, parts), tile.m)

    def block(p):
        before = pl.row_sum(pl.load(total, (0,), (parts,), space=pl.Vec, valid=(p,)))

        def step(t, before):
            at = ((p * steps + t) * tile.m, 0)
            whole = carry_rows(pl.load(sums, at, (tile.m, n), space=pl.Vec), before)
            pl.store(out, at, whole)
            return last_element(whole, before)

        pl.pipeline(steps, step, before, stages=stages)

    pl.grid((parts,), block)
