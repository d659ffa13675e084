"""The toolchain's files: what is written reads back equal, each layout reads alike, every rule is provoked."""

import json
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyptox import artifacts, pmu
from pyptox.artifacts import ArtifactError, Deps, Edge, NameMap, Task, View
from pyptox.cli import main

seeds = st.integers(0, 2**32)
NAMES = NameMap({7: "q_proj", 8: "rms", 9: "attn_aic", 10: "attn_aiv", 11: "mix_aic", 12: "mix_aiv"})
SUBSET = "qwen3_decode_layer_a2a3_subset"
NEWER = "chip_swimlane_records.sep2026_layout.json"


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def as_september_2026(content: dict) -> dict:
    """The same records in the layout of September 2026."""
    content = dict(content)
    records = content.pop("aicpu_tasks")
    content["scheduler_tasks"] = {"schema_version": 1, "producer": "aicpu", "records": records}
    streams = []
    for thread, rows in enumerate(content.pop("aicpu_scheduler_phases")):
        metrics = ("pop_hit", "pop_miss", "shared_at_start", "shared_at_end")
        streams.append(
            {
                "scheduler_id": thread,
                "capture": {"committed": len(rows), "dropped": 0, "truncated": False},
                "records": [{"task_id": None} | {k: v for k, v in row.items() if k not in metrics} for row in rows],
                "metrics": [
                    {"record_index": n} | {k: v for k, v in row.items() if k in metrics} for n, row in enumerate(rows)
                ],
            }
        )
    content["scheduler_records"] = {"schema_version": 1, "streams": streams}
    return content


@pytest.fixture
def folder(tmp_path, random_run) -> Path:
    """A whole capture that keeps every rule."""
    records, deps = random_run(3)
    artifacts.write_records(tmp_path / "chip_swimlane_records.json", records)
    artifacts.write_deps(tmp_path / "deps.json", deps)
    artifacts.write_names(tmp_path / "name_map.json", NAMES)
    artifacts.write_program(tmp_path / "dispatch_program.json", "next_levels/decode")
    return tmp_path


def change(path: Path, edit) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def codes(findings, severity: str = "error") -> set[str]:
    return {finding.code for finding in findings if finding.severity == severity}


# --------------------------------------------------------------------------------------------------- round trips


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_what_is_written_reads_back_equal_and_breaks_no_rule(tmp_path_factory, random_run, seed) -> None:
    folder = tmp_path_factory.mktemp("run")
    records, deps = random_run(seed)
    path = folder / "chip_swimlane_records.json"
    artifacts.write_names(folder / "name_map.json", NAMES)
    artifacts.write_deps(folder / "deps.json", deps)
    assert artifacts.read_deps(folder / "deps.json") == deps
    for level in (1, 2, 3, 4):
        artifacts.write_records(path, records, level=level)
        read = artifacts.read_records(path)
        assert read == records.at_level(level)
        assert (read == records) == (level == 4)
        assert all(len(row) == 6 for row in json.loads(path.read_text())["aicore_tasks"])
    assert artifacts.validate(folder, strict=True) == ()


@given(seeds)
@settings(deadline=None, max_examples=20)
def test_the_layouts_read_alike(tmp_path_factory, random_run, seed) -> None:
    records, _ = random_run(seed)
    folder = tmp_path_factory.mktemp("layouts")
    path = folder / "chip_swimlane_records.json"
    artifacts.write_records(path, records)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(as_september_2026(content)))
    newer = artifacts.read_records(path)
    assert newer == records
    assert newer.layout == "2026-09"
    content["aicore_tasks"] = [row[:5] for row in content["aicore_tasks"]]
    path.write_text(json.dumps(content))
    older = artifacts.read_records(path)
    assert older.layout == "v2"
    assert older == replace(records, blocks=replace(records.blocks, receive=records.blocks.start))


views = st.integers(0, 5).flatmap(
    lambda n: st.builds(
        View,
        st.tuples(*[st.integers(0, 99)] * n),
        st.tuples(*[st.integers(1, 99)] * n),
        st.integers(0, 2**40),
        st.sampled_from(["FLOAT16", "INT8"]),
    )
)


