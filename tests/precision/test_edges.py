"""Where measures themselves could go wrong: wide integers, values that fill a type's range, near zero, no numbers."""

import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl
from pyptox import precision as pr
from pyptox.precision._norm import Products, cosine, norm, relative_norm


@pytest.mark.parametrize("dtypes", [("int64", "int64"), ("uint64", "uint64"), ("uint64", "int64"), ("int64", "int32")])
def test_integers_are_compared_exactly(dtypes):
    one, other = (np.dtype(name) for name in dtypes)
    top = min(np.iinfo(one).max, np.iinfo(other).max)
    reference = np.array([top, top - 1, 5, 0], other)
    candidate = reference.astype(one)
    assert pr.compare(candidate, reference).leaves[0].equal == 1.0
    candidate[0] -= 1
    leaf = pr.compare(candidate, reference).leaves[0]
    assert (leaf.max_abs, leaf.index, leaf.got, leaf.expected, leaf.equal) == (1.0, (0,), top - 1, top, 0.75)
    assert f"got {top - 1}, expected {top}" in str(leaf)
    verdict = pr.judge(pr.Allclose(rtol=0.0, atol=0.0), candidate, reference)
    assert f"got {top - 1}, expected {top}, error 1 " in verdict.summary


def test_differences_of_wide_integers_do_not_wrap():
    low, high = np.array([np.iinfo(np.int64).min]), np.array([np.iinfo(np.int64).max])
    leaf = pr.compare(low, high).leaves[0]
    assert leaf.max_abs == 2.0**64
    assert leaf.bias == -(2.0**64)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1.0])
def test_norms_neither_overflow_nor_vanish(scale):
    x = np.random.default_rng(0).standard_normal(1000)
    candidate = x * (1 + 1e-3)
    plain, leaf = pr.compare(candidate, x).leaves[0], pr.compare(candidate * scale, x * scale).leaves[0]
    assert leaf.relative_l2 == pytest.approx(plain.relative_l2, rel=1e-9)
    assert leaf.rmse == pytest.approx(plain.rmse * scale, rel=1e-9)
    assert leaf.rms == pytest.approx(plain.rms * scale, rel=1e-9)
    assert leaf.bias == pytest.approx(plain.bias * scale, rel=1e-9)
    assert leaf.cosine == pytest.approx(1.0, rel=1e-12)
    assert not pr.judge(pr.RelL2(1e-4), candidate * scale, x * scale).passed
    assert pr.judge(pr.RelL2(2e-3) & pr.Allclose(2e-3), candidate * scale, x * scale).passed
    assert norm(x * scale) == pytest.approx(np.linalg.norm(x) * scale, rel=1e-12)
    assert relative_norm(candidate * scale - x * scale, x * scale) == pytest.approx(1e-3, rel=1e-6)


def test_sums_of_products_merge_any_sizes():
    sums = Products()
    for size in (1e200, 1e-200, 1.0, 1e300):
        sums.add(np.array([size]), np.array([size]))
    assert sums.root() == pytest.approx(1e300)
    assert Products().root_over(Products()) == 0.0
    assert sums.root_over(Products()) == math.inf
    assert math.isnan(cosine(sums, Products(), sums))
    huge = np.full(100, 1.7e308)
    assert norm(huge) == math.inf  # beyond float64 indeed
    assert relative_norm(huge / 2, huge) == pytest.approx(0.5)


def test_relative_errors_near_zero_have_a_floor():
    reference = np.r_[np.random.default_rng(0).standard_normal(999), 0.0]
    candidate = reference + 1e-5
    plain, floored = (pr.compare(candidate, reference, floor=floor).leaves[0] for floor in (0, "rms"))
    assert plain.max_relative == math.inf
    assert plain.relative["p100"] == math.inf
    assert floored.floor == pytest.approx(0.01 * floored.rms)
    assert floored.max_relative == pytest.approx(1e-5 / floored.floor)
    assert floored.relative["p50"] == plain.relative["p50"]  # those that are not near zero
    assert floored.beyond[1e-2] == 0.0 < plain.beyond[1e-2]
    with pytest.raises(px.PyptoxError, match="`floor` must be 'rms' or a number of at least 0; got 'max'"):
        pr.compare(candidate, reference, floor="max")  # type: ignore[arg-type]


