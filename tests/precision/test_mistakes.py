"""What cannot mean anything is refused by name, and what was not compared does not pass."""

# pyright: reportArgumentType=false, reportCallIssue=false
# wrong types are what is tested

import jax
import ml_dtypes
import numpy as np
import pytest

import pyptox as px
from pyptox import PyptoxError
from pyptox import precision as pr
from pyptox import program as pp

BF16 = ml_dtypes.bfloat16
X = np.random.default_rng(0).standard_normal((8, 256)).astype(BF16)
SOFTMAX = px.kernels.softmax


# ---------------------------------------------------------------------------------------------------------- baselines
@pytest.mark.parametrize("of", ["relative_l2", "max_abs", "rmse"])
@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_a_baseline_that_is_not_finite_is_no_measure(of, hole):
    reference = np.arange(1.0, 11.0)
    far, baseline = np.full(10, 1e6, np.float32), reference.astype(np.float32)
    baseline[3] = hole
    verdict = pr.judge(pr.VersusBaseline(of=of), far, reference, baseline=baseline)
    assert not verdict.passed
    assert "of the baseline, which is no measure: 1 of its elements are NaN or infinite" in verdict.summary
    assert pr.judge(pr.VersusBaseline(of=of), reference.astype(np.float32), reference, baseline=baseline).passed


def test_a_baseline_beside_zeros_is_no_relative_measure():
    gate, zeros = pr.VersusBaseline(), np.zeros(10)
    verdict = pr.judge(gate, np.full(10, 1e6, "f4"), zeros, baseline=np.full(10, 1e-30, "f4"))
    assert not verdict.passed
    assert "at most 2 x inf of the baseline, which is no measure" in verdict.summary
    assert not pr.judge(
        pr.VersusBaseline(2, "max_abs"), np.full(10, 1e6, "f4"), zeros, baseline=np.full(10, 1e-30)
    ).passed
    assert pr.judge(gate, np.zeros(10, "f4"), zeros, baseline=np.full(10, 1e-30, "f4")).passed


@pytest.mark.parametrize(
    "gate",
    [
        pr.VersusBaseline(),
        pr.RelL2(1e-2) & pr.VersusBaseline(),
        {"out": pr.VersusBaseline()},
        pr.ByLeaf({}, otherwise=pr.VersusBaseline()),
        pr.Region(pr.VersusBaseline(), rows=3),
    ],
    ids=str,
)
def test_where_no_baseline_can_be_given_its_gate_is_refused(gate):
    with pytest.raises(PyptoxError, match="`gate` of fewest_widened must judge without a baseline"):
        pr.fewest_widened(SOFTMAX, X, gate=gate)


# ----------------------------------------------------------------------------------------------------------- rounding
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp8_e4m3fn", "fp8_e5m2", "int8"])
@pytest.mark.parametrize("mode", ["rint", "round", "trunc", "floor", "ceil", "odd", "nearest_odd"])
def test_round_to_rounds_float64_once_as_cast_does(dtype, mode):
    rng = np.random.default_rng(3)
    ties = (1.0 + rng.integers(0, 64, 500) * 2.0**-8) * 2.0 ** rng.integers(-6, 7, 500)
    x = ties * (1.0 + rng.choice([-1, 0, 1], 500) * 2.0**-40) * rng.choice([-1, 1], 500)
    got = np.asarray(pr.round_to(x, dtype, mode))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, np.asarray(pr.cast(x, dtype, mode)).astype(np.float32))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(got, np.asarray(pr.round_to(x, dtype, mode)))
    assert float(pr.round_to(np.float64(1 + 2**-8 + 2**-40), "bf16")) == 1.0078125


def test_to_odd_takes_the_largest_value_beyond_it():
    for dtype, largest in (("fp8_e4m3fn", 448.0), ("fp8_e5m2", 57344.0), ("bf16", float(ml_dtypes.finfo(BF16).max))):
        assert float(pr.cast(np.float64(2 * largest), dtype, "to_odd", saturate=False)) == largest


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pr.cast(1.0, "bf16", "stochastic"), "`key` needs .*; got None"),
        (
            lambda: pr.cast(1.0, "bf16", key=jax.random.key(0)),
            "`key` is for stochastic rounding only; got one with",
        ),
        (lambda: pr.cast(1.0, "bf16", saturate="x"), "`saturate` must be True, False or None; got 'x'"),
        (lambda: pr.cast(1.0, "bf16", saturate=1), "`saturate` must be True, False or None; got 1"),
        (lambda: pr.round_to(1.0, "bf16", saturate=[]), "`saturate` must be"),
        (lambda: pr.cast(np.longdouble(1), "fp32", "up"), "`x` must hold floating-point numbers of 64 bits at most"),
        (lambda: pr.cast(np.ma.array([1.0, 2.0], mask=[0, 1]), "bf16"), "`x` must be .*without a mask"),
    ],
)
def test_what_cast_cannot_take(call, message):
    with pytest.raises(PyptoxError, match=message):
        call()


