"""The decode program: tasks of one step for a window of rows, and for a whole batch.

A row is one token of one request. Rows of one request may be in one window, which is how a prompt is read: every new
key is in the cache before attention, and each row attends to as many keys as its place says.
"""

import functools

from pyptox.program import Program, Tensor

from ._config import Config
from ._layers import embed, layer, logits, sample
from ._specs import CACHES, ROW_ARGUMENTS, layer_arguments
from ._tasks import Rows, Step
from ._variant import Variant
from ._weights import checked_dtype


@functools.lru_cache(maxsize=64)
def embed_program(config: Config, variant: Variant, dtype: str) -> Program:
    """The residual stream of new tokens, their turns, and what the first layer finds scaled."""
    step = Step(config, variant, checked_dtype(dtype))

    def embedded(*tensors: Tensor) -> tuple[Tensor, ...]:
        tokens, positions, embedding, rope, gain = tensors
        return tuple(x for x in embed(step, tokens, positions, embedding, rope, gain) if x is not None)

    return Program(embedded, "embed", ("tokens", "positions", "embedding", "rope", "gain"))


@functools.lru_cache(maxsize=64)
def layer_program(config: Config, variant: Variant, dtype: str) -> Program:
    """One layer of a window; returns the residual stream, times the next gain if ``ahead``, and the caches."""
    step = Step(config, variant, checked_dtype(dtype))
    carried = ("residual", "scaled") if step.ahead else ("residual",)
    names = (*carried, "next_norm", "turns", *ROW_ARGUMENTS, *layer_arguments(config, dtype), *CACHES)

    def one(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, tensors, strict=True))
        rows = Rows(given["turns"], *(given[name] for name in ROW_ARGUMENTS))
        results = layer(step, given["residual"], given.get("scaled"), given, given["next_norm"], rows)
        return tuple(x for x in results if x is not None)

    return Program(one, "layer", names)


@functools.lru_cache(maxsize=64)
def head_program(config: Config, variant: Variant, dtype: str) -> Program:
    """The logits of a window, and with sampling its tokens."""
    step = Step(config, variant, checked_dtype(dtype))
    carried = ("residual", "scaled") if step.ahead else ("residual",)
    names = (*carried, "norm", "head", "ones", "base")

    def head(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        given = dict(zip(names, tensors, strict=True))
        scores = logits(step, given["residual"], given.get("scaled"), given["norm"], given["head"], given["ones"])
        return (scores, sample(step, scores, given["base"])) if variant.sampling else scores

    return Program(head, "head", names)


@functools.lru_cache(maxsize=64)
def decode_program(config: Config, variant: Variant, dtype: str) -> Program:
    """A whole decode step of a batch: windows of ``variant.rows`` rows one after the other.

    Read it with :func:`pyptox.program.graph`; :func:`decode_specs` gives its arguments. It returns tokens (without
    device sampling: logits) of each window, then both caches of each layer.
    """
    step = Step(config, variant, checked_dtype(dtype))
    weights = tuple(layer_arguments(config, dtype))
    names = (
        *("tokens", "positions", *ROW_ARGUMENTS, "embedding", "rope", "norm", "head", "base"),
        *(f"layers.{n}.{name}" for n in range(config.layers) for name in (*weights, *CACHES)),
    )

    def decode(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, tensors, strict=True))
        layers = [{name: given[f"layers.{n}.{name}"] for name in (*weights, *CACHES)} for n in range(config.layers)]
        results = []
        for first in range(0, given["tokens"].shape[0], variant.rows):
            here = slice(first, min(first + variant.rows, given["tokens"].shape[0]))
            slots = slice(here.start * config.key_heads, here.stop * config.key_heads)
            inputs = given["tokens"][here], given["positions"][here], given["embedding"], given["rope"]
            residual, turns, scaled = embed(step, *inputs, layers[0]["input_norm"], results[-1:])
            ones = given["ones"][here]
            places, table, lengths = (given[name][here] for name in ("places", "table", "lengths"))
            rows = Rows(turns, given["slots"][slots], places, table, lengths, ones)
            for number, w in enumerate(layers):
                after = layers[number + 1]["input_norm"] if number + 1 < config.layers else given["norm"]
                residual, scaled, *caches = layer(step, residual, scaled, w, after, rows)
                w.update(zip(CACHES, caches, strict=True))
            scores = logits(step, residual, scaled, given["norm"], given["head"], ones)
            results.append(sample(step, scores, given["base"]) if variant.sampling else scores)
        return (*results, *(w[name] for w in layers for name in CACHES))

    return Program(decode, "qwen3_14b", names)
