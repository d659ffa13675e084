"""Each rule of the records is provoked."""

import json

import pytest

from pyptox import artifacts
from tests.artifacts.edits import as_september_2026, change, codes, drop, put, row


def _copy_row(content):
    content["aicore_tasks"].append(content["aicore_tasks"][0])


def _extra_row(content):
    core, task, _, start, end, local = content["aicore_tasks"][0]
    content["aicore_tasks"].append([core, task, 500, start + 10**6, end + 10**6, local])
    content["aicpu_tasks"].append([core, 500, start + 10**6 - 9, end + 10**6])


def _swap_phases(content):
    rows = max(content["aicpu_scheduler_phases"], key=len)
    rows[0]["start_cycles"], rows[0]["end_cycles"] = 10**7, 10**7


def _overlap(content):
    core = content["aicore_tasks"][0][0]
    rows = sorted((row for row in content["aicore_tasks"] if row[0] == core), key=lambda row: row[3])
    rows[0][4] = rows[1][3] + 1


def _partner(content) -> tuple[list, list]:
    """Row 2 of the cores, and the scheduler's row of it."""
    mine = content["aicore_tasks"][2]
    return mine, next(row for row in content["aicpu_tasks"] if row[:2] == [mine[0], mine[2]])


def _dispatched(ticks):
    """So many ticks after the core saw it."""

    def edit(content):
        core, scheduler = _partner(content)
        scheduler[2] = core[3] - core[5] + ticks
        scheduler[3] = max(scheduler[3], scheduler[2])

    return edit


def _seen(ticks):
    """So many ticks before the block ended."""

    def edit(content):
        core, scheduler = _partner(content)
        core[4] = max(core[4], core[3] + ticks)
        scheduler[3] = core[4] - ticks

    return edit


def _renumber(content):
    core = content["aicore_tasks"][0][0]
    for key, column in (("aicore_tasks", 2), ("aicpu_tasks", 1)):
        for entry in content[key]:
            if entry[0] == core:
                entry[column] = 100 - entry[column]


@pytest.mark.parametrize(
    ("edit", "code", "severity", "place"),
    [
        (_copy_row, "duplicate-row", "error", "aicore_tasks["),
        (drop("aicpu_tasks", 2), "unpaired-row", "error", "aicore_tasks[2]"),
        (drop("aicore_tasks", 2), "unpaired-row", "error", "aicpu_tasks[2]"),
        (row("aicpu_tasks", 2, 3, 0), "unpaired-row", "error", "aicore_tasks[2]"),
        (row("aicore_tasks", 2, 4, 0), "stamp", "error", "aicore_tasks[2]"),
        (row("aicore_tasks", 2, 4, 1), "order", "error", "aicore_tasks[2]"),
        (row("aicpu_tasks", 2, 3, 1), "order", "error", "aicore_tasks[2]"),
        (row("aicpu_tasks", 2, 2, 10**9), "order", "error", "aicore_tasks[2]"),
        (_dispatched(1), "order", "warning", "aicore_tasks[2]"),
        (_dispatched(51), "order", "error", "aicore_tasks[2]"),
        (_seen(51), "order", "error", "aicore_tasks[2]"),
        (row("aicpu_tasks", 2, 2, 2**62), "span", "error", "aicore_tasks[2]"),
        (row("aicpu_tasks", 2, 3, 2**62), "span", "error", "aicore_tasks[2]"),
        (row("aicore_tasks", 2, 4, 2**63 - 1), "span", "error", "aicore_tasks[2]"),
        (put("aicpu_scheduler_phases", 0, 0, "end_cycles", 2**62), "span", "error", "aicpu_scheduler_phases[0][0]"),
        (
            put("aicpu_orchestrator_phases", 0, 1, "end_cycles", 2**62),
            "span",
            "error",
            "aicpu_orchestrator_phases[0][1]",
        ),
        (row("aicore_tasks", 2, 1, 9 << 32), "ring", "warning", "aicore_tasks[2]"),
        (row("aicore_tasks", 2, 1, 3 << 32 | 999), "unknown-task", "warning", "aicore_tasks[2].task_token_raw"),
        (_overlap, "overlap", "error", "aicore_tasks["),
        (_renumber, "dispatch-order", "warning", "aicore_tasks["),
        (_extra_row, "row-count", "error", "tasks["),
        (put("metadata", "core_to_thread", []), "core-to-thread", "warning", "metadata.core_to_thread"),
        (drop("metadata", "core_to_thread"), "core-to-thread", "warning", "metadata.core_to_thread"),
        (put("aicpu_scheduler_phases", [[]]), "empty-phases", "warning", "aicpu_scheduler_phases"),
        (put("aicpu_scheduler_phases", 0, 0, "kind", "nap"), "kind", "warning", "aicpu_scheduler_phases[0][0]"),
        (put("aicpu_scheduler_phases", 0, 0, "end_cycles", 1), "order", "error", "aicpu_scheduler_phases[0][0]"),
        (_swap_phases, "phase-order", "warning", "aicpu_scheduler_phases["),
        (put("aicpu_orchestrator_phases", 0, 1, "end_cycles", 1), "order", "error", "aicpu_orchestrator_phases[0][1]"),
        (
            put("aicpu_orchestrator_phases", 0, 1, "task_id", 999),
            "unknown-submit",
            "warning",
            "aicpu_orchestrator_phases[0][1].task_id",
        ),
        (put("aicore_tasks", []), "empty", "error", "aicore_tasks"),
        (put("next", 1), "unexpected-key", "warning", "next"),
    ],
)
def test_rules_of_records(folder, edit, code, severity, place) -> None:
    change(folder / "chip_swimlane_records.json", edit)
    found = [f for f in artifacts.validate(folder) if f.code == code and f.severity == severity]
    assert any(place in finding.place for finding in found), artifacts.validate(folder)


def test_a_task_submitted_twice_and_the_old_name_of_the_level(folder) -> None:
    def edit(content):
        rows = content["aicpu_orchestrator_phases"][0]
        rows[1]["task_id"] = rows[0]["task_id"]
        content["l2_swimlane_level"] = content.pop("chip_swimlane_level")

    change(folder / "chip_swimlane_records.json", edit)
    (folder / "chip_swimlane_records.json").rename(folder / "l2_swimlane_records.json")
    found = artifacts.validate(folder)
    assert {"submit-twice", "old-layout"} <= codes(found, "warning")
    assert artifacts.read_capture(folder).files["records"] == "l2_swimlane_records.json"


def test_lost_records_are_told(folder) -> None:
    path = folder / "chip_swimlane_records.json"
    content = as_september_2026(json.loads(path.read_text()))
    content["scheduler_records"]["streams"][1]["capture"] = {"committed": 1, "dropped": 4, "truncated": True}
    path.write_text(json.dumps(content))
    found = {finding.code: finding for finding in artifacts.validate(folder)}
    assert found["lost-records"].key == "scheduler_records.streams[1].capture"
    assert found["new-layout"].severity == "warning"
    assert {"lost-records", "new-layout"} <= codes(artifacts.validate(folder, strict=True))
