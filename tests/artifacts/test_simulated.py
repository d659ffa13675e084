"""Simulations as the files of a run: they keep every rule, read back equal, and replay to the same times."""

import json
from pathlib import Path

import numpy as np
import pytest

import pyptox as px
from pyptox import artifacts, chip, pmu
from pyptox import program as pp
from pyptox.cli._programs import program_at
from tests.artifacts.edits import codes

MLP = Path(__file__).parents[2] / "docs" / "programs" / "mlp.py"


def _layers(tasks, blocks=8, early=False, seed=0):
    rng = np.random.default_rng(seed)
    shapes = rng.choice(["AIC", "AIV", "MIX"], tasks, p=[0.45, 0.45, 0.1]).tolist()
    waits = [rng.integers(n // 6 * 6 - 6, n // 6 * 6, 2).tolist() if n >= 6 else [] for n in range(tasks)]
    return chip.Workload.of(shapes, [blocks] * tasks, rng.uniform(5, 40, tasks), waits, early=[early] * tasks)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("blocks", [1, 8, 70])
def test_a_simulation_is_written_as_a_run_and_replays_to_itself(tmp_path, blocks, early):
    timeline = chip.simulate(_layers(60, blocks, early))
    artifacts.write_simulation(tmp_path, timeline)
    assert artifacts.validate(tmp_path, strict=True) == ()
    capture, again = artifacts.read_capture(tmp_path), artifacts.simulated_capture(timeline)
    assert (capture.records, capture.deps, capture.names) == (again.records, again.deps, again.names)
    assert capture.whole
    assert capture.missing == ()
    replay = artifacts.replay(capture)
    assert not replay.recorded.held.any()
    assert np.abs(replay.start_error_us).max() < 0.1
    assert np.abs(replay.finish_error_us).max() < 0.1
    assert replay.simulated_us == pytest.approx(replay.measured_us, abs=0.1)
    np.testing.assert_array_equal(replay.timeline.staged, timeline.staged)
    for cause, pair in replay.gap_causes_us.items():
        assert pair["simulated"] == pytest.approx(pair["measured"], rel=2e-3, abs=1.0), cause


def test_random_workloads_keep_every_rule(tmp_path, random_workload):
    for seed in range(24):
        work, schedule, clusters = random_workload(seed)
        if not work.blocks.any():
            continue
        hardware = px.hardware.a2a3().replace(aic=clusters, aiv=2 * clusters)
        timeline = chip.simulate(work, hardware=hardware, schedule=schedule)
        artifacts.write_simulation(tmp_path, timeline)
        assert artifacts.validate(tmp_path, strict=True) == ()
        assert artifacts.read_records(tmp_path / "chip_swimlane_records.json").at_level(4).threads == schedule.threads


def test_a_program_is_written_with_its_tensors_and_counters(tmp_path):
    graph = pp.graph(program_at(f"{MLP}:mlp"), tokens=16)
    timeline = chip.simulate(graph)
    written = artifacts.write_simulation(tmp_path, timeline)
    assert (
        {path.name for path in written}
        == {path.name for path in tmp_path.iterdir()}
        == {
            "chip_swimlane_records.json",
            "deps.json",
            "name_map.json",
            "dispatch_program.json",
            "pmu.csv",
            "merged_swimlane.json",
        }
    )
    assert artifacts.validate(tmp_path, strict=True) == ()
    deps = artifacts.read_deps(tmp_path / "deps.json")
    assert [(e.pred, e.succ, e.source, e.flags) for e in deps.edges] == [
        (e.pred, e.succ, e.source, e.flags) for e in graph.edges
    ]
    assert len(deps.tensors) == len(graph.buffers)
    assert artifacts.read_program(tmp_path / "dispatch_program.json") == "mlp"
    counters = pmu.read(tmp_path / "pmu.csv")
    assert [row.task_id for row in counters.rows] == list(range(7))
    gate, seen = counters.rows[2], timeline.workload.duration_us[2]
    assert gate.total_cycles == pytest.approx(seen * float(timeline.hardware.clock_mhz), rel=1e-3)
    events = json.loads((tmp_path / "merged_swimlane.json").read_text())["traceEvents"]
    assert {e["name"] for e in events if e.get("cat") == "overhead"} >= {"oh_aic_idle", "oh_has_overhead"}


def test_views_dummies_scopes_and_flags_reach_the_graph(tmp_path):
    @pp.program(sizes=lambda: {"x": px.spec((32, 128), "fp32")})
    def scoped(x):
        held = pp.empty((32, 128), "fp32", name="held")
        first = pp.submit(px.kernels.copy, x, out=held, m=16, n=128, allow_early_resolve=True)
        with pp.scope("manual"):
            gate = pp.dummy(deps=[first])
            second = pp.submit(px.kernels.copy, held[16:], deps=[gate], m=16, n=128)
        return pp.submit(px.kernels.copy, held[:16], deps=[second], m=16, n=128)

    graph = pp.graph(scoped)
    artifacts.write_graph(tmp_path, graph)
    assert not codes(artifacts.validate(tmp_path / "deps.json", strict=True))
    deps = artifacts.read_deps(tmp_path / "deps.json")
    assert [task.task_id >> 32 for task in deps.tasks] == [0, 0, 1, 1, 0]
    assert [task.early_dispatch for task in deps.tasks] == [False, True, False, False, False]
    assert [task.rows for task in deps.tasks] == [task.blocks for task in graph.tasks]
    assert deps.tasks[3].scope == "manual"
    mapped = next(edge for edge in deps.edges if edge.source == "tensormap" and edge.succ == deps.tasks[4].task_id)
    assert (mapped.pred, mapped.overlap) == (deps.tasks[1].task_id, "other")
    assert mapped.consumer is not None
    assert mapped.producer is not None
    assert (mapped.consumer.shape, mapped.producer.shape) == ((16, 128), (32, 128))


def test_early_dispatch_in_the_stamps_is_what_the_simulator_did():
    work = chip.Workload.of(["AIC", "AIC"], [12, 12], [50.0, 10.0], [[], [0]], early=[True, False])
    for flagged, verdict in ((True, "full"), (False, "none")):
        timeline = chip.simulate(work if flagged else chip.Workload.of(["AIC"] * 2, [12, 12], [50.0, 10.0], [[], [0]]))
        capture = artifacts.simulated_capture(timeline)
        assert capture.deps is not None
        (use,) = artifacts.early_dispatch(capture.records, capture.deps)
        (own,) = chip.early_uses(timeline)
        assert (use.verdict, use.early, use.eligible) == (verdict, 12 * flagged, 12 * flagged)
        assert (own.verdict, own.early) == (use.verdict, use.early)


def test_ready_queues_hold_the_tasks_that_wait_for_a_slot():
    timeline = chip.simulate(chip.Workload.of(["AIC"] * 6, [24] * 6, [100.0] * 6, [[]] * 6))
    phases = artifacts.simulated_capture(timeline).records.phases
    taken = np.sort(timeline.times.dispatch)
    for start, depth in zip(phases.start, phases.shared_at_start[:, 0], strict=True):
        at = (start - 1000) / 1000
        assert depth == pytest.approx((timeline.times.ready <= at + 1e-3).sum() - (taken <= at + 1e-3).sum(), abs=1)
    assert phases.shared_at_start[:, 0].max() >= 3
    assert not phases.shared_at_start[:, 1:].any()


def test_overhead_is_idle_cores_while_blocks_are_ready():
    timeline = chip.simulate(_layers(40, 8))
    capture = artifacts.simulated_capture(timeline)
    steps = artifacts.overhead(capture)
    b, records = capture.records.blocks, capture.records
    last = {}
    for task, finish in zip(b.task_id.tolist(), b.finish.tolist(), strict=True):
        last[task] = max(finish, last.get(task, 0))
    submits = dict(zip(records.submits.task_id.tolist(), records.submits.end.tolist(), strict=True))
    assert capture.deps is not None
    preds = {
        task.task_id: [e.pred for e in capture.deps.edges if e.succ == task.task_id] for task in capture.deps.tasks
    }
    rng = np.random.default_rng(0)
    for moment in rng.integers(b.dispatch.min(), b.finish.max(), 40).tolist():
        counts = {}
        for kind in ("aic", "aiv"):
            mine = [n for n in range(len(b)) if records.core_types[b.core_id[n]] == kind]
            busy = sum(b.start[n] <= moment < b.end[n] for n in mine)
            waiting = 0
            for n in mine:
                of = preds[int(b.task_id[n])]
                ready = max([last[p] for p in of] + [submits[int(b.task_id[n])]])
                waiting += bool(of) and ready <= moment < b.dispatch[n]
            counts[kind] = (records.core_types.count(kind) - busy, waiting)
        at = records.us(np.array([moment]))[0]
        seen = {name: int(s.values[np.searchsorted(s.at_us, at, side="right") - 1]) for name, s in steps.items()}
        for kind, (idle, waiting) in counts.items():
            assert (seen[f"oh_{kind}_idle"], seen[f"oh_{kind}_ready"]) == (idle, waiting)
            assert seen[f"oh_{kind}_overhead"] == min(idle, waiting)
        both = [min(pair) > 0 for pair in counts.values()]
        assert (seen["oh_all_overhead"], seen["oh_has_overhead"]) == (all(both), any(both))
    assert steps["oh_has_overhead"].values.any()
