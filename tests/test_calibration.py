"""A fit recovers constants that made its own rows."""

import dataclasses

import pytest

import pyptox.lang as pl
from pyptox.calibration import calibrate
from pyptox.hardware import PUBLISHED, a2a3
from pyptox.kernels import matmul_staged
from pyptox.validation import Problem, observations


def test_recovers_constants():
    chip = a2a3()
    true = chip.replace(launch_us=chip.times.launch_us * 1.5, l2_us=chip.times.l2_us * 1.2)
    rows = []
    for m in (128, 1152, 4224):
        specs = matmul_staged.specs(pl.spec((m, 2048), "fp16"), pl.spec((2048, 2048), "fp16"))
        problem = Problem(matmul_staged, specs, matmul_staged.configuration({}))
        rows.append(dataclasses.replace(problem, measured=problem.cost(true).time_us))
    fit = calibrate(chip, rows, free=("launch_us", "l2_us"), prior_strength=1e-4)
    assert fit.constants["l2_us"] == pytest.approx(true.times.l2_us, rel=1e-2)
    assert fit.constants["launch_us"] == pytest.approx(true.times.launch_us, rel=1e-2)
    with pytest.raises(ValueError, match="`free`"):
        calibrate(chip, rows, free=("nothing",))


def test_shipped_preset_is_what_calibration_gives(shared):
    problems = [problem for _, _, problem in observations(shared / "measured")]
    fit = calibrate(a2a3().replace(**PUBLISHED), problems)
    flat = a2a3().flat()
    assert {n: float(flat[n]) for n in PUBLISHED} == pytest.approx(fit.constants, rel=0.01)
    assert fit.error < 0.04
    assert fit.left_out_error < 0.05