@given(views, views, st.integers(0, 2**64 - 1), st.sampled_from(["covered", "other"]))
def test_graphs_with_tensors_read_back_equal(tmp_path_factory, one, other, tensor, overlap) -> None:
    path = tmp_path_factory.mktemp("deps") / "deps.json"
    argument = artifacts.Argument(0, "INOUT", tensor, one)
    scalar = artifacts.Argument(1, "UNKNOWN")
    edges = (
        Edge(1, 2**63 + 1),
        Edge(1, 2**63 + 1, 0, "creator", tensor_id=tensor, consumer=one),
        Edge(1, 2**63 + 1, 0, "tensormap", ("wait",), overlap, tensor, one, replace(other, dtype=None)),
    )
    tensors = (artifacts.Tensor(tensor, "0x12c0", 3, "FLOAT16", 4096),)
    deps = Deps(
        (Task(1, (0, -1, -1)), Task(2**63 + 1, (0, 1, 1), 4, "manual", True, (argument, scalar))), tensors, edges
    )
    artifacts.write_deps(path, deps)
    assert artifacts.read_deps(path) == deps
    assert path.read_text().count("\n") == 1
    assert artifacts.validate(path, strict=True) == ()


def test_large_stamps_and_ids_are_exact(tmp_path, random_run) -> None:
    records, _ = random_run(1, tasks=2)
    far = 2**62 + 1
    blocks = records.blocks
    moved = {name: getattr(blocks, name) + far for name in ("receive", "start", "end", "dispatch", "finish")}
    token = blocks.task_id + np.uint64(2**63)
    records = replace(records.at_level(2), blocks=replace(blocks, task_id=token, **moved))
    artifacts.write_records(tmp_path / "chip_swimlane_records.json", records)
    read = artifacts.read_records(tmp_path / "chip_swimlane_records.json")
    assert read == records
    assert np.nanmin([read.table[name].min() for name in ("dispatch", "receive")]) == 0.0


def test_host_orchestration_is_kept(tmp_path, random_run) -> None:
    records, _ = random_run(1)
    host = {"host_orchestrator_phases": [[{"submit_idx": 0, "task_id": 1, "start_host_ns": 5, "end_host_ns": 9}]]}
    empty = artifacts.Submits(*(column[:0] for column in vars(records.submits).values()))
    records = replace(records, submits=empty, orchestrators=0, host=host, metadata={"orchestrator_source": "host"})
    artifacts.write_records(tmp_path / "chip_swimlane_records.json", records)
    assert artifacts.read_records(tmp_path / "chip_swimlane_records.json") == records


def test_names_and_programs(tmp_path) -> None:
    artifacts.write_names(tmp_path / "name_map.json", replace(NAMES, level=3, orchestrator_name="run"))
    assert artifacts.read_names(tmp_path / "name_map.json") == replace(NAMES, level=3, orchestrator_name="run")
    artifacts.write_program(tmp_path / "dispatch_program.json", "a/b")
    assert artifacts.read_program(tmp_path / "dispatch_program.json") == "a/b"


def test_a_large_capture_reads_fast(tmp_path, random_run) -> None:
    records, _ = random_run(0, tasks=6500, blocks=4, aic=24)
    rows = len(records.blocks)
    assert rows > 20_800
    path = tmp_path / "chip_swimlane_records.json"
    artifacts.write_records(path, records)
    began = time.perf_counter()
    read = artifacts.read_records(path)
    assert time.perf_counter() - began < 1.0
    assert len(read.table["start"]) == rows


# ------------------------------------------------------------------------------------------------------- damage


def _row(key, number, column, value):
    def edit(content):
        content[key][number][column] = value

    return edit


def _put(*path_and_value):
    *path, last, value = path_and_value

    def edit(content):
        for step in path:
            content = content[step]
        content[last] = value

    return edit


def _drop(*path):
    *path, last = path

    def edit(content):
        for step in path:
            content = content[step]
        del content[last]

    return edit


