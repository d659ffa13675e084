"""Traces for Perfetto."""

import json

import numpy as np
from hypothesis import given, settings

from pyptox import artifacts
from pyptox.artifacts import Deps, Edge, Task
from tests.artifacts.edits import NAMES, seeds


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