# --------------------------------------------------------------------------------------------------------- quantisers
@pytest.mark.parametrize("per", ["tensor", "token", "channel"])
@pytest.mark.parametrize("jitted", [False, True])
def test_scales_and_values_are_those_of_float32_arithmetic(per, jitted):
    axis = {"tensor": None, "token": -1, "channel": 0}[per]
    x = (np.random.default_rng(5).standard_normal((64, 96)) * 3).astype(np.float32)
    amax = np.maximum(np.abs(x).max(axis, keepdims=True), np.float32(1e-4))
    scale = amax / np.float32(127)

    def quantized(x):
        return pr.quantize(x, per=per), pr.quantize(x, per=per, symmetric=False)

    even, uneven = (jax.jit(quantized) if jitted else quantized)(x)
    low, high = np.minimum(x.min(axis, keepdims=True), 0), np.maximum(x.max(axis, keepdims=True), 0)
    step = (high - low) / np.float32(255)
    zero = np.round(np.float32(-128) - low / step)
    if not jitted:  # inside a caller's jit a division by a constant may still become a product
        np.testing.assert_array_equal(np.asarray(even.scale), scale)
        np.testing.assert_array_equal(np.asarray(uneven.scale), step)
    scale, step = np.asarray(even.scale), np.asarray(uneven.scale)
    np.testing.assert_array_equal(np.asarray(even.values), np.clip(np.round(x / scale), -128, 127))
    np.testing.assert_array_equal(np.asarray(uneven.zero), zero)
    np.testing.assert_array_equal(np.asarray(uneven.values), np.clip(np.round(x / step) + zero, -128, 127))


@pytest.mark.parametrize("per", ["tensor", "token", "channel"])
def test_a_range_beyond_float32_has_a_scale(per):
    top = np.finfo(np.float32).max
    for x in (np.float32([[3e38, -3e38, 1]]), np.float32([[top, -top, 0], [top, 0, 1], [-top, -1, top]])):
        found = pr.quantize(x, symmetric=False, per=per)
        assert np.isfinite(np.asarray(found.scale)).all()
        back, scale = np.asarray(found.dequantize(), np.float64), np.asarray(found.scale, np.float64)
        assert np.isfinite(back).all()
        assert (np.abs(back - x) <= 1.01 * scale).all()  # half a step of x and half a step of zero
        assert np.isfinite(np.asarray(pr.quantize(x, per=per).dequantize())).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, "`scale` must be finite and at least"),
        ({"scale": -1.0}, "`scale` must be finite"),
        ({"scale": np.nan}, "`scale` must be finite"),
        ({"scale": np.float32([[1], [np.inf]])}, "`scale` must be finite"),
        ({"scale": 1e-40}, "`scale` must be finite"),
        ({"scale": np.ones((7, 1))}, r"`scale` must broadcast against \(2, 4\); got shape \(7, 1\)"),
        ({"scale": np.ones((3, 2, 4))}, "`scale` must broadcast"),
        ({"scale": "a"}, "`scale` must be an array of real numbers"),
        ({"floor": 0.0}, "`floor` must be a number of at least"),
        ({"floor": -1.0}, "`floor` must be"),
        ({"floor": np.nan}, "`floor` must be"),
        ({"floor": np.inf}, "`floor` must be"),
        ({"floor": 1e-38}, "`floor` must be"),
        ({"floor": "x"}, "`floor` must be"),
        ({"scale": 1.0, "zero": 500, "symmetric": False}, "`zero` must be whole and within int8, -128 to 127"),
        ({"scale": 1.0, "zero": 0.5, "symmetric": False}, "`zero` must be whole"),
        ({"scale": 1.0, "zero": np.nan, "symmetric": False}, "`zero` must be whole"),
        ({"per": "group", "group": 2.5}, "`group` must be 1 or more, an integer"),
    ],
    ids=str,
)
def test_a_quantiser_refuses_options_that_make_no_values(options, message):
    with pytest.raises(PyptoxError, match=message):
        pr.quantize(np.ones((2, 4), np.float32), **options)


