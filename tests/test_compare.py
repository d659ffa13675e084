"""Reports and gates: figures against plain float64 arithmetic; each gate with its fault and its good twin."""

import time
import tracemalloc
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from pyptox import PyptoxError
from pyptox import precision as pr

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 501))


def test_figures_against_plain_arithmetic():
    candidate = (X + 1e-3 * RNG.standard_normal(X.shape)).astype(np.float32)
    leaf = pr.compare({"out": candidate}, {"out": X}, seed=4, floor=0)["out"]
    error = candidate.astype(np.float64) - X
    where = np.unravel_index(np.abs(error).argmax(), X.shape)
    assert leaf.index == tuple(where)
    assert (leaf.got, leaf.expected, leaf.max_abs) == (candidate[where], X[where], np.abs(error).max())
    assert leaf.relative_l2 == pytest.approx(np.linalg.norm(error) / np.linalg.norm(X), rel=1e-12)
    assert leaf.rmse == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-12)
    assert leaf.bias == pytest.approx(error.mean(), rel=1e-9)
    assert leaf.max_relative == np.max(np.abs(error / X))
    assert leaf.cosine == pytest.approx(
        np.sum(candidate * X) / np.linalg.norm(candidate.astype(float)) / np.linalg.norm(X), rel=1e-9
    )
    ulps = np.abs(error) / np.spacing(np.abs(X).astype(np.float32)).astype(np.float64)
    assert leaf.ulp["max"] == pytest.approx(ulps.max(), rel=1e-3)  # spacing of the float32 beside, not of the float64
    assert leaf.ulp["p99"] == pytest.approx(np.percentile(ulps, 99), rel=1e-2)
    assert leaf.relative["p50"] == pytest.approx(np.median(np.abs(error / X)), rel=1e-2)
    assert leaf.absolute["p99.9"] == pytest.approx(np.percentile(np.abs(error), 99.9), rel=1e-2)
    assert leaf.beyond[1e-3] == np.mean(np.abs(error / X) > 1e-3)


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32, E4M3, ml_dtypes.float8_e5m2])
def test_a_correctly_rounded_candidate_is_equal_and_within_half_a_unit(dtype):
    candidate = np.asarray(pr.cast(X, dtype))
    leaf = pr.compare(candidate, X).leaves[0]
    assert leaf.equal == 1.0
    assert leaf.ulp["max"] <= 0.5
    away = np.asarray(pr.cast(X, dtype, "toward_zero"))
    assert 0.3 < pr.compare(away, X).leaves[0].equal < 0.7


def test_ties_count_as_equal_when_even():
    ties = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 2 - 2.0**-8])
    even = np.asarray(pr.cast(ties, "bf16"))
    assert pr.compare(even, ties).leaves[0].equal == 1.0
    assert pr.compare(np.asarray(pr.cast(ties, "bf16", "nearest_odd")), ties).leaves[0].equal == 0.0
    below = np.asarray([np.nextafter(np.float32(2), np.float32(0))])
    assert pr.compare(below, np.array([2.0])).leaves[0].equal == 0.0
    assert pr.compare(np.array([2, 4], np.int8), np.array([2.5, 3.5])).leaves[0].equal == 1.0


def test_nan_and_infinity():
    candidate, reference = (
        np.array([np.nan, np.inf, 1, np.nan, -np.inf], np.float32),
        np.array([np.nan, np.inf, 1, 2, np.inf]),
    )
    leaf = pr.compare(candidate, reference).leaves[0]
    assert leaf.special == {
        "nan_candidate": 2, "nan_reference": 1, "inf_candidate": 2, "inf_reference": 2, "disagree": 2
    }  # fmt: skip
    assert leaf.max_abs == np.inf
    assert not pr.judge(pr.FiniteMatch(), candidate, reference).passed
    assert pr.judge(pr.FiniteMatch(), candidate[:3], reference[:3]).passed
    for gate in (
        pr.Allclose(1.0),
        pr.Ratio(1.0, max_bad=0.99),
        pr.RelDiff(1.0, max_bad=0.99),
        pr.RelL2(9.0),
        pr.Ulp(9.0),
    ):
        assert not pr.judge(gate, candidate, reference).passed, gate
        assert pr.judge(gate, candidate[:3], reference[:3]).passed, gate
    assert "2 of 5 elements are NaN or infinite on one side only; the first at (3,): got nan" in str(
        pr.judge(pr.Allclose(1.0), candidate, reference)
    )