@pytest.mark.parametrize("array", [np.ones(3, complex), np.array(["a", "b", "c"]), np.array([1, None, 2])])
def test_what_is_not_real_is_refused(array):
    with pytest.raises(px.PyptoxError, match="`value` of the candidate must hold real numbers; got"):
        pr.compare(array, np.ones(3))
    with pytest.raises(px.PyptoxError, match="`value` of the reference must hold real numbers; got"):
        pr.judge(pr.Allclose(1e-3), np.ones(3), array)


@pytest.mark.parametrize("name", pr.DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["fp8_e4m3fn", "fp8_e5m2"])
def test_fp8_is_drawn(dtype, name):
    x = pr.draw(name, (64, 100), dtype, seed=1)
    assert x.dtype == (ml_dtypes.float8_e4m3fn if dtype == "fp8_e4m3fn" else ml_dtypes.float8_e5m2)
    wide = x.astype(np.float32)
    assert np.isfinite(wide).all()
    np.testing.assert_array_equal(wide, pr.draw(name, (64, 100), dtype, seed=1).astype(np.float32))
    if name == "near_overflow":
        assert np.abs(wide).min() >= float(ml_dtypes.finfo(x.dtype).max) / 2 * 0.9


def test_a_quantiser_refuses_what_an_integer_would_hide():
    x = np.ones((4, 8), np.float32)
    x[2, 3] = np.nan
    with pytest.raises(px.PyptoxError, match=r"`x` must be finite; 1 elements are not, the first at \(2, 3\)"):
        pr.quantize(x)
    traced = jax.jit(lambda x: pr.quantize(x, per="token").dequantize())(jnp.asarray(x))
    assert np.isnan(np.asarray(traced[2])).all()  # a dynamic scale says so
    assert np.isfinite(np.asarray(traced)[[0, 1, 3]]).all()


def test_integers_have_nothing_wider_to_keep():
    x = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    kernel = px.kernels.quantize_per_token
    site = next(s.site for s in pr.attribute(kernel, x).shares if s.site.after == "int8")
    with pytest.raises(px.PyptoxError, match="quantises to an integer, and there is nothing wider to keep"):
        pr.what_if(kernel, x, changes=[pr.Widen(site)])
    found = pr.fewest_widened(kernel, x, gate=pr.RelL2(1e-9))
    assert not found.passed
    assert found.quantised == 1
    assert "1 casts to integers have nothing wider to keep" in str(found)


@pl.kernel(outputs={"out": lambda x: x}, tile={"m": 16})
def masked(x, out, *, tile):
    def block(i):
        part = pl.cast(pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec), "fp32")
        mask = pl.full((tile.m, x.shape[1]), -1e30, "fp32")
        largest = pl.maximum_of(part, mask)
        pl.store(out, (i * tile.m, 0), pl.cast(largest, "bf16"))

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


def test_a_mask_takes_no_place_in_the_table():
    x = (np.random.default_rng(0).standard_normal((16, 64)) * 1.01).astype(np.float32)
    report = pr.attribute(px.kernels.softmax_online, x.astype(jnp.bfloat16))
    assert report.holds
    table = pr.attribute(masked, x.astype(jnp.bfloat16)).table()
    assert "e+2" not in table


def test_swiglu_near_overflow_says_so_and_passes_where_its_outputs_are_in_range():
    kernel = px.kernels.swiglu
    specs = kernel.specs(px.spec((16, 64), "bf16"), px.spec((16, 64), "bf16"))
    found = pr.examine(kernel, specs, {}, distribution="near_overflow")
    assert not found.passed
    assert "not finite where float64 is; the largest bf16 is 3.39e+38" in found.summary
    gate = pr.draw("near_overflow", (16, 64), "bf16", seed=1)  # exp overflows inside, and silu is 0 or the gate
    up = np.full((16, 64), 1e-4, gate.dtype)
    report = pr.attribute(kernel, gate, up)
    assert report.holds, report
    verdict = pr.judge(pr.Ulp(max=0.5) & pr.FiniteMatch(), px.run(kernel, gate, up), px.reference(kernel, gate, up))
    assert verdict.passed, verdict
