"""Rotary position embedding: each pair of features of a head is turned by an angle of its token."""

from collections.abc import Callable

from .. import lang as pl
from .._dtypes import dtype_of
from .._errors import KernelError
from ._rows import load_wide, store_narrow, walk_rows

_TILE = {"m": 16}
_RANGES = {"steps": (1, 256), "stages": (1, 4)}


def _heads(x: pl.Spec, cos: pl.Spec, sin: pl.Spec) -> pl.Spec:
    if len(x.shape) != 3 or x.shape[2] % 2 or not dtype_of(x.dtype).floating:
        raise KernelError(f"`x` of rope must be (tokens, heads, an even number of features) of floats; got {x}")
    for name, table in (("cos", cos), ("sin", sin)):
        if table.shape != (x.shape[0], x.shape[2] // 2) or not dtype_of(table.dtype).floating:
            raise KernelError(f"`{name}` must be ({x.shape[0]}, {x.shape[2] // 2}), a float for a pair; got {table}")
    return x


def _rotate(x, cos, sin, out, tile, steps, stages, split: Callable, join: Callable) -> None:
    """``split`` a tile of heads into both halves of its pairs, turn them, ``join`` them; a block walks tokens."""
    tokens, heads, features = x.shape

    def block(i, h):
        def token(t):
            at = (t, h * tile.m, 0)
            c, s = (load_wide(table, (t, 0), (1, table.shape[1])) for table in (cos, sin))
            a, b = split(load_wide(x, at, (1, tile.m, features)))
            low = pl.subtract(pl.multiply(a, c), pl.multiply(b, s))
            high = pl.add(pl.multiply(b, c), pl.multiply(a, s))
            store_narrow(out, at, join(low, high))

        walk_rows(steps, stages, token, i)

    pl.grid((pl.cdiv(tokens, steps), pl.cdiv(heads, tile.m)), block)


@pl.kernel(outputs={"out": lambda x, cos, sin: _heads(x, cos, sin)}, tile=_TILE, ranges=_RANGES)
def rope(
    x: pl.Tensor,
    cos: pl.Tensor,
    sin: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    steps: int = 4,
    stages: int = 2,
) -> None:
    """Rotary embedding with half-split pairs: feature ``f`` goes with ``f + d/2``, in float32.

    ``out[f] = x[f] cos - x[f + d/2] sin`` and ``out[f + d/2] = x[f + d/2] cos + x[f] sin``; ``x`` is (tokens, heads,
    d), ``cos`` and ``sin`` (tokens, d/2). Parameters: ``m`` heads a tile; ``steps`` tokens a block, in a pipeline of
    ``stages`` slots.

    >>> import numpy as np, pyptox as px
    >>> x, cos, sin = np.ones((3, 2, 16), np.float32), np.zeros((3, 8), np.float32), np.ones((3, 8), np.float32)
    >>> np.asarray(px.run(px.kernels.rope, x, cos, sin))[2, 1, 7:9].tolist()
    [-1.0, 1.0]
    """
    half = cos.shape[1]
    _rotate(
        *(x, cos, sin, out, tile, steps, stages),
        split=lambda head: (pl.slice_columns(head, 0, half), pl.slice_columns(head, half, half)),
        join=pl.concat_columns,
    )


@pl.kernel(outputs={"out": lambda x, cos, sin: _heads(x, cos, sin)}, tile=_TILE, ranges=_RANGES)
def rope_interleaved(
    x: pl.Tensor,
    cos: pl.Tensor,
    sin: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    steps: int = 4,
    stages: int = 2,
) -> None:
    """Rotary embedding with neighbours as pairs: feature ``2f`` goes with ``2f + 1``, in float32.

    The pairs are taken apart by mask patterns and put together again element by element, which ``rope`` does without.
    Inputs and parameters as there.

    >>> import numpy as np, pyptox as px
    >>> x, cos, sin = np.ones((3, 2, 16), np.float32), np.zeros((3, 8), np.float32), np.ones((3, 8), np.float32)
    >>> np.asarray(px.run(px.kernels.rope_interleaved, x, cos, sin))[2, 1, 6:8].tolist()
    [-1.0, 1.0]
    """
    _rotate(x, cos, sin, out, tile, steps, stages, split=pl.deinterleave, join=pl.interleave)
