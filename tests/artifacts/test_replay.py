"""Captures run again: measured against simulated, on the real subset, on partial graphs, and what if."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from pyptox import PyptoxError, artifacts, chip
from pyptox.artifacts import Blocks, Deps, Edge, Records, Submits, Task
from tests.artifacts.edits import NEWER, SUBSET, run


@pytest.fixture(scope="module")
def real(shared):
    return artifacts.read_capture(shared / "captures" / SUBSET)


@pytest.fixture(scope="module")
def replayed(real):
    return artifacts.replay(real)


def test_the_real_capture_replays_within_3_us_and_5_percent(replayed):
    assert np.median(np.abs(replayed.start_error_us)) < 3.0
    assert replayed.simulated_us == pytest.approx(replayed.measured_us, rel=0.05)
    assert replayed.measured_us == pytest.approx(848.50)
    assert len(replayed.tasks["task_id"]) == 58
    assert replayed.timeline.clusters == 5


def test_both_layouts_replay_alike(real, replayed, shared):
    newer = artifacts.read_records(shared / "captures" / SUBSET / NEWER)
    again = artifacts.replay(replace(real, records=newer))
    assert again.recorded.work.names == replayed.recorded.work.names
    np.testing.assert_array_equal(again.timeline.times.finish, replayed.timeline.times.finish)


def test_measured_columns_are_a_direct_count(real, replayed):
    rows: dict[int, list] = {}
    b = real.records.blocks
    for task, start, finish in zip(b.task_id.tolist(), b.start.tolist(), b.finish.tolist(), strict=True):
        rows.setdefault(task, []).append((start, finish))
    zero, tasks = real.records.zero, replayed.tasks
    for n, task in enumerate(tasks["task_id"].tolist()):
        assert tasks["blocks"][n] == len(rows[task])
        assert tasks["start_us"][n] == pytest.approx((min(s for s, _ in rows[task]) - zero) * 0.02)
        assert tasks["finish_us"][n] == pytest.approx((max(f for _, f in rows[task]) - zero) * 0.02)
    measured = artifacts.gaps(real.records, real.deps).causes_us
    assert {cause: pair["measured"] for cause, pair in replayed.gap_causes_us.items()} == pytest.approx(
        {cause: float(np.nansum(us)) for cause, us in measured.items()}
    )


def test_what_is_missing_is_said(replayed):
    text = str(replayed)
    assert "missing: rows of 67 of 72 cores" in text
    assert "58 of 58 tasks are taken up when they were measured to be" in text
    content = replayed.to_dict()
    assert json.dumps(content, allow_nan=False)
    assert content["start_error_of_free_tasks_us"]["count"] == 0


def _whole(tmp_path, **changes):
    lists = {
        "shapes": ["AIC", "AIV", "AIC", "AIV"],
        "blocks": [24, 48, 12, 12],
        "duration_us": [30.0, 12.0, 25.0, 9.0],
        "waits": [[], [0], [1], [2]],
        "names": ["t0 gate", "t1 silu", "t2 down", "t3 add"],
    }
    timeline = chip.simulate(chip.Workload.of(**lists | changes))
    artifacts.write_simulation(tmp_path, timeline)
    return artifacts.read_capture(tmp_path)


def test_a_task_without_its_producer_is_held_back_and_its_consumers_are_not(tmp_path):
    capture = _whole(tmp_path)
    assert capture.deps is not None
    b = capture.records.blocks
    kept = b.task_id != 0
    records = replace(capture.records, blocks=Blocks(*(column[kept] for column in vars(b).values())))
    replay = artifacts.replay(replace(capture, records=records))
    assert dict(zip(replay.tasks["task_id"].tolist(), replay.tasks["held"].tolist(), strict=True)) == {
        1: True,
        2: False,
        3: False,
    }
    assert np.abs(replay.start_error_us).max() < 3.0
    work = replay.recorded.work
    assert work.names == ("t1 silu", "t2 down", "t3 add")
    assert work.waits == ((), (0,), (1,))


def test_waves_of_a_task_that_is_held_back_are_taken_up_one_by_one(tmp_path):
    capture = _whole(tmp_path, blocks=[24, 144, 12, 12])
    replay = artifacts.replay(replace(capture, deps=None))
    parts = [n for n, name in enumerate(replay.recorded.work.names) if name.startswith("t1")]
    assert replay.recorded.work.blocks[parts].sum() == 144
    assert 2 <= len(parts) <= 20
    assert replay.simulated_us == pytest.approx(replay.measured_us, rel=0.05)


def test_without_a_graph_every_block_is_held_back(tmp_path):
    capture = _whole(tmp_path)
    replay = artifacts.replay(replace(capture, deps=None))
    assert replay.tasks["held"].all()
    assert np.median(np.abs(replay.start_error_us)) < 3.0


@pytest.mark.parametrize("level", [1, 2, 3])
def test_lower_levels_replay_with_the_schedules_submissions(tmp_path, level):
    capture = _whole(tmp_path)
    replay = artifacts.replay(replace(capture, records=capture.records.at_level(level)))
    assert replay.timeline.workload.submitted_us is None
    assert replay.simulated_us == pytest.approx(replay.measured_us, rel=0.05)
    assert any("submissions" in text for text in replay.assumed)
    assert np.abs(replay.start_error_us).max() < 3.0


def test_allocations_and_dummies_take_part(tmp_path):
    capture = _whole(
        tmp_path,
        shapes=["ALLOC", "AIC", "DUMMY", "AIV"],
        blocks=[0, 24, 0, 12],
        duration_us=[0.0, 30.0, 0.0, 9.0],
        waits=[[], [0], [1], [2]],
        names=["t0 alloc", "t1 gate", "t2 join", "t3 add"],
    )
    replay = artifacts.replay(capture)
    assert sorted(replay.timeline.workload.shapes.tolist()) == [1, 2, 3, 4]
    assert np.abs(replay.start_error_us).max() < 0.1


def test_blocks_that_differ(tmp_path):
    """All at once the longest counts, one after another the mean."""
    zeros, none = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    for rows, expected in ((2, 30.0), (4, 25.0)):
        core = np.arange(rows) % 2
        start = 1000 + np.arange(rows) // 2 * 2000
        end = start + np.array([20, 30] * (rows // 2)) * 50
        blocks = Blocks(
            np.zeros(rows, np.uint64), core, 1 + np.arange(rows) // 2, start, start, end, start - 10, end + 10
        )
        records = Records(
            2,
            50_000_000,
            ("aic", "aic", *["aiv"] * 4),
            blocks,
            artifacts.Phases(*[zeros] * 9, *[zeros] * 2),
            Submits(zeros, zeros, none, zeros, zeros),
        )
        capture = artifacts.Capture(tmp_path, records, Deps((Task(0, (0, -1, -1), rows),)))
        assert artifacts.replay(capture).recorded.work.duration_us.tolist() == [expected]


def test_a_graph_in_circles_is_refused(tmp_path):
    capture = _whole(tmp_path)
    assert capture.deps is not None
    ring = replace(capture.deps, edges=(*capture.deps.edges, Edge(3, 0)))
    with pytest.raises(PyptoxError, match="wait for each other"):
        artifacts.replay(replace(capture, deps=ring))


def test_flags_on_a_recorded_run(tmp_path):
    replay = artifacts.replay(_whole(tmp_path))
    answer = chip.what_if(replay.timeline, [chip.FlagProducer("down")])
    assert answer.staged() == ([], ["t3 add"])
    assert answer.saved_us > 1.0


def test_a_run_of_20800_rows_is_read_and_replayed_in_five_seconds(tmp_path):
    rng = np.random.default_rng(0)
    waits = [rng.integers(n // 12 * 12 - 12, n // 12 * 12, 2).tolist() if n >= 12 else [] for n in range(800)]
    shapes = rng.choice(["AIC", "AIV"], 800).tolist()
    work = chip.Workload.of(shapes, [26] * 800, rng.uniform(5, 40, 800).tolist(), waits)
    artifacts.write_simulation(tmp_path, chip.simulate(work))
    artifacts.replay(artifacts.read_capture(tmp_path))  # compiled
    began = time.process_time()
    replay = artifacts.replay(artifacts.read_capture(tmp_path))
    text = str(replay)
    assert time.process_time() - began < 5.0
    assert len(replay.capture.records.blocks) == 20_800
    assert np.median(np.abs(replay.start_error_us)) < 0.1
    assert "... 776 tasks more" in text


def test_commands_on_a_capture(capsys, tmp_path):
    _whole(tmp_path / "run")
    code, out, _ = run(capsys, "simulate", "--capture", tmp_path / "run", "--out", tmp_path / "again")
    assert code == 0
    assert "makespan  measured" in out
    assert "[MODEL] step_us=" in out
    assert "[RUN]" not in out
    assert artifacts.validate(tmp_path / "again", strict=True) == ()
    code, out, _ = run(capsys, "simulate", "--capture", tmp_path / "run", "--json")
    assert json.loads(out)["start_error_us"]["max"] < 0.1
    code, out, _ = run(capsys, "what-if", "--capture", tmp_path / "run", "--early-dispatch", "down", "--json")
    assert (code, json.loads(out)["staged"]) == (0, {"before": [], "after": ["t3 add"]})
    code, out, _ = run(capsys, "explain", "--capture", tmp_path / "run", "--json", "--out", tmp_path / "copy")
    assert (code, json.loads(out)["passed"]) == (0, True)
    assert artifacts.read_records(tmp_path / "copy" / "chip_swimlane_records.json") == artifacts.read_records(
        tmp_path / "run" / "chip_swimlane_records.json"
    )
    for arguments, message in [
        (["simulate"], "`PROGRAM` must be FILE.py:NAME, or --capture"),
        (["simulate", "x.py:y", "--capture", tmp_path / "run"], "exclude each other"),
        (["simulate", "--capture", tmp_path / "absent"], "`DIR` must be a folder"),
        (["what-if", "--capture", tmp_path / "run"], "needs a change"),
        (["what-if", "--capture", tmp_path / "run", "--early-dispatch", "dawn"], "Try down"),
        (["what-if", "--capture", tmp_path / "run", "--split", "down"], "`--split` must be NAME=VALUE"),
        (["what-if", "--capture", tmp_path / "run", "--remove-edge", "down"], "`--remove-edge` must be PRED,SUCC"),
        (["explain"], "needs a kernel, a program"),
    ]:
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert message in err
