"""What is written reads back equal, and each layout reads alike."""

import json
import time
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pyptox import artifacts
from pyptox.artifacts import Deps, Edge, Task, View
from tests.artifacts.edits import NAMES, NEWER, SUBSET, as_september_2026, codes, seeds


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