@pytest.mark.parametrize(
    ("edit", "code", "place"),
    [
        (_drop("chip_swimlane_level"), "missing-key", "chip_swimlane_level"),
        (_put("chip_swimlane_level", 5), "level", "chip_swimlane_level"),
        (_put("chip_swimlane_level", True), "type", "chip_swimlane_level"),
        (_drop("metadata"), "missing-key", "metadata"),
        (_put("metadata", "clock_freq_hz", 0), "clock", "metadata.clock_freq_hz"),
        (_drop("metadata", "clock_freq_hz"), "missing-key", "metadata.clock_freq_hz"),
        (_put("metadata", "num_cores", 7), "cores", "metadata.num_cores"),
        (_put("metadata", "core_types", 0, "gpu"), "cores", "metadata.core_types"),
        (_put("metadata", "core_to_thread", [0]), "cores", "metadata.core_to_thread"),
        (_put("metadata", "core_to_thread", 0, 10**12), "cores", "metadata.core_to_thread"),
        (_drop("aicore_tasks"), "missing-key", "aicore_tasks"),
        (_drop("aicpu_tasks"), "missing-key", "aicpu_tasks"),
        (_put("scheduler_tasks", {}), "unexpected-key", "scheduler_tasks"),
        (_drop("aicpu_scheduler_phases"), "missing-key", "aicpu_scheduler_phases"),
        (_drop("aicpu_orchestrator_phases"), "missing-key", "aicpu_orchestrator_phases"),
        (_put("aicore_tasks", 2, [1, 2, 3, 4]), "columns", "aicore_tasks[2]"),
        (_put("aicore_tasks", 2, [1, 2, 3, 4, 5]), "columns", "aicore_tasks[2]"),
        (_put("aicore_tasks", 2, {}), "columns", "aicore_tasks[2]"),
        (_put("aicore_tasks", [[1] * 7]), "columns", "aicore_tasks[0]"),
        (_put("aicore_tasks", {}), "type", "aicore_tasks"),
        (_row("aicore_tasks", 3, 3, 1.5), "stamp", "aicore_tasks[3]"),
        (_row("aicore_tasks", 3, 3, -1), "stamp", "aicore_tasks[3]"),
        (_row("aicore_tasks", 3, 3, 2**63), "stamp", "aicore_tasks[3]"),
        (_row("aicore_tasks", 3, 1, 2**64), "stamp", "aicore_tasks[3]"),
        (_row("aicore_tasks", 3, 5, 2**40), "stamp", "aicore_tasks[3]"),
        (_row("aicore_tasks", 3, 0, 6), "core-id", "aicore_tasks[3]"),
        (_row("aicpu_tasks", 1, 0, 99), "core-id", "aicpu_tasks[1]"),
        (_row("aicpu_tasks", 1, 1, 2**32), "stamp", "aicpu_tasks[1]"),
        (_put("aicpu_scheduler_phases", {}), "type", "aicpu_scheduler_phases"),
        (_put("aicpu_scheduler_phases", 1, {}), "type", "aicpu_scheduler_phases[1]"),
        (_drop("aicpu_scheduler_phases", 0, 0, "kind"), "missing-key", "aicpu_scheduler_phases[0][0].kind"),
        (_put("aicpu_scheduler_phases", 0, 0, "loop_iter", "x"), "type", "aicpu_scheduler_phases[0][0].loop_iter"),
        (
            _put("aicpu_scheduler_phases", 0, 0, "start_cycles", -3),
            "stamp",
            "aicpu_scheduler_phases[0][0].start_cycles",
        ),
        (
            _put("aicpu_scheduler_phases", 0, 0, "shared_at_end", [1]),
            "type",
            "aicpu_scheduler_phases[0][0].shared_at_end",
        ),
        (_drop("aicpu_orchestrator_phases", 0, 4, "task_id"), "missing-key", "aicpu_orchestrator_phases[0][4].task_id"),
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
        (_put("scheduler_tasks", "schema_version", 2), "schema-version", "scheduler_tasks.schema_version"),
        (_put("scheduler_records", "schema_version", 2), "schema-version", "scheduler_records.schema_version"),
        (_drop("scheduler_records"), "missing-key", "aicpu_scheduler_phases"),
        (_drop("scheduler_tasks", "records"), "missing-key", "scheduler_tasks.records"),
        (
            _put("scheduler_records", "streams", 1, "scheduler_id", -1),
            "cores",
            "scheduler_records.streams[1].scheduler_id",
        ),
        (_put("scheduler_tasks", "records", 1, [1]), "columns", "scheduler_tasks.records[1]"),
        (_put("scheduler_tasks", "records", 1, 0, 99), "core-id", "scheduler_tasks.records[1]"),
        (
            _put("scheduler_records", "streams", 0, "metrics", 0, "record_index", 99),
            "record-index",
            "scheduler_records.streams[0].metrics[0].record_index",
        ),
        (
            _drop("scheduler_records", "streams", 0, "records", 0, "kind"),
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
        (_put("tasks", 1, "task_id", 5), "type", "tasks[1].task_id"),
        (_put("tasks", 1, "task_id", "-5"), "type", "tasks[1].task_id"),
        (_put("tasks", 1, "task_id", str(2**64)), "type", "tasks[1].task_id"),
        (_put("tasks", 1, 5), "type", "tasks[1]"),
        (_put("tasks", 1, "kernel_ids", [1, 2]), "type", "tasks[1].kernel_ids"),
        (_put("tasks", 1, "kernel_ids", [1, 2, "3"]), "type", "tasks[1].kernel_ids"),
        (_put("tasks", 1, "args", [{"idx": 0}]), "missing-key", "tasks[1].args.type"),
        (_put("tasks", 1, "args", [3]), "type", "tasks[1].args"),
        (_drop("tasks", 1, "block_num"), "missing-key", "tasks[1].block_num"),
        (_drop("tasks"), "missing-key", "tasks"),
        (_drop("edges"), "missing-key", "edges"),
        (_drop("edges", 2, "source"), "missing-key", "edges[2].source"),
        (_put("edges", 2, "flags", "wait"), "type", "edges[2].flags"),
        (_put("edges", 2, "flags", [1]), "type", "edges[2].flags"),
        (_put("edges", 2, "tensor_id", "x"), "type", "edges[2].tensor_id"),
        (_put("edges", 2, "consumer_shape", [1]), "missing-key", "edges[2].consumer_strides"),
        (_put("tensors", [{"tensor_id": "1"}]), "missing-key", "tensors[0].buffer_addr"),
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
        (_drop("callable_id_to_name"), "missing-key"),
        (_put("callable_id_to_name", {"x": "a"}), "type"),
        (_put("callable_id_to_name", {"1": 2}), "type"),
        (_put("level", 4), "level"),
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


# -------------------------------------------------------------------------------------------------------- rules


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


def _renumber(content):
    core = content["aicore_tasks"][0][0]
    for key, column in (("aicore_tasks", 2), ("aicpu_tasks", 1)):
        for row in content[key]:
            if row[0] == core:
                row[column] = 100 - row[column]


@pytest.mark.parametrize(
    ("edit", "code", "severity", "place"),
    [
        (_copy_row, "duplicate-row", "error", "aicore_tasks["),
        (_drop("aicpu_tasks", 2), "unpaired-row", "error", "aicore_tasks[2]"),
        (_drop("aicore_tasks", 2), "unpaired-row", "error", "aicpu_tasks[2]"),
        (_row("aicpu_tasks", 2, 3, 0), "unpaired-row", "error", "aicore_tasks[2]"),
        (_row("aicore_tasks", 2, 4, 0), "stamp", "error", "aicore_tasks[2]"),
        (_row("aicore_tasks", 2, 4, 1), "order", "error", "aicore_tasks[2]"),
        (_row("aicpu_tasks", 2, 3, 1), "order", "error", "aicore_tasks[2]"),
        (_row("aicpu_tasks", 2, 2, 10**9), "order", "warning", "aicore_tasks[2]"),
        (_row("aicore_tasks", 2, 1, 9 << 32), "ring", "warning", "aicore_tasks[2]"),
        (_row("aicore_tasks", 2, 1, 3 << 32 | 999), "unknown-task", "warning", "aicore_tasks[2].task_token_raw"),
        (_overlap, "overlap", "error", "aicore_tasks["),
        (_renumber, "dispatch-order", "warning", "aicore_tasks["),
        (_extra_row, "row-count", "error", "tasks["),
        (_put("metadata", "core_to_thread", []), "core-to-thread", "warning", "metadata.core_to_thread"),
        (_drop("metadata", "core_to_thread"), "core-to-thread", "warning", "metadata.core_to_thread"),
        (_put("aicpu_scheduler_phases", [[]]), "empty-phases", "warning", "aicpu_scheduler_phases"),
        (_put("aicpu_scheduler_phases", 0, 0, "kind", "nap"), "kind", "warning", "aicpu_scheduler_phases[0][0]"),
        (_put("aicpu_scheduler_phases", 0, 0, "end_cycles", 1), "order", "error", "aicpu_scheduler_phases[0][0]"),
        (_swap_phases, "phase-order", "warning", "aicpu_scheduler_phases["),
        (_put("aicpu_orchestrator_phases", 0, 1, "end_cycles", 1), "order", "error", "aicpu_orchestrator_phases[0][1]"),
        (
            _put("aicpu_orchestrator_phases", 0, 1, "task_id", 999),
            "unknown-submit",
            "warning",
            "aicpu_orchestrator_phases[0][1].task_id",
        ),
        (_put("aicore_tasks", []), "empty", "error", "aicore_tasks"),
        (_put("next", 1), "unexpected-key", "warning", "next"),
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


VIEW = {"dtype": "FLOAT16", "shape": [2], "start_offset": "0", "strides": [1]}


def _tensormap(**more):
    consumer = {f"consumer_{key}": value for key, value in VIEW.items()}
    producer = {f"producer_{key}": value for key, value in VIEW.items() if key != "dtype"}
    edge = {"arg": 0, "source": "tensormap", "flags": ["wait"], "overlap": "other", "tensor_id": "1"}

    def edit(content):
        content["edges"][0] |= edge | consumer | producer | more

    return edit


def _argument(**more):
    def edit(content):
        content["tasks"][1]["args"] = [{"idx": 0, "type": "INPUT", "tensor_id": "1"} | VIEW | more]

    return edit


def _turn(content):
    edge = content["edges"][0]
    content["edges"].append(edge | {"pred": edge["succ"], "succ": edge["pred"]})


def _self(content):
    content["edges"][0]["succ"] = content["edges"][0]["pred"]


def _absent(content):
    task = content["tasks"][2]
    task["task_id"] = "777"


TENSOR = {"tensor_id": "1", "buffer_addr": "1", "version": 0, "dtype": "INT8", "buffer_numel": "4"}


@pytest.mark.parametrize(
    ("edit", "code", "severity", "place"),
    [
        (_put("tasks", 1, "scope", "loose"), "scope", "error", "tasks[1].scope"),
        (_put("tasks", 1, "block_num", 0), "block-num", "error", "tasks[1].block_num"),
        (_put("tasks", 1, "kernel_ids", [-2, 0, 0]), "kernel-ids", "error", "tasks[1].kernel_ids"),
        (_argument(), "unknown-tensor", "warning", "tasks[1].args.tensor_id"),
        (_argument(type="BOTH"), "arg-type", "error", "tasks[1].args.type"),
        (_argument(strides=[0]), "strides", "error", "tasks[1].args.strides"),
        (_argument(shape=[1] * 6, strides=[1] * 6), "dimensions", "error", "tasks[1].args.shape"),
        (_argument(shape=[1] * 2), "dimensions", "error", "tasks[1].args.strides"),
        (_argument(shape=[-1]), "shape", "error", "tasks[1].args.shape"),
        (_argument(dtype="FLOAT7"), "dtype", "warning", "tasks[1].args.dtype"),
        (_put("tensors", [TENSOR, TENSOR]), "duplicate-tensor", "error", "tensors[1].tensor_id"),
        (_put("tensors", [TENSOR | {"dtype": "X"}]), "dtype", "warning", "tensors[0].dtype"),
        (_put("edges", 0, "pred", "777"), "unknown-pred", "warning", "edges[0].pred"),
        (_put("edges", 0, "succ", "777"), "unknown-succ", "error", "edges[0].succ"),
        (_put("edges", 0, "source", "guess"), "source", "error", "edges[0].source"),
        (_put("edges", 0, "flags", ["wait", "go"]), "flags", "error", "edges[0].flags"),
        (_put("edges", 0, "flags", ["wait", "wait"]), "flags", "error", "edges[0].flags"),
        (_put("edges", 0, "flags", ["wait"]), "flags", "warning", "edges[0].flags"),
        (_put("edges", 0, "overlap", "covered"), "overlap", "error", "edges[0].overlap"),
        (_put("edges", 0, "arg", 0), "arg", "error", "edges[0].arg"),
        (_tensormap(overlap="some"), "overlap", "error", "edges[0].overlap"),
        (_tensormap(arg=-1), "arg", "error", "edges[0].arg"),
        (_tensormap(), "unknown-tensor", "warning", "edges[0].tensor_id"),
        (_tensormap(consumer_strides=[-1]), "strides", "error", "edges[0].consumer_strides"),
        (_tensormap(producer_shape=[1, 1]), "dimensions", "error", "edges[0].producer_strides"),
        (_tensormap(source="explicit", arg=-1), "edge-view", "error", "edges[0].tensor_id"),
        (_tensormap(source="creator"), "edge-view", "error", "edges[0].producer_shape"),
        (_turn, "cycle", "error", "edges["),
        (_turn, "happens-before", "warning", "edges["),
        (_self, "self-edge", "error", "edges[0].succ"),
        (_absent, "no-rows", "warning", "tasks[2]"),
        (_put("tasks", 1, "kernel_ids", [77, -1, -1]), "unnamed-kernel", "warning", "tasks[1].kernel_ids"),
        (_put("tasks", 0, "block_num", 9), "partial-task", "warning", "tasks[0]"),
    ],
)
def test_rules_of_graphs(folder, edit, code, severity, place) -> None:
    change(folder / "deps.json", edit)
    found = [f for f in artifacts.validate(folder) if f.code == code and f.severity == severity]
    assert any(place in finding.place for finding in found), artifacts.validate(folder)


def test_a_task_listed_twice(folder) -> None:
    def edit(content):
        content["tasks"].append(content["tasks"][0])

    change(folder / "deps.json", edit)
    assert "duplicate-task" in codes(artifacts.validate(folder / "deps.json"))


def test_siblings(folder) -> None:
    assert artifacts.validate(folder, strict=True) == ()
    artifacts.write_names(folder / "name_map_decode.json", NAMES)
    assert codes(artifacts.validate(folder), "warning") == {"several-names"}
    assert artifacts.read_capture(folder).names is None
    for path in folder.glob("name_map*"):
        path.unlink()
    (folder / "deps.json").unlink()
    found = artifacts.validate(folder)
    assert [finding.file for finding in found] == ["deps.json", "name_map*.json"]
    assert codes(artifacts.validate(folder, strict=True)) == {"missing-file"}
    assert len(artifacts.read_capture(folder).missing) == 2
    (folder / "chip_swimlane_records.json").unlink()
    assert codes(artifacts.validate(folder)) == {"missing-file"}
    with pytest.raises(FileNotFoundError, match="`DIR` must hold"):
        artifacts.read_capture(folder)
    with pytest.raises(FileNotFoundError, match="`path` must be"):
        artifacts.validate(folder / "absent")
    (folder / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="`path` must be named"):
        artifacts.validate(folder / "other.json")


def test_a_folder_above_a_run_is_an_error_that_names_it(folder) -> None:
    run_folder = folder.parent / "above" / "rank0" / "d0"
    run_folder.mkdir(parents=True)
    (folder / "chip_swimlane_records.json").rename(run_folder / "chip_swimlane_records.json")
    with pytest.raises(FileNotFoundError, match=r"Try '.*d0'"):
        artifacts.read_capture(folder.parent / "above")


def test_counters_beside_the_records(folder) -> None:
    deps = artifacts.read_deps(folder / "deps.json")
    task = next(task for task in deps.tasks if task.rows)
    kernel = max(task.kernel_ids)
    rows = [
        pmu.Row(0, 0, task_id, func_id, "AIC", 9, {"icache_req": 3})
        for task_id, func_id in ((task.task_id, kernel), (task.task_id, 99), (12345, kernel))
    ]
    pmu.write(folder / "pmu.csv", pmu.Capture(2, ("icache_req",), tuple(rows)))
    capture = artifacts.read_capture(folder)
    assert capture.pmu is not None
    assert len(capture.pmu.rows) == 3
    found = artifacts.validate(folder)
    assert [(f.code, f.place) for f in found] == [
        ("kernel", "pmu.csv: [1].func_id"),
        ("unknown-task", "pmu.csv: [2].task_id"),
    ]
    (folder / "pmu.csv").write_text("thread_id\n1\n")
    assert codes(artifacts.validate(folder)) == codes(artifacts.validate(folder / "pmu.csv")) == {"pmu"}


def test_lower_levels_are_findings_where_strict(folder) -> None:
    path = folder / "chip_swimlane_records.json"
    artifacts.write_records(path, artifacts.read_records(path), level=2)
    assert artifacts.validate(folder) == ()
    assert codes(artifacts.validate(folder, strict=True)) == {"level-below-4"}
    with pytest.raises(ValueError, match="`level` must be from 1 to 2"):
        artifacts.write_records(path, artifacts.read_records(path), level=3)


def test_what_breaks_a_rule_is_not_written(folder) -> None:
    path = folder / "chip_swimlane_records.json"
    records, before = artifacts.read_records(path), path.read_bytes()
    finish = records.blocks.finish.copy()
    finish[4] = 0
    with pytest.raises(ArtifactError, match=r"aicore_tasks\[4\]"):
        artifacts.write_records(path, replace(records, blocks=replace(records.blocks, finish=finish)))
    assert path.read_bytes() == before
    with pytest.raises(ArtifactError, match=r"tasks\[1\].task_id"):
        artifacts.write_deps(folder / "deps.json", Deps((Task(1), Task(1))))


# --------------------------------------------------------------------------------------------------------- logs

tenths = st.integers(0, 10**9).map(lambda n: n / 10)
statistics = st.builds(artifacts.Statistics, tenths, tenths, tenths, tenths)
ranks = st.sampled_from(["0", "1", "4711"])


@given(st.data())
def test_run_lines(data) -> None:
    timed = data.draw(st.booleans())
    rounds = artifacts.Rounds(
        rounds=data.draw(st.integers(1, 999)) if timed else None,
        effective_us=data.draw(statistics) if timed else None,
        unavailable=None if timed else "no device timing",
        ranks=data.draw(st.dictionaries(ranks, statistics | st.none())),
        raw=data.draw(st.dictionaries(ranks, st.lists(tenths, max_size=3).map(tuple))),
        warmup=data.draw(st.integers(0, 9)),
    )
    slots = data.draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, "decode (fwd)"]), statistics)))
    owners = list(rounds.ranks)[:1] or [""]
    rounds = replace(rounds, slots=tuple((owners[0], *slot) for slot in slots))
    assert artifacts.parse_rounds("noise\n" + artifacts.format_rounds(rounds)) == rounds