@pytest.mark.parametrize("x", ["a", None, np.zeros((4, 0), "f4"), np.ones(3, complex), np.ones(3, bool)], ids=str)
def test_a_quantiser_refuses_what_is_no_array_of_numbers(x):
    for quantiser in (pr.quantize, pr.fake_quantize):
        with pytest.raises(PyptoxError, match="`x` must"):
            quantiser(x)


def test_a_mask_is_not_dropped():
    masked = np.ma.array(np.ones(3, np.float32), mask=[0, 1, 0])
    for call in (
        lambda: pr.compare(masked, np.ones(3)),
        lambda: pr.compare(np.ones(3, "f4"), {"value": masked}["value"]),
        lambda: pr.judge(pr.RelL2(1.0), np.ones(3, "f4"), np.ones(3), baseline=masked),
        lambda: pr.quantize(masked),
        lambda: px.run(SOFTMAX, np.ma.array(X, mask=False)),
    ):
        with pytest.raises(PyptoxError, match="without a mask"):
            call()


# -------------------------------------------------------------------------------------------------------------- gates
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pr.Ratio(1e-2, max_bad=2), "`max_bad` of a gate must be a share"),
        (lambda: pr.Ratio(1e-2, max_bad=1), "`max_bad`"),
        (lambda: pr.RelDiff(1e-2, max_bad=1.0), "`max_bad`"),
        (lambda: pr.RelDiff(1e-2, max_bad=1.5, hard=3.0), "`max_bad`"),
        (lambda: pr.RelDiff(1, floor="x"), "`floor` of a gate must be a number or 'rms'; got 'x'"),
        (lambda: pr.RelDiff(1, floor=None), "`floor` of a gate"),
        (lambda: pr.Allclose(1, atol="x"), "`atol` of a gate must be a number or 'rms'; got 'x'"),
        (lambda: pr.Allclose(True), "`rtol` of a gate must be a number of at least 0; got True"),
        (lambda: pr.Ulp(max=True), "`max` of a gate"),
        (lambda: pr.All(()), "`gates` of All must be gates, at least one"),
        (lambda: pr.All((pr.BitEqual(), 3)), "`gates` must be a gate; got 3"),
        (lambda: pr.BitEqual() & 3, "must be a gate; got 3"),  # type: ignore[operator]
        (lambda: pr.ByLeaf({"a": 3}), r"`gates\['a'\]` must be a gate; got 3"),  # type: ignore[dict-item]
        (lambda: pr.ByLeaf({}, otherwise=3), "`otherwise` must be a gate; got 3"),  # type: ignore[arg-type]
        (lambda: pr.judge({"value": None}, 1.0, 1.0), "must be a gate; got None"),  # type: ignore[dict-item]
        (lambda: pr.PassRate(1, rates=()), "`rates` of PassRate must be pairs"),
        (lambda: pr.PassRate(1, rates=((1, 2.0),)), "`rates`"),
        (lambda: pr.PassRate(1, rates=((1, 0.0),)), "`rates`"),
        (lambda: pr.PassRate(1, rates=((0, 1.0),)), "`rates`"),
        (lambda: pr.PassRate(1, rates=(3,)), "`rates`"),
        (lambda: pr.PassRate(1.5), "`depth` must be 1 or more, an integer; got 1.5"),
        (lambda: pr.PassRate(0), "`depth`"),
        (lambda: pr.Region(pr.BitEqual(), rows=-1), "`rows` of Region must be an integer of at least 0"),
        (lambda: pr.Region(pr.BitEqual(), rows=1.5), "`rows` of Region"),
        (lambda: pr.Region(pr.BitEqual(), rows=True), "`rows` of Region"),
        (lambda: pr.Region(pr.BitEqual(), rows=(1, 0.5)), "`rows` of Region"),
        (lambda: pr.Region("x", rows=1), "`gate` must be a gate; got 'x'"),
        (lambda: pr.TopK("a", "a"), "`indices` of TopK must be another leaf"),
        (lambda: pr.TopK("a", 3), "`indices` must be a text"),
        (lambda: pr.gate_named(3), "`gate` must be a text"),
    ],
)
def test_a_gate_that_means_nothing_is_refused_where_it_is_made(make, message):
    with pytest.raises(PyptoxError, match=message):
        make()


