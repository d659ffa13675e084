"""A stack of decoder layers at reduced width, tile by tile and in plain JAX: how far both drift apart with depth.

The structure and the types are those of the published one (reference rows: a decode step of 16 requests, heads of 128,
five query heads a key head, bfloat16 weights and layer outputs, float32 inside a layer, split-K 5 in float32); it is as
wide as one key head. Each request attends to a cache of its own. The golden narrows where the tiles do, as the
published one does: its attention narrows the powers and divides by their sum afterwards.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import kernels
from ..lang._run import run
from ..precision import BASELINES, cast

TOKENS, HEADS, SIZE = 16, 5, 128
WIDTH, INTERMEDIATE = HEADS * SIZE, 2176
CONTEXT = 2048
"""Keys of a request: half of the published longest context, 4096, which is the mean of lengths up to it."""
DEEPEST = 40
_TILES: dict[str, dict[str, Any]] = {"matmul_split_k": {"k": 64, "splits": 5}}

Operation = Callable[..., jax.Array]


def _tiled(name: str) -> Operation:
    kernel = vars(kernels)[name]
    return lambda *arrays: run(kernel, *arrays, **_TILES.get(name, {}))


def _plain(name: str) -> Operation:
    if name == "flash_attention":
        return _attention
    return lambda *arrays: cast(BASELINES[name](*arrays, epsilon=1e-6), "fp32")


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """All keys at once; powers narrowed before they are divided by their sum."""
    scores = jnp.einsum("gmk,gnk->gmn", q, k, preferred_element_type=jnp.float32) * jnp.float32(SIZE**-0.5)
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    mixed = jnp.einsum("gmn,gnk->gmk", cast(powers, "bf16"), v, preferred_element_type=jnp.float32)
    return cast(mixed / powers.sum(-1, keepdims=True), "bf16")


def _layer(operation: Callable[[str], Operation], x: jax.Array, weights: dict[str, jax.Array]) -> jax.Array:
    product, norm, add = (operation(name) for name in ("matmul_split_k", "rms_norm", "residual_add"))
    ones, stream = jnp.ones(WIDTH, jnp.float32), x.astype(jnp.float32)
    normed = cast(norm(stream, ones), "bf16")
    q, k, v = (cast(product(normed, weights[name]), "bf16") for name in "qkv")
    heads = q.reshape(TOKENS, HEADS, SIZE)  # of a request, its five heads share the keys
    keys, values = (jnp.concatenate([weights[c], new[:, None]], 1) for c, new in (("keys", k), ("values", v)))
    mixed = cast(operation("flash_attention")(heads, keys, values), "bf16").reshape(TOKENS, WIDTH)
    stream = add(stream, product(mixed, weights["o"]))
    normed = cast(norm(stream, ones), "bf16")
    gated = operation("swiglu")(product(normed, weights["gate"]), product(normed, weights["up"]))
    return cast(add(stream, product(cast(gated, "bf16"), weights["down"])), "bf16")


def _weights(layer: int) -> dict[str, Any]:
    """Uniform in ``(-1/2, 1/2) / sqrt(terms of the sum)``; the caches uniform in ``(-1/2, 1/2)``."""
    generator = np.random.default_rng(layer)
    shapes = {
        "q": (WIDTH, WIDTH),
        "k": (WIDTH, SIZE),
        "v": (WIDTH, SIZE),
        "o": (WIDTH, WIDTH),
        "gate": (WIDTH, INTERMEDIATE),
        "up": (WIDTH, INTERMEDIATE),
        "down": (INTERMEDIATE, WIDTH),
    }
    uniform = {name: generator.random(shape, np.float32) - np.float32(0.5) for name, shape in shapes.items()}
    caches = {name: generator.random((TOKENS, CONTEXT - 1, SIZE), np.float32) for name in ("keys", "values")}
    narrow = {name: cast(cache - np.float32(0.5), "bf16") for name, cache in caches.items()}
    return narrow | {name: cast(w / np.float32(np.sqrt(len(w))), "bf16") for name, w in uniform.items()}


@functools.lru_cache(maxsize=1)
def drift() -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """For each depth from 1 on what the tiles computed, and plain JAX; float64 of the stored bfloat16."""
    tiled, plain = (jax.jit(functools.partial(_layer, operation)) for operation in (_tiled, _plain))
    start = np.random.default_rng(DEEPEST).random((TOKENS, WIDTH), np.float32) - np.float32(0.5)
    candidate = golden = cast(start, "bf16")
    found = []
    for layer in range(DEEPEST):
        weights = _weights(layer)
        candidate, golden = tiled(candidate, weights), plain(golden, weights)
        found.append((np.asarray(candidate).astype(np.float64), np.asarray(golden).astype(np.float64)))
    return tuple(found)


def beyond(layers: int, rtol: float, atol: float) -> float:
    """The share of elements beyond ``rtol |golden| + atol`` after ``layers`` layers."""
    candidate, golden = drift()[layers - 1]
    return float(np.mean(np.abs(candidate - golden) > atol + rtol * np.abs(golden)))
