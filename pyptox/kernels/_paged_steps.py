"""Attention over a paged cache in steps of their own, each through GM: scores, softmax, values.

What ``paged_attention`` does in one mixed kernel, as a first version of a decode path does it.
"""

import functools

from .. import lang as pl
from .._dtypes import dtype_of
from .._errors import KernelError
from ._paged_attention import _checked
from ._rows import store_narrow


def _scores(q: pl.Spec, k: pl.Spec, table: pl.Spec, lengths: pl.Spec) -> pl.Spec:
    requests, heads, group, _ = _checked(q, k, k, table, lengths).shape
    return pl.spec((requests, heads, group, table.shape[1] * k.shape[2]), "fp32")


@pl.kernel(outputs={"out": lambda q, k, table, lengths: _scores(q, k, table, lengths)}, ranges={"stages": (1, 4)})
def paged_scores(
    q: pl.Tensor, k: pl.Tensor, table: pl.Tensor, lengths: pl.Tensor, out: pl.Tensor, *, stages: int = 2
) -> None:
    """``out[r, h, g, j] = q[r, h, g] k_j / sqrt(size)`` for the ``lengths[r]`` keys of each request, fp32.

    Inputs as in ``paged_attention``; ``out`` is (requests, key heads, group, keys of a row of ``table``). A block is
    one request and key head. Parameter: ``stages`` slots of the pipeline over pages.
    """
    requests, heads, group, size = q.shape
    page = k.shape[2]
    rows = 16 * pl.cdiv(group, 16)

    def block(r, h):
        length = pl.element(lengths, r)
        query = pl.load(q, (r, h, 0, 0), (1, 1, rows, size))

        def one(j, nothing):
            at = (pl.lookup(table, (r, j)), h, 0, 0)
            keys = pl.load(k, at, (1, 1, page, size), valid=(None, None, length - j * page, None))
            scores = pl.move(pl.matmul(query, keys, transpose_rhs=True), pl.Vec)
            pl.store(out, (r, h, 0, j * page), pl.multiply(scores, 1.0 / size**0.5))
            return nothing

        pl.pipeline(pl.cdiv(length, page), one, (), stages=stages)

    pl.grid((requests, heads), block)


def _lengths_of(x: pl.Spec, lengths: pl.Spec) -> pl.Spec:
    if len(x.shape) != 4 or x.dtype != "fp32":
        raise KernelError(f"`x` must be fp32 (requests, heads, group, keys); got {x}")
    if lengths.values is None or len(lengths.values) != x.shape[0] or max(lengths.values) > x.shape[3]:
        raise KernelError(
            f"`lengths` expects px.control(values), {x.shape[0]} of them up to {x.shape[3]}; got {lengths} "
            f"{lengths.values or ''}"
        )
    return x


@functools.cache
def softmax_lengths(dtype: str) -> pl.Kernel:
    """The kernel that makes a softmax of the first ``lengths[r]`` of a row's elements; the others stay zero.

    ``x`` is fp32 (requests, heads, group, keys), ``out`` alike in ``dtype``; ``lengths`` is a control input. Two passes
    in tiles of ``n`` columns: the first finds largest element and sum, the second divides. Parameters: ``n``;
    ``stages`` slots of both pipelines.

    >>> import numpy as np, pyptox as px
    >>> x = np.zeros((2, 1, 1, 32), np.float32)
    >>> out = px.run(px.kernels.softmax_lengths("fp32"), x, px.control([4, 0]))
    >>> np.asarray(out)[:, 0, 0, 3:5].tolist()
    [[0.25, 0.0], [0.0, 0.0]]
    """
    name = dtype_of(dtype).name

    @pl.kernel(
        outputs={"out": lambda x, lengths: pl.spec(_lengths_of(x, lengths).shape, name)},
        tile={"n": 256},
        ranges={"stages": (1, 4)},
        name=f"softmax_lengths({name})",
    )
    def kernel(x: pl.Tensor, lengths: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2) -> None:
        requests, heads, group, _ = x.shape
        rows = 8 * pl.cdiv(group, 8)

        def block(r, h):
            length = pl.element(lengths, r)
            count = pl.cdiv(length, tile.n)

            def part(j):
                at, limit = (r, h, 0, j * tile.n), (None, None, None, length - j * tile.n)
                return pl.load(x, at, (1, 1, rows, tile.n), space=pl.Vec, valid=limit)

            def gather(j, carry):
                largest, total = carry
                here = part(j)
                new = pl.maximum_of(largest, pl.row_max(here))
                fade = pl.exp(pl.subtract(largest, new))
                return new, pl.multiply_add(total, fade, pl.row_sum(pl.exp(pl.subtract(here, new))))

            def divide(j, carry):
                largest, total = carry
                weights = pl.divide(pl.exp(pl.subtract(part(j), largest)), total)
                store_narrow(out, (r, h, 0, j * tile.n), weights)
                return carry

            start = pl.full((rows, 1), -1e30, "fp32"), pl.full((rows, 1), 1e-30, "fp32")
            pl.pipeline(count, divide, pl.pipeline(count, gather, start, stages=stages), stages=stages)

        pl.grid((requests, heads), block)

    return kernel


def _values(p: pl.Spec, v: pl.Spec, table: pl.Spec, lengths: pl.Spec) -> pl.Spec:
    if len(p.shape) != 4 or len(v.shape) != 4 or p.shape[3] != table.shape[1] * v.shape[2]:
        raise KernelError(f"`p` must be (requests, heads, group, keys of a row of `table`); got {p}, {v} and {table}")
    query = pl.spec((*p.shape[:3], v.shape[3]), p.dtype)
    return _checked(query, v, v, table, lengths)


@pl.kernel(outputs={"out": lambda p, v, table, lengths: _values(p, v, table, lengths)}, ranges={"stages": (1, 4)})
def paged_values(
    p: pl.Tensor, v: pl.Tensor, table: pl.Tensor, lengths: pl.Tensor, out: pl.Tensor, *, stages: int = 2
) -> None:
    """``out[r, h, g] = sum over j of p[r, h, g, j] v_j`` over the ``lengths[r]`` values of each request.

    ``p`` is what ``softmax_lengths`` makes; ``v``, ``table`` and ``lengths`` as in ``paged_attention``. Parameter:
    ``stages`` slots of the pipeline over pages.
    """
    requests, heads, group, _ = p.shape
    page, size = v.shape[2:]
    rows = 16 * pl.cdiv(group, 16)

    def block(r, h):
        length = pl.element(lengths, r)

        def one(j, acc):
            left = length - j * page
            weights = pl.load(p, (r, h, 0, j * page), (1, 1, rows, page), valid=(None, None, None, left))
            at = (pl.lookup(table, (r, j)), h, 0, 0)
            return pl.matmul(weights, pl.load(v, at, (1, 1, page, size), valid=(None, None, left, None)), acc)

        acc = pl.zeros((rows, size), "fp32", space=pl.Acc)
        acc = pl.pipeline(pl.cdiv(length, page), one, acc, stages=stages)
        pl.store(out, (r, h, 0, 0), pl.cast(acc, out.dtype))

    pl.grid((requests, heads), block)
