"""The float64 comparison passes on the library and sees a wrong kernel."""

import pytest

import autotune
import pyptox as px
from benchmarks.problems import problems
from pyptox import lang as pl
from pyptox.precision import TooLargeError, check, sample_inputs, shrink


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "int8"])
def test_matmul_passes(dtype: str) -> None:
    specs = px.kernels.matmul.specs(px.spec((20, 300), dtype), px.spec((300, 1000), dtype))
    report = check(px.kernels.matmul, specs, {"m": 16, "n": 64, "k": 64}, px.hardware.a2a3())
    assert report.passed, str(report)
    assert report.reduction == 300
    if dtype == "int8":
        assert report.exact == report.elements


def test_shrink_keeps_the_reduction_when_all_sizes_agree() -> None:
    specs = px.kernels.matmul_nt.specs(px.spec((512, 512), "bf16"), px.spec((512, 512), "bf16"))
    small = shrink(px.kernels.matmul_nt, specs, 16, 40)
    assert [small[name].shape for name in ("a", "b", "out")] == [(16, 512), (40, 512), (16, 40)]


def test_a_kernel_that_truncates_fails():
    @px.kernel(
        outputs={"out": lambda a, b: px.spec((a.shape[0], b.shape[1]), "bf16")}, tile={"m": 16, "n": 32, "k": 32}
    )
    def truncating(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        (m, k), (_, n) = a.shape, b.shape

        def block(i, j):
            def step(kk, acc):
                lhs = pl.load(a, (i * tile.m, kk * tile.k), (tile.m, tile.k))
                rhs = pl.load(b, (kk * tile.k, j * tile.n), (tile.k, tile.n))
                return pl.matmul(lhs, rhs, acc)

            acc = pl.pipeline(pl.cdiv(k, tile.k), step, pl.zeros((tile.m, tile.n), "fp32", space=pl.Acc))
            pl.store(out, (i * tile.m, j * tile.n), pl.cast(acc, "bf16", rounding="trunc"))

        pl.grid((pl.cdiv(m, tile.m), pl.cdiv(n, tile.n)), block)

    specs = truncating.specs(px.spec((32, 256), "bf16"), px.spec((256, 64), "bf16"))
    assert not check(truncating, specs, {}).passed


def test_what_is_too_large_to_compare_is_said_before_it_is_drawn() -> None:
    specs = px.kernels.matmul.specs(px.spec((16, 100_000_000), "bf16"), px.spec((100_000_000, 16), "bf16"))
    with pytest.raises(TooLargeError, match="at most 268,435,456 elements"):
        check(px.kernels.matmul, specs, {"m": 16, "n": 16, "k": 256})
    result = autotune.tune(px.kernels.matmul, *(specs[name] for name in "ab"), method="random", evaluations=20)
    assert result.check is not None
    assert result.check["passed"] is None
    assert "NOT COMPARED" in str(result)


def test_a_quantiser_passes_and_one_that_truncates_fails() -> None:
    specs = px.kernels.quantize_per_token.specs(px.spec((32, 256), "fp32"))
    assert check(px.kernels.quantize_per_token, specs, {}).passed

    @px.kernel(outputs={"out": lambda x: px.spec(x.shape, "int8")}, tile={"m": 16, "n": 64})
    def truncating(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        def block(i, j):
            at = (i * tile.m, j * tile.n)
            part = pl.multiply(pl.load(x, at, (tile.m, tile.n), space=pl.Vec), 20.0)
            pl.store(out, at, pl.cast(part, "int8", rounding="trunc"))

        pl.grid((pl.cdiv(x.shape[0], tile.m), pl.cdiv(x.shape[1], tile.n)), block)

    report = check(truncating, truncating.specs(px.spec((32, 256), "fp32")), {})
    assert not report.passed
    assert report.max_abs > 0.9


@pl.kernel(outputs={"out": lambda a, b: pl.spec((a.shape[0], b.shape[1]), "fp32")}, tile={"m": 16, "n": 64, "k": 64})
def narrowed_sum(a, b, out, *, tile):
    def block(i, j):
        def step(kk, total):
            left = pl.load(a, (i * tile.m, kk * tile.k), (tile.m, tile.k))
            right = pl.load(b, (kk * tile.k, j * tile.n), (tile.k, tile.n))
            part = pl.move(pl.matmul(left, right), pl.Vec)
            return pl.cast(pl.cast(pl.add(total, part), "bf16"), "fp32")

        total = pl.pipeline(pl.cdiv(a.shape[1], tile.k), step, pl.zeros((tile.m, tile.n), "fp32"), stages=2)
        pl.store(out, (i * tile.m, j * tile.n), total)

    pl.grid((pl.cdiv(a.shape[0], tile.m), pl.cdiv(b.shape[1], tile.n)), block)


def test_narrowing_what_a_loop_carries_buys_no_tolerance() -> None:
    specs = narrowed_sum.specs(px.spec((16, 1024), "bf16"), px.spec((1024, 64), "bf16"))
    report = check(narrowed_sum, specs, {})
    assert not report.passed
    assert "test_precision.py" in report.narrowed[0]
    assert "narrows what a loop carries" in report.summary
    good = check(px.kernels.matmul_wide, specs, {"m": 16, "n": 64, "k": 64})
    assert good.passed
    assert not good.narrowed


SLOW = ("attention", "gather", "cache_write", "matmul", "top_k", "paged", "scan", "lengths", "norm")
ALL = [
    pytest.param(k, s, id=k.name, marks=[pytest.mark.slow] if any(word in k.name for word in SLOW) else [])
    for k, s in problems()
]


@pytest.mark.parametrize(("kernel", "specs"), ALL)
def test_every_kernel_of_the_library_passes_at_its_defaults(kernel, specs) -> None:
    report = check(kernel, specs, {})
    assert report.passed, report


def test_places_are_in_range_and_distinct_where_written() -> None:
    paged = px.kernels.paged_attention
    cache = px.spec((16, 2, 64, 128), "bf16")
    lengths = pl.control([200, 7, 64, 100])
    specs = paged.specs(px.spec((4, 2, 4, 128), "bf16"), cache, cache, px.spec((4, 4), "int32"), lengths)
    table = sample_inputs(paged, specs)[3]
    assert 0 <= table.min() <= table.max() < 16
    writer = px.kernels.cache_write
    specs = writer.specs(px.spec((20, 32), "bf16"), px.spec((20,), "int32"), px.spec((16, 32), "bf16"))
    slots = sample_inputs(writer, specs)[1]
    assert sorted(slots.tolist()) == [-1] * 4 + list(range(16))