def test_a_share_of_all_with_a_hard_limit_can_fail():
    gate = pr.Ratio(1e-2, max_bad=1.0, hard=3.0)
    assert pr.judge(gate, np.float32([1.02]), np.array([1.0])).passed
    assert not pr.judge(gate, np.float32([1.2]), np.array([1.0])).passed


def test_numbers_of_numpy_and_rows_of_any_kind_are_taken():
    assert pr.judge(pr.Allclose(np.float32(1e-2)), np.float32([1.001]), np.array([1.0])).passed
    x = np.float32([[1], [0], [2]])
    for rows in ((0, 2), [0, 2], np.array([0, 2]), range(0, 3, 2)):
        assert pr.judge(pr.Region(pr.BitEqual(), rows=rows), x, x).passed
    assert pr.judge(pr.Region(pr.BitEqual(), rows=np.int64(3)), x, x).passed


def test_indices_are_integers():
    scores, places = np.float32([[3.0, 2.0]]), np.array([[0, 1]], np.int32)
    for got, expected in ((places.astype("f4"), places), (places, places.astype("f8"))):
        with pytest.raises(PyptoxError, match=r"`i` of the (candidate|reference) must be rows of integers"):
            pr.judge(pr.TopK("v", "i"), {"v": scores, "i": got}, {"v": scores, "i": expected})


# ---------------------------------------------------------------------------------------------------------- arguments
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pr.attribute("matmul", X), "`kernel` must be a @kernel; got 'matmul'"),
        (lambda: pr.what_if("matmul", X, changes=[]), "`kernel` must be a @kernel"),
        (lambda: pr.fewest_widened("matmul", X, gate=pr.RelL2(1)), "`kernel` must be a @kernel"),
        (lambda: pr.emulated("matmul", X), "`kernel` must be a @kernel"),
        (lambda: pr.intermediates("matmul", X), "`kernel` must be a @kernel"),
        (lambda: pr.significant_digits("matmul", X), "`kernel` must be a @kernel"),
        (lambda: pr.sample_inputs("matmul", {}), "`kernel` must be a @kernel"),
        (lambda: pr.check("matmul", {}, {}), "`kernel` must be a @kernel"),
        (lambda: pr.examine("matmul", {}, {}), "`kernel` must be a @kernel"),
        (lambda: pr.survey("matmul", {}, [{}]), "`kernel` must be a @kernel"),
        (lambda: px.run("matmul", X), "`kernel` must be a @kernel"),
        (lambda: px.reference("matmul", X), "`kernel` must be a @kernel"),
        (lambda: pr.identity_of("matmul"), "`what` must be a @kernel"),
        (lambda: pr.stages("mlp", X), "`program` must be an @program"),
        (lambda: pr.walk("mlp", X, candidate=[]), "`program` must be an @program"),
        (lambda: pr.walk_float64("mlp", X), "`program` must be an @program"),
        (lambda: pr.attribute_program("mlp", X), "`program` must be an @program"),
        (lambda: pr.examine_program("mlp"), "`program` must be an @program"),
        (lambda: pr.attribute(SOFTMAX, "x"), "`x` of `softmax` must be an array; got 'x'"),
        (lambda: pr.emulated(SOFTMAX, [[1.0]]), "`x` of `softmax` must be an array"),
        (lambda: pr.attribute(SOFTMAX, X.astype(np.float64)), "`x` of `softmax`: `dtype` must be one of .*astype"),
        (lambda: pr.attribute(SOFTMAX, X, functional=3), "`functional` must be a function"),
        (lambda: pr.attribute(SOFTMAX, X, functional=lambda a, b: 3), "`functional` must give one array"),
        (lambda: pr.attribute(SOFTMAX, X, functional=lambda a, b: ["q"]), "`functional` must give one array"),
        (lambda: pr.attribute(SOFTMAX, X, functional=lambda a, b: [np.ones(3)]), "`functional` .* got shapes"),
        (
            lambda: pr.attribute(SOFTMAX, X, functional=lambda a, b: [a[0] * np.nan]),
            "`functional` .* got some",
        ),
        (lambda: pr.what_if(SOFTMAX, X, changes=["x"]), "`changes` must be Widen, Round or Configure; got 'x'"),
        (lambda: pr.what_if(SOFTMAX, X, changes=pr.Widen("a:1")), "`changes` must be a list"),
        (lambda: pr.what_if(SOFTMAX, X, changes="x"), "`changes` must be a list"),
        (lambda: pr.compare(X, X, thresholds=("a",)), "`thresholds` must be finite numbers"),
        (lambda: pr.compare(X, X, thresholds=3), "`thresholds` must be"),
        (lambda: pr.compare(X, X, thresholds=(-1.0,)), "`thresholds` must be"),
        (lambda: pr.draw(3, (2,), "fp32"), "`distribution` must be one of .*got 3"),
        (lambda: pr.draw("normal", 3, "fp32"), r"`shape` must be sizes; got 3"),
        (lambda: pr.draw("normal", (-1,), "fp32"), "`shape` must be 0 or more"),
        (lambda: pr.draw("normal", (1.5,), "fp32"), "`shape` must be 0 or more"),
        (lambda: pr.draw("normal", (2,), "fp32", seed=True), "`seed` must be 0 or more"),
    ],
)
def test_arguments_that_are_none_are_named(call, message):
    with pytest.raises(PyptoxError, match=message):
        call()


