"""Verification and explanation."""

import pytest

import pyptox as px
from pyptox.cost._explain import explain
from pyptox.cost._verify import verify

MATMUL = px.kernels.matmul
SPECS = MATMUL.specs(px.spec((16, 5120), "bf16"), px.spec((5120, 17408), "bf16"))


def test_explanation_is_consistent() -> None:
    answer = explain(MATMUL, SPECS, {"m": 16, "n": 256, "k": 256}, px.hardware.a2a3())
    assert sum(answer.attribution.values()) == pytest.approx(answer.time_us)
    assert answer.closed_cycles == pytest.approx(answer.full_cycles, rel=1e-3)
    assert answer.bound_us <= answer.time_us


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"m": 16, "n": 64, "k": 256}, "PH001"),
        ({"m": 128, "n": 256, "k": 128}, "PT203"),
        ({"m": 16, "n": 1024, "k": 64}, "PT204"),
    ],
)
def test_hints(values, code) -> None:
    assert code in {hint.code for hint in verify(MATMUL, SPECS, values, px.hardware.a2a3()).hints}


def test_errors_name_the_tile() -> None:
    report = verify(MATMUL, SPECS, {"m": 16, "n": 512, "k": 512}, px.hardware.a2a3())
    assert report.errors[0].details["tile"] == "load b"
    with pytest.raises(px.VerifierError, match="Mat"):
        report.require()


def test_leaving_the_calibrated_range_is_said() -> None:
    values, chip = {"m": 16, "n": 256, "k": 256}, px.hardware.a2a3()
    assert any("34,816 bytes apart" in note for note in explain(MATMUL, SPECS, values, chip).outside)
    narrow = MATMUL.specs(px.spec((16, 5120), "bf16"), px.spec((5120, 8192), "bf16"))
    assert explain(MATMUL, narrow, values, chip).outside == ()


def test_paths_of_a_grouped_kernel_count_every_group() -> None:
    kernel, counts = px.kernels.grouped_matmul, [64, 0, 200, 16]
    specs = kernel.specs(px.spec((280, 512), "bf16"), px.spec((4, 512, 1024), "bf16"), px.lang.control(counts))
    paths = {
        path.tensor: path for path in explain(kernel, specs, {"m": 64, "n": 256, "k": 256}, px.hardware.a2a3()).paths
    }
    row_tiles = sum(-(-count // 64) for count in counts)
    assert paths["x"].useful == pytest.approx(sum(counts) * 512 * 2 * 4)  # once for each column tile
    assert paths["w"].useful == pytest.approx(row_tiles * 512 * 1024 * 2)
    assert paths["out"].useful == pytest.approx(sum(counts) * 1024 * 2)
