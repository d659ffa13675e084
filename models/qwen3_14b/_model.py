"""A Qwen3 model that computes: logits of given tokens, and greedy generation."""

import functools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pyptox import control
from pyptox import program as pp

from ._config import PAGE, Config, ModelError, read_config
from ._program import embed_program, head_program, layer_program
from ._specs import CACHES, layer_arguments
from ._variant import Variant, variant_named
from ._weights import STORED, Weights, checked_dtype, load_weights, random_weights

CHUNK = 64
"""Rows of a prompt that are read at once."""


@dataclass
class Cache:
    """Keys and values of a batch: ``table`` gives each request's pages, ``layers`` holds the caches of each layer."""

    table: np.ndarray
    layers: list[list[jax.Array]]


class Model:
    """A model with its weights; made by :func:`from_pretrained` or :func:`random`.

    Attributes:
        config: its shape.
        dtype: ``bf16``, ``fp32`` or ``a8w8``.
        variant: the decode program's choices.
        context: most tokens of a request.
        whole: layers are jitted as a whole (see :func:`pyptox.program.run`).
    """

    def __init__(
        self,
        weights: Weights,
        variant: Variant | str = "device-sampling",
        context: int | None = None,
        *,
        whole: bool = True,
    ):
        self.whole = whole
        self.config, self.dtype = weights.config, weights.dtype
        self.variant = variant_named(variant) if isinstance(variant, str) else variant
        limit = self.config.context
        if context is not None and not (isinstance(context, int) and 0 < context <= limit):
            raise ModelError(f"`context` must be 1 to {limit}, what the model was made for; got {context!r}")
        self.context = context or limit
        self.embedding = jnp.asarray(weights.embedding)
        tied = weights.head is weights.embedding
        self.head = self.embedding if tied else jnp.asarray(weights.head)
        self.final_norm = jnp.asarray(weights.final_norm)
        names = tuple(layer_arguments(self.config, self.dtype))
        self.layers = [[jnp.asarray(layer[name]) for name in names] for layer in weights.layers]
        self._input_norms = [jnp.asarray(layer["input_norm"]) for layer in weights.layers]

    def logits(self, token_ids: Any) -> np.ndarray:
        """The logits of the token after each prefix.

        Args:
            token_ids: int [batch, length].

        Returns:
            float32 [batch, length, vocabulary].

        Raises:
            ModelError: no token, a token that the vocabulary does not have, or more than the context.
        """
        tokens = self._tokens(token_ids)
        batch, length = tokens.shape
        cache = self._cache(batch, length)
        request, position = np.divmod(np.arange(batch * length), length)
        logits = self._read(tokens.reshape(-1), request, position, cache)
        return np.concatenate(list(logits)).reshape(batch, length, -1)

    def generate(
        self, token_ids: Any, steps: int, *, lengths: Sequence[int] | None = None, with_logits: bool = False
    ) -> Any:
        """Greedy continuations; the lowest token on ties.

        Args:
            token_ids: int [batch, length], the prompts.
            steps: tokens to generate for each.
            lengths: tokens of each prompt, where they differ; what follows them is not read.
            with_logits: also the logits that each token was taken from.

        Returns:
            int32 [batch, steps]; with logits a pair of it and float32 [batch, steps, vocabulary].

        Raises:
            ModelError: as :meth:`logits`; lengths that do not fit.
        """
        tokens = self._tokens(token_ids)
        batch, width = tokens.shape
        if not isinstance(steps, int | np.integer) or isinstance(steps, bool) or steps < 1:
            raise ModelError(f"`steps` must be a positive integer; got {steps!r}")
        counts = np.full(batch, width) if lengths is None else np.asarray(lengths)
        if counts.shape != (batch,) or counts.dtype.kind not in "iu" or counts.min() < 1 or counts.max() > width:
            raise ModelError(f"`lengths` must be {batch} integers from 1 to {width}; got {lengths!r}")
        cache = self._cache(batch, int(counts.max()) + int(steps) - 1)
        request, position = np.nonzero(np.arange(width) < counts[:, None])
        ends = np.cumsum(counts) - 1  # where each prompt's last token is among the rows
        first = np.empty((batch, self.config.vocabulary), np.float32)
        reached = 0
        for logits in self._read(tokens[request, position], request, position, cache):
            (here,) = np.nonzero((ends >= reached) & (ends < reached + len(logits)))
            first[here] = logits[ends[here] - reached]
            reached += len(logits)
        made, seen = [first.argmax(-1).astype(np.int32)], [first]
        for step in range(int(steps) - 1):
            token, logits = self._next(made[-1], counts + step, cache, with_logits)
            made.append(token)
            seen.append(logits)
        return (np.stack(made, 1), np.stack(seen, 1)) if with_logits else np.stack(made, 1)

    def step_times_us(self, batch: int, context: int, *, rounds: int, warmup: int = 1) -> Iterator[float]:
        """Wall times of decode steps of ``batch`` requests with ``context`` keys, one more at each, in µs.

        The cache holds zeros, which take as long as anything. The first call of the warm-up compiles.

        Raises:
            ModelError: no request, or more keys than the context.
        """
        if batch < 1 or context < 1:
            raise ModelError(f"`batch` and `context` must be at least 1; got {batch} and {context}")
        cache = self._cache(batch, context + rounds + warmup)
        tokens = np.arange(batch, dtype=np.int32) % self.config.vocabulary
        for number in range(warmup + rounds):
            begin = time.perf_counter()
            tokens, _ = self._next(tokens, np.full(batch, context - 1 + number), cache, False)
            if number >= warmup:
                yield (time.perf_counter() - begin) * 1e6

    # ------------------------------------------------------------------------------------------------------ helpers
    def _tokens(self, token_ids: Any) -> np.ndarray:
        tokens = np.asarray(token_ids)
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu" or not tokens.size:
            raise ModelError(
                f"`token_ids` must be integers [batch, length], at least [1, 1]; got {tokens.dtype}{list(tokens.shape)}"
            )
        if tokens.min() < 0 or tokens.max() >= self.config.vocabulary:
            wrong = int(tokens.min() if tokens.min() < 0 else tokens.max())
            raise ModelError(f"`token_ids` must be 0 to {self.config.vocabulary - 1}; got {wrong}")
        return tokens.astype(np.int32)

    def _cache(self, batch: int, keys: int) -> Cache:
        if keys > self.context:
            raise ModelError(f"a request may have {self.context} tokens, the context; prompt and steps need {keys}")
        pages = -(-keys // PAGE)
        table = np.arange(batch * pages, dtype=np.int32).reshape(batch, pages)
        shape = batch * pages, self.config.key_heads, PAGE, self.config.size
        layers = [[jnp.zeros(shape, STORED[self.dtype]) for _ in CACHES] for _ in range(self.config.layers)]
        return Cache(table, layers)

    def _read(self, tokens: np.ndarray, request: np.ndarray, position: np.ndarray, cache: Cache):
        """The logits of rows, chunk by chunk; rows of a request come in the order of their positions."""
        # keys of one window are written by one task and read by another
        variant = self.variant.replace(sampling=False)
        if variant.attention == "fused":
            variant = variant.replace(attention="paged")
        size = min(CHUNK, max(variant.rows, 1 << (len(tokens) - 1).bit_length()))
        for first in range(0, len(tokens), size):
            here = slice(first, first + size)
            count = len(tokens[here])
            yield np.asarray(self._window(variant, size, tokens[here], request[here], position[here], cache)[0])[:count]

    def _next(
        self, tokens: np.ndarray, position: np.ndarray, cache: Cache, with_logits: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """One decode step of the whole batch, window by window: tokens, and logits if asked for."""
        size, found, seen = self.variant.rows, [], []
        for first in range(0, len(tokens), size):
            here = slice(first, first + size)
            request = np.arange(len(tokens))[here]
            logits, *sampled = self._window(self.variant, size, tokens[here], request, position[here], cache)
            kept = np.asarray(logits)[: len(request)] if with_logits or not sampled else np.zeros((0, 0), np.float32)
            found.append(np.asarray(sampled[0])[: len(request), 0] if sampled else kept.argmax(-1))
            seen.append(kept)
        return np.concatenate(found).astype(np.int32), np.concatenate(seen)

    def _window(
        self, variant: Variant, size: int, tokens: np.ndarray, request: np.ndarray, position: np.ndarray, cache: Cache
    ) -> tuple:
        """Logits, and with sampling tokens, of up to ``size`` rows; their keys and values go to the cache."""
        c, missing = self.config, size - len(tokens)
        page = cache.table[request, position // PAGE]
        row = position % PAGE
        slots = (page[:, None] * c.key_heads + np.arange(c.key_heads)) * PAGE + row[:, None]
        rows = (
            np.pad(slots.reshape(-1), (0, missing * c.key_heads), constant_values=-1).astype(np.int32),
            np.pad(np.stack([page, row], axis=1), ((0, missing), (0, 0))).astype(np.int32),
            np.pad(cache.table[request], ((0, missing), (0, 0))),
            control(np.pad(position + 1, (0, missing))),
            np.ones((size, 1), np.float32),
        )
        kind = c, variant, self.dtype
        tokens, positions = (np.pad(x, (0, missing)).astype(np.int32) for x in (tokens, position))
        rope = self._rope(cache.table.shape[1] * PAGE)
        inputs = tokens, positions, self.embedding, rope, self._input_norms[0]
        run = functools.partial(pp.run, whole=self.whole)
        residual, turns, *scaled = run(embed_program(*kind), *inputs)
        carried = [residual, *scaled]
        gains = [*self._input_norms[1:], self.final_norm]
        for weights, gain, caches in zip(self.layers, gains, cache.layers, strict=True):
            inputs = (*carried, gain, turns, *rows, *weights, *caches)
            *carried, caches[0], caches[1] = run(layer_program(*kind), *inputs, donate=CACHES)
        base = np.zeros(1, np.int32)
        results = run(head_program(*kind), *carried, self.final_norm, self.head, rows[-1], base)
        return results if isinstance(results, tuple) else (results,)

    @functools.cached_property
    def _frequencies(self) -> np.ndarray:
        return 1 / np.float32(self.config.rope_base) ** (
            np.arange(0, self.config.size, 2, dtype=np.float32) / np.float32(self.config.size)
        )

    def _rope(self, count: int) -> np.ndarray:
        """Cosines and sines of the first ``count`` positions, fp32 [count, size]."""
        angles = np.arange(count, dtype=np.float32)[:, None] * self._frequencies
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    def __repr__(self) -> str:
        c = self.config
        return f"<Qwen3 {c.layers} layers, hidden {c.hidden}, {self.dtype}, {self.variant.name}>"


def from_pretrained(
    folder: str | os.PathLike[str],
    dtype: str = "bf16",
    *,
    variant: Variant | str = "device-sampling",
    context: int | None = None,
    whole: bool = True,
) -> Model:
    """The model of a checkpoint: ``config.json`` and safetensors, in one file or several with an index.

    Args:
        folder: of the checkpoint.
        dtype: ``bf16``; ``fp32``; or ``a8w8``: projections quantised to int8 (a scale for each column, activations by
            token), the rest as in bf16.
        variant: choices of the decode program, or the name of a step of the ladder.
        context: most tokens of a request; what the config says by default.
        whole: each layer is jitted as a whole; or else task by task, which compiles sooner and runs slower.

    Raises:
        ModelError: what is not supported, a tensor that is missing or has another shape; it is named.
    """
    checked_dtype(dtype)
    return Model(load_weights(folder, read_config(folder), dtype), variant, context, whole=whole)


def random(
    config: Config,
    dtype: str = "bf16",
    *,
    seed: int = 0,
    variant: Variant | str = "device-sampling",
    context: int | None = None,
    whole: bool = True,
) -> Model:
    """A model of random weights, the same for one seed."""
    return Model(random_weights(config, dtype, seed), variant, context, whole=whole)
