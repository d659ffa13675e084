"""Rows picked by number: looked up in a table, or written to the slots of a cache."""

from .. import lang as pl
from .._errors import KernelError
from ._rows import matrix, walk_rows

_TILE = {"m": 16, "n": 512}
_RANGES = {"steps": (1, 64), "stages": (1, 4)}


def _numbers(name: str, spec: pl.Spec, count: int | None = None) -> int:
    if len(spec.shape) != 1 or spec.dtype != "int32" or count not in (None, spec.shape[0]):
        raise KernelError(f"`{name}` must be int32[{count or 'rows'}]; got {spec}")
    return spec.shape[0]


def _looked_up(table: pl.Spec, rows: pl.Spec) -> pl.Spec:
    return pl.spec((_numbers("rows", rows), matrix("table", table, floating=False).shape[1]), table.dtype)


@pl.kernel(outputs={"out": lambda table, rows: _looked_up(table, rows)}, tile=_TILE, ranges=_RANGES)
def gather_rows(
    table: pl.Tensor, rows: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 2, stages: int = 2
) -> None:
    """``out[t] = table[rows[t]]``: an embedding lookup. A row that the table does not have is zero.

    Parameters: ``m`` rows and ``n`` columns a tile; ``steps`` row tiles a block, in a pipeline of ``stages`` slots.

    >>> import numpy as np, pyptox as px
    >>> table, rows = np.arange(64, dtype=np.float32).reshape(4, 16), np.array([3, 0, 3], np.int32)
    >>> np.asarray(px.run(px.kernels.gather_rows, table, rows))[:, 1].tolist()
    [49.0, 1.0, 49.0]
    """
    count, width = out.shape

    def block(i, j):
        def some(r):
            numbers = pl.load(rows, (r * tile.m,), (tile.m,), space=pl.Vec)
            picked = pl.load_rows(table, numbers, j * tile.n, tile.n)
            pl.store(out, (r * tile.m, j * tile.n), picked)

        walk_rows(steps, stages, some, i)

    pl.grid((pl.cdiv(count, steps * tile.m), pl.cdiv(width, tile.n)), block)


def _cached(x: pl.Spec, slots: pl.Spec, cache: pl.Spec) -> pl.Spec:
    matrix("x", x, floating=False)
    _numbers("slots", slots, x.shape[0])
    if len(cache.shape) != 2 or cache.shape[1] != x.shape[1] or cache.dtype != x.dtype:
        raise KernelError(f"`cache` must be {x.dtype}[slots,{x.shape[1]}]; got {cache}")
    return cache


@pl.kernel(
    outputs={"out": lambda x, slots, cache: _cached(x, slots, cache)},
    in_place={"out": "cache"},
    tile=_TILE,
    ranges=_RANGES,
)
def cache_write(
    x: pl.Tensor,
    slots: pl.Tensor,
    cache: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    steps: int = 2,
    stages: int = 2,
) -> None:
    """``cache[slots[t]] = x[t]`` in place: new keys or values go to their slots; a slot of -1 is dropped.

    The slots must differ. ``x`` is (tokens, features), ``cache`` (slots, features). Parameters as in ``gather_rows``.

    >>> import numpy as np, pyptox as px
    >>> x, slots, cache = np.ones((2, 16), np.float32), np.array([3, -1], np.int32), np.zeros((4, 16), np.float32)
    >>> np.asarray(px.run(px.kernels.cache_write, x, slots, cache))[:, 1].tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    count, width = x.shape

    def block(i, j):
        def some(r):
            numbers = pl.load(slots, (r * tile.m,), (tile.m,), space=pl.Vec)
            part = pl.load(x, (r * tile.m, j * tile.n), (tile.m, tile.n), space=pl.Vec)
            pl.store_rows(out, numbers, j * tile.n, part)

        walk_rows(steps, stages, some, i)

    pl.grid((pl.cdiv(count, steps * tile.m), pl.cdiv(width, tile.n)), block)
