"""Kernels of a decode layer against NumPy in float64."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import program as pp
from pyptox.cost import explain

k = px.kernels
RNG = np.random.default_rng(0)
CHIP = px.hardware.a2a3()


def _normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def _silu(x):
    return x / (1 + np.exp(-x))


def _rms(x, epsilon=1e-6):
    return 1 / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def _turned(x, cos, sin):
    """``x`` (tokens, heads, size), ``cos`` and ``sin`` (tokens, half)."""
    a, b = np.split(x, 2, axis=-1)
    c, s = cos[:, None], sin[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def _check(kernel, inputs, expected, atol=1e-5, **values):
    """Run and reference against what NumPy makes of it, and a time that is finite."""
    reference = px.reference(kernel, *inputs, **values)
    found = px.run(kernel, *inputs, **values)
    for one, two, right in zip(
        *((x if isinstance(x, tuple) else (x,)) for x in (reference, found, expected)), strict=True
    ):
        np.testing.assert_allclose(one, right, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(np.asarray(two, np.float64), right, rtol=atol, atol=atol * np.abs(right).max())
    specs = [x if isinstance(x, px.Spec) else px.spec(x.shape, str(x.dtype)) for x in inputs]
    assert 0 < float(explain(kernel, kernel.specs(*specs), kernel.configuration(values), CHIP).time_us) < 1e4


def _wide(*arrays):
    return [np.asarray(a, np.float64) for a in arrays]


@pytest.mark.parametrize(("rows", "width"), [(16, 128), (33, 200)])
def test_a_deferred_norm(rows, width):
    x, y, z, gain = _normal(rows, width), _normal(rows, width), _normal(rows, width), _normal(width)
    inverse = np.abs(_normal(rows, 1)) + 0.1
    wide_x, wide_y, wide_z, wide_gain, factor = _wide(x, y, z, gain, inverse)
    tile = {"m": 16, "n": 64}
    _check(k.rms_reciprocal, [x], _rms(wide_x), **tile)
    for dtype, atol in (("fp32", 1e-5),) if rows == 33 else (("bf16", 1e-2),):
        _check(k.scale_columns(dtype), [x, gain], wide_x * wide_gain, atol, **tile)
        _check(k.scale_rows(dtype), [x, inverse], wide_x * factor, atol, **tile)
        gated = _silu(wide_y * factor) * wide_z * factor
        _check(k.swiglu_deferred(dtype), [y, z, inverse], gated, atol, **tile)
        total = wide_x + wide_y
        _check(k.residual_scale(dtype), [x, y, gain], (total, total * wide_gain), atol, **tile)


def test_norm_and_rotation_of_heads():
    tokens, heads, size = 3, 5, 32
    x, gain, angle = _normal(tokens, heads, size), _normal(size), _normal(tokens, size // 2)
    inverse = np.abs(_normal(tokens, 1)) + 0.1
    cos, sin = np.cos(angle), np.sin(angle)
    scaled = x.astype(float) * inverse.astype(float)[:, None]
    expected = _turned(scaled * _rms(scaled) * gain.astype(float), *_wide(cos, sin))
    for dtype, atol in (("fp32", 1e-5), ("bf16", 1e-2)):
        _check(k.norm_rope(dtype), [x, inverse, gain, cos, sin], expected, atol, m=16)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_products_in_the_type_of_the_accumulator(dtype):
    a, b = _normal(5, 100, dtype=dtype), _normal(100, 72, dtype=dtype)
    expected = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    tile: dict[str, Any] = {"m": 16, "n": 32, "k": 64}
    assert px.run(k.matmul_wide, a, b, **tile).dtype == np.float32
    _check(k.matmul_wide, [a, b], expected, **tile)
    _check(k.matmul_wide_nt, [a, np.ascontiguousarray(b.T)], expected, **tile)
    small = RNG.integers(-9, 9, (5, 64)).astype(np.int8), RNG.integers(-9, 9, (64, 32)).astype(np.int8)
    found = px.run(k.matmul_wide, *small, **tile)
    np.testing.assert_array_equal(np.asarray(found), small[0].astype(np.int32) @ small[1].astype(np.int32))


def test_products_with_an_epilogue():
    dtype = jnp.bfloat16
    a, gate, up = _normal(5, 100, dtype=dtype), _normal(100, 72, dtype=dtype), _normal(100, 72, dtype=dtype)
    inverse, stream = np.abs(_normal(5, 1)) / 10, _normal(5, 72)
    wide_a, wide_gate, wide_up, factor = _wide(a, gate, up, inverse)
    tile = {"m": 16, "n": 32, "k": 64}
    gated = _silu(wide_a @ wide_gate * factor) * (wide_a @ wide_up) * factor
    _check(k.matmul_swiglu("fp32"), [a, gate, up, inverse], gated, **tile)
    _check(k.matmul_residual, [a, gate, stream], stream + wide_a @ wide_gate, **tile)


def test_seeds():
    np.testing.assert_array_equal(np.asarray(px.run(k.clear, _normal(5, 40), m=16, n=32)), np.zeros((5, 40)))


# ------------------------------------------------------------------------------------------------------- attention
PAGE, HEADS, GROUP, SIZE = 32, 2, 5, 64
LENGTHS = (0, 1, 32, 33, 96, 50)


def _cache():
    columns = -(-max(LENGTHS) // PAGE)
    pages = columns * len(LENGTHS) + 2
    table = RNG.permutation(pages)[: columns * len(LENGTHS)].reshape(len(LENGTHS), columns).astype(np.int32)
    return *(_normal(pages, HEADS, PAGE, SIZE) for _ in range(2)), table


def _keys(cache, pages, length):
    return cache.astype(float)[pages].transpose(1, 0, 2, 3).reshape(HEADS, -1, SIZE)[:, :length]


def _dense(q, key_cache, value_cache, table):
    out = np.zeros(q.shape)
    for r, length in enumerate(LENGTHS):
        if length:
            scores = np.einsum("hgd,hkd->hgk", q[r], _keys(key_cache, table[r], length)) / np.sqrt(SIZE)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            out[r] = np.einsum("hgk,hkd->hgd", weights, _keys(value_cache, table[r], length))
    return out


def test_attention_in_steps_of_their_own():
    q, (key_cache, value_cache, table), lengths = (
        _normal(len(LENGTHS), HEADS, GROUP, SIZE),
        _cache(),
        px.control(LENGTHS),
    )
    expected = _dense(q.astype(float), key_cache, value_cache, table)

    @pp.program
    def steps(q, keys, values, table, lengths):
        scores = pp.submit(k.paged_scores, q, keys, table, lengths)
        weights = pp.submit(k.softmax_lengths("fp32"), scores, lengths, n=64)
        return weights, pp.submit(k.paged_values, weights, values, table, lengths)

    weights, out = pp.reference(steps, q, key_cache, value_cache, table, lengths)
    np.testing.assert_allclose(out, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(weights.sum(-1)[1:], 1, rtol=1e-12)
    for r, length in enumerate(LENGTHS):
        assert not weights[r, ..., length:].any()
    _, out = pp.run(steps, q, key_cache, value_cache, table, lengths)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def _step(dtype):
    """Inputs of ``decode_attention``, and what NumPy makes of them."""
    key_cache, value_cache, table = _cache()
    key_cache, value_cache = key_cache.astype(dtype), value_cache.astype(dtype)
    count = len(LENGTHS)
    q, key, value = _normal(count, HEADS, GROUP, SIZE), _normal(count, HEADS, SIZE), _normal(count, HEADS, SIZE)
    inverse, angle = np.abs(_normal(count, 1)) + 0.1, _normal(count, SIZE // 2)
    q_gain, k_gain = _normal(SIZE), _normal(SIZE)
    cos, sin = np.cos(angle), np.sin(angle)
    last = np.maximum(np.array(LENGTHS) - 1, 0)
    places = np.stack([table[np.arange(count), last // PAGE], last % PAGE], axis=1).astype(np.int32)

    def turned(x, gain):  # (requests, heads, size)
        scaled = x.astype(float) * inverse.astype(float)[:, None]
        return _turned(scaled * _rms(scaled) * gain.astype(float), *_wide(cos, sin))

    keys, values = key_cache.astype(float), value_cache.astype(float)
    new_key, new_value = turned(key, k_gain), value * inverse.astype(float)[:, None]
    for r, length in enumerate(LENGTHS):
        if length:
            keys[places[r, 0], :, places[r, 1]] = new_key[r]
            values[places[r, 0], :, places[r, 1]] = new_value[r]
    queries = turned(q.reshape(count, -1, SIZE), q_gain).reshape(q.shape)
    expected = _dense(queries, keys, values, table), keys, values
    inputs = (
        q,
        key,
        value,
        inverse,
        q_gain,
        k_gain,
        cos,
        sin,
        places,
        table,
        px.control(LENGTHS),
        key_cache,
        value_cache,
    )
    return inputs, expected


@pytest.mark.parametrize(("dtype", "atol", "preload"), [(np.float32, 1e-5, 0), (jnp.bfloat16, 2e-2, 1)])
def test_attention_of_a_decode_step(dtype, atol, preload):
    inputs, expected = _step(dtype)
    _check(k.decode_attention, inputs, expected, atol, preload=preload)


def test_inputs_that_do_not_fit():
    x = px.spec((16, 64), "fp32")
    for kernel, specs, message in [
        (k.scale_rows("bf16"), (x, px.spec((16,), "fp32")), r"`inverse` must be fp32\[16,1\]"),
        (k.matmul_residual, (x, px.spec((64, 32), "fp32"), x), r"`residual` must be fp32\[16,32\]"),
        (k.softmax_lengths("bf16"), (px.spec((2, 1, 5, 32), "fp32"), px.control([33, 0])), "2 of them up to 32"),
    ]:
        with pytest.raises(px.KernelError, match=message):
            kernel.specs(*specs)
    inputs, _ = _step(np.float32)
    specs = [i if isinstance(i, px.Spec) else px.spec(i.shape, str(i.dtype)) for i in inputs]
    specs[8] = px.spec((len(LENGTHS),), "int32")
    with pytest.raises(px.KernelError, match=r"`places` must be int32\[6, 2\]"):
        k.decode_attention.specs(*specs)
