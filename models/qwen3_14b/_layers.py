"""A layer of a decode step, and what comes before the first and after the last."""

from collections.abc import Iterable, Mapping

from pyptox import kernels
from pyptox import program as pp
from pyptox.program import Tensor

from ._attention import attention
from ._tasks import Normed, Rows, Step


def layer(
    step: Step, residual: Tensor, scaled: Tensor | None, w: Mapping[str, Tensor], next_norm: Tensor, rows: Rows
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Residual stream after a layer, times the gain of the next norm where that is put off, and both caches."""
    v = step.variant
    seeds = step.seeds(residual.shape[0])
    x = step.normed(residual, w["input_norm"], scaled, rows.ones)
    q, k, value = (step.project(name, x, w, seeds) for name in ("q", "k", "v"))
    behind = v.funnel
    after = [seeds[name] for name in ("o", "gate") if name in seeds and behind]
    attended, k_cache, v_cache = attention(step, (q, k, value), x.inverse, w, rows, after)
    attended = Normed(*step.quantized(attended), rows.ones)
    residual, scaled = step.add("o", attended, w, seeds, residual, w["post_norm"], behind)
    x = step.normed(residual, w["post_norm"], scaled, rows.ones)
    if v.mixed and step.dtype != "a8w8":
        active = step.gated(x, w)
    else:
        gate, up = (step.project(name, x, w, seeds, behind=behind) for name in ("gate", "up"))
        kernel = kernels.swiglu_deferred(step.input)
        each = v.vector_tiles * v.gate.n
        active = step.columns(kernel, gate, up, x.inverse, dtype=step.input, name="silu", each=each)
    x = Normed(*step.quantized(active), rows.ones)
    residual, scaled = step.add("down", x, w, seeds, residual, next_norm, behind)
    return residual, scaled, k_cache, v_cache


def embed(
    step: Step,
    tokens: Tensor,
    positions: Tensor,
    embedding: Tensor,
    rope: Tensor,
    gain: Tensor,
    after: Iterable[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The residual stream of new rows, their cosines and sines; the stream times the first gain if ``ahead``.

    It begins when the tasks of ``after`` are done.
    """
    tile = step.chunk
    residual = step.submit(kernels.gather_rows, embedding, tokens, name="embed", deps=after, **tile)
    if step.stored != "fp32":
        residual = step.columns(kernels.convert("fp32"), residual, dtype="fp32", name="embed_cast")
    turns = step.submit(kernels.gather_rows, rope, positions, name="turns", **tile)
    return residual, turns, step.scaled(residual, gain) if step.ahead else None


def logits(step: Step, residual: Tensor, scaled: Tensor | None, norm: Tensor, head: Tensor, ones: Tensor) -> Tensor:
    """The logits of every row, fp32."""
    v = step.variant
    plain = Step(step.config, v, step.stored)  # the head is not quantised
    if scaled is not None and scaled.dtype != step.stored:
        scaled = plain.columns(kernels.convert(step.stored), scaled, dtype=step.stored, name="head_cast")
    x = plain.normed(residual, norm, scaled, ones)
    plan, count = v.head, head.shape[0]
    parts = plan.parts(count)
    tile = plain.cut(plan)
    made = None
    out = pp.empty((residual.shape[0], count), "fp32", name="logits") if len(parts) > 1 else None
    for first, last in parts:
        where = None if out is None else out[:, first:last]
        made = step.submit(kernels.matmul_wide_nt, x.x, head[first:last], out=where, name="head", **tile)
    assert made is not None
    made = out if out is not None else made
    if not v.deferred:
        return made
    return plain.columns(kernels.scale_rows("fp32"), made, x.inverse, dtype="fp32", name="head_scale")


def sample(step: Step, logits: Tensor, base: Tensor) -> Tensor:
    """The first largest logit of every row, int32 (rows, 1)."""
    _, token = step.submit(kernels.argmax_shard, logits, base, name="sample", m=step.chunk["m"], n=step.chunk["n"])
    return token
