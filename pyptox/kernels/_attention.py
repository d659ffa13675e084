"""Attention: scores and values on the cube, the online softmax on the vector cores of the same cluster."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from .. import lang as pl
from .._errors import KernelError
from ..lang import Tile


def _like_query(q: pl.Spec, k: pl.Spec, v: pl.Spec) -> pl.Spec:
    if not (len(q.shape) == len(k.shape) == 3) or k.shape != v.shape:
        raise KernelError(f"`q`, `k` and `v` must be (heads, rows, size), `k` and `v` alike; got {q}, {k} and {v}")
    if q.shape[0] != k.shape[0] or q.shape[2] != k.shape[2]:
        raise KernelError(f"`q` and `k` must have the same heads and head size; got {q} and {k}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in ("bf16", "fp16", "fp32"):
        raise KernelError(f"`q`, `k` and `v` must have one floating dtype; got {q.dtype}, {k.dtype} and {v.dtype}")
    return q


def _causal_infer(tile: Tile, *, row, column) -> pl.TileType:
    return pl.TileType(tile.shape, tile.valid, tile.dtype, tile.space)


def _causal_run(context, tile: Tile, *, row, column):
    first_row, first_column = (context.value(at) if isinstance(at, pl.Index) else at for at in (row, column))
    rows = jnp.arange(tile.payload.shape[0], dtype=jnp.int32)[:, None] + first_row
    columns = jnp.arange(tile.payload.shape[1], dtype=jnp.int32)[None, :] + first_column
    return jnp.where(columns <= rows, tile.payload, jnp.asarray(-1e30, tile.payload.dtype))


mask_after = pl.Operation("mask_after", infer=_causal_infer, run=_causal_run, cost=pl.rules.vector(2.0), exact=True)
"""Scores of keys after their query set to a large negative number; ``row`` and ``column`` place the tile."""


def attend(
    count,
    scores_of: Callable[[Any], Tile],
    values_of: Callable[[Any], Tile],
    rows,
    size,
    dtype: str,
    *,
    preload: int,
    stages,
    surely: int,
) -> Tile:
    """The rows of ``softmax(scores) values`` over ``count`` tiles of keys, by the online softmax in float32.

    The weights of ``preload`` tiles are computed ahead of the values, so that cube and vector cores work at the same
    time. Without any valid key the result is zero.

    Args:
        count: tiles of keys, at least 1.
        scores_of: the scaled and masked scores of a tile of keys in Vec, from its number.
        values_of: the values of a tile in Mat, from its number.
        rows, size: of the result.
        dtype: what weights are cast to for the cube.
        preload: tiles ahead.
        stages: slots of every tile that crosses pipes.
        surely: tiles that there are in any case; the first ``preload`` beyond them are left out where they are not.
    """
    steady = pl.maximum(count - preload, 0)

    def weights(number, running):
        """The weights of one tile of keys, pushed to the cube, and what they do to the sums so far."""
        largest, total = running
        scores = scores_of(number)
        new = pl.maximum_of(largest, pl.row_max(scores))
        fade = pl.exp(pl.subtract(largest, new))
        p = pl.exp(pl.subtract(scores, new))
        total = pl.multiply_add(total, fade, pl.row_sum(p))
        return pl.move(pl.cast(p, dtype), pl.GM), fade, (new, total)

    def add_values(number, result, p, fade):
        values = values_of(number)  # before the weights, which the same pipe waits for
        part = pl.matmul(pl.move(p, pl.Mat), values)
        return pl.multiply_add(result, fade, pl.move(part, pl.Vec))

    def where_there_is(n, body, carry):
        """``body(carry)`` if tile ``n`` exists, else ``carry``."""
        if n < surely:
            return body(carry)
        return pl.when(count - n, body, carry)

    # the sum starts above zero, which the first key fades to nothing, so that no keys give zeros
    running = (pl.full((rows, 1), -1e30, "fp32"), pl.full((rows, 1), 1e-30, "fp32"))
    result = pl.zeros((rows, size), "fp32")
    ahead: list = []
    for n in range(preload):
        before = (*ahead[-1], running) if ahead else (None, None, running)
        p, fade, running = where_there_is(n, lambda carry, n=n: weights(n, carry[2]), before)
        ahead.append((p, fade))

    def step(j, carry):
        result, running, ahead = carry
        p, fade, running = weights(j + preload, running)
        ahead = [*ahead, (p, fade)]
        return add_values(j, result, *ahead[0]), running, ahead[1:]

    result, running, ahead = pl.pipeline(steady, step, (result, running, ahead), stages=stages)
    for n, pair in enumerate(ahead):
        result = where_there_is(n, lambda carry, n=n, pair=pair: add_values(steady + n, carry, *pair), result)
    return pl.divide(result, running[1])


@pl.kernel(
    outputs={"out": lambda q, k, v: _like_query(q, k, v)},
    tile={"m": 128, "n": 256},
    ranges={"stages": (1, 4), "slices": (1, 16)},
    choices={"preload": (0, 1, 2, 3, 4), "causal": (False, True)},
)
def flash_attention(
    q: pl.Tensor,
    k: pl.Tensor,
    v: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    stages: int = 2,
    slices: int = 2,
    preload: int = 2,
    causal: bool = False,
) -> None:
    """``out[h, s] = softmax(q kᵀ / sqrt(size)) v`` for each head, by the online softmax in float32.

    Parameters: ``m`` queries and ``n`` keys a tile; the scores of ``preload`` tiles of keys are computed ahead of
    the values, so that cube and vector cores work at the same time; ``stages`` slots of every tile that crosses
    pipes; the vector cores take their rows in ``slices``. ``causal`` masks keys after their query and leaves out the
    tiles that hold no others; the last queries, which have the most keys, come first.
    """
    heads, queries, size = q.shape
    keys = k.shape[1]
    scale = 1.0 / math.sqrt(size) if isinstance(size, int) else size**-0.5
    blocks = pl.cdiv(queries, tile.m)

    pl.row_slices(slices)

    def attention(h, first, count, ahead, surely):
        query = pl.load(q, (h, first, 0), (1, tile.m, size))

        def scores_of(number):
            at = number * tile.n
            scores = pl.matmul(query, pl.load(k, (h, at, 0), (1, tile.n, size)), transpose_rhs=True)
            scores = pl.multiply(pl.move(scores, pl.Vec), scale)
            return mask_after(scores, row=first, column=at) if causal else scores

        def values_of(number):
            return pl.load(v, (h, number * tile.n, 0), (1, tile.n, size))

        result = attend(count, scores_of, values_of, tile.m, size, q.dtype, preload=ahead, stages=stages, surely=surely)
        pl.store(out, (h, first, 0), pl.cast(result, out.dtype))

    def causal_block(i, h):
        first = (blocks - 1 - i) * tile.m
        count = pl.cdiv(pl.minimum(first + tile.m, pl.minimum(queries, keys)), tile.n)
        attention(h, first, count, preload, 1)

    def block(h, i):
        count = pl.cdiv(keys, tile.n)
        ahead = min(preload, count) if isinstance(count, int) else preload
        attention(h, i * tile.m, count, ahead, ahead)

    if causal:
        pl.grid((blocks, heads), causal_block, uneven=True)
    else:
        pl.grid((heads, blocks), block)
