"""Matrix products on the cube."""

from .. import lang as pl
from .._errors import KernelError


def _product(a: pl.Spec, b: pl.Spec, dtype: str | None = None, transposed: bool = False) -> pl.Spec:
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise KernelError(f"`a` and `b` of a matmul are matrices; got {a} and {b}")
    k, n = b.shape[::-1] if transposed else b.shape
    if a.shape[1] != k:
        stored = "(n, k)" if transposed else "(k, n)"
        raise KernelError(f"`b` must be {stored} with k = {a.shape[1]} as in `a`; got {a} and {b}")
    if a.dtype != b.dtype:
        raise KernelError(f"`a` and `b` must have one dtype; got {a.dtype} and {b.dtype}")
    return pl.spec((a.shape[0], n), dtype or ("int32" if a.dtype == "int8" else a.dtype))


def _accumulator(a: pl.Tensor) -> str:
    return "int32" if a.dtype == "int8" else "fp32"


def _reduce(a: pl.Tensor, b: pl.Tensor, row, column, tile: pl.TileSizes, stages, steps=None, start=0, nt=False):
    """The accumulator of one output tile: a pipeline over K in steps of ``tile.k``; ``nt`` reads ``b`` as (n, k)."""

    def step(kk, acc):
        at = start + kk * tile.k
        lhs = pl.load(a, (row, at), (tile.m, tile.k))
        rhs = pl.load(b, (column, at), (tile.n, tile.k)) if nt else pl.load(b, (at, column), (tile.k, tile.n))
        return pl.matmul(lhs, rhs, acc, transpose_rhs=nt)

    acc = pl.zeros((tile.m, tile.n), _accumulator(a), space=pl.Acc)
    return pl.pipeline(pl.cdiv(a.shape[1], tile.k) if steps is None else steps, step, acc, stages=stages)


@pl.kernel(
    outputs={"out": lambda a, b: _product(a, b)},
    tile={"m": 128, "n": 256, "k": 256},
    ranges={"stages": (1, 4), "group": (1, 64)},
)
def matmul(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2, group: int = 4) -> None:
    """``out[m, n] = a[m, k] @ b[k, n]``, accumulated in float32 (int32 for int8).

    Parameters: the L1 tile ``m, n, k``; ``stages`` slots of its K pipeline; blocks are handed out in strips of
    ``group`` columns (a group as wide as the grid is row-major).
    """
    m, n = out.shape

    def block(i, j):
        acc = _reduce(a, b, i * tile.m, j * tile.n, tile, stages)
        pl.store(out, (i * tile.m, j * tile.n), pl.cast(acc, out.dtype))

    pl.grid((pl.cdiv(m, tile.m), pl.cdiv(n, tile.n)), block, order=pl.swizzled(group))


@pl.kernel(
    outputs={"out": lambda a, b: _product(a, b, transposed=True)},
    tile={"m": 128, "n": 256, "k": 256},
    ranges={"stages": (1, 4), "group": (1, 64)},
)
def matmul_nt(
    a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2, group: int = 4
) -> None:
    """``out[m, n] = a[m, k] @ b[n, k]ᵀ``: the weight is stored K-contiguous. Parameters as in ``matmul``."""
    m, n = out.shape

    def block(i, j):
        acc = _reduce(a, b, i * tile.m, j * tile.n, tile, stages, nt=True)
        pl.store(out, (i * tile.m, j * tile.n), pl.cast(acc, out.dtype))

    pl.grid((pl.cdiv(m, tile.m), pl.cdiv(n, tile.n)), block, order=pl.swizzled(group))


def _wide(nt: bool):
    def body(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, tile: pl.TileSizes, stages, group) -> None:
        def block(i, j):
            pl.store(out, (i * tile.m, j * tile.n), _reduce(a, b, i * tile.m, j * tile.n, tile, stages, nt=nt))

        pl.grid((pl.cdiv(out.shape[0], tile.m), pl.cdiv(out.shape[1], tile.n)), block, order=pl.swizzled(group))

    return body


@pl.kernel(
    outputs={"out": lambda a, b: _product(a, b, _accumulator(a))},
    tile={"m": 128, "n": 256, "k": 256},
    ranges={"stages": (1, 4), "group": (1, 64)},
)
def matmul_wide(
    a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2, group: int = 4
) -> None:
    """``out[m, n] = a[m, k] @ b[k, n]`` as it is accumulated: fp32, int32 for int8. Parameters as in ``matmul``."""
    _wide(nt=False)(a, b, out, tile, stages, group)


@pl.kernel(
    outputs={"out": lambda a, b: _product(a, b, _accumulator(a), transposed=True)},
    tile={"m": 128, "n": 256, "k": 256},
    ranges={"stages": (1, 4), "group": (1, 64)},
)
def matmul_wide_nt(
    a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2, group: int = 4
) -> None:
    """``out[m, n] = a[m, k] @ b[n, k]ᵀ``: ``matmul_wide`` with the weight stored K-contiguous."""
    _wide(nt=True)(a, b, out, tile, stages, group)