def test_run_lines_as_printed() -> None:
    text = """12:00:01 [RUN] benchmark kernel=decode l3=1 rounds=100 ranks=2
[RUN]   effective_us (100 rounds) min=902.9 median=931.0 mean=940.5 max=1016.7
[RUN]     rank 77: eff_us min=902.9 median=931.0 mean=940.5 max=1016.7
[RUN]       slot 0 (decode): eff_us min=1.0 median=2.0 mean=3.0 max=4.0
[RUN]     rank 78: (no timing)
[RUN]   raw samples: ranks=1 rounds=100 warmup=5
[RUN]     rank 77 raw n=2 eff_us=[902.9, 1016.7]"""
    rounds = artifacts.parse_rounds(text)
    assert rounds is not None
    assert rounds.effective_us == artifacts.Statistics(902.9, 931.0, 940.5, 1016.7)
    assert rounds.ranks["78"] is None
    assert rounds.slots[0][:3] == ("77", 0, "decode")
    assert rounds.raw == {"77": (902.9, 1016.7)}
    assert "\n".join(text.splitlines()[1:]) == artifacts.format_rounds(rounds)
    assert artifacts.parse_rounds("nothing here") is None
    with pytest.raises(ValueError, match="n=3 samples; got 1"):
        artifacts.parse_rounds("[RUN]     rank 77 raw n=3 eff_us=[902.9]")


