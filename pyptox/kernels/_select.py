"""The largest elements of rows: their values and columns, exact, the lowest column first on ties.

Where the values are computed on a host that takes subnormal singles for zeros, those tie with zero.
"""

import functools
from collections.abc import Callable

from .. import lang as pl
from .._errors import KernelError
from ._rows import load_wide, matrix, over_columns

_TILE = {"m": 16, "n": 512}
_RANGES = {"stages": (1, 4)}
_LOWEST, _NOWHERE = float("-inf"), 2**31 - 1
"""What a row holds where it has no element: it loses against every element, -inf included."""


def _column(logits: pl.Spec, base: pl.Spec, dtype: str) -> pl.Spec:
    matrix("logits", logits)
    if base.shape != (1,) or base.dtype != "int32":
        raise KernelError(f"`base` must be int32[1], the first column of the shard; got {base}")
    return pl.spec((logits.shape[0], 1), dtype)


@pl.kernel(
    outputs={
        "value": lambda logits, base: _column(logits, base, "fp32"),
        "index": lambda logits, base: _column(logits, base, "int32"),
    },
    tile=_TILE,
    ranges=_RANGES,
)
def argmax_shard(
    logits: pl.Tensor, base: pl.Tensor, value: pl.Tensor, index: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2
) -> None:
    """The largest element of each row of one shard, and its column counted from ``base``; the first one on ties.

    ``base`` (int32[1]) is the shard's first column of the whole vocabulary; ``value`` (fp32) and ``index`` (int32) are
    (rows, 1). Parameters: ``m`` rows a block, ``n`` columns a tile; ``stages`` slots of the pipeline over columns.

    >>> import numpy as np, pyptox as px
    >>> logits, base = np.zeros((2, 40), np.float32), np.array([1000], np.int32)
    >>> logits[1, 7:9] = 3
    >>> np.asarray(px.run(px.kernels.argmax_shard, logits, base)[1]).tolist()
    [[1000], [1007]]
    """

    def block(i):
        def better(column, carry):
            best, where = carry
            wide = load_wide(logits, (i * tile.m, column), (tile.m, tile.n))
            largest, position = pl.row_max(wide), pl.add(pl.row_argmax(wide), column)
            return pl.maximum_of(largest, best), pl.select_greater(largest, best, position, where)

        start = pl.full((tile.m, 1), _LOWEST, "fp32"), pl.zeros((tile.m, 1), "int32")
        best, where = over_columns(logits, tile, stages, better, start)
        pl.store(value, (i * tile.m, 0), best)
        pl.store(index, (i * tile.m, 0), pl.add(where, pl.load(base, (0,), (1,), space=pl.Vec)))

    pl.grid((pl.cdiv(logits.shape[0], tile.m),), block)


def _pairs(values: pl.Spec, indices: pl.Spec) -> pl.Spec:
    if len(values.shape) != 2 or values.shape != indices.shape or (values.dtype, indices.dtype) != ("fp32", "int32"):
        raise KernelError(
            f"`values` (fp32) and `indices` (int32) must be matrices of one shape; got {values}, {indices}"
        )
    return values


@pl.kernel(
    outputs={
        "value": lambda values, indices: pl.spec(_pairs(values, indices).shape[1:], "fp32"),
        "index": lambda values, indices: pl.spec(_pairs(values, indices).shape[1:], "int32"),
    },
    tile={"n": 64},
    ranges=_RANGES,
)
def argmax_merge(
    values: pl.Tensor, indices: pl.Tensor, value: pl.Tensor, index: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2
) -> None:
    """The largest of ``values[shard, row]`` over the shards, in order of their columns, and its entry of ``indices``.

    The inputs are what ``argmax_shard`` makes of each shard, stacked. Parameters: ``n`` rows of logits a block;
    ``stages`` slots of the pipeline over shards.

    >>> import numpy as np, pyptox as px
    >>> values = np.array([[1, 5], [1, 7]], np.float32)
    >>> np.asarray(px.run(px.kernels.argmax_merge, values, np.array([[3, 4], [13, 14]], np.int32))[1]).tolist()
    [3, 14]
    """
    shards, rows = values.shape

    def block(i):
        def better(shard, carry):
            best, where = carry
            at = (shard, i * tile.n)
            here = pl.load(values, at, (1, tile.n), space=pl.Vec)
            there = pl.load(indices, at, (1, tile.n), space=pl.Vec)
            return pl.maximum_of(here, best), pl.select_greater(here, best, there, where)

        start = pl.full((1, tile.n), _LOWEST, "fp32"), pl.zeros((1, tile.n), "int32")
        best, where = pl.pipeline(shards, better, start, stages=stages)
        pl.store(value, (i * tile.n,), best)
        pl.store(index, (i * tile.n,), where)

    pl.grid((pl.cdiv(rows, tile.n),), block)


