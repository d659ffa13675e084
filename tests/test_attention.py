"""Attention against an independent softmax in float64."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox.cost import Options, closed_form, full_cycles, predict, record, verify
from pyptox.cost._verify import plain_hardware
from pyptox.trace import trace

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


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "size"), [(2, 70, 130, 32), (1, 16, 16, 16), (1, 33, 300, 64), (2, 200, 70, 16)]
)
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


@pytest.mark.parametrize(("queries", "keys"), [(96, 96), (64, 200), (200, 64)])
def test_causal_values_equal_those_of_jax(queries, keys):
    q, k, v = (RNG.standard_normal((2, rows, 32)).astype(np.float32) for rows in (queries, keys, keys))
    turned = (jnp.asarray(x.transpose(1, 0, 2)) for x in (q, k, v))
    expected = jax.nn.dot_product_attention(*turned, is_causal=True).transpose(1, 0, 2)
    for m, n, preload in ((16, 32, 2), (48, 16, 4), (16, 64, 1)):
        actual = px.run(KERNEL, q, k, v, causal=True, m=m, n=n, preload=preload)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


CHIP = plain_hardware(px.hardware.a2a3())
CAUSAL = [
    ((8, 4096, 4096), {}),
    ((1, 4096, 4096), {"m": 64, "n": 512, "preload": 1}),
    ((8, 1024, 1024), {"m": 128, "n": 128, "preload": 2}),
    ((40, 2048, 2048), {"m": 64, "n": 512, "preload": 1}),
    ((8, 1000, 3000), {"stages": 3}),
    ((8, 3000, 1000), {}),
    ((3, 5000, 5000), {"preload": 0}),
    ((8, 4096, 4096), {"m": 80, "n": 144}),
    ((2, 100, 100), {}),
]
"""Heads, queries and keys, and tiles: aligned, with steps of several blocks, saturating, ragged, and of one block."""


def _causal(shape, values, causal=True):
    heads, queries, keys = shape
    specs = KERNEL.specs(*(px.spec((heads, rows, 128), "bf16") for rows in (queries, keys, keys)))
    config = KERNEL.configuration({**values, "causal": causal})
    options = Options(warm=4, choices=tuple((name, config[name]) for name in KERNEL.choices))
    return specs, {name: spec.shape for name, spec in specs.items()}, config, options


@pytest.mark.parametrize(("shape", "values"), CAUSAL)
def test_causal_cost_is_that_of_its_blocks_one_by_one(shape, values):
    specs, shapes, config, options = _causal(shape, values)
    cost = predict(KERNEL, specs, shapes, config, CHIP, options)
    heads, queries, _ = shape
    positions = -(-queries // config["m"])
    first = record(KERNEL, specs, shapes, config, CHIP, options)
    blocks, read = [], 0.0
    for position in range(positions):
        nest = record(KERNEL, specs, shapes, config, CHIP, options, None, position, first.traffic)
        blocks.append(closed_form(nest.walk, 4) + CHIP.times.block)
        read += sum(t.moved for t in nest.traffic.values() if t.access.mode == "read") / positions
    free = [0.0] * min(24, positions * heads)
    for block in blocks:
        for _ in range(heads):
            heapq.heapreplace(free, free[0] + block)
    assert cost.cycles == pytest.approx(max(free), rel=0.02)
    assert cost.moved["read"] == pytest.approx(read, rel=0.01)
    assert cost.blocks == pytest.approx(positions * heads)
    assert max(blocks) <= cost.cycles * (1 + 1e-9)
    assert max(cost.busy.values()) <= cost.cycles * (1 + 1e-9)
    assert cost.bound_us <= cost.time_us


@pytest.mark.parametrize("preload", [0, 1, 2, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_closed_form_equals_the_full_simulation(preload, causal):
    for shape, values in CAUSAL:
        for stages in (1, 2, 3):
            specs, shapes, config, options = _causal(shape, {**values, "preload": preload, "stages": stages}, causal)
            for position in (0, 1, 7):
                nest = record(KERNEL, specs, shapes, config, CHIP, options, None, position)
                if not causal:
                    nest.walk.count = 1  # a walk over many blocks is simulated elsewhere
                case = (shape, stages, position)
                assert closed_form(nest.walk, 4) == pytest.approx(full_cycles(nest.walk), rel=0.01), case


def test_causal_attention_does_little_more_than_half_of_the_work():
    whole, half = (predict(KERNEL, *_causal((8, 8192, 8192), {}, c)[:3], CHIP, _causal((8, 8192, 8192), {}, c)[3])
                   for c in (False, True))  # fmt: skip
    tiles = 8192 // 256
    # two blocks of queries for every tile of keys
    assert half.useful["write"] == whole.useful["write"]
    queries = 8 * 8192 * 128 * 2
    share = (half.useful["read"] - queries) / (whole.useful["read"] - queries)
    assert share == pytest.approx((tiles + 1) / 2 / tiles, rel=0.01)
    assert 0.5 * whole.time_us < half.time_us < 0.7 * whole.time_us


def test_causal_batched_equals_plain():
    for shape, values in (CAUSAL[0], CAUSAL[5], CAUSAL[8]):
        specs, shapes, config, options = _causal(shape, values)
        points = {name: [config[name], 64] if name == "m" else [config[name]] * 2 for name in KERNEL.numeric}
        batch = px.cost.evaluate(KERNEL, specs, points, CHIP, Options(choices=options.choices))
        for n, m in enumerate(points["m"]):
            one = predict(KERNEL, specs, shapes, {**config, "m": m}, CHIP, options)
            assert batch.time_us[n] == pytest.approx(one.time_us, rel=0.04)
            assert batch.moved["read"][n] == pytest.approx(one.moved["read"], rel=0.02)
            assert batch.blocks[n] == pytest.approx(one.blocks)


def test_causal_regions_trace_and_verify():
    specs, _, config, _ = _causal((2, 300, 300), {"m": 64, "n": 128, "preload": 1})
    written, read = np.zeros((2, 300), int), np.zeros((2, 300, 300), bool)
    for region in px.regions(KERNEL, specs, config):
        blocks = list(zip(region.starts.tolist(), region.sizes.tolist(), strict=True))
        if region.mode == "write":
            for (h, start, _), (_, size, _) in blocks:
                written[h, start : start + size] += 1
        elif region.tensor == "k":
            for number, ((h, start, _), (_, size, _)) in enumerate(blocks):
                first = (4 - number // 2) * 64
                read[h, first : first + 64, start : start + size] = True
    assert (written == 1).all()
    # every key up to the query, and none from tiles wholly after the block
    keys = np.arange(300)
    last = np.minimum(keys // 64 * 64 + 63, 299) // 128 * 128 + 127
    np.testing.assert_array_equal(read, np.broadcast_to(keys[None, :] <= last[:, None], read.shape))
    result = trace(KERNEL, specs, config, CHIP)
    assert result.closed_cycles == pytest.approx(result.cycles, rel=0.01)
    assert not result.degenerate
    assert verify(KERNEL, specs, config, CHIP).passed
