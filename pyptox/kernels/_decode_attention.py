"""The whole attention of a decode step in one mixed kernel, from the projections to the attended values."""

from .. import lang as pl
from .._errors import KernelError
from ._attention import attend
from ._deferred import normed_and_turned
from ._norm import _EPSILONS
from ._paged_attention import _checked
from ._rows import load_wide


def _attended(q, k, v, inverse, q_weight, k_weight, cos, sin, places, table, lengths, k_cache, v_cache) -> pl.Spec:
    if len(q.shape) != 4 or len(k.shape) != 3 or k.shape != v.shape or {q.dtype, k.dtype, v.dtype} != {"fp32"}:
        raise KernelError(
            f"`q` (requests, heads, group, size), `k`, `v` (requests, heads, size) of fp32; got {q}, {k}, {v}"
        )
    requests, heads, _, size = q.shape
    expected = {
        "k": (k, (requests, heads, size)),
        "inverse": (inverse, (requests, 1)),
        "q_weight": (q_weight, (size,)),
        "k_weight": (k_weight, (size,)),
        "cos": (cos, (requests, size // 2)),
        "sin": (sin, (requests, size // 2)),
        "places": (places, (requests, 2)),
    }
    for name, (spec, shape) in expected.items():
        if spec.shape != shape or spec.dtype != ("int32" if name == "places" else "fp32"):
            raise KernelError(f"`{name}` must be {'int32' if name == 'places' else 'fp32'}{list(shape)}; got {spec}")
    return _checked(pl.spec(q.shape, k_cache.dtype), k_cache, v_cache, table, lengths)


@pl.kernel(
    outputs={
        "out": lambda q, k, v, inverse, q_weight, k_weight, cos, sin, places, table, lengths, k_cache, v_cache: (
            _attended(q, k, v, inverse, q_weight, k_weight, cos, sin, places, table, lengths, k_cache, v_cache)
        ),
        "k_out": lambda k_cache, **_: k_cache,
        "v_out": lambda v_cache, **_: v_cache,
    },
    in_place={"k_out": "k_cache", "v_out": "v_cache"},
    ranges={"stages": (1, 4)},
    choices={"preload": (0, 1, 2), "epsilon": _EPSILONS},
)
def decode_attention(
    q: pl.Tensor,
    k: pl.Tensor,
    v: pl.Tensor,
    inverse: pl.Tensor,
    q_weight: pl.Tensor,
    k_weight: pl.Tensor,
    cos: pl.Tensor,
    sin: pl.Tensor,
    places: pl.Tensor,
    table: pl.Tensor,
    lengths: pl.Tensor,
    k_cache: pl.Tensor,
    v_cache: pl.Tensor,
    out: pl.Tensor,
    k_out: pl.Tensor,
    v_out: pl.Tensor,
    *,
    stages: int = 2,
    preload: int = 1,
    epsilon: float = 1e-6,
) -> None:
    """Norm and rotation of one new query and key a request, the write to the cache, and paged attention.

    ``q`` (requests, key heads, group, size), ``k`` and ``v`` (requests, key heads, size) are projections in fp32, still
    to be scaled by ``inverse`` (requests, 1). Queries and keys go through RMSNorm with ``q_weight`` and ``k_weight``
    and the rotation by ``cos`` and ``sin`` as in ``norm_rope``. Key and value go to ``places[r]``, page and row of the
    page, which must be where ``table`` has key ``lengths[r] - 1``; then it is ``paged_attention``, whose ``lengths``
    count the new key. A request of length 0 writes nothing and gets zeros. No two requests may share a page that one
    of them writes.

    A block is one request and key head. Parameters as in ``paged_attention``; ``epsilon`` of the norms.
    """
    requests, heads, group, size = q.shape
    page = k_cache.shape[2]
    rows = 16 * pl.cdiv(group, 16)
    scale = 1.0 / size**0.5

    def block(r, h):
        length = pl.element(lengths, r)
        factor = pl.load(inverse, (r, 0), (1, 1), space=pl.Vec)
        c, s = (load_wide(turn, (r, 0), (1, turn.shape[1])) for turn in (cos, sin))

        def turned(x, weight):
            return normed_and_turned(x, factor, load_wide(weight, (0,), (size,)), c, s, size, epsilon)

        def new_row(x):  # nothing is valid of a request without keys
            return pl.load(x, (r, h, 0), (1, 1, size), space=pl.Vec, valid=(None, length, None))

        there = pl.lookup(places, (r, 0)), h, pl.lookup(places, (r, 1)), 0
        pl.store(k_out, there, pl.cast(turned(new_row(k), k_weight), k_out.dtype))
        pl.store(v_out, there, pl.cast(pl.multiply(new_row(v), factor), v_out.dtype))
        query = turned(pl.load(q, (r, h, 0, 0), (1, 1, rows, size), space=pl.Vec), q_weight)
        query = pl.move(pl.move(pl.cast(query, out.dtype), pl.GM), pl.Mat)

        def load_page(cache, j):
            at = (pl.lookup(table, (r, j)), h, 0, 0)
            return pl.load(cache, at, (1, 1, page, size), valid=(None, None, length - j * page, None))

        def scores_of(j):
            return pl.multiply(pl.move(pl.matmul(query, load_page(k_out, j), transpose_rhs=True), pl.Vec), scale)

        count = pl.maximum(pl.cdiv(length, page), 1)
        result = attend(
            count,
            scores_of,
            lambda j: load_page(v_out, j),
            rows,
            size,
            out.dtype,
            preload=preload,
            stages=stages,
            surely=1,
        )
        pl.store(out, (r, h, 0, 0), pl.cast(result, out.dtype))

    pl.grid((requests, heads), block)