words = st.text("abc_.0123456789", min_size=1, max_size=8)
spans = st.builds(
    artifacts.Span,
    words,
    st.integers(0, 2**60),
    st.integers(0, 2**60),
    words,
    words,
    words,
    words,
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(["clk", "rank"]), words),
)


@given(st.lists(spans, max_size=4))
def test_strace_lines(made) -> None:
    assert artifacts.parse_spans("\n".join(f"ERR {artifacts.format_span(span)}" for span in made)) == made


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[STRACE] v=1 pid=1", "must have `tid`"),
        ("[STRACE] v=2 pid=1 tid=1 inv=0 hid=0 depth=0 name=a ts=1 dur=1", "`v` must be 1"),
        ("[STRACE] v=1 pid=1 tid=1 inv=0 hid=0 depth=0 name=a ts=1.5 dur=1", "must be integers"),
    ],
)
def test_bad_strace_lines(line, message) -> None:
    with pytest.raises(ValueError, match=message):
        artifacts.parse_spans("fine\n" + line)
    with pytest.raises(ValueError, match="one word"):
        artifacts.format_span(artifacts.Span("a b", 0, 0))


# ---------------------------------------------------------------------------------------------------- swimlanes


@given(seeds)
@settings(deadline=None, max_examples=20)
def test_swimlanes(tmp_path_factory, random_run, seed) -> None:
    records, deps = random_run(seed)
    folder = tmp_path_factory.mktemp("lanes")
    capture = artifacts.Capture(folder, records, deps, NAMES)
    artifacts.write_swimlane(folder / "merged_swimlane.json", capture)
    content = json.loads((folder / "merged_swimlane.json").read_text())
    assert list(content) == ["traceEvents"]
    events = content["traceEvents"]
    workers = [e for e in events if e["ph"] == "X" and e["pid"] == 4 and e["tid"] < 19000]
    assert len(workers) == len(records.blocks)
    assert sorted(e["args"]["taskId"] for e in workers) == sorted(records.blocks.task_id.tolist())
    windows = [e for e in events if e["ph"] == "X" and e["pid"] == 3]
    assert len(windows) == len(records.blocks)
    by_lane: dict = {}
    for event in sorted(windows, key=lambda e: e["ts"]):
        assert by_lane.get(event["tid"], -1) <= event["ts"] + 1e-6
        by_lane[event["tid"]] = event["ts"] + event["dur"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"AICPU Orchestrator", "Scheduler View", "Worker View"} <= names
    ran = set(records.blocks.task_id.tolist())
    flows = [e for e in events if e["ph"] == "s" and e["name"] in ("dependency", "hb_violation")]
    assert len(flows) == len({(e.pred, e.succ) for e in deps.edges if {e.pred, e.succ} <= ran})
    assert all(e["name"] == "dependency" for e in flows)
    sent, arrived = ({e["id"] for e in events if e["ph"] == phase} for phase in "sf")
    assert sent == arrived


