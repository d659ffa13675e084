"""RMSNorm whose division is put off past a matrix product, and the kernels that make up for it.

``rms_norm(x) w = ((x gain) w) / rms(x)``: a product is linear, so that ``x gain`` is multiplied at once while
``1 / rms`` is found beside it, and the rows are scaled where the product is read next. Everything is in float32; a
factory's ``dtype`` is that of the output.
"""

import functools

from .. import lang as pl
from .._dtypes import dtype_of
from .._errors import KernelError
from ._norm import _EPSILONS, _inverse_rms
from ._rope import _heads
from ._rows import like, load_wide, matrix, over_columns, store_narrow, walk_rows, with_vectors

_TILE = {"m": 16, "n": 512}
_RANGES = {"steps": (1, 64), "stages": (1, 4)}


def _with_inverse(inverse: pl.Spec, rows: int, out: pl.Spec) -> pl.Spec:
    if inverse.shape != (rows, 1) or inverse.dtype != "fp32":
        raise KernelError(f"`inverse` must be fp32[{rows},1]; got {inverse}")
    return out


@pl.kernel(
    outputs={"out": lambda x: pl.spec((matrix("x", x).shape[0], 1), "fp32")},
    tile=_TILE,
    ranges={"stages": (1, 4)},
    choices={"epsilon": _EPSILONS},
)
def rms_reciprocal(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2, epsilon: float = 1e-6) -> None:
    """``out[r, 0] = 1 / sqrt(mean(x[r]²) + epsilon)``, fp32.

    Parameters: ``m`` rows a block, ``n`` columns a tile; ``stages`` slots of the pipeline over columns; ``epsilon``.

    >>> import numpy as np, pyptox as px
    >>> round(float(px.run(px.kernels.rms_reciprocal, np.full((3, 16), 2.0, np.float32))[2, 0]), 5)
    0.5
    """

    def block(i):
        def square(column, total):
            wide = load_wide(x, (i * tile.m, column), (tile.m, tile.n))
            return pl.add(pl.row_sum(pl.multiply(wide, wide)), total)

        squares = over_columns(x, tile, stages, square, pl.zeros((tile.m, 1), "fp32"))
        pl.store(out, (i * tile.m, 0), _inverse_rms(squares, x.shape[1], epsilon))

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


@functools.cache
def scale_columns(dtype: str) -> pl.Kernel:
    """The kernel ``out[r, c] = x[r, c] weight[c]`` with ``out`` of ``dtype``.

    Parameters: the tile ``m, n``; ``steps`` row tiles a block, in a pipeline of ``stages`` slots.

    >>> import numpy as np, pyptox as px
    >>> x, gain = np.ones((3, 16), np.float32), np.arange(16, dtype=np.float32)
    >>> float(px.run(px.kernels.scale_columns("bf16"), x, gain)[2, 5])
    5.0
    """
    name = dtype_of(dtype).name

    @pl.kernel(
        outputs={"out": lambda x, weight: pl.spec(with_vectors(x, weight=weight).shape, name)},
        tile=_TILE,
        ranges=_RANGES,
        name=f"scale_columns({name})",
    )
    def kernel(
        x: pl.Tensor, weight: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 1, stages: int = 2
    ) -> None:
        def block(i, j):
            gain = load_wide(weight, (j * tile.n,), (tile.n,))

            def rows(r):
                at = (r * tile.m, j * tile.n)
                store_narrow(out, at, pl.multiply(load_wide(x, at, (tile.m, tile.n)), gain))

            walk_rows(steps, stages, rows, i)

        pl.grid((pl.cdiv(x.shape[0], steps * tile.m), pl.cdiv(x.shape[1], tile.n)), block)

    return kernel


