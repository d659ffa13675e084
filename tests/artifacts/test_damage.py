"""Damaged and newer files are errors that name the key and the record."""

import json
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyptox import artifacts
from pyptox._errors import PyptoxError
from pyptox.artifacts import ArtifactError
from tests.artifacts.edits import NAMES, as_september_2026, change, codes, drop, put, row, seeds


@pytest.mark.parametrize(
    ("edit", "code", "place"),
    [
        (drop("chip_swimlane_level"), "missing-key", "chip_swimlane_level"),
        (put("chip_swimlane_level", 5), "level", "chip_swimlane_level"),
        (put("chip_swimlane_level", True), "type", "chip_swimlane_level"),
        (drop("metadata"), "missing-key", "metadata"),
        (put("metadata", "clock_freq_hz", 0), "clock", "metadata.clock_freq_hz"),
        (drop("metadata", "clock_freq_hz"), "missing-key", "metadata.clock_freq_hz"),
        (put("metadata", "num_cores", 7), "cores", "metadata.num_cores"),
        (put("metadata", "core_types", 0, "gpu"), "cores", "metadata.core_types"),
        (put("metadata", "core_to_thread", [0]), "cores", "metadata.core_to_thread"),
        (put("metadata", "core_to_thread", 0, 10**12), "cores", "metadata.core_to_thread"),
        (drop("aicore_tasks"), "missing-key", "aicore_tasks"),
        (drop("aicpu_tasks"), "missing-key", "aicpu_tasks"),
        (put("scheduler_tasks", {}), "unexpected-key", "scheduler_tasks"),
        (drop("aicpu_scheduler_phases"), "missing-key", "aicpu_scheduler_phases"),
        (drop("aicpu_orchestrator_phases"), "missing-key", "aicpu_orchestrator_phases"),
        (put("aicore_tasks", 2, [1, 2, 3, 4]), "columns", "aicore_tasks[2]"),
        (put("aicore_tasks", 2, [1, 2, 3, 4, 5]), "columns", "aicore_tasks[2]"),
        (put("aicore_tasks", 2, {}), "columns", "aicore_tasks[2]"),
        (put("aicore_tasks", [[1] * 7]), "columns", "aicore_tasks[0]"),
        (put("aicore_tasks", {}), "type", "aicore_tasks"),
        (row("aicore_tasks", 3, 3, 1.5), "stamp", "aicore_tasks[3]"),
        (row("aicore_tasks", 3, 3, -1), "stamp", "aicore_tasks[3]"),
        (row("aicore_tasks", 3, 3, 2**63), "stamp", "aicore_tasks[3]"),
        (row("aicore_tasks", 3, 1, 2**64), "stamp", "aicore_tasks[3]"),
        (row("aicore_tasks", 3, 5, 2**40), "stamp", "aicore_tasks[3]"),
        (row("aicore_tasks", 3, 0, 6), "core-id", "aicore_tasks[3]"),
        (row("aicpu_tasks", 1, 0, 99), "core-id", "aicpu_tasks[1]"),
        (row("aicpu_tasks", 1, 1, 2**32), "stamp", "aicpu_tasks[1]"),
        (put("aicpu_scheduler_phases", {}), "type", "aicpu_scheduler_phases"),
        (put("aicpu_scheduler_phases", 1, {}), "type", "aicpu_scheduler_phases[1]"),
        (drop("aicpu_scheduler_phases", 0, 0, "kind"), "missing-key", "aicpu_scheduler_phases[0][0].kind"),
        (put("aicpu_scheduler_phases", 0, 0, "loop_iter", "x"), "type", "aicpu_scheduler_phases[0][0].loop_iter"),
        (
            put("aicpu_scheduler_phases", 0, 0, "start_cycles", -3),
            "stamp",
            "aicpu_scheduler_phases[0][0].start_cycles",
        ),
        (
            put("aicpu_scheduler_phases", 0, 0, "shared_at_end", [1]),
            "type",
            "aicpu_scheduler_phases[0][0].shared_at_end",
        ),
        (drop("aicpu_orchestrator_phases", 0, 4, "task_id"), "missing-key", "aicpu_orchestrator_phases[0][4].task_id"),
    ],
)
def test_damaged_records_name_the_key_and_the_record(folder, edit, code, place) -> None:
    path = folder / "chip_swimlane_records.json"
    change(path, edit)
    with pytest.raises(ArtifactError) as caught:
        artifacts.read_records(path)
    assert caught.value.finding.code == code
    assert caught.value.finding.place == f"chip_swimlane_records.json: {place}"
    assert caught.value.finding in artifacts.validate(folder)
    with pytest.raises(ArtifactError):
        artifacts.read_capture(folder)


