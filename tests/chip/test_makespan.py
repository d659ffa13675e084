"""The makespan as a JAX function: jitted, over many candidates, through the cost model."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import PyptoxError, chip
from pyptox import program as pp
from pyptox.cli._programs import program_at

MLP = Path(__file__).parents[2] / "docs" / "programs" / "mlp.py"


@pytest.fixture(scope="module")
def problem(random_workload):
    work, schedule, _ = random_workload(5, tasks=30, ties=False)
    return work, schedule, jnp.asarray(work.duration_us, jnp.float32)


def test_jit_changes_nothing(problem):
    work, schedule, durations = problem
    function = chip.makespan(work)
    plain, jitted = function(schedule, durations), jax.jit(function)(schedule, durations)
    assert float(plain) == float(jitted)
    assert float(plain) == pytest.approx(chip.simulate(work, schedule=schedule).makespan_us, rel=1e-6)


def test_vmap_over_durations_and_constants_is_a_loop(problem):
    work, schedule, durations = problem
    function = chip.makespan(work)
    scales = jnp.linspace(0.5, 2.0, 4)
    together = jax.jit(jax.vmap(lambda k: jax.value_and_grad(lambda d: function(schedule, d))(k * durations)))(scales)
    for n, scale in enumerate(scales):
        value, slope = jax.value_and_grad(lambda d: function(schedule, d))(scale * durations)
        assert float(together[0][n]) == float(value)
        np.testing.assert_array_equal(together[1][n], slope)
    polls = jnp.linspace(0.0, 1.0, 3)
    many = jax.vmap(lambda p: function(schedule.replace(poll_us=p), durations))(polls)
    one = [float(function(schedule.replace(poll_us=float(p)), durations)) for p in polls]
    np.testing.assert_allclose(many, one, rtol=1e-6)


def test_float64_where_jax_has_it(problem):
    work, schedule, _ = problem
    with jax.enable_x64(True):
        value = chip.makespan(work)(schedule, jnp.asarray(work.duration_us))
        assert value.dtype == jnp.float64
        assert float(value) == pytest.approx(chip.simulate(work, schedule=schedule).makespan_us, abs=1e-4)


def test_what_a_task_moves_goes_along_with_its_time(random_workload):
    work, schedule, _ = random_workload(4, tasks=20, memory=True, ties=False)
    durations, function = jnp.asarray(work.duration_us), chip.makespan(work)
    for factor in (0.5, 0.9, 1.0, 1.3):
        expected = chip.simulate(work.with_durations(factor * work.duration_us), schedule=schedule).makespan_us
        assert float(function(schedule, factor * durations)) == pytest.approx(expected, rel=1e-5)
    slope = float(jax.grad(lambda k: function(schedule, k * durations))(1.0))
    ends = [float(function(schedule, k * durations)) for k in (0.999, 1.001)]
    assert slope == pytest.approx((ends[1] - ends[0]) / 0.002, rel=0.05)


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_what_is_no_time_gives_no_number(problem, bad):
    work, schedule, durations = problem
    function = jax.jit(jax.value_and_grad(chip.makespan(work), argnums=1))
    value, slope = function(schedule, durations.at[3].set(bad))
    assert np.isnan(value)
    assert np.isnan(slope).all()
    assert np.isnan(function(dataclasses.replace(schedule, poll_us=bad), durations)[0])
    with pytest.raises(PyptoxError, match=r"`duration_us` must be 0 to 1e\+09 µs; task 3 has"):
        work.with_durations(np.where(np.arange(work.tasks) == 3, bad, 1.0))
    with pytest.raises(PyptoxError, match="`duration_us` must be an array of 30 times"):
        chip.makespan(work)(schedule, durations[:3])


@pytest.mark.slow
def test_a_programs_time_as_a_function_of_the_chip():
    graph, hardware = pp.graph(program_at(f"{MLP}:mlp"), tokens=16), px.hardware.a2a3()
    work, schedule = chip.workload(graph, hardware), chip.a2a3_schedule()
    times, span = chip.durations(graph), chip.makespan(work)
    duration_us, memory_us = times(hardware)
    np.testing.assert_allclose(duration_us, work.duration_us, atol=1e-4)
    assert work.memory is not None
    for row, name in zip(memory_us, ("resident_us", "hbm_us", "l2_us"), strict=True):
        np.testing.assert_allclose(row, getattr(work.memory, name), atol=1e-4)
    base = float(hardware.times.hbm_us)
    total = jax.jit(jax.value_and_grad(lambda scale: span(schedule, *times(hardware.replace(hbm_us=base * scale)))))
    value, slope = total(jnp.float32(1.0))
    assert float(value) == pytest.approx(chip.simulate(graph, hardware=hardware).makespan_us, rel=1e-5)
    change = (float(total(jnp.float32(1.01))[0]) - float(total(jnp.float32(0.99))[0])) / 0.02
    assert change == pytest.approx(float(slope), rel=0.1)
