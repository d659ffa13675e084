"""Decode attention over picked rows of a compressed cache: the keys of a tile are gathered by the vector cores."""

from typing import Any

from .. import lang as pl
from .._dtypes import dtype_of
from .._errors import KernelError
from ..lang import Tile


def _like_query(q: pl.Spec, q_rope: pl.Spec, latent: pl.Spec, rope: pl.Spec, rows: pl.Spec) -> pl.Spec:
    if len(q.shape) != 3 or q_rope.shape[:2] != q.shape[:2] or len(q_rope.shape) != 3:
        raise KernelError(
            f"`q` and `q_rope` must be (tokens, heads, size), alike but for the size; got {q} and {q_rope}"
        )
    for name, table, part in (("latent", latent, q), ("rope", rope, q_rope)):
        if len(table.shape) != 2 or table.shape[1] != part.shape[2] or table.shape[0] != latent.shape[0]:
            raise KernelError(f"`{name}` must be (positions, {part.shape[2]}), as many positions in both; got {table}")
    if len({s.dtype for s in (q, q_rope, latent, rope)}) != 1 or q.dtype not in ("bf16", "fp16", "fp32"):
        raise KernelError("`q`, `q_rope`, `latent` and `rope` must have one floating dtype")
    if len(rows.shape) != 2 or rows.shape[0] != q.shape[0] or rows.dtype != "int32":
        raise KernelError(f"`rows` must be int32[{q.shape[0]},keys], the rows that each token attends to; got {rows}")
    return q


def _push_infer(tile: Tile) -> pl.TileType:
    return pl.TileType(tile.shape, tile.valid, tile.dtype, pl.Space.GM)


def _push_cost(context: pl.rules.RuleContext, instruction: Any) -> list:
    (tile,) = instruction.tiles
    rows, columns = tile.valid
    t, width = context.times, float(dtype_of(tile.dtype).bytes)
    return [("MTE3", rows * (t.store_start + columns * width * t.store_byte) / context.vector_split)]


push_each = pl.Operation(
    "push_each", infer=_push_infer, run=lambda context, tile: tile.payload, cost=_push_cost, exact=True
)
"""A tile from Vec to the cube core's buffer in GM, one transfer a row."""


@pl.kernel(
    outputs={"out": lambda q, q_rope, latent, rope, rows: _like_query(q, q_rope, latent, rope, rows)},
    tile={"m": 64, "n": 64},
    ranges={"stages": (1, 4), "slices": (1, 16)},
    choices={
        "preload": (0, 1, 2, 3, 4),
        "contiguous": (False, True),
        "wait": (False, True),
        "broadcast": (False, True),
        "fused": (False, True),
    },
)
def sparse_attention(
    q: pl.Tensor,
    q_rope: pl.Tensor,
    latent: pl.Tensor,
    rope: pl.Tensor,
    rows: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    stages: int = 2,
    slices: int = 2,
    preload: int = 1,
    contiguous: bool = True,
    wait: bool = False,
    broadcast: bool = True,
    fused: bool = True,
) -> None:
    """``out[t, h] = softmax((q latentᵀ + q_rope ropeᵀ) / sqrt(size)) latent`` over the rows that token ``t`` picks.

    ``size`` is that of ``q`` and ``q_rope`` together; every entry of ``rows`` (tokens, keys) must be a row of both
    tables. The vector cores gather a tile of keys and hand it to the cube.

    Parameters: ``m`` heads and ``n`` keys a tile; ``stages`` slots of every tile that crosses pipes; the vector cores
    take their rows in ``slices``; scores are computed ``preload`` tiles ahead of the values, so that cube and vector
    cores work at the same time. ``contiguous``: a gathered tile goes to the cube in one transfer, not one a row;
    ``wait``: each gathered row is waited for; ``broadcast``: an instruction repeats a column by itself, and it is not
    filled out first; ``fused``: products are added in one instruction.
    """
    tokens, heads, size = q.shape
    positions = size + q_rope.shape[2]
    scale = positions**-0.5

    def spread(column: Tile, columns) -> Tile:
        return column if broadcast else pl.row_expand(column, columns)

    def multiply_add(a: Tile, b: Tile, c: Tile) -> Tile:
        return pl.multiply_add(a, b, c) if fused else pl.add(pl.multiply(a, b), c)

    pl.row_slices(slices)
    count = pl.cdiv(rows.shape[1], tile.n)
    if isinstance(count, int):
        preload = min(preload, count)
    steady = -pl.minimum(preload - count, 0)

    def block(t, i):
        query = pl.load(q, (t, i * tile.m, 0), (1, tile.m, size))
        turned = pl.load(q_rope, (t, i * tile.m, 0), (1, tile.m, q_rope.shape[2]))

        def gathered(table: pl.Tensor, numbers: Tile) -> Tile:
            picked = pl.load_rows(table, numbers, 0, table.shape[1], wait=wait)
            return pl.move(pl.move(picked, pl.Space.GM) if contiguous else push_each(picked), pl.Mat)

        def weights(at, running):
            """The gathered keys of one tile, their weights on the way to the cube, and what they do to the sums."""
            largest, total = running
            numbers = pl.load(rows, (t, at), (1, tile.n), space=pl.Vec)
            keys = gathered(latent, numbers)
            scores = pl.matmul(turned, gathered(rope, numbers), transpose_rhs=True)
            scores = pl.matmul(query, keys, scores, transpose_rhs=True)
            scores = pl.multiply(pl.move(scores, pl.Vec), scale)
            new = pl.maximum_of(largest, pl.row_max(scores))
            fade = pl.exp(pl.subtract(largest, new))
            p = pl.exp(pl.subtract(scores, spread(new, tile.n)))
            total = pl.multiply_add(total, fade, pl.row_sum(p))
            return (pl.move(pl.cast(p, q.dtype), pl.Space.GM), fade, keys), (new, total)

        def add_values(result, p, fade, keys):
            part = pl.move(pl.matmul(pl.move(p, pl.Mat), keys), pl.Vec)
            return multiply_add(result, spread(fade, size), part)

        running = (pl.full((tile.m, 1), -1e30, "fp32"), pl.zeros((tile.m, 1), "fp32"))
        result = pl.zeros((tile.m, size), "fp32")
        ahead = []
        for n in range(preload):
            made, running = weights(n * tile.n, running)
            ahead.append(made)

        def step(j, carry):
            result, running, ahead = carry
            made, running = weights((j + preload) * tile.n, running)
            ahead = [*ahead, made]
            return add_values(result, *ahead[0]), running, ahead[1:]

        result, running, ahead = pl.pipeline(steady, step, (result, running, ahead), stages=stages)
        for made in ahead:
            result = add_values(result, *made)
        pl.store(out, (t, i * tile.m, 0), pl.cast(pl.divide(result, running[1]), out.dtype))

    pl.grid((tokens, pl.cdiv(heads, tile.m)), block)