@pytest.mark.parametrize(
    ("edit", "code", "place"),
    [
        (put("scheduler_tasks", "schema_version", 2), "schema-version", "scheduler_tasks.schema_version"),
        (put("scheduler_records", "schema_version", 2), "schema-version", "scheduler_records.schema_version"),
        (drop("scheduler_records"), "missing-key", "aicpu_scheduler_phases"),
        (drop("scheduler_tasks", "records"), "missing-key", "scheduler_tasks.records"),
        (
            put("scheduler_records", "streams", 1, "scheduler_id", -1),
            "cores",
            "scheduler_records.streams[1].scheduler_id",
        ),
        (put("scheduler_tasks", "records", 1, [1]), "columns", "scheduler_tasks.records[1]"),
        (put("scheduler_tasks", "records", 1, 0, 99), "core-id", "scheduler_tasks.records[1]"),
        (
            put("scheduler_records", "streams", 0, "metrics", 0, "record_index", 99),
            "record-index",
            "scheduler_records.streams[0].metrics[0].record_index",
        ),
        (
            drop("scheduler_records", "streams", 0, "records", 0, "kind"),
            "missing-key",
            "scheduler_records.streams[0].records[0].kind",
        ),
    ],
)
def test_damage_in_the_newer_layout(folder, edit, code, place) -> None:
    path = folder / "chip_swimlane_records.json"
    path.write_text(json.dumps(as_september_2026(json.loads(path.read_text()))))
    change(path, edit)
    with pytest.raises(ArtifactError) as caught:
        artifacts.read_records(path)
    assert (caught.value.finding.code, caught.value.finding.place) == (code, f"chip_swimlane_records.json: {place}")


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "3", '{"a": NaN}', "[" * 100_000, '{"chip_swimlane_level": 1' + "0" * 5000]
)
def test_a_file_that_holds_something_else(folder, text) -> None:
    for name in ("chip_swimlane_records.json", "deps.json", "name_map.json", "dispatch_program.json"):
        before = (folder / name).read_text()
        (folder / name).write_text(text)
        assert codes(artifacts.validate(folder)) & {"json", "type", "missing-key"}
        with pytest.raises(ArtifactError, match=name):
            artifacts.read_capture(folder)
        (folder / name).write_text(before)


@pytest.mark.parametrize(
    ("edit", "code", "place"),
    [
        (put("tasks", 1, "task_id", 5), "type", "tasks[1].task_id"),
        (put("tasks", 1, "task_id", "-5"), "type", "tasks[1].task_id"),
        (put("tasks", 1, "task_id", str(2**64)), "type", "tasks[1].task_id"),
        (put("tasks", 1, 5), "type", "tasks[1]"),
        (put("tasks", 1, "kernel_ids", [1, 2]), "type", "tasks[1].kernel_ids"),
        (put("tasks", 1, "kernel_ids", [1, 2, "3"]), "type", "tasks[1].kernel_ids"),
        (put("tasks", 1, "args", [{"idx": 0}]), "missing-key", "tasks[1].args.type"),
        (put("tasks", 1, "args", [3]), "type", "tasks[1].args"),
        (drop("tasks", 1, "block_num"), "missing-key", "tasks[1].block_num"),
        (drop("tasks"), "missing-key", "tasks"),
        (drop("edges"), "missing-key", "edges"),
        (drop("edges", 2, "source"), "missing-key", "edges[2].source"),
        (put("edges", 2, "flags", "wait"), "type", "edges[2].flags"),
        (put("edges", 2, "flags", [1]), "type", "edges[2].flags"),
        (put("edges", 2, "tensor_id", "x"), "type", "edges[2].tensor_id"),
        (put("edges", 2, "consumer_shape", [1]), "missing-key", "edges[2].consumer_strides"),
        (put("tensors", [{"tensor_id": "1"}]), "missing-key", "tensors[0].buffer_addr"),
    ],
)
def test_damaged_graphs(folder, edit, code, place) -> None:
    change(folder / "deps.json", edit)
    with pytest.raises(ArtifactError) as caught:
        artifacts.read_deps(folder / "deps.json")
    assert (caught.value.finding.code, caught.value.finding.place) == (code, f"deps.json: {place}")


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (drop("callable_id_to_name"), "missing-key"),
        (put("callable_id_to_name", {"x": "a"}), "type"),
        (put("callable_id_to_name", {"1": 2}), "type"),
        (put("level", 4), "level"),
    ],
)
def test_damaged_names(folder, edit, code) -> None:
    change(folder / "name_map.json", edit)
    assert code in codes(artifacts.validate(folder))