@functools.cache
def scale_rows(dtype: str) -> pl.Kernel:
    """The kernel ``out[r, c] = x[r, c] inverse[r, 0]`` with ``out`` of ``dtype``. Parameters as in ``scale_columns``.

    >>> import numpy as np, pyptox as px
    >>> x, inverse = np.ones((3, 16), np.float32), np.arange(3, dtype=np.float32)[:, None]
    >>> float(px.run(px.kernels.scale_rows("bf16"), x, inverse)[2, 5])
    2.0
    """
    name = dtype_of(dtype).name

    @pl.kernel(
        outputs={
            "out": lambda x, inverse: _with_inverse(inverse, matrix("x", x).shape[0], pl.spec(x.shape, name)),
        },
        tile=_TILE,
        ranges=_RANGES,
        name=f"scale_rows({name})",
    )
    def kernel(
        x: pl.Tensor, inverse: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 1, stages: int = 2
    ) -> None:
        def block(i, j):
            def rows(r):
                at = (r * tile.m, j * tile.n)
                factor = pl.load(inverse, (r * tile.m, 0), (tile.m, 1), space=pl.Vec)
                store_narrow(out, at, pl.multiply(load_wide(x, at, (tile.m, tile.n)), factor))

            walk_rows(steps, stages, rows, i)

        pl.grid((pl.cdiv(x.shape[0], steps * tile.m), pl.cdiv(x.shape[1], tile.n)), block)

    return kernel


@functools.cache
def swiglu_deferred(dtype: str) -> pl.Kernel:
    """The kernel ``out = silu(gate inverse) (up inverse)`` with ``inverse[r, 0]`` of each row, ``out`` of ``dtype``.

    Parameters as in ``scale_columns``.

    >>> import numpy as np, pyptox as px
    >>> one, inverse = np.ones((3, 16), np.float32), np.full((3, 1), 2.0, np.float32)
    >>> round(float(px.run(px.kernels.swiglu_deferred("fp32"), one, one, inverse)[2, 5]), 4)
    3.5232
    """
    name = dtype_of(dtype).name

    @pl.kernel(
        outputs={
            "out": lambda gate, up, inverse: _with_inverse(
                inverse, gate.shape[0], pl.spec(like(gate=gate, up=up).shape, name)
            ),
        },
        tile=_TILE,
        ranges=_RANGES,
        name=f"swiglu_deferred({name})",
    )
    def kernel(
        gate: pl.Tensor,
        up: pl.Tensor,
        inverse: pl.Tensor,
        out: pl.Tensor,
        *,
        tile: pl.TileSizes,
        steps: int = 1,
        stages: int = 2,
    ) -> None:
        def block(i, j):
            def rows(r):
                at = (r * tile.m, j * tile.n)
                factor = pl.load(inverse, (r * tile.m, 0), (tile.m, 1), space=pl.Vec)
                g, u = (pl.multiply(load_wide(part, at, (tile.m, tile.n)), factor) for part in (gate, up))
                store_narrow(out, at, pl.multiply(pl.divide(g, pl.add(pl.exp(pl.negative(g)), 1.0)), u))

            walk_rows(steps, stages, rows, i)

        pl.grid((pl.cdiv(gate.shape[0], steps * tile.m), pl.cdiv(gate.shape[1], tile.n)), block)

    return kernel


@functools.cache
def residual_scale(dtype: str) -> pl.Kernel:
    """The kernel ``out = residual + x`` in the type of ``residual``, and ``scaled = out weight`` in ``dtype``.

    The end of one half of a layer and the begin of the next: ``weight`` is the gain of the norm that follows.
    Parameters as in ``scale_columns``.

    >>> import numpy as np, pyptox as px
    >>> one, gain = np.ones((3, 16), np.float32), np.arange(16, dtype=np.float32)
    >>> out, scaled = px.run(px.kernels.residual_scale("bf16"), one, one, gain)
    >>> float(out[2, 5]), float(scaled[2, 5])
    (2.0, 10.0)
    """
    name = dtype_of(dtype).name

    @pl.kernel(
        outputs={
            "out": lambda residual, x, weight: with_vectors(like(residual=residual, x=x), weight=weight),
            "scaled": lambda residual, x, weight: pl.spec(residual.shape, name),
        },
        tile=_TILE,
        ranges=_RANGES,
        name=f"residual_scale({name})",
    )
    def kernel(
        residual: pl.Tensor,
        x: pl.Tensor,
        weight: pl.Tensor,
        out: pl.Tensor,
        scaled: pl.Tensor,
        *,
        tile: pl.TileSizes,
        steps: int = 1,
        stages: int = 2,
    ) -> None:
        def block(i, j):
            gain = load_wide(weight, (j * tile.n,), (tile.n,))

            def rows(r):
                at = (r * tile.m, j * tile.n)
                total = pl.add(*(load_wide(part, at, (tile.m, tile.n)) for part in (residual, x)))
                store_narrow(out, at, total)
                store_narrow(scaled, at, pl.multiply(total, gain))

            walk_rows(steps, stages, rows, i)

        pl.grid((pl.cdiv(x.shape[0], steps * tile.m), pl.cdiv(x.shape[1], tile.n)), block)

    return kernel


