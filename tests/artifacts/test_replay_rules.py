"""Replays of captures that break rules; one origin of times; questions that a capture cannot answer."""

import json

import pytest

from pyptox import PyptoxError, artifacts, chip
from tests.artifacts.edits import SUBSET, change, drop, row, run

RECORDS = "chip_swimlane_records.json"


def _swapped(data):
    row = data["aicore_tasks"][2]
    row[3], row[4] = row[4], row[3]


def _twice(data):
    for key in ("aicore_tasks", "aicpu_tasks"):
        if key in data:
            data[key].append(list(data[key][0]))


@pytest.mark.parametrize("command", ["simulate", "what-if"])
def test_a_row_without_its_partner_is_said_first(capsys, folder, command):
    change(folder / RECORDS, drop("aicpu_tasks", 2))
    more = ["--set", "poll_us=0.05"] if command == "what-if" else []
    code, out, _ = run(capsys, command, "--capture", folder, *more)
    assert code == 1
    assert "the capture breaks rules, 1 errors" in out
    assert "error unpaired-row: chip_swimlane_records.json: aicore_tasks[2]" in out


def _no_rows(data):
    data["aicore_tasks"], data["aicpu_tasks"] = [], []


@pytest.mark.parametrize("edit", [_twice, drop("aicpu_tasks", 2), _no_rows])
@pytest.mark.parametrize("command", ["capture", "explain", "simulate", "what-if"])
def test_a_broken_rule_is_never_exit_0(capsys, folder, command, edit):
    change(folder / RECORDS, edit)
    place = ["--capture", folder] if command != "capture" else [folder]
    code, out, err = run(capsys, command, *place, *(["--set", "poll_us=0.05"] if command == "what-if" else []))
    refused = edit is _no_rows and command in ("simulate", "what-if")  # nothing to simulate
    assert code == (2 if refused else 1)
    assert ("error" in out) != refused
    assert err.startswith("error: ") == refused


def test_stamps_that_are_no_times_are_left_out_of_the_report(capsys, folder):
    whole = json.loads(run(capsys, "capture", folder, "--json")[1])
    change(folder / RECORDS, row("aicpu_tasks", 2, 2, 2**62))
    code, out, _ = run(capsys, "capture", folder, "--json")
    answer = json.loads(out)
    assert code == 1
    assert (answer["left_out"], answer["rows"]) == (1, whole["rows"] - 1)
    assert answer["makespan_us"] <= whole["makespan_us"]
    assert all(one["mean"] is None or one["mean"] >= 0 for one in answer["intervals_us"].values())
    assert "left out  1 records whose stamps are no times" in run(capsys, "explain", "--capture", folder)[1]


def test_findings_are_in_the_json(capsys, folder):
    assert json.loads(run(capsys, "simulate", "--capture", folder, "--json")[1])["findings"] == []
    change(folder / RECORDS, drop("aicpu_tasks", 2))
    found = json.loads(run(capsys, "simulate", "--capture", folder, "--json")[1])["findings"]
    assert [(one["code"], one["record"]) for one in found] == [("unpaired-row", 2)]


@pytest.mark.parametrize("command", ["simulate", "what-if"])
def test_an_end_before_its_start_is_refused(capsys, folder, command):
    change(folder / RECORDS, _swapped)
    more = ["--set", "poll_us=0.05"] if command == "what-if" else []
    code, out, err = run(capsys, command, "--capture", folder, *more)
    assert (code, out) == (2, "")
    assert "aicore_tasks[2]" in err
    assert "must not be before the start" in err


@pytest.fixture(scope="module")
def partial(shared):
    return shared / "captures" / SUBSET


def test_one_origin_in_every_answer(capsys, partial):
    out = run(capsys, "simulate", "--capture", partial)[1]
    replay = artifacts.replay(artifacts.read_capture(partial))
    shown = f"{replay.simulated_us:.2f} µs"
    assert f"simulated {shown}" in out
    assert f"[MODEL] step_us={replay.simulated_us:.3f}" in out
    again = run(capsys, "what-if", "--capture", partial, "--set", "poll_us=0.1")[1]
    assert f"makespan  {shown} before, {shown} after (+0.00 µs, +0.00%); from the first dispatch on" in again
    answer = chip.what_if(replay.timeline, [chip.SetConstant("poll_us", 0.1)], from_us=replay.from_us)
    before, after = (sum(pair[n] for pair in answer.attribution().values()) for n in (0, 1))
    assert (before, after) == pytest.approx((answer.before_us, answer.after_us))


def test_a_question_without_a_free_consumer_is_refused(capsys, partial):
    code, out, err = run(capsys, "what-if", "--capture", partial, "--early-dispatch", "down_proj")
    assert (code, out) == (2, "")
    assert "is no question for this capture" in err
    assert "58 of 58 tasks are held" in err


def test_parts_of_a_task_are_told_apart_and_counted_once(partial):
    replay = artifacts.replay(artifacts.read_capture(partial))
    work = replay.timeline.workload
    assert len(set(work.names)) == work.tasks
    answer = chip.what_if(replay.timeline, [chip.SetDuration("r2t11", 10.0)])
    assert {work.whole(n) for n in range(work.tasks) if work.names[n].startswith("r2t11")} == {"r2t11 task"}
    assert "of 60 tasks moved" in str(answer)
    with pytest.raises(PyptoxError, match="`task` must name"):
        chip.what_if(replay.timeline, [chip.SetDuration("r2t1111", 10.0)])