def test_trees_must_agree():
    with pytest.raises(PyptoxError, match=r"`candidate` must have the leaves of `reference`; missing b; extra c"):
        pr.compare({"a": X, "c": X}, {"a": X, "b": X})
    with pytest.raises(PyptoxError, match=r"`a` must have the reference's shape \(300, 501\)"):
        pr.compare({"a": X[1:]}, {"a": X})
    with pytest.raises(PyptoxError, match="at least one element"):
        pr.compare(X[:0], X[:0])
    report = pr.compare({"a": (X, X), "b": X}, {"a": (X, X), "b": X})
    assert [leaf.name for leaf in report.leaves] == ["a.0", "a.1", "b"]
    assert "a.1" in report.table()
    assert report.to_dict()["leaves"][0]["equal"] == 1.0


# --------------------------------------------------------------------------------------------------------------- gates
def _one_off(value: float, place=(2, 3)) -> np.ndarray:
    changed = X.astype(np.float32)
    changed[place] = value
    return changed


GOOD = X.astype(np.float32)
GATES = {
    "allclose": (pr.Allclose(1e-3), GOOD, _one_off(9)),
    "allclose, fixed atol": (pr.Allclose(0.0, 1e-3), GOOD, GOOD + np.float32(2e-3)),
    "ratio": (pr.Ratio(1e-3, max_bad=1e-4), _one_off(9), np.where(RNG.random(X.shape) < 2e-3, GOOD + 1, GOOD)),
    "ratio, hard": (pr.Ratio(1e-3, max_bad=1e-4, hard=1e4), _one_off(9), _one_off(1e6)),
    "reldiff": (pr.RelDiff(1e-3), GOOD * np.float32(1.0005), GOOD * np.float32(1.002)),
    "pass rate": (
        pr.PassRate(10), np.where(RNG.random(X.shape) < 5e-4, GOOD + 1, GOOD),
        np.where(RNG.random(X.shape) < 5e-3, GOOD + 1, GOOD),
    ),
    "ulp": (pr.Ulp(max=1), GOOD, GOOD * np.float32(1 + 2**-21)),
    "ulp p99": (pr.Ulp(p99=1), _one_off(9), GOOD * np.float32(1 + 2**-20)),
    "relative L2": (pr.RelL2(1e-4), GOOD, GOOD + np.float32(1e-3)),
    "bits": (pr.BitEqual(), GOOD, np.nextafter(GOOD, np.float32(9))),
    "default": (pr.default_gate("fp32", 300), GOOD, GOOD + np.float32(3e-4)),
}  # fmt: skip


@pytest.mark.parametrize("name", GATES)
def test_each_gate_catches_its_fault_and_passes_its_good_twin(name):
    gate, good, bad = GATES[name]
    verdict = pr.judge(gate, np.asarray(good, np.float32), X, seed=7)
    assert verdict.passed, str(verdict)
    verdict = pr.judge(gate, np.asarray(bad, np.float32), X, seed=7)
    assert not verdict.passed
    assert "seed 7" in str(verdict)
    assert "got " in str(verdict)
    assert "expected " in str(verdict)


def test_gates_compose_and_name_leaves():
    tree, truth = {"x": GOOD, "y": _one_off(9)}, {"x": X, "y": X}
    both = pr.Allclose(1e-3) & pr.RelL2(1.0)
    assert [f.passed for f in pr.judge(both, tree, truth).findings] == [True, False, True, True]
    assert pr.judge({"x": both, "y": pr.Ratio(1e-3)}, tree, truth).passed
    with pytest.raises(pr.GateError, match=r"y: FAILED Allclose.*worst at \(2, 3\): got 9, expected"):
        pr.require(both, tree, truth)
    with pytest.raises(PyptoxError, match="unknown z; missing x, y"):
        pr.judge({"z": both}, tree, truth)
    with pytest.raises(PyptoxError, match="must be a gate"):
        pr.judge(0.1, tree, truth)  # type: ignore[arg-type]


