"""Every kernel of the library with realistic inputs, small enough to compile in a second or two."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import pyptox as px
from pyptox import kernels as k

_RNG = np.random.default_rng(7)


def normal(*shape: int, dtype: str = "bfloat16", scale: float = 1.0) -> np.ndarray:
    return (scale * _RNG.standard_normal(shape, np.float32)).astype(jnp.dtype(dtype))


def activations(*shape: int, dtype: str = "bfloat16") -> np.ndarray:
    """Rows with a few channels of outliers, as hidden states have."""
    x = _RNG.standard_normal(shape, np.float32)
    x[..., :: max(shape[-1] // 5, 1)] *= 20.0
    return x.astype(jnp.dtype(dtype))


def integers(*shape: int) -> np.ndarray:
    return _RNG.integers(-127, 128, shape, dtype=np.int32).astype(np.int8)


def _angles(tokens: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    angle = np.arange(tokens)[:, None] * 10000.0 ** (-np.arange(half) / half)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _paged() -> tuple:
    table = np.array([[2, 0, 3], [1, 4, 0], [5, 0, 0]], np.int32)
    q, keys, values = normal(3, 2, 5, 64), normal(6, 2, 32, 64), normal(6, 2, 32, 64)
    return q, keys, values, table, px.control([96, 40, 7])


def _decode() -> tuple:
    q, key, value = (normal(3, 2, *rest, 64, dtype="float32") for rest in ((5,), (), ()))
    inverse, gains = np.full((3, 1), 0.8, np.float32), (normal(64, dtype="float32") * 0.1 + 1 for _ in range(2))
    _, pages, values, table, lengths = _paged()
    places = np.array([[3, 31], [4, 7], [5, 6]], np.int32)  # of the last key of each request
    return q, key, value, inverse, *gains, *_angles(3, 32), places, table, lengths, pages, values


def _weights() -> np.ndarray:
    scores = np.exp(_RNG.standard_normal((3, 2, 5, 96)))
    return (scores / scores.sum(-1, keepdims=True)).astype(jnp.bfloat16)


def _rope(kernel: px.Kernel) -> tuple:
    return kernel, (normal(6, 5, 64), *_angles(6, 32)), {"m": 4}


_A, _B = activations(24, 300), normal(300, 50, scale=0.06)
_TILE = {"m": 16, "n": 32, "k": 128}
_X = activations(20, 200)
_VECTOR = normal(200, dtype="float32") * 0.1 + 1
_SCALES = np.abs(normal(24, 1, dtype="float32")) * 0.1, np.abs(normal(50, dtype="float32")) * 0.02
_INVERSE = np.abs(normal(20, 1, dtype="float32")) + 0.5
_HEADS = normal(2, 48, 64), normal(2, 80, 64), normal(2, 80, 64)

CASES: dict[str, tuple[px.Kernel, tuple, dict[str, Any]]] = {
    "matmul": (k.matmul, (_A, _B), _TILE),
    "matmul_fp16": (k.matmul, (_A.astype(np.float16), _B.astype(np.float16)), _TILE),
    "matmul_fp32": (k.matmul, (_A.astype(np.float32), _B.astype(np.float32)), _TILE),
    "matmul_int8": (k.matmul, (integers(24, 300), integers(300, 50)), _TILE),
    "matmul_nt": (k.matmul_nt, (_A, _B.T.copy()), _TILE),
    "matmul_panels": (k.matmul_panels, (_A, _B.T.copy()), {"m": 16, "n": 16, "panels": 2}),
    "matmul_staged": (k.matmul_staged, (_A, _B.T.copy()), {"m": 16, "n": 32, "ka": 128, "kb": 64, "k0": 32}),
    "matmul_split_k": (k.matmul_split_k, (_A, _B), _TILE | {"k": 32, "splits": 4}),
    "matmul_split_k_nt": (k.matmul_split_k_nt, (_A, _B.T.copy()), _TILE | {"k": 32, "splits": 3}),
    "matmul_bias_activation": (k.matmul_bias_activation, (_A, _B, normal(50, dtype="float32")), _TILE),
    "matmul_wide": (k.matmul_wide, (_A, _B), _TILE),
    "matmul_wide_nt": (k.matmul_wide_nt, (_A, _B.T.copy()), _TILE),
    "matmul_residual": (k.matmul_residual, (_A, _B, normal(24, 50, dtype="float32")), _TILE),
    "matmul_swiglu": (
        k.matmul_swiglu("bf16"),
        (_A, _B, normal(300, 50, scale=0.06), np.full((24, 1), 0.2, np.float32)),
        _TILE,
    ),
    "grouped_matmul": (
        k.grouped_matmul,
        (activations(40, 96), normal(3, 96, 50, scale=0.1), px.control([3, 0, 30])),
        {"m": 16, "n": 32, "k": 32},
    ),
    "rms_norm": (k.rms_norm, (_X, _VECTOR), {}),
    "rms_norm_tiled": (k.rms_norm_tiled, (_X, _VECTOR), {"m": 16, "n": 64}),
    "layer_norm": (k.layer_norm, (_X, _VECTOR, _VECTOR - 1), {}),
    "layer_norm_tiled": (k.layer_norm_tiled, (_X, _VECTOR, _VECTOR - 1), {"m": 16, "n": 64}),
    "rms_reciprocal": (k.rms_reciprocal, (_X,), {"m": 16, "n": 64}),
    "scale_columns": (k.scale_columns("bf16"), (_X.astype(np.float32), _VECTOR), {"m": 16, "n": 64}),
    "scale_rows": (k.scale_rows("bf16"), (_X.astype(np.float32), _INVERSE), {"m": 16, "n": 64}),
    "swiglu_deferred": (k.swiglu_deferred("bf16"), (_X, normal(20, 200), _INVERSE), {"m": 16, "n": 64}),
    "residual_scale": (k.residual_scale("bf16"), (_X, normal(20, 200), _VECTOR), {"m": 16, "n": 64}),
    "norm_rope": (
        k.norm_rope("bf16"),
        (normal(6, 5, 64, dtype="float32"), _INVERSE[:6], _VECTOR[:64], *_angles(6, 32)),
        {"m": 4},
    ),
    "softmax": (k.softmax, (normal(20, 200, scale=4),), {}),
    "softmax_two_pass": (k.softmax_two_pass, (normal(20, 200, scale=4),), {"m": 16, "n": 64}),
    "softmax_online": (k.softmax_online, (normal(20, 200, scale=4),), {"m": 16, "n": 64}),
    "rope": _rope(k.rope),
    "rope_interleaved": _rope(k.rope_interleaved),
    "swiglu": (k.swiglu, (_X, normal(20, 200)), {"m": 16, "n": 64}),
    "residual_add": (k.residual_add, (_X, normal(20, 200)), {"m": 16, "n": 64}),
    "quantize_per_token": (k.quantize_per_token, (_X,), {}),
    "quantize_per_token_tiled": (k.quantize_per_token_tiled, (_X,), {"m": 16, "n": 64}),
    "quantize_per_channel": (k.quantize_per_channel, (_X, np.abs(_VECTOR)), {"m": 16, "n": 64}),
    "dequantize_per_token": (k.dequantize_per_token, (integers(24, 50), _SCALES[0]), {"m": 16, "n": 32}),
    "dequantize_per_channel": (k.dequantize_per_channel, (integers(24, 50), _SCALES[1]), {"m": 16, "n": 32}),
    "w8a8_matmul": (k.w8a8_matmul, (integers(24, 300), integers(300, 50), *_SCALES), _TILE),
    "w8a8_matmul_fp32": (k.w8a8_matmul_fp32, (integers(24, 300), integers(300, 50), *_SCALES), _TILE),
    "flash_attention": (k.flash_attention, _HEADS, {"m": 32, "n": 32, "preload": 1}),
    "flash_attention_causal": (k.flash_attention, _HEADS, {"m": 32, "n": 32, "preload": 1, "causal": True}),
    "paged_attention": (k.paged_attention, _paged(), {}),
    "paged_scores": (k.paged_scores, (lambda q, keys, _, *rest: (q, keys, *rest))(*_paged()), {}),
    "softmax_lengths": (
        k.softmax_lengths("bf16"),
        (normal(3, 2, 5, 96, dtype="float32", scale=4), px.control([96, 40, 7])),
        {"n": 32},
    ),
    "paged_values": (k.paged_values, (_weights(), *_paged()[2:]), {}),
    "decode_attention": (k.decode_attention, _decode(), {}),
    "sparse_attention": (
        k.sparse_attention,
        (
            *(normal(2, 20, 64), normal(2, 20, 16), normal(90, 64), normal(90, 16)),
            _RNG.permutation(90)[:64].reshape(2, 32).astype(np.int32),
        ),
        {"m": 16, "n": 16, "preload": 1},
    ),
    "gather_rows": (k.gather_rows, (_X, np.array([3, 0, 19, 3], np.int32)), {"n": 64}),
    "cache_write": (k.cache_write, (normal(3, 32), np.array([3, -1, 0], np.int32), normal(6, 32)), {}),
    "argmax_shard": (k.argmax_shard, (normal(20, 200), np.array([1000], np.int32)), {"n": 64}),
    "argmax_merge": (
        k.argmax_merge,
        (normal(3, 20, dtype="float32"), _RNG.integers(0, 999, (3, 20), dtype=np.int32)),
        {},
    ),
    "top_k_groups": (k.top_k_groups(8, 2), (normal(20, 200),), {"n": 64}),
    "top_k_merge": (
        k.top_k_merge(8),
        (normal(20, 32, dtype="float32"), _RNG.permutation(640).reshape(20, 32).astype(np.int32)),
        {"n": 16},
    ),
    "scan_rows": (k.scan_rows(2), (normal(64, 32), np.triu(np.ones((32, 32))).astype(jnp.bfloat16)), {"m": 16}),
    "scan_carry": (
        k.scan_carry,
        (np.cumsum(normal(64, 32, dtype="float32"), 1), normal(2, dtype="float32") * 30),
        {"m": 16},
    ),
    "clear": (k.clear, (_X,), {"n": 64}),
    "copy": (k.copy, (_X,), {"n": 64}),
    "convert": (k.convert("bf16"), (_X.astype(np.float32) * np.float32(1.01),), {"n": 64}),
    "convert_ties_away": (k.convert("bf16", "round"), (_X.astype(np.float32) * np.float32(1.01),), {"n": 64}),
    "convert_int8": (k.convert("int8"), (_X.astype(np.float32),), {"n": 64}),
}
"""Kernel, inputs and configuration by name."""