def _split(nt: bool):
    def body(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, tile: pl.TileSizes, splits, stages) -> None:
        (m, n), k = out.shape, a.shape[1]
        steps = pl.cdiv(pl.cdiv(k, splits), tile.k)

        def block(s, i, j):
            start = s * (steps * tile.k)
            acc = _reduce(a, b, i * tile.m, j * tile.n, tile, stages, steps, start, nt)
            pl.store(out, (i * tile.m, j * tile.n), acc, atomic="add")

        pl.grid((pl.cdiv(k, steps * tile.k), pl.cdiv(m, tile.m), pl.cdiv(n, tile.n)), block)

    return body


@pl.kernel(
    outputs={"out": lambda a, b: _product(a, b, _accumulator(a))},
    tile={"m": 128, "n": 256, "k": 256},
    ranges={"splits": (1, 64), "stages": (1, 4)},
)
def matmul_split_k(
    a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, splits: int = 4, stages: int = 2
) -> None:
    """``out[m, n] += a[m, k] @ b[k, n]`` with K cut into ``splits`` slices, each a block of its own.

    The partial sums are added to a zero-seeded float32 output by atomic adds: more blocks for a small M and N, at
    the price of one more output write a slice.
    """
    _split(nt=False)(a, b, out, tile, splits, stages)


@pl.kernel(
    outputs={"out": lambda a, b: _product(a, b, _accumulator(a), transposed=True)},
    tile={"m": 128, "n": 256, "k": 256},
    ranges={"splits": (1, 64), "stages": (1, 4)},
)
def matmul_split_k_nt(
    a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, splits: int = 4, stages: int = 2
) -> None:
    """``out[m, n] += a[m, k] @ b[n, k]ᵀ``: ``matmul_split_k`` with the weight stored K-contiguous."""
    _split(nt=True)(a, b, out, tile, splits, stages)


@pl.kernel(
    outputs={"out": lambda a, b: _product(a, b, transposed=True)},
    tile={"m": 64, "n": 128},
    ranges={"panels": (1, 4096), "stages": (1, 4)},
)
def matmul_panels(
    a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, panels: int = 8, stages: int = 2
) -> None:
    """``out[m, n] = a[m, k] @ b[n, k]ᵀ`` for a K that fits on chip: a block keeps its rows of ``a`` in Mat.

    It walks ``panels`` column tiles in a pipeline, as the scores of one query tile against pages of keys do.
    """
    m, n = out.shape
    k = a.shape[1]

    def block(i, j):
        lhs = pl.load(a, (i * tile.m, 0), (tile.m, k))

        def panel(p, nothing):
            column = (j * panels + p) * tile.n
            acc = pl.matmul(lhs, pl.load(b, (column, 0), (tile.n, k)), transpose_rhs=True)
            pl.store(out, (i * tile.m, column), pl.cast(acc, out.dtype))
            return nothing

        pl.pipeline(panels, panel, (), stages=stages)

    pl.grid((pl.cdiv(m, tile.m), pl.cdiv(n, panels * tile.n)), block)


@pl.kernel(
    outputs={"out": lambda a, b: _product(a, b, transposed=True)},
    tile={"m": 128, "n": 256, "ka": 512, "kb": 256, "k0": 64},
    ranges={"stages": (1, 4), "group": (1, 4096)},
)
def matmul_staged(
    a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2, group: int = 5
) -> None:
    """``out[m, n] = a[m, k] @ b[n, k]ᵀ`` with every tile placed by hand.

    One L1 tile of ``a`` holds ``ka`` of the reduction, one of ``b`` holds ``kb``, and each cube instruction
    takes ``k0``; every space has ``stages`` slots.
    """
    (m, k), (n, _) = a.shape, b.shape

    def block(i, j):
        def outer(ko, acc):
            lhs = pl.load(a, (i * tile.m, ko * tile.ka), (tile.m, tile.ka))

            def middle(kb, acc):
                rhs = pl.load(b, (j * tile.n, ko * tile.ka + kb * tile.kb), (tile.n, tile.kb))

                def inner(k0, acc):
                    left = pl.move(lhs, pl.Left, offset=(0, kb * tile.kb + k0 * tile.k0), shape=(tile.m, tile.k0))
                    right = pl.move(rhs, pl.Right, offset=(0, k0 * tile.k0), shape=(tile.n, tile.k0), transpose=True)
                    return pl.matmul(left, right, acc)

                return pl.pipeline(pl.cdiv(rhs.valid[1], tile.k0), inner, acc, stages=stages)

            return pl.pipeline(pl.cdiv(lhs.valid[1], tile.kb), middle, acc, stages=stages)

        acc = pl.zeros((tile.m, tile.n), _accumulator(a), space=pl.Acc)
        acc = pl.pipeline(pl.cdiv(k, tile.ka), outer, acc, stages=stages)
        pl.store(out, (i * tile.m, j * tile.n), pl.cast(acc, out.dtype))

    pl.grid((pl.cdiv(m, tile.m), pl.cdiv(n, tile.n)), block, order=pl.swizzled(group))