def test_versus_baseline():
    plain = (X + 1e-3 * RNG.standard_normal(X.shape)).astype(np.float32)
    gate = pr.VersusBaseline(k=2)
    assert pr.judge(gate, plain, X, baseline=plain[::1].copy()).passed
    assert not pr.judge(gate, (X + 3e-3).astype(np.float32), X, baseline=plain).passed
    assert pr.judge(gate, GOOD, X, baseline=GOOD.astype(np.float64)).passed  # rounded once, against no error at all
    with pytest.raises(PyptoxError, match="`baseline` is needed"):
        pr.judge(gate, plain, X)


def test_topk_allows_swaps_of_ties_only():
    scores = np.array([[5.0, 4.0, 4.0, 3.0], [9.0, 8.0, 7.0, 6.0]])
    indices = np.array([[10, 7, 3, 1], [1, 2, 3, 4]], np.int32)
    truth = {"v": scores, "i": indices}
    gate = pr.TopK("v", "i")

    def verdict(i, v=scores):
        return pr.judge(gate, {"v": v.astype(np.float32), "i": np.asarray(i, np.int32)}, truth)

    assert verdict(indices).passed
    assert verdict([[10, 3, 7, 1], [1, 2, 3, 4]]).passed  # the tie
    assert verdict([[10, 7, 3, 8], [1, 2, 3, 4]]).passed  # at the last rank another one of the same score
    lower = scores.copy()
    lower[0, 3] *= 1 - 5e-4  # near enough for the values, but no tie that could have pushed out the last rank
    assert not verdict([[10, 7, 3, 8], [1, 2, 3, 4]], lower).passed
    wrong = verdict([[10, 7, 3, 1], [2, 1, 3, 4]])
    assert not wrong.passed
    assert "got index 2, expected 1, scores 9 and 8" in str(wrong)
    assert not verdict([[99, 7, 3, 1], [1, 2, 3, 4]]).passed  # not among the reference's, and not last
    assert "has an index twice" in str(verdict([[10, 7, 7, 1], [1, 2, 3, 4]]))
    assert not verdict(indices, scores + 0.1).passed


def test_regions():
    valid = np.zeros((8, 4), np.float32)
    valid[:5] = 2
    truth = np.full((8, 4), 2.0)
    gate = pr.Region(pr.Allclose(1e-3), rows=5)
    assert pr.judge(gate, valid, truth).passed
    stray = valid.copy()
    stray[6, 1] = 1e-30
    verdict = pr.judge(gate, stray, truth)
    assert not verdict.passed
    assert "untouched rows: 1 of 12 elements differ in some bit; the first at (6, 1)" in str(verdict)
    before = np.full((8, 4), 7, np.float32)
    pool = before.copy()
    pool[[1, 6]] = 2
    assert pr.judge(pr.Region(pr.Allclose(1e-3), (6, 1), before), pool, truth).passed
    pool[6, 2] = 3
    assert "worst at (6, 2)" in str(pr.judge(pr.Region(pr.Allclose(1e-3), (6, 1), before), pool, truth))
    with pytest.raises(PyptoxError, match="between 0 and the 8 rows"):
        pr.judge(pr.Region(pr.Allclose(1e-3), 9), valid, truth)


# ------------------------------------------------------------------------------------------------ what the survey asks
def test_near_zero_outputs_are_judged_by_the_size_of_the_output():
    """Fixed atol rejects a sum in another order for the few elements where it nearly cancels; the RMS does not."""
    k = 4096
    a, b = (RNG.standard_normal((64, k), np.float32).astype(BF16).astype(np.float64) for _ in range(2))
    truth = a @ b.T
    truth -= truth.mean()
    near = np.argsort(np.abs(truth), axis=None)[:30]
    candidate = truth.copy()
    candidate.reshape(-1)[near] += 0.05  # of an RMS of 64: no farther off than float32 sums of that length are
    assert not pr.judge(pr.Allclose(1e-2, 1e-2), candidate.astype(np.float32), truth).passed
    assert pr.judge(pr.Allclose(1e-2), candidate.astype(np.float32), truth).passed
    assert pr.judge(pr.RelDiff(0.1, max_bad=0.0), candidate.astype(np.float32), truth).passed
    candidate[0, 0] += 2.0
    assert not pr.judge(pr.Allclose(1e-2), candidate.astype(np.float32), truth).passed


