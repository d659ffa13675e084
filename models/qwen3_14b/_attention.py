"""Attention of a decode step: in one mixed kernel, paged after its inputs are prepared, or step by step."""

import itertools
from collections.abc import Mapping, Sequence

from pyptox import kernels
from pyptox import program as pp
from pyptox.program import Tensor

from ._config import PAGE
from ._tasks import Rows, Step, slices


def attention(
    step: Step,
    qkv: tuple[Tensor, Tensor, Tensor],
    inverse: Tensor,
    w: Mapping[str, Tensor],
    rows: Rows,
    after: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """Attended values (rows, heads · size), and both caches; it begins when the tasks of ``after`` are done."""
    build = {"steps": _in_steps, "paged": _paged, "fused": _fused}[step.variant.attention]
    out, k_cache, v_cache = build(step, qkv, inverse, w, rows, after)
    return out.reshape(out.shape[0], -1), k_cache, v_cache


def _fused(step: Step, qkv, inverse, w, rows: Rows, after: Sequence[Tensor]):
    c, v = step.config, step.variant
    count, half = rows.places.shape[0], c.size // 2
    q, k, value = qkv
    q = q.reshape(count, c.key_heads, c.group, c.size)
    k, value = (x.reshape(count, c.key_heads, c.size) for x in (k, value))
    out = pp.empty(q.shape, step.stored, name="attended")
    k_cache, v_cache = w["k_cache"], w["v_cache"]
    for some in slices(count, step.variant.requests):
        _, k_cache, v_cache = step.submit(
            kernels.decode_attention,
            *(q[some], k[some], value[some], inverse[some], w["q_norm"], w["k_norm"]),
            *(rows.turns[some, :half], rows.turns[some, half:], rows.places[some], rows.table[some]),
            *(rows.lengths[some], k_cache, v_cache),
            out={"out": out[some]},
            deps=after,
            name="attention",
            stages=v.stages,
            preload=v.pages,
            epsilon=c.epsilon,
        )
    return out, k_cache, v_cache


def _prepared(step: Step, qkv, inverse, w, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Queries after norm and rotation, (rows, key heads, group, size), and the caches with the new keys."""
    c, v = step.config, step.variant
    count, half = rows.places.shape[0], c.size // 2
    q = qkv[0].reshape(count, c.heads, c.size)
    k = qkv[1].reshape(count, c.key_heads, c.size)
    turned = [pp.empty(x.shape, step.stored, name=name) for x, name in ((q, "queries"), (k, "keys"))]
    for some in slices(count, step.variant.requests):
        turns = rows.turns[some, :half], rows.turns[some, half:]
        for x, gain, out, name in ((q, "q_norm", turned[0], "q_rope"), (k, "k_norm", turned[1], "k_rope")):
            step.submit(
                kernels.norm_rope(step.stored),
                *(x[some], inverse[some], w[gain], *turns),
                out=out[some],
                name=name,
                stages=v.stages,
                epsilon=c.epsilon,
            )
    value = step.columns(kernels.scale_rows(step.stored), qkv[2], inverse, dtype=step.stored, name="v_scale")
    caches = _cached(step, turned[1], value, w, rows.slots)
    return turned[0].reshape(count, c.key_heads, c.group, c.size), *caches


def _paged(step: Step, qkv, inverse, w, rows: Rows, after: Sequence[Tensor]):
    v = step.variant
    q, k_cache, v_cache = _prepared(step, qkv, inverse, w, rows)
    out = pp.empty(q.shape, step.stored, name="attended")
    for some in slices(q.shape[0], step.variant.requests):
        inputs = q[some], k_cache, v_cache, rows.table[some], rows.lengths[some]
        step.submit(
            kernels.paged_attention,
            *inputs,
            out=out[some],
            deps=after,
            name="attention",
            stages=v.stages,
            preload=v.pages,
        )
    return out, k_cache, v_cache


def _in_steps(step: Step, qkv, inverse, w, rows: Rows, after: Sequence[Tensor]):
    v = step.variant
    q, k_cache, v_cache = _prepared(step, qkv, inverse, w, rows)
    out = pp.empty(q.shape, step.stored, name="attended")
    heads = slices(step.config.key_heads, v.heads)
    for some, these in itertools.product(slices(q.shape[0], v.requests), heads):
        table, lengths = rows.table[some], rows.lengths[some]
        keys, values = k_cache[:, these], v_cache[:, these]
        scores = step.submit(
            kernels.paged_scores,
            *(q[some, these], keys, table, lengths),
            deps=after,
            name="scores",
            stages=v.stages,
        )
        weights = step.submit(
            kernels.softmax_lengths(step.stored), scores, lengths, name="softmax", n=PAGE, stages=v.stages
        )
        step.submit(
            kernels.paged_values,
            *(weights, values, table, lengths),
            out=out[some, these],
            name="values",
            stages=v.stages,
        )
    return out, k_cache, v_cache


def _cached(step: Step, k: Tensor, value: Tensor, w: Mapping[str, Tensor], slots: Tensor) -> tuple[Tensor, Tensor]:
    size, caches = step.config.size, []
    tile = {"n": size, "stages": step.variant.stages}
    for x, name in ((k, "k_cache"), (value, "v_cache")):
        cache = w[name]
        lines = cache.reshape(cache.shape[0] * cache.shape[1] * PAGE, size)
        written = step.submit(
            kernels.cache_write, x.reshape(slots.shape[0], size), slots, lines, name=f"write_{name}", **tile
        )
        caches.append(written.reshape(*cache.shape))
    return caches[0], caches[1]
