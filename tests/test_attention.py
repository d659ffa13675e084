"""Attention against an independent softmax in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox.cost import Options, predict

RNG = np.random.default_rng(0)
KERNEL = px.kernels.flash_attention


def _reference(q, k, v, causal):
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
    if causal:
        inside = np.arange(k.shape[1])[None, :] <= np.arange(q.shape[1])[:, None]
        scores = np.where(inside, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,hkd->hqd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize(("heads", "queries", "keys", "size"), [(2, 70, 130, 32), (1, 16, 16, 16), (1, 33, 300, 64)])
@pytest.mark.parametrize("preload", [0, 1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_values(heads, queries, keys, size, preload, causal):
    q = 8 * RNG.standard_normal((heads, queries, size)).astype(jnp.bfloat16)
    k, v = (RNG.standard_normal((heads, keys, size)).astype(jnp.bfloat16) for _ in range(2))
    expected = _reference(q, k, v, causal)
    given = {"m": 32, "n": 48, "preload": preload, "causal": causal}
    # weights and result are rounded to bf16 once each
    np.testing.assert_allclose(np.asarray(px.run(KERNEL, q, k, v, **given), np.float64), expected, atol=2.5e-2)
    np.testing.assert_allclose(px.reference(KERNEL, q, k, v, **given), expected, rtol=1e-12, atol=1e-12)


def _time(queries, **values):
    specs = KERNEL.specs(*(px.spec((1, queries, 128), "fp16"),) * 3)
    configuration = KERNEL.configuration(values)
    fixed = tuple((name, configuration[name]) for name in KERNEL.choices)
    shapes = {name: spec.shape for name, spec in specs.items()}
    options = Options(warm=4, choices=fixed)
    return float(predict(KERNEL, specs, shapes, configuration, px.hardware.a2a3(), options).time_us)


def test_computing_scores_ahead_overlaps_cube_and_vector_cores():
    times = [_time(4096, n=256, preload=preload) for preload in (0, 1, 2)]
    assert times[0] > 1.5 * times[1] > 1.5 * 1.05 * times[2]


@pytest.mark.parametrize(("queries", "measured"), [(1024, 20.96), (4096, 88.9), (16384, 909.1)])
def test_published_times(queries, measured):
    # PTO manual TFA on 910B2, cube tile of 128 queries (flash_attention_times, fa_910b2_pto); nothing here is fitted
    assert _time(queries, m=128, n=256, preload=2, slices=2) == pytest.approx(measured, rel=0.16)