# ------------------------------------------------------------------------------------------------------------- top-k
def _best(count: int, rows, steps, stages, candidates: Callable) -> tuple[pl.Tile, pl.Tile]:
    """Values and indices of the ``count`` largest of ``steps`` tiles, sorted.

    ``candidates(j)`` makes tile ``j`` and its indices.
    """
    kept = -(-count // 8) * 8  # rows of whole 32-byte blocks

    def step(j, carry):
        values, indices = (pl.concat_columns(*pair) for pair in zip(carry, candidates(j), strict=True))
        columns = pl.largest_columns(values, indices, kept)
        return pl.take_columns(values, columns), pl.take_columns(indices, columns)

    start = pl.full((rows, kept), _LOWEST, "fp32"), pl.full((rows, kept), _NOWHERE, "int32")
    values, indices = pl.pipeline(steps, step, start, stages=stages)
    return pl.slice_columns(values, 0, count), pl.slice_columns(indices, 0, count)


def _check_count(k: int, groups: int = 1) -> None:
    if not all(isinstance(number, int) and number >= 1 for number in (k, groups)):
        raise KernelError(f"`k` and `groups` of top-k must be positive integers; got {k!r} and {groups!r}")


def _at_least(k: int, spec: pl.Spec) -> int:
    if spec.shape[1] < k:
        raise KernelError(f"a row of {spec} has fewer than k = {k} elements")
    return spec.shape[0]


@functools.cache
def top_k_groups(k: int, groups: int = 1) -> pl.Kernel:
    """The kernel that takes the ``k`` largest elements of each row of each of ``groups`` groups of columns.

    From ``x`` (rows, columns) it makes ``values`` (fp32) and ``indices`` (int32), both (rows, groups k): the groups
    side by side, each sorted, the largest first, the lowest column first on ties. A group is as wide as the others,
    but the last; where it has fewer than ``k`` columns it is filled up with -inf and 2³¹ - 1. With one group that is
    the answer, with more of them :func:`top_k_merge` makes it.

    Parameters of the kernel: ``m`` rows a block, ``n`` columns a tile; ``stages`` slots of the pipeline over columns.

    >>> import numpy as np, pyptox as px
    >>> values, indices = px.run(px.kernels.top_k_groups(2), np.array([[1, 3, 3, 2] * 4], np.float32))
    >>> np.asarray(indices).tolist()
    [[1, 2]]
    """
    _check_count(k, groups)

    def shape(x: pl.Spec) -> tuple[int, int]:
        return _at_least(k, matrix("x", x)), groups * k

    @pl.kernel(
        outputs={"values": lambda x: pl.spec(shape(x), "fp32"), "indices": lambda x: pl.spec(shape(x), "int32")},
        tile=_TILE,
        ranges=_RANGES,
        name=f"top_k_groups({k}, {groups})",
    )
    def kernel(x: pl.Tensor, values: pl.Tensor, indices: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2) -> None:
        m, n = x.shape
        width = pl.cdiv(n, groups)

        def block(i, g):
            def candidates(j):
                start, rest = g * width + j * tile.n, width - j * tile.n
                part = pl.load(x, (i * tile.m, start), (tile.m, tile.n), space=pl.Vec, valid=(None, rest))
                return pl.cast(part, "fp32"), pl.column_index((tile.m, tile.n), start)

            best = _best(k, tile.m, pl.cdiv(width, tile.n), stages, candidates)
            for tensor, part in zip((values, indices), best, strict=True):
                pl.store(tensor, (i * tile.m, g * k), part)

        pl.grid((pl.cdiv(m, tile.m), groups), block)

    return kernel


@functools.cache
def top_k_merge(k: int) -> pl.Kernel:
    """The kernel that takes the ``k`` largest of each row of ``values``, with their entries of ``indices``.

    Its inputs are what :func:`top_k_groups` makes, (rows, groups k) each; its outputs, ``best`` (fp32) and ``where``
    (int32), are (rows, k), the largest first, the lowest index first on ties. Parameters as there.

    >>> import numpy as np, pyptox as px
    >>> x = np.array([[1, 3, 3, 2] * 4], np.float32)
    >>> candidates = px.run(px.kernels.top_k_groups(2, groups=4), x)
    >>> np.asarray(px.run(px.kernels.top_k_merge(2), *candidates)[1]).tolist()
    [[1, 2]]
    """
    _check_count(k)

    def shape(values: pl.Spec, indices: pl.Spec) -> tuple[int, int]:
        return _at_least(k, _pairs(values, indices)), k

    @pl.kernel(
        outputs={
            "best": lambda values, indices: pl.spec(shape(values, indices), "fp32"),
            "where": lambda values, indices: pl.spec(shape(values, indices), "int32"),
        },
        tile={"m": 16, "n": 64},
        ranges=_RANGES,
        name=f"top_k_merge({k})",
    )
    def kernel(
        values: pl.Tensor,
        indices: pl.Tensor,
        best: pl.Tensor,
        where: pl.Tensor,
        *,
        tile: pl.TileSizes,
        stages: int = 2,
    ) -> None:
        m, n = values.shape

        def block(i):
            def candidates(j):
                at = (i * tile.m, j * tile.n)
                return tuple(pl.load(tensor, at, (tile.m, tile.n), space=pl.Vec) for tensor in (values, indices))

            found = _best(k, tile.m, pl.cdiv(n, tile.n), stages, candidates)
            for tensor, part in zip((best, where), found, strict=True):
                pl.store(tensor, (i * tile.m, 0), part)

        pl.grid((pl.cdiv(m, tile.m),), block)

    return kernel
