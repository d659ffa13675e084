"""Attention: scores and values on the cube, the online softmax on the vector cores of the same cluster."""

import math

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


mask_after = pl.Operation("mask_after", infer=_causal_infer, run=_causal_run, cost=pl.rules.vector(2.0))
"""Scores of keys after their query set to a large negative number; ``row`` and ``column`` place the tile."""


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
    pipes; the vector cores take their rows in ``slices``. ``causal`` masks keys after their query (which are computed
    all the same).
    """
    heads, queries, size = q.shape
    keys = k.shape[1]
    scale = 1.0 / math.sqrt(size) if isinstance(size, int) else size**-0.5

    pl.row_slices(slices)
    count = pl.cdiv(keys, tile.n)
    if isinstance(count, int):
        preload = min(preload, count)
    steady = -pl.minimum(preload - count, 0)

    def block(h, i):
        query = pl.load(q, (h, i * tile.m, 0), (1, tile.m, size))

        def weights(at, running):
            """The weights of one tile of keys, pushed to the cube, and what they do to the sums so far."""
            largest, total = running
            scores = pl.matmul(query, pl.load(k, (h, at, 0), (1, tile.n, size)), transpose_rhs=True)
            scores = pl.multiply(pl.move(scores, pl.Vec), scale)
            if causal:
                scores = mask_after(scores, row=i * tile.m, column=at)
            new = pl.maximum_of(largest, pl.row_max(scores))
            fade = pl.exp(pl.subtract(largest, new))
            p = pl.exp(pl.subtract(scores, new))
            total = pl.multiply_add(total, fade, pl.row_sum(p))
            return pl.move(pl.cast(p, q.dtype), pl.GM), fade, (new, total)

        def add_values(at, result, p, fade):
            values = pl.load(v, (h, at, 0), (1, tile.n, size))
            part = pl.matmul(pl.move(p, pl.Mat), values)
            return pl.multiply_add(result, fade, pl.move(part, pl.Vec))

        running = (pl.full((tile.m, 1), -1e30, "fp32"), pl.zeros((tile.m, 1), "fp32"))
        result = pl.zeros((tile.m, size), "fp32")
        ahead = []
        for n in range(preload):
            p, fade, running = weights(n * tile.n, running)
            ahead.append((p, fade))

        def step(j, carry):
            result, running, ahead = carry
            p, fade, running = weights((j + preload) * tile.n, running)
            ahead = [*ahead, (p, fade)]
            return add_values(j * tile.n, result, *ahead[0]), running, ahead[1:]

        result, running, ahead = pl.pipeline(steady, step, (result, running, ahead), stages=stages)
        for n, (p, fade) in enumerate(ahead):
            result = add_values((steady + n) * tile.n, result, p, fade)
        pl.store(out, (h, i * tile.m, 0), pl.cast(pl.divide(result, running[1]), out.dtype))

    pl.grid((heads, pl.cdiv(queries, tile.m)), block)