def _grouped(x: pl.Spec, w: pl.Spec, rows: pl.Spec) -> pl.Spec:
    if len(x.shape) != 2 or len(w.shape) != 3 or x.shape[1] != w.shape[1] or x.dtype != w.dtype:
        raise KernelError(f"grouped_matmul takes `x` (t, k) and `w` (groups, k, n) of one dtype; got {x} and {w}")
    if rows.values is None:
        raise KernelError("`rows` expects px.control(values): the rows of each group")
    if len(rows.values) != w.shape[0] or sum(rows.values) > x.shape[0]:
        raise KernelError(
            f"`rows` needs one entry for each of the {w.shape[0]} groups, at most {x.shape[0]} in all; "
            f"got {len(rows.values)} entries that sum to {sum(rows.values)}"
        )
    return pl.spec((x.shape[0], w.shape[2]), "int32" if x.dtype == "int8" else x.dtype)


@pl.kernel(
    outputs={"out": lambda x, w, rows: _grouped(x, w, rows)},
    tile={"m": 16, "n": 256, "k": 256},
    ranges={"stages": (1, 4)},
)
def grouped_matmul(
    x: pl.Tensor, w: pl.Tensor, rows: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2
) -> None:
    """Rows of ``x`` sorted by group, each group times its own weight: the experts of an MoE layer.

    ``out[r, n] = x[r, k] @ w[group of r, k, n]``; ``rows`` (a control input) holds the rows of each group. A block
    computes one group's rows for one strip of columns, and streams the weight once for each row tile.
    """
    (_, k), (groups, _, n) = x.shape, w.shape

    def block(g, j):
        first, count = pl.prefix(rows, g), pl.element(rows, g)

        def row_tile(i, nothing):
            def step(kk, acc):
                lhs = pl.load(
                    x,
                    (first + i * tile.m, kk * tile.k),
                    (tile.m, tile.k),
                    valid=(count - i * tile.m, None),
                )
                rhs = pl.load(w, (g, kk * tile.k, j * tile.n), (1, tile.k, tile.n))
                return pl.matmul(lhs, rhs, acc)

            acc = pl.zeros((tile.m, tile.n), _accumulator(x), space=pl.Acc)
            acc = pl.pipeline(pl.cdiv(k, tile.k), step, acc, stages=stages)
            pl.store(out, (first + i * tile.m, j * tile.n), pl.cast(acc, out.dtype))
            return nothing

        pl.range(pl.cdiv(count, tile.m), row_tile, ())

    pl.grid((groups, pl.cdiv(n, tile.n)), block)


def _with_bias(a: pl.Spec, b: pl.Spec, bias: pl.Spec) -> pl.Spec:
    out = _product(a, b)
    if bias.shape != (out.shape[1],) or bias.dtype != "fp32" or a.dtype == "int8":
        raise KernelError(f"`bias` must be fp32[{out.shape[1]}] and `a` a float matrix; got {bias} and {a}")
    return out


@pl.kernel(
    outputs={"out": lambda a, b, bias: _with_bias(a, b, bias)},
    tile={"m": 64, "n": 256, "k": 256},
    ranges={"stages": (1, 4), "group": (1, 64)},
    choices={"activation": ("none", "relu", "silu")},
)
def matmul_bias_activation(
    a: pl.Tensor,
    b: pl.Tensor,
    bias: pl.Tensor,
    out: pl.Tensor,
    *,
    tile: pl.TileSizes,
    stages: int = 2,
    group: int = 4,
    activation: str = "silu",
) -> None:
    """``out = activation(a @ b + bias)``: the cube's result goes to the vector cores of the same cluster.

    ``activation`` is ``none``, ``relu`` or ``silu`` (``x / (1 + exp(-x))``), in float32.
    """
    m, n = out.shape

    def block(i, j):
        acc = _reduce(a, b, i * tile.m, j * tile.n, tile, stages)
        offset = pl.load(bias, (j * tile.n,), (tile.n,), space=pl.Vec)
        y = pl.add(pl.move(acc, pl.Vec), offset)
        if activation == "relu":
            y = pl.maximum_of(y, 0.0)
        elif activation == "silu":
            y = pl.divide(y, pl.add(pl.exp(pl.negative(y)), 1.0))
        pl.store(out, (i * tile.m, j * tile.n), pl.cast(y, out.dtype))

    pl.grid((pl.cdiv(m, tile.m), pl.cdiv(n, tile.n)), block, order=pl.swizzled(group))