def test_labels_and_violations(tmp_path, random_run) -> None:
    records, _ = random_run(2, tasks=2)
    first, second = (int(n) for n in dict.fromkeys(records.blocks.task_id[np.argsort(records.blocks.start)].tolist()))
    deps = Deps((Task(first, (7, 8, 12), 4), Task(second, (99, 99, -1))), (), (Edge(second, first),))
    capture = artifacts.Capture(tmp_path, records, deps, NAMES)
    events = artifacts.swimlane(capture)["traceEvents"]
    assert next(e["name"] for e in events if e["ph"] == "s" and e["cat"] == "flow") == "hb_violation"
    names = {e["name"] for e in events if e.get("cat") == "event"}
    assert any(name.startswith(("q_proj_spmd(", "rms_spmd(")) for name in names)
    assert any(name.startswith("func_99_a") for name in names)
    bare = artifacts.swimlane(artifacts.Capture(tmp_path, records.at_level(1)))["traceEvents"]
    assert {e["pid"] for e in bare} == {4}
    assert all(e["name"].startswith("task(") for e in bare if e["ph"] == "X")


# ------------------------------------------------------------------------------------------------ the real subset


def test_the_real_capture_reads_alike_in_both_layouts(shared, tmp_path) -> None:
    folder = shared / "captures" / SUBSET
    capture = artifacts.read_capture(folder)
    newer = artifacts.read_records(folder / NEWER)
    assert newer == capture.records
    assert (newer.layout, capture.records.layout) == ("2026-09", "v3")
    records = capture.records
    assert (len(records.blocks), len(records.submits), len(records.phases)) == (110, 146, 57)
    assert capture.deps is not None
    assert (len(capture.deps.tasks), len(capture.deps.edges)) == (106, 174)
    assert len(capture.missing) == 3
    assert not codes(artifacts.validate(folder))
    assert {"unknown-task", "no-rows"} <= codes(artifacts.validate(folder, strict=True))
    artifacts.write_records(tmp_path / "chip_swimlane_records.json", newer)
    artifacts.write_deps(tmp_path / "deps.json", capture.deps)
    assert artifacts.read_records(tmp_path / "chip_swimlane_records.json") == records
    assert artifacts.read_deps(tmp_path / "deps.json") == capture.deps
    source, made = (json.loads((f / "chip_swimlane_records.json").read_text()) for f in (folder, tmp_path))
    for content in (source, made):
        content["aicpu_tasks"].sort()
    assert source == made
    source, made = (json.loads((f / "deps.json").read_text()) for f in (folder, tmp_path))
    assert source == made


