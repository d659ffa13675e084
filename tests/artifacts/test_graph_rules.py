"""Each rule of the graph, and of the files beside each other, is provoked."""

from dataclasses import replace

import pytest

from pyptox import artifacts, pmu
from pyptox.artifacts import ArtifactError, Deps, Task
from tests.artifacts.edits import NAMES, change, codes, put

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
        (put("tasks", 1, "scope", "loose"), "scope", "error", "tasks[1].scope"),
        (put("tasks", 1, "block_num", 0), "block-num", "error", "tasks[1].block_num"),
        (put("tasks", 1, "kernel_ids", [-2, 0, 0]), "kernel-ids", "error", "tasks[1].kernel_ids"),
        (_argument(), "unknown-tensor", "warning", "tasks[1].args.tensor_id"),
        (_argument(type="BOTH"), "arg-type", "error", "tasks[1].args.type"),
        (_argument(strides=[0]), "strides", "error", "tasks[1].args.strides"),
        (_argument(shape=[1] * 6, strides=[1] * 6), "dimensions", "error", "tasks[1].args.shape"),
        (_argument(shape=[1] * 2), "dimensions", "error", "tasks[1].args.strides"),
        (_argument(shape=[-1]), "shape", "error", "tasks[1].args.shape"),
        (_argument(dtype="FLOAT7"), "dtype", "warning", "tasks[1].args.dtype"),
        (put("tensors", [TENSOR, TENSOR]), "duplicate-tensor", "error", "tensors[1].tensor_id"),
        (put("tensors", [TENSOR | {"dtype": "X"}]), "dtype", "warning", "tensors[0].dtype"),
        (put("edges", 0, "pred", "777"), "unknown-pred", "warning", "edges[0].pred"),
        (put("edges", 0, "succ", "777"), "unknown-succ", "error", "edges[0].succ"),
        (put("edges", 0, "source", "guess"), "source", "error", "edges[0].source"),
        (put("edges", 0, "flags", ["wait", "go"]), "flags", "error", "edges[0].flags"),
        (put("edges", 0, "flags", ["wait", "wait"]), "flags", "error", "edges[0].flags"),
        (put("edges", 0, "flags", ["wait"]), "flags", "warning", "edges[0].flags"),
        (put("edges", 0, "overlap", "covered"), "overlap", "error", "edges[0].overlap"),
        (put("edges", 0, "arg", 0), "arg", "error", "edges[0].arg"),
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
        (put("tasks", 1, "kernel_ids", [77, -1, -1]), "unnamed-kernel", "warning", "tasks[1].kernel_ids"),
        (put("tasks", 0, "block_num", 9), "partial-task", "warning", "tasks[0]"),
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