def test_fp8_is_judged_in_its_own_units():
    truth = RNG.standard_normal((64, 64))
    once = np.asarray(pr.cast(truth, "fp8_e4m3fn"))
    twice = np.asarray(pr.cast(pr.cast(truth, "bf16", "trunc"), "fp8_e4m3fn"))
    assert pr.judge(pr.Ulp(max=0.5), once, truth).passed
    assert not pr.judge(pr.BitEqual(), twice, truth).passed
    assert pr.judge(pr.Ulp(max=1), twice, truth).passed  # a bit, but within a unit
    assert pr.judge(pr.default_gate("fp8_e4m3fn"), once, truth).passed
    away = np.asarray(pr.cast(truth, "fp8_e4m3fn", "down"))
    assert not pr.judge(pr.default_gate("fp8_e4m3fn"), away, truth).passed


@pytest.mark.parametrize("rounding", ["trunc", "round"])
def test_the_default_gate_sees_a_wrong_rounding_mode(rounding):
    truth = np.concatenate([X.ravel(), 1 + (2 * np.arange(100) + 1) * 2.0**-8])
    good = np.asarray(pr.cast(truth, "bf16"))
    assert pr.judge(pr.default_gate("bf16", 64), good, truth).passed
    bad = np.asarray(pr.cast(truth, "bf16", rounding))
    gate = pr.default_gate("bf16", 64) & pr.BitEqual()
    verdict = pr.judge(gate, bad, truth)
    assert not verdict.passed
    if rounding == "trunc":
        assert "the default for bf16 and K = 64" in str(verdict.findings[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("close", "`gate` must be one of allclose"),
        ("allclose", "`gate` allclose needs rtol"),
        ("allclose:rtol=-1", "`rtol` of a gate must be a number of at least 0"),
        ("allclose:0.1,atol=big", "`atol` of a gate must be a number or 'rms'"),
        ("allclose:0.1,0.1,0.1", "`gate` allclose has rtol, atol"),
        ("ulp", "`Ulp` needs a limit"),
        ("rel_l2:0.1,limit=2", "`gate` rel_l2 takes each of limit once"),
    ],
)
def test_bad_gates(text, message):
    with pytest.raises(PyptoxError, match=message):
        pr.gate_named(text)


@pytest.mark.slow
def test_a_huge_tensor_with_few_outliers():
    """100 million elements in pieces: seconds and a few MiB. Four outliers fail an allclose, and not a ratio."""
    truth = np.tile(RNG.standard_normal(1_000_000, np.float32), 100)
    candidate: Any = truth.astype(BF16)
    candidate[[5, 50_000_000, 77_777_777, 99_999_999]] += BF16(0.5)
    tracemalloc.start()
    began = time.process_time()
    leaf = pr.compare(candidate, truth).leaves[0]
    seconds = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 10
    assert peak < 3 << 30
    assert leaf.index[0] in (5, 50_000_000, 77_777_777, 99_999_999)
    assert not pr.judge(pr.Allclose(2**-8), candidate, truth).passed
    assert pr.judge(pr.Ratio(2**-8, max_bad=1e-6), candidate, truth).passed
    assert not pr.judge(pr.Ratio(2**-8, max_bad=1e-8), candidate, truth).passed


def test_jax_arrays_are_taken_as_they_are():
    assert pr.compare(jnp.ones(3, jnp.bfloat16), jnp.ones(3, jnp.float32)).leaves[0].dtype == "bfloat16"


@pytest.mark.parametrize("text", ["rel_l2:-1", "rel_l2:nan", "ulp:max=-1", "versus_baseline:-1", "ulp:p99=inf"])
def test_limits_of_gates_are_numbers_of_at_least_zero(text):
    with pytest.raises(PyptoxError, match="must be a number of at le"):
        pr.gates_named([text])


def test_figures_are_not_perfect_where_infinities_disagree():
    report = pr.compare(np.array([1, np.inf, 2], np.float32), np.array([1, -np.inf, 2], np.float64))
    leaf = report.leaves[0]
    assert leaf.max_abs == leaf.relative_l2 == leaf.rmse == leaf.ulp["max"] == np.inf
    assert leaf.index == (1,)
    assert (leaf.got, leaf.expected) == (np.inf, -np.inf)
    assert np.isnan(leaf.cosine)
    text = str(pr.judge(pr.RelL2(1e-3), np.array([1, np.inf], np.float32), np.array([1, -np.inf], np.float64)))
    assert "relative L2 inf" in text