# ------------------------------------------------------------------------------------------------- command line


def test_command(capsys, folder) -> None:
    out_folder = folder / "out" / "lanes"
    code, out, err = run(capsys, "capture", folder, "--strict", "--out", out_folder)
    assert (code, err) == (0, "")
    assert out.startswith("next_levels/decode: ")
    assert "no rule is broken" in out
    assert json.loads((out_folder / "merged_swimlane.json").read_text())["traceEvents"]
    code, out, _ = run(capsys, "capture", folder, "--json")
    answer = json.loads(out)
    assert (code, answer["passed"]) == (0, True)
    assert sum(answer["path"]["by_cause_us"].values()) == pytest.approx(answer["makespan_us"])
    assert json.dumps(answer, allow_nan=False)
    (folder / "deps.json").unlink()
    code, out, _ = run(capsys, "capture", folder)
    assert code == 0
    assert "early dispatch: cannot be told" in out
    assert run(capsys, "capture", folder, "--strict")[0] == 1


def test_command_with_findings(capsys, folder) -> None:
    change(folder / "chip_swimlane_records.json", _drop("aicpu_tasks", 2))
    code, out, _ = run(capsys, "capture", folder)
    assert code == 1
    assert "error unpaired-row: chip_swimlane_records.json: aicore_tasks[2]" in out
    code, out, _ = run(capsys, "capture", folder, "--json")
    assert (code, json.loads(out)["findings"][0]["record"]) == (1, 2)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_command_on_lower_levels(capsys, folder, level) -> None:
    path = folder / "chip_swimlane_records.json"
    artifacts.write_records(path, artifacts.read_records(path), level=level)
    code, out, _ = run(capsys, "capture", folder, "--json")
    assert (code, json.loads(out)["level"]) == (0, level)
    assert run(capsys, "capture", folder)[0] == 0


def test_command_on_what_it_cannot_read(capsys, folder) -> None:
    (folder / "chip_swimlane_records.json").write_text("{}")
    for path in (folder, folder / "absent", folder / "deps.json"):
        code, out, err = run(capsys, "capture", path)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert "Traceback" not in err