def normed_and_turned(
    x: pl.Tile, inverse: pl.Tile, gain: pl.Tile, cos: pl.Tile, sin: pl.Tile, size, epsilon
) -> pl.Tile:
    """Heads as rows of ``x``: scaled by ``inverse``, RMSNorm over each, rotary embedding with half-split pairs."""
    wide = pl.multiply(x, inverse)
    norm = _inverse_rms(pl.row_sum(pl.multiply(wide, wide)), size, epsilon)
    y = pl.multiply(pl.multiply(wide, norm), gain)
    half = cos.shape[1]
    a, b = pl.slice_columns(y, 0, half), pl.slice_columns(y, half, half)
    low = pl.subtract(pl.multiply(a, cos), pl.multiply(b, sin))
    return pl.concat_columns(low, pl.add(pl.multiply(b, cos), pl.multiply(a, sin)))


def _norm_rope(x: pl.Spec, inverse: pl.Spec, weight: pl.Spec, cos: pl.Spec, sin: pl.Spec) -> pl.Spec:
    _with_inverse(inverse, _heads(x, cos, sin).shape[0], x)
    if weight.shape != x.shape[2:]:
        raise KernelError(f"`weight` must be fp32[{x.shape[2]}]; got {weight}")
    return x


@functools.cache
def norm_rope(dtype: str) -> pl.Kernel:
    """The kernel ``out = rope(rms_norm(x inverse) weight)`` over each head, with ``out`` of ``dtype``.

    ``x`` and ``out`` are (tokens, heads, d), ``inverse`` (tokens, 1), ``weight`` (d,), ``cos`` and ``sin``
    (tokens, d/2); pairs as in :func:`pyptox.kernels.rope`. Parameters: ``m`` heads a tile; ``steps`` tokens a block, in
    a pipeline of ``stages`` slots; ``epsilon`` of the norm.

    >>> import numpy as np, pyptox as px
    >>> x, inverse, gain = np.full((3, 2, 16), 7.0, np.float32), np.ones((3, 1), np.float32), np.ones(16, np.float32)
    >>> cos, sin = np.zeros((3, 8), np.float32), np.ones((3, 8), np.float32)
    >>> np.asarray(px.run(px.kernels.norm_rope("fp32"), x, inverse, gain, cos, sin))[2, 1, 7:9].round(3).tolist()
    [-1.0, 1.0]
    """
    name = dtype_of(dtype).name

    @pl.kernel(
        outputs={
            "out": lambda x, inverse, weight, cos, sin: pl.spec(_norm_rope(x, inverse, weight, cos, sin).shape, name),
        },
        tile={"m": 16},
        ranges={"steps": (1, 256), "stages": (1, 4)},
        choices={"epsilon": _EPSILONS},
        name=f"norm_rope({name})",
    )
    def kernel(
        x: pl.Tensor,
        inverse: pl.Tensor,
        weight: pl.Tensor,
        cos: pl.Tensor,
        sin: pl.Tensor,
        out: pl.Tensor,
        *,
        tile: pl.TileSizes,
        steps: int = 1,
        stages: int = 2,
        epsilon: float = 1e-6,
    ) -> None:
        tokens, heads, size = x.shape

        def block(i, h):
            gain = load_wide(weight, (0,), (size,))

            def token(t):
                at = (t, h * tile.m, 0)
                factor = pl.load(inverse, (t, 0), (1, 1), space=pl.Vec)
                c, s = (load_wide(table, (t, 0), (1, table.shape[1])) for table in (cos, sin))
                wide = load_wide(x, at, (1, tile.m, size))
                store_narrow(out, at, normed_and_turned(wide, factor, gain, c, s, size, epsilon))

            walk_rows(steps, stages, token, i)

        pl.grid((pl.cdiv(tokens, steps), pl.cdiv(heads, tile.m)), block)

    return kernel