def test_a_functional_may_give_one_weight_an_output():
    assert pr.attribute(SOFTMAX, X, functional=lambda c, r: [np.ones_like(r[0])]).name == "softmax"


# -------------------------------------------------------------------------------------------------------------- walks
@pp.program
def twice(x, w):
    return pp.submit(px.kernels.matmul, pp.submit(px.kernels.matmul, x, w, name="a"), w, name="b")


GIVEN = np.ones((16, 32), BF16), np.ones((32, 32), BF16)


def test_a_walk_that_compares_nothing_does_not_pass():
    first, second = pr.stages(twice, *GIVEN)
    out = first.outputs["out"]
    for candidate, message in (
        ([], "`candidate` must hold an output of a task, or nothing is judged"),
        ({}, "`candidate` must hold an output"),
        ([pr.Stage(first.name, {}, {})], "`candidate` must hold an output"),
        ([pr.Stage(first.name, first.inputs, {})], "`candidate` must hold an output"),
        (
            [pr.Stage(first.name, {}, {"zz": out})],
            "has the output 'zz' of t0 a, whose outputs are out",
        ),
        ([pr.Stage(first.name, {"out": out}, first.outputs)], "has the input 'out' of .* whose inputs are a, b"),
        (
            [pr.Stage(first.name, {}, {"out": out[:3]})],
            r"`out` of the candidate's t0 a must be bfloat16\[16, 32\]",
        ),
        ([pr.Stage(first.name, {}, {"out": out.astype("f4")})], "must be bfloat16"),
        ([pr.Stage(first.name, {}, {"out": "x"})], "must be bfloat16"),
        ([pr.Stage("t9 z", {}, first.outputs)], "`candidate` names t9 z; the tasks are t0 a, t1 b"),
        ([first, first], "`candidate` must have each task once; got t0 a more than once"),
        (["t0 a"], "`candidate` must be stages"),
        ("t0 a", "`candidate` must be stages"),
    ):
        with pytest.raises(PyptoxError, match=message):
            pr.walk(twice, *GIVEN, candidate=candidate)
    assert pr.walk(twice, *GIVEN, candidate=[first]).passed
    assert pr.walk(twice, *GIVEN, candidate={second.name: second}).passed
    with pytest.raises(PyptoxError, match="`gate` of walk must judge without a baseline"):
        pr.walk(twice, *GIVEN, candidate=[first], gate=pr.VersusBaseline())


# ---------------------------------------------------------------------------------------------------------- snapshots
def test_a_replay_takes_no_seed(tmp_path):
    specs = SOFTMAX.specs(px.spec((8, 256), "bf16"))
    pr.examine(SOFTMAX, specs, {}, seed=3, save_to=tmp_path / "kept")
    assert pr.examine(SOFTMAX, specs, {}, replay=tmp_path / "kept").seed == 3
    with pytest.raises(PyptoxError, match="`seed` is of inputs that are drawn"):
        pr.examine(SOFTMAX, specs, {}, seed=5, replay=tmp_path / "kept")
    specs = {"x": px.spec((16, 32), "bf16"), "w": px.spec((32, 32), "bf16")}
    with pytest.raises(PyptoxError, match="`seed` is of inputs that are drawn"):
        pr.examine_program(twice, specs, seed=5, replay=tmp_path / "kept")
