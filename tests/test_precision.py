"""The float64 comparison passes on the library and sees a wrong kernel."""

import pytest

import pyptox as px
from pyptox.precision import check, shrink


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
