"""Paths, derivatives and bounds of simulated timelines."""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import PyptoxError, chip
from pyptox import program as pp
from pyptox.chip._run import run
from pyptox.cli import main

MLP = Path(__file__).parents[2] / "docs" / "programs" / "mlp.py"


def timeline_of(random_workload, seed, **options):
    work, schedule, clusters = random_workload(seed, **options)
    hardware = px.hardware.a2a3().replace(aic=clusters, aiv=2 * clusters)
    return chip.simulate(work, hardware=hardware, schedule=schedule)


def test_no_schedule_beats_its_bounds_or_starts_before_its_inputs(random_workload):
    for seed in range(100):
        t = timeline_of(random_workload, seed)
        assert t.makespan_us >= t.bound_us
        for task, preds in enumerate(t.workload.waits):
            assert all(t.times.start[task] >= t.times.finish[p] for p in preds)
        times = t.times
        chain = [times.submitted, times.ready, times.start, times.end, times.finish]
        assert all((a <= b).all() for a, b in itertools.pairwise(chain))
        assert ((times.ready <= times.dispatch) | t.staged).all()
        assert (times.submitted <= times.dispatch).all()
        assert (times.dispatch <= times.start).all()
        assert all(0 <= share <= 1 for share in t.utilisation.values())


def test_a_simulation_is_deterministic(random_workload):
    one, two = (timeline_of(random_workload, 11) for _ in range(2))
    assert json.dumps(one.to_dict()) == json.dumps(two.to_dict())


def test_gaps_lead_from_the_producers_end_to_the_start(random_workload):
    staged = 0
    for seed in range(60):
        t = timeline_of(random_workload, seed)
        gaps, woken = t.gaps(), t.record.woken
        assert all((gap >= 0).all() for gap in gaps.values())
        some = woken >= 0
        total = np.sum(list(gaps.values()), axis=0)
        np.testing.assert_array_equal(t.times.end[woken[some]] + total[some], t.times.start[some])
        staged += int(t.staged.sum())
    assert staged > 50


def test_the_critical_path_tiles_the_makespan(random_workload):
    for seed in range(100):
        t = timeline_of(random_workload, seed)
        pieces = t.critical()
        assert pieces[0].start_us == 0.0
        assert pieces[-1].end_us == t.makespan_us
        assert all(a.end_us == b.start_us for a, b in itertools.pairwise(pieces))
        assert all(piece.end_us >= piece.start_us for piece in pieces)


def test_constants_and_durations_times_their_derivatives_are_the_makespan(random_workload):
    for seed in range(100):
        t = timeline_of(random_workload, seed)
        constants, durations = t.gradient()
        total = sum(n * t.schedule.values()[name] for name, n in constants.items())
        assert total + durations @ t.workload.duration_us == pytest.approx(t.makespan_us, abs=1e-9, rel=0)
        assert sum(t.attribution().values()) == pytest.approx(t.makespan_us, abs=1e-9, rel=0)


def test_derivatives_agree_with_finite_differences(random_workload):
    step, checked, kinks = 2.0**-14, 0, 0

    def compare(low, middle, high, slope):
        nonlocal checked, kinks
        left, right = (middle - low) / step, (high - middle) / step
        if left != right:  # a tie
            kinks += 1
            return
        assert slope == left
        checked += 1

    for seed in range(30):
        t = timeline_of(random_workload, seed, tasks=30, ties=False)
        constants, durations = t.gradient()
        for name, value in t.schedule.values().items():
            schedules = (t.schedule.replace(**{name: value + sign * step}) for sign in (-1, 1))
            low, high = (run(t.workload, s, t.clusters)[0].finish.max() for s in schedules)
            compare(low, t.makespan_us, high, constants[name])
        for task in np.flatnonzero(t.workload.duration_us > step)[:4]:
            moved = (t.workload.duration_us + sign * step * (np.arange(30) == task) for sign in (-1, 1))
            ends = (run(t.workload.with_durations(d), t.schedule, t.clusters)[0] for d in moved)
            low, high = (times.finish.max() for times in ends)
            compare(low, t.makespan_us, high, durations[task])
    assert checked > 300
    assert kinks < 0.1 * checked


