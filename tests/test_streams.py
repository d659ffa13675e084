"""Copies, scans and attention over picked rows: their values, and what HBM and L2 make of them."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox.cost import Options, explain, predict
from pyptox.cost._traffic import Transfer, dirty_after, left_in_l2, written_back

CHIP = px.hardware.a2a3()
K = px.kernels
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32, np.int8, np.int32])
@pytest.mark.parametrize("shape", [(37, 150), (1, 5000)])
def test_copy(dtype, shape):
    x = RNG.integers(-100, 100, shape).astype(dtype)
    for m, n, steps in ((16, 64, 3), (1, 1024, 1)):
        out = px.run(K.copy, x, m=m, n=n, steps=steps)
        assert out.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(out), x)
    np.testing.assert_array_equal(px.reference(K.copy, x), x.astype(np.float64))


def test_convert():
    x = np.array([[0.5, 1.5, -2.5, 300.0, -0.4, 2.5, 7.0, -128.6] * 4], np.float32)
    out = np.asarray(px.run(K.convert("int8"), x))
    np.testing.assert_array_equal(out, np.clip(np.rint(x), -128, 127).astype(np.int8))
    away = np.asarray(px.run(K.convert("int8", rounding="round"), x))[0, :3].tolist()
    assert away == [1, 2, -3]
    assert px.run(K.convert("bf16"), x).dtype == jnp.bfloat16
    assert K.convert("fp16") is K.convert("fp16")


@pytest.mark.parametrize(("rows", "width", "parts", "m"), [(200, 32, 3, 16), (64, 16, 2, 16), (5, 32, 4, 16)])
@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_scan(rows, width, parts, m, dtype):
    x = RNG.integers(-3, 4, (rows, width)).astype(dtype)
    ones = np.triu(np.ones((width, width), dtype))
    expected = np.cumsum(x.astype(np.float64).reshape(-1)).reshape(x.shape)
    for run in (px.run, px.reference):
        sums, total = (np.asarray(part) for part in run(K.scan_rows(parts), x, ones, m=m))
        np.testing.assert_array_equal(sums, np.cumsum(x.astype(np.float64), axis=1))
        assert total.sum() == expected[-1, -1]
        wide = np.int32 if dtype is np.int8 else np.float32
        out = run(K.scan_carry, sums.astype(wide), total.astype(wide), m=m)
        np.testing.assert_array_equal(np.asarray(out), expected)


def test_scan_of_reals():
    x = RNG.standard_normal((96, 32)).astype(np.float16)
    ones = np.triu(np.ones((32, 32), np.float16))
    out = px.run(K.scan_carry, *(np.asarray(part) for part in px.run(K.scan_rows(4), x, ones, m=16)), m=16)
    wide = x.astype(np.float64).reshape(-1)
    # a rounding for each addition on the way to an element, each of the size of a sum so far
    bound = 2.0**-24 * (96 + 32) * np.abs(wide).cumsum()
    assert (np.abs(np.asarray(out).reshape(-1) - wide.cumsum()) <= bound).all()


def test_scan_says_what_is_wrong():
    with pytest.raises(px.KernelError, match="`ones`"):
        K.scan_rows(2).specs(px.spec((64, 16), "fp16"), px.spec((16, 8), "fp16"))
    with pytest.raises(px.KernelError, match="`parts`"):
        K.scan_rows(0)


NAMES = ("contiguous", "wait", "broadcast", "fused")
SWITCHES = [dict.fromkeys(NAMES, on) for on in (False, True)]


def _attended(tensors, rows):
    q, q_rope, latent, rope = tensors
    out = np.zeros(q.shape)
    for t, picked in enumerate(rows):
        keys = np.concatenate([latent[picked], rope[picked]], 1)
        scores = np.concatenate([q[t], q_rope[t]], 1) @ keys.T / np.sqrt(keys.shape[1])
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[t] = weights / weights.sum(1, keepdims=True) @ latent[picked]
    return out


@pytest.mark.parametrize("preload", [0, 2])
def test_sparse_attention(preload):
    shapes = (2, 24, 64), (2, 24, 16), (100, 64), (100, 16)
    tensors = [(2 * RNG.standard_normal(shape)).astype(np.float32) for shape in shapes]
    rows = np.stack([RNG.permutation(100)[:45] for _ in range(2)]).astype(np.int32)
    expected = _attended([t.astype(np.float64) for t in tensors], rows)
    for switches in SWITCHES:
        given = {"m": 16, "n": 16, "preload": preload, **switches}
        np.testing.assert_allclose(np.asarray(px.run(K.sparse_attention, *tensors, rows, **given)), expected, atol=2e-5)
        np.testing.assert_allclose(
            px.reference(K.sparse_attention, *tensors, rows, **given), expected, rtol=1e-12, atol=1e-12
        )
    narrow = [t.astype(jnp.bfloat16) for t in tensors]
    expected = _attended([np.asarray(t, np.float64) for t in narrow], rows)
    # weights and result are rounded to bf16 once each
    out = np.asarray(px.run(K.sparse_attention, *narrow, rows, m=16, n=16), np.float64)
    np.testing.assert_allclose(out, expected, atol=4e-2)


def _cost(kernel, specs, chip=CHIP, options=None, **given: Any):
    values = kernel.configuration(given)
    chosen = tuple((name, values[name]) for name in kernel.choices)
    options = dataclasses.replace(options or Options(warm=4), choices=chosen)
    return predict(kernel, specs, {name: s.shape for name, s in specs.items()}, values, chip, options)


def test_each_switch_of_sparse_attention_pays():
    tensors = [px.spec((*lead, n), "bf16") for lead in ((1, 128), (2560,)) for n in (512, 64)]
    specs = K.sparse_attention.specs(*tensors, px.spec((1, 2048), "int32"))
    slow: dict[str, Any] = {"m": 64, "n": 64, "slices": 4, "stages": 1, "preload": 0}
    slow |= {"contiguous": False, "wait": True, "broadcast": False, "fused": False}
    base = _cost(K.sparse_attention, specs, **slow).time_us
    for faster in (
        {"contiguous": True},
        {"wait": False},
        {"broadcast": True},
        {"preload": 1, "stages": 2},
    ):
        assert _cost(K.sparse_attention, specs, **{**slow, **faster}).time_us < base, faster
    fused = _cost(K.sparse_attention, specs, **{**slow, "fused": True})
    assert fused.busy["VECTOR"] < _cost(K.sparse_attention, specs, **slow).busy["VECTOR"]


def _copy(elements, chip=CHIP, **options):
    specs = K.copy.specs(px.spec((1, elements), "fp16"))
    return _cost(K.copy, specs, chip, Options(warm=4, **options), m=1, n=16384, steps=1)


def test_a_long_copy_takes_hbm_for_reads_and_writes():
    elements = 1 << 29
    cost, t = _copy(elements), CHIP.times
    size = 2.0 * elements
    # what fits L2 is not written back
    least = size * t.hbm_us + (size - CHIP.sizes.l2 / 2) * t.writeback_us
    assert cost.time_us - t.launch_us == pytest.approx(least)
    assert cost.cycles == cost.hbm_cycles
    slower = _copy(elements, CHIP.replace(writeback_us=2 * t.writeback_us))
    assert slower.time_us > cost.time_us


def test_a_short_copy_writes_back_what_was_in_l2():
    size, t = 2.0 * (1 << 23), CHIP.times
    clean, dirty = _copy(1 << 23), _copy(1 << 23, dirty=1.0)
    assert clean.hbm_cycles / CHIP.clock_mhz == pytest.approx(size * t.hbm_us)
    assert dirty.hbm_cycles - clean.hbm_cycles == pytest.approx(2 * size * t.writeback_us * CHIP.clock_mhz)
    assert _copy(1 << 23, resident=(("x", 1.0),)).moved["hbm"] == 0.0
    half = _copy(1 << 23, resident=(("x", 0.5),))
    assert half.moved["hbm"] == pytest.approx(clean.moved["hbm"] / 2)


def test_explanation_of_a_copy():
    specs = K.copy.specs(px.spec((1, 1 << 28), "fp16"))
    found = explain(K.copy, specs, {"m": 1, "n": 16384, "steps": 1}, CHIP)
    assert found.limit == "HBM bandwidth"
    assert sum(found.attribution.values()) == pytest.approx(found.time_us)
    assert found.attribution["writeback_us"] > found.attribution["hbm_us"] > 0


def test_what_l2_keeps():
    sizes = CHIP.sizes
    assert written_back(sizes, 1e6, 1e6, 0.0) == 0.0
    assert written_back(sizes, 1e6, 1e6, 0.5) == 1e6
    assert written_back(sizes, 3e9, 1e9, 0.0) == pytest.approx((4e9 - sizes.l2) / 4)

    def after(elements):
        specs = K.copy.specs(px.spec((1, elements), "fp16"))
        values, shapes = K.copy.configuration({"m": 1, "n": 16384}), {name: s.shape for name, s in specs.items()}
        return px.cost.record(K.copy, specs, shapes, values, CHIP, Options()).traffic

    shares = [left_in_l2(after(1 << n), sizes) for n in (20, 26, 27, 28, 30)]
    assert shares[0] == shares[1] == 1.0
    assert 1.0 > shares[2] > shares[3] > shares[4] > 0.0
    assert isinstance(next(iter(after(1 << 20).values())), Transfer)
    assert dirty_after(after(1 << 20), sizes, 0.0) == pytest.approx((1 << 21) / sizes.l2)
    assert dirty_after(after(1 << 30), sizes, 1.0) == 0.5


def test_a_second_load_in_the_same_iteration_hits():
    kernel = K.scan_rows(48)
    specs = kernel.specs(px.spec((1 << 22, 128), "fp16"), px.spec((128, 128), "fp16"))
    cost = _cost(kernel, specs, m=128)
    assert cost.moved["read"] > 2 * specs["x"].bytes
    assert cost.moved["hbm"] < 1.01 * specs["x"].bytes
