"""Weights of a Qwen3 model: from a checkpoint, or random of any size."""

import functools
import math
import os
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from pyptox._safetensors import read_folder

from ._config import Config, ModelError

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
NORMS = ("input_norm", "q_norm", "k_norm", "post_norm")
DTYPES = ("bf16", "fp32", "a8w8")
"""bf16: weights, cache and the cube's operands; fp32: all of them; a8w8: projections in int8, the rest as in bf16."""
STORED = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32), "a8w8": np.dtype(ml_dtypes.bfloat16)}
"""Element type of embedding, LM head and cache."""

_CHECKPOINT = {
    "input_norm": "input_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "post_norm": "post_attention_layernorm",
    **{name: f"self_attn.{name}_proj" for name in "qkvo"},
    **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of a model as its program takes them, on the default device.

    Attributes:
        config: whose they are.
        dtype: one of :data:`DTYPES`.
        embedding: (vocabulary, hidden).
        head: (vocabulary, hidden), the embedding itself where they are tied.
        final_norm: (hidden,), fp32 like every gain.
        layers: of each layer by name: the projections as (k, n), in ``a8w8`` int8 with ``<name>_scale`` fp32 (n,);
            gains.
    """

    config: Config
    dtype: str
    embedding: jax.Array
    head: jax.Array
    final_norm: jax.Array
    layers: tuple[Mapping[str, jax.Array], ...]


def layer_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a layer, projections as (k, n)."""
    wide, narrow = config.heads * config.size, config.key_heads * config.size
    return {
        "input_norm": (config.hidden,),
        "q": (config.hidden, wide),
        "k": (config.hidden, narrow),
        "v": (config.hidden, narrow),
        "q_norm": (config.size,),
        "k_norm": (config.size,),
        "o": (wide, config.hidden),
        "post_norm": (config.hidden,),
        "gate": (config.hidden, config.intermediate),
        "up": (config.hidden, config.intermediate),
        "down": (config.intermediate, config.hidden),
    }


def checked_dtype(dtype: str) -> str:
    """``dtype`` if it is one of :data:`DTYPES`."""
    if dtype not in DTYPES:
        raise ModelError(f"`dtype` must be one of {', '.join(DTYPES)}; got {dtype!r}")
    return dtype


def checked_tensors(folder: str | os.PathLike[str], config: Config) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint that are those of ``config``, mapped into memory and not read.

    Raises:
        ModelError: a tensor that is missing, of another shape or type, or that this model does not have; it is named.
        SafetensorsError: files that are truncated, or no safetensors.
    """
    tensors, expected = read_folder(folder), _expected(config)
    for name, shape in expected.items():
        if name not in tensors:
            raise ModelError(f"`{name}` must be in the checkpoint; it is not")
        found = tensors[name]
        if found.shape != shape:
            raise ModelError(f"`{name}` must be of shape {list(shape)}; the checkpoint has {list(found.shape)}")
        if found.dtype.name not in ("bfloat16", "float32", "float16"):
            raise ModelError(f"`{name}` must be BF16, F16 or F32; the checkpoint has {found.dtype}")
    known = {*expected, "lm_head.weight"} if config.tied else set(expected)
    unknown = [name for name in tensors if name not in known and not name.endswith("rotary_emb.inv_freq")]
    if unknown:
        raise ModelError(f"`{unknown[0]}` is no tensor of this model; nor are {len(unknown) - 1} others")
    return tensors


def _expected(config: Config) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a checkpoint's tensors; projections lie transposed there."""
    table = config.vocabulary, config.hidden
    shapes = {"model.embed_tokens.weight": table, "model.norm.weight": (config.hidden,)}
    if not config.tied:
        shapes["lm_head.weight"] = table
    layer = {f"{_CHECKPOINT[name]}.weight": shape[::-1] for name, shape in layer_shapes(config).items()}
    return shapes | {f"model.layers.{n}.{name}": shape for n in range(config.layers) for name, shape in layer.items()}


def load_weights(folder: str | os.PathLike[str], config: Config, dtype: str = "bf16") -> Weights:
    """The weights of a checkpoint in ``dtype``.

    The files are mapped into memory and converted tensor by tensor. In ``a8w8`` each column of a projection is
    quantised symmetrically: ``scale = max |w| / 127``.

    Raises:
        ModelError, SafetensorsError: as :func:`checked_tensors`.
    """
    checked_dtype(dtype)
    tensors = checked_tensors(folder, config)

    def layer(number: int) -> dict[str, jax.Array]:
        place = f"model.layers.{number}"
        names = ((name, f"{place}.{_CHECKPOINT[name]}.weight") for name in layer_shapes(config))
        return dict(part for name, of in names for part in _stored(name, tensors[of], dtype))

    embedding = _placed(tensors["model.embed_tokens.weight"], STORED[dtype])
    head = embedding if config.tied else _placed(tensors["lm_head.weight"], STORED[dtype])
    final_norm = jnp.asarray(tensors["model.norm.weight"].astype(np.float32))
    return Weights(config, dtype, embedding, head, final_norm, tuple(layer(n) for n in range(config.layers)))


def random_weights(config: Config, dtype: str = "bf16", seed: int = 0) -> Weights:
    """Normal weights of standard deviation ``1 / sqrt(k)``, gains about 1; the same for a seed in any version.

    A weight is one of 65536 quantiles, which are drawn faster than normal numbers.
    """
    checked_dtype(dtype)
    rng = np.random.default_rng(seed)

    def normal(shape: tuple[int, ...], scale: float) -> np.ndarray:
        values = (np.float32(scale) * _quantiles()).astype(STORED[dtype])
        made = _room(shape, values.dtype)
        for row in made:  # no more than a row besides the result
            np.take(values, rng.integers(0, len(values), shape[1], np.uint16), out=row)
        return made

    def gain(count: int) -> jax.Array:
        return jnp.asarray((1 + 0.1 * rng.standard_normal(count, np.float32)).astype(np.float32))

    def layer() -> dict[str, jax.Array]:
        made: dict[str, jax.Array] = {}
        for name, shape in layer_shapes(config).items():
            if name in NORMS:
                made[name] = gain(shape[0])
            else:
                made |= _quantized(name, normal(shape, shape[0] ** -0.5), dtype)
        return made

    shape = config.vocabulary, config.hidden
    embedding = _placed(normal(shape, 1.0))
    head = embedding if config.tied else _placed(normal(shape, config.hidden**-0.5))
    return Weights(config, dtype, embedding, head, gain(config.hidden), tuple(layer() for _ in range(config.layers)))


@functools.cache
def _quantiles() -> np.ndarray:
    normal, count = statistics.NormalDist(), 1 << 16
    return np.array([normal.inv_cdf((n + 0.5) / count) for n in range(count)], np.float32)


def _room(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that JAX on the CPU takes over without a copy: it begins at a multiple of 64 bytes."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def _placed(array: np.ndarray, dtype: np.dtype | None = None) -> jax.Array:
    """On the device in ``dtype``, the host's own copy given up: no tensor lies there twice. It may not change later."""
    if dtype is not None:
        made = _room(array.shape, dtype)
        made[...] = array
        array = made
    return jax.block_until_ready(jax.device_put(array, may_alias=True))


def _stored(name: str, tensor: np.ndarray, dtype: str) -> Iterator[tuple[str, jax.Array]]:
    """A tensor of a checkpoint as the program takes it."""
    if name in NORMS:
        yield name, jnp.asarray(tensor.astype(np.float32))
        return
    yield from _quantized(name, tensor.T, dtype).items()


def _quantized(name: str, weight: np.ndarray, dtype: str) -> dict[str, jax.Array]:
    """A projection as the program takes it, on the device before the next one is read."""
    if dtype != "a8w8":
        return {name: _placed(weight, STORED[dtype])}
    wide = weight.astype(np.float32)
    scale = np.maximum(np.abs(wide).max(0), np.float32(1e-8)) / np.float32(127)
    return {name: jnp.asarray(np.rint(wide / scale).astype(np.int8)), f"{name}_scale": jnp.asarray(scale)}