def test_a_staged_task_starts_a_doorbell_after_its_producer():
    hidden = {}
    for flag in (False, True):
        work = chip.Workload.of(["AIC", "AIC"], [12, 12], [50.0, 10.0], [[], [0]], early=[flag, False])
        t = chip.simulate(work)
        assert t.staged.tolist() == [False, flag]
        hidden[flag] = float(t.times.start[1] - t.times.finish[0])
    assert hidden[True] == t.schedule.values()["doorbell_us"]
    assert hidden[False] > hidden[True]
    assert t.gradient()[0]["doorbell_us"] == 2
    assert t.bound == ["submission", "publication"]


def test_jax_differentiates_the_makespan_through_durations(random_workload):
    work, schedule, _ = random_workload(5, tasks=30, ties=False)
    function = chip.makespan(work)
    durations = jnp.asarray(work.duration_us, jnp.float32)

    def scaled(factor, schedule):
        return function(schedule, factor * durations)

    value, (slope, constants) = jax.value_and_grad(scaled, (0, 1))(jnp.float32(1.0), schedule)
    t = chip.simulate(work.with_durations(np.asarray(durations)), schedule=schedule)
    counts, blocks = t.gradient()
    assert float(value) == pytest.approx(t.makespan_us, rel=1e-6)
    assert float(slope) == pytest.approx(float(blocks @ t.workload.duration_us), rel=1e-5)
    assert {name: float(getattr(constants, name)) for name in counts} == counts


def test_a_program_is_simulated_with_the_cost_models_times():
    hardware = px.hardware.a2a3()
    mlp = _mlp()
    graph = pp.graph(mlp, tokens=64)
    t = chip.simulate(graph, hardware=hardware)
    assert t.workload.names[2] == "t2 gate"
    gate = graph.tasks[2]
    assert gate.kernel is not None
    cost = px.cost.explain(gate.kernel, gate.specs(), gate.values, hardware)
    launch = hardware.times.launch_us
    assert t.workload.duration_us[2] == pytest.approx((cost.time_us - launch) / cost.waves, abs=1e-6)
    schedule = sum(part for name, part in t.attribution().items() if name in t.schedule.values())
    assert schedule + sum(t.by_hardware().values()) == pytest.approx(t.makespan_us, abs=1e-4)
    assert t.static_path().tasks == (0, 1, 2, 4, 5, 6)


def test_the_static_path_is_the_longest_chain_of_blocks():
    work = chip.Workload.of(["AIC", "AIV", "AIC"], [24, 48, 240], [10.0, 5.0, 1.0], [[], [0], [0]])
    path = chip.simulate(work).static_path()
    assert (path.time_us, path.tasks) == (15.0, (0, 1))


def test_a_chip_with_another_ratio_of_cores_is_refused():
    work = chip.Workload.of(["AIC"], [1], [1.0], [[]])
    with pytest.raises(PyptoxError, match="two AIVs for each AIC"):
        chip.simulate(work, hardware=px.hardware.a2a3().replace(aiv=24))


def test_the_command_line_simulates(capsys):
    def command(*arguments):
        code = 0
        try:
            main(["simulate", *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    code, out, _ = command(f"{MLP}:mlp", "tokens=32")
    assert code == 0
    assert "[MODEL] step_us=" in out
    assert "t6 residual_add" in out
    code, out, _ = command(f"{MLP}:mlp", "--json")
    result = json.loads(out)
    assert (code, len(result["tasks"])) == (0, 7)
    assert sum(result["attribution"].values()) == pytest.approx(result["makespan_us"])
    assert command(f"{MLP}:mlp", "toks=3")[0] == 2


def _mlp():
    from pyptox.cli._programs import program_at

    return program_at(f"{MLP}:mlp")