VALUES = [None, True, -1, 0, 2**70, 0.5, "", "x", [], {}, [[]], [[1, 2, 3, 4, 5, 6]], [{}], {"schema_version": 1}]


def _spoil(content, rng) -> None:
    """Replace, drop or add something at a random place."""
    while True:
        keys = list(content) if isinstance(content, dict) else range(len(content))
        if not len(keys):
            return
        key = keys[rng.integers(len(keys))]
        if isinstance(content[key], dict | list) and len(content[key]) and rng.integers(4):
            content = content[key]
        elif rng.integers(3):
            content[key] = deepcopy(VALUES[rng.integers(len(VALUES))])
            return
        else:
            del content[key]
            return


def _integers(content, path=()):
    """A path to one integer, or text of digits, of each kind in a file."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        if isinstance(value, dict | list):
            yield from _integers(value, (*path, key))
        elif type(value) is int or (isinstance(value, str) and value.isdigit()):
            yield (*path, key)


@pytest.mark.parametrize("value", [2**62, 2**64])
@pytest.mark.parametrize("newer", [False, True])
def test_every_integer_of_every_file_may_be_absurd(folder, value, newer) -> None:
    """It is a finding, or harmless; never a traceback, a number that is none, or a time that no run has."""
    records = folder / "chip_swimlane_records.json"
    if newer:
        records.write_text(json.dumps(as_september_2026(json.loads(records.read_text()))))
    for name in ("deps.json", "name_map.json", records.name):
        text = (folder / name).read_text()
        kinds = {}
        for path in _integers(json.loads(text)):
            row = path[-2:] if isinstance(path[-1], int) else path[-1:]  # a column of a table, or a field
            kinds.setdefault((path[0], len(path), row[-1]), path)
        assert kinds
        for path in kinds.values():
            content = json.loads(text)
            *steps, last = path
            place = content
            for step in steps:
                place = place[step]
            long = str(value) if value < 2**64 else "9" * 5000  # Python reads no more than 4,300 digits
            place[last] = value if isinstance(place[last], int) else long
            (folder / name).write_text(json.dumps(content))
            found = artifacts.validate(folder)
            try:
                capture = artifacts.read_capture(folder)
            except ArtifactError:
                assert codes(found)
                continue
            answer = artifacts.report(capture)
            assert json.dumps(answer.to_dict(), allow_nan=False)
            assert 0 <= answer.makespan_us < 1e9
            assert all(
                min(column.tolist(), default=0) >= -1.0 for column in (answer.gaps.pickup_us, answer.gaps.fin_us)
            )
            try:
                again = artifacts.replay(capture)
            except PyptoxError:
                assert not answer.passed
            else:
                assert json.dumps(again.to_dict(), allow_nan=False)
                assert again.simulated_us < 1e9
        (folder / name).write_text(text)


@given(seeds, st.sampled_from(["chip_swimlane_records.json", "deps.json", "name_map.json"]), st.booleans())
@settings(deadline=None, max_examples=200)
def test_no_damage_gives_a_traceback(tmp_path_factory, random_run, seed, name, newer) -> None:
    folder = tmp_path_factory.mktemp("spoiled")
    records, deps = random_run(5, tasks=4)
    artifacts.write_records(folder / "chip_swimlane_records.json", records)
    artifacts.write_deps(folder / "deps.json", deps)
    artifacts.write_names(folder / "name_map.json", NAMES)
    rng = np.random.default_rng(seed)
    content = json.loads((folder / name).read_text())
    if newer and "aicpu_tasks" in content:
        content = as_september_2026(content)
    for _ in range(rng.integers(1, 4)):
        _spoil(content, rng)
    (folder / name).write_text(json.dumps(content))
    artifacts.validate(folder, strict=True)
    try:
        result = artifacts.report(artifacts.read_capture(folder))
    except ArtifactError:
        assert codes(artifacts.validate(folder / name))
    else:
        assert str(result)
        assert json.dumps(result.to_dict(), allow_nan=False)
        assert artifacts.swimlane(result.capture)["traceEvents"] is not None
