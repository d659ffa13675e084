"""Attention of one new token per request over a cache of keys and values in pages."""

from .. import lang as pl
from .._errors import KernelError
from ._attention import attend


def _checked(q: pl.Spec, k: pl.Spec, v: pl.Spec, table: pl.Spec, lengths: pl.Spec) -> pl.Spec:
    if not (len(q.shape) == len(k.shape) == 4) or k.shape != v.shape:
        raise KernelError(
            f"`q` must be (requests, heads, group, size), `k` and `v` (pages, heads, page, size); got {q}, {k} and {v}"
        )
    if q.shape[1] != k.shape[1] or q.shape[3] != k.shape[3]:
        raise KernelError(f"`q` and `k` must have the same key heads and head size; got {q} and {k}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in ("bf16", "fp16", "fp32"):
        raise KernelError(f"`q`, `k` and `v` must have one floating dtype; got {q.dtype}, {k.dtype} and {v.dtype}")
    if len(table.shape) != 2 or table.shape[0] != q.shape[0] or table.dtype != "int32":
        raise KernelError(f"`table` must be int32[{q.shape[0]},pages of a request]; got {table}")
    if lengths.values is None or len(lengths.values) != q.shape[0]:
        raise KernelError(f"`lengths` expects px.control(values): the keys of each of the {q.shape[0]} requests")
    room = table.shape[1] * k.shape[2]
    if max(lengths.values) > room:
        raise KernelError(
            f"`lengths` must be at most {room}, the {table.shape[1]} pages of a row of `table`; "
            f"got {max(lengths.values)}"
        )
    return q


@pl.kernel(
    outputs={"out": lambda q, k, v, table, lengths: _checked(q, k, v, table, lengths)},
    ranges={"stages": (1, 4)},
    choices={"preload": (0, 1, 2)},
)
def paged_attention(
    q: pl.Tensor,
    k: pl.Tensor,
    v: pl.Tensor,
    table: pl.Tensor,
    lengths: pl.Tensor,
    out: pl.Tensor,
    *,
    stages: int = 2,
    preload: int = 1,
) -> None:
    """``out[r, h, g] = softmax(q[r, h, g] kᵀ / sqrt(size)) v`` over the ``lengths[r]`` keys of each request.

    ``q`` and ``out`` are (requests, key heads, query heads of each, size), ``k`` and ``v`` (pages, key heads, keys of
    a page, size). Keys ``j * page`` and on of request ``r`` are in page ``table[r, j]`` (int32; entries beyond its
    keys are not used). ``lengths`` is a control input; a request without keys gets zeros.

    A block is one request and key head; its query heads are padded to whole fractals. Parameters: the scores of
    ``preload`` pages are computed ahead of the values, so that cube and vector cores work at the same time;
    ``stages`` slots of every tile that crosses pipes.

    >>> import numpy as np, pyptox as px
    >>> q, k = np.zeros((2, 1, 5, 16), np.float32), np.zeros((3, 1, 16, 16), np.float32)
    >>> v = np.broadcast_to(np.arange(3, dtype=np.float32)[:, None, None, None], k.shape)
    >>> table, lengths = np.array([[2, 0], [1, 0]], np.int32), px.control([32, 7])
    >>> px.reference(px.kernels.paged_attention, q, k, v, table, lengths)[:, 0, 0, 0].tolist()
    [1.0, 1.0]
    """
    requests, heads, group, size = q.shape
    page = k.shape[2]
    rows = 16 * pl.cdiv(group, 16)
    scale = 1.0 / size**0.5

    def block(r, h):
        length = pl.element(lengths, r)
        query = pl.load(q, (r, h, 0, 0), (1, 1, rows, size))

        def load_page(cache, j):
            at = (pl.lookup(table, (r, j)), h, 0, 0)
            return pl.load(cache, at, (1, 1, page, size), valid=(None, None, length - j * page, None))

        def scores_of(j):
            return pl.multiply(pl.move(pl.matmul(query, load_page(k, j), transpose_rhs=True), pl.Vec), scale)

        # a request without keys goes through one page that holds none
        count = pl.maximum(pl.cdiv(length, page), 1)
        result = attend(
            count, scores_of, lambda j: load_page(v, j), rows, size, q.dtype, preload=preload, stages=stages, surely=1
        )
        pl.store(out, (r, h, 0, 0), pl.cast(result, out.dtype))

    pl.grid((requests, heads), block)
