"""``merged_swimlane.json``: a capture as a Chrome trace that Perfetto opens; times in µs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._files import write_whole
from ._capture import Capture
from ._deps import label
from ._graph import waits
from ._overhead import overhead
from ._tables import NO_TASK, Records

FILE = "merged_swimlane.json"
ORCHESTRATOR, SCHEDULER, SCHEDULER_VIEW, WORKER_VIEW = 1, 2, 3, 4
_PROCESSES = {
    ORCHESTRATOR: "AICPU Orchestrator",
    SCHEDULER: "AICPU Scheduler",
    SCHEDULER_VIEW: "Scheduler View",
    WORKER_VIEW: "Worker View",
}
_QUEUE = 3999
_OVERHEAD = {
    **{f"oh_aic_{name}": 9101 + n for n, name in enumerate(("idle", "ready", "overhead"))},
    **{f"oh_aiv_{name}": 9111 + n for n, name in enumerate(("idle", "ready", "overhead"))},
    "oh_all_overhead": 9121,
    "oh_has_overhead": 9122,
}
_COUNTERS = {_QUEUE: "shared_ready_queue"} | {tid: name for name, tid in _OVERHEAD.items()}
_MARKERS = ("dummy_task", "predicated_skip")
_LANES = 10
"""Numbers of lanes that one core has; dispatch windows that overlap take one each."""


def write_swimlane(path: str | os.PathLike[str], capture: Capture) -> None:
    """Write the trace of a capture, whole or not at all."""
    write_whole(path if Path(path).suffix else Path(path) / FILE, json.dumps(swimlane(capture)) + "\n")


def swimlane(capture: Capture) -> dict[str, Any]:
    """The trace as a Chrome-trace object."""
    records = capture.records
    events = [*_submits(records), *_phases(records), *_queues(records), *_overheads(capture)]
    workers, anchors = _workers(capture)
    if records.level >= 2:
        events += _windows(capture)
    events += [*workers, *_flows(capture, anchors)]
    return {"traceEvents": [*_headers(capture, events), *events]}


def _headers(capture: Capture, events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    lanes = sorted({(event["pid"], event["tid"]) for event in events})
    for pid in sorted({pid for pid, _ in lanes}):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": _PROCESSES[pid]}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    for pid, tid in lanes:
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": _lane(capture, pid, tid)}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _lane(capture: Capture, pid: int, tid: int) -> str:
    if pid == ORCHESTRATOR:
        return f"Orchestrator_{tid - 4000}"
    if tid in _COUNTERS:
        return _COUNTERS[tid]
    if pid == SCHEDULER:
        return f"Scheduler_{(tid - 30000) // 10}" + (" resolve" if tid % 10 else "")
    if tid >= 19000:
        return f"AICPU_{tid - 19000}"
    core, more = divmod(tid - 10000, _LANES)
    return f"{capture.records.core_types[core].upper()}_{core}" + (f" +{more}" if more else "")


def _slice(pid: int, tid: int, category: str, name: str, start: Any, end: Any, arguments: dict[str, Any]) -> dict:
    times = {"ts": float(start), "dur": max(float(end) - float(start), 0.0)}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": arguments}


def _submits(records: Records) -> Iterator[dict[str, Any]]:
    s = records.submits
    start, end = records.us(s.start), records.us(s.end)
    for n, (thread, task) in enumerate(zip(s.thread.tolist(), s.task_id.tolist(), strict=True)):
        arguments = {"phase": "submit", "submit_idx": int(s.submit_idx[n]), "task_id": task}
        name = f"submit({label(task)})"
        yield _slice(ORCHESTRATOR, 4000 + thread, "orchestrator", name, start[n], end[n], arguments)


def _phases(records: Records) -> Iterator[dict[str, Any]]:
    p = records.phases
    start, end = records.us(p.start), records.us(p.end)
    for n, (thread, kind) in enumerate(zip(p.thread.tolist(), p.kind.tolist(), strict=True)):
        processed, task = int(p.tasks_processed[n]), p.task_id[n]
        arguments: dict[str, Any] = {"phase": kind, "loop_iter": int(p.loop_iter[n]), "tasks_processed": processed}
        for key, depths in (("shared_at_start", p.shared_at_start[n]), ("shared_at_end", p.shared_at_end[n])):
            if depths[0] >= 0:
                arguments[f"{key} (aic,aiv,mix)"] = depths.tolist()
        if kind in _MARKERS and task != NO_TASK:
            name = f"{kind}({label(int(task))})"
            marker = {"event-hint": f"Task:{label(int(task))}", "taskId": int(task)}
            yield _slice(WORKER_VIEW, 19000 + thread, "event", name, start[n], start[n] + 0.02, marker)
        else:
            tid = 30000 + 10 * thread + kind.startswith("resolve")
            yield _slice(SCHEDULER, tid, "scheduler", f"{kind}({processed})", start[n], end[n], arguments)


def _queues(records: Records) -> Iterator[dict[str, Any]]:
    p = records.phases
    samples = []
    for stamps, depths in ((p.start, p.shared_at_start), (p.end, p.shared_at_end)):
        there = depths[:, 0] >= 0
        samples += zip(records.us(stamps[there]).tolist(), depths[there].tolist(), strict=True)
    for ts, depths in sorted(samples):
        counts = dict(zip(("AIC", "AIV", "MIX"), depths, strict=True))
        head = {"ph": "C", "cat": "queue", "name": "shared_ready_queue", "pid": SCHEDULER, "tid": _QUEUE}
        yield {**head, "ts": ts, "args": counts}


def _overheads(capture: Capture) -> Iterator[dict[str, Any]]:
    for name, steps in overhead(capture).items():
        head = {"ph": "C", "cat": "overhead", "name": name, "pid": SCHEDULER, "tid": _OVERHEAD[name]}
        for ts, value in zip(steps.at_us.tolist(), steps.values.tolist(), strict=True):
            yield {**head, "ts": ts, "args": {"value": value}}


def _windows(capture: Capture) -> Iterator[dict[str, Any]]:
    """Dispatch to finish of each block; a core's windows that overlap lie on lanes of their own."""
    table = capture.records.table
    free: dict[int, list[float]] = {}
    for n in np.lexsort((table["dispatch"], table["core_id"])).tolist():
        start, end = float(table["dispatch"][n]), float(table["finish"][n])
        if not start <= end:  # no scheduler row
            continue
        lanes = free.setdefault(int(table["core_id"][n]), [])
        lane = next((k for k, until in enumerate(lanes) if until <= start), len(lanes))
        lane = min(lane, _LANES - 1)
        lanes[lane : lane + 1] = [end]
        core, task = int(table["core_id"][n]), int(table["task_id"][n])
        arguments = {
            "event-hint": f"Task:{label(task)}, CoreId:{core}",
            "dispatch-time-us": start,
            "finish-time-us": end,
            "aicpu-duration-us": end - start,
            "taskId": task,
        }
        name = capture.label(task, str(table["core_type"][n]))
        yield _slice(SCHEDULER_VIEW, 10000 + _LANES * core + lane, "event", name, start, end, arguments)


def _workers(capture: Capture) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """Receive to end of each block; and the slice that stands for each task: the earliest, then the lowest core."""
    table, deps = capture.records.table, capture.deps
    out: dict[int, set[int]] = {}
    into: dict[int, set[int]] = {}
    for edge in deps.edges if deps else ():
        out.setdefault(edge.pred, set()).add(edge.succ)
        into.setdefault(edge.succ, set()).add(edge.pred)

    def hint(tasks: set[int]) -> str:
        return f"{len(tasks)}: [{', '.join(map(label, sorted(tasks)))}]"

    events, anchors = [], {}
    for n in np.lexsort((table["core_id"], table["receive"])).tolist():
        task, core, kind = int(table["task_id"][n]), int(table["core_id"][n]), str(table["core_type"][n])
        receive, start, end = (float(table[name][n]) for name in ("receive", "start", "end"))
        arguments = {
            "event-hint": f"Task:{label(task)}, FuncId:{capture.func_id(task, kind)}, CoreId:{core}",
            "fanout-hint": hint(out.get(task, set())),
            "fanin-hint": hint(into.get(task, set())),
            "duration-us": end - receive,
            "kernel-duration-us": end - start,
            "local_setup_us": start - receive,
            "taskId": task,
        }
        name = capture.label(task, kind)
        event = _slice(WORKER_VIEW, 10000 + _LANES * core, "event", name, receive, end, arguments)
        anchors.setdefault(task, event)
        events.append(event)
    return events, anchors


def _flows(capture: Capture, anchors: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Arrows from what a task waited for to the task; ``hb_violation`` where a block began before its input ended."""
    if capture.deps is None or not anchors:
        return
    records = capture.records
    found, blocks = waits(records, capture.deps), records.blocks
    start, end = np.full(len(found.index), 2**63 - 1), np.zeros(len(found.index), np.int64)
    np.minimum.at(start, found.task, blocks.start)
    np.maximum.at(end, found.task, blocks.end)
    names, number, tick = list(found.index), 0, 1e6 / records.clock_hz
    for pred, succ in zip(found.pred.tolist(), found.succ.tolist(), strict=True):
        source, target = anchors.get(names[pred]), anchors.get(names[succ])
        if source is None or target is None:
            continue
        number += 1
        flow = {"cat": "flow", "name": "hb_violation" if end[pred] > start[succ] else "dependency", "id": number}
        # an arrow starts from the slice that is open at its time: a tick before the end
        leave = max(source["ts"], source["ts"] + source["dur"] - tick)
        yield {**flow, "ph": "s", "pid": source["pid"], "tid": source["tid"], "ts": leave}
        yield {**flow, "ph": "f", "bp": "e", "pid": target["pid"], "tid": target["tid"], "ts": target["ts"]}
    for event in _submits(records):
        target = anchors.get(event["args"]["task_id"])
        if target is not None:
            number += 1
            flow = {"cat": "flow", "name": "submit→dispatch", "id": number}
            yield {**flow, "ph": "s", "pid": event["pid"], "tid": event["tid"], "ts": event["ts"]}
            yield {**flow, "ph": "f", "bp": "e", "pid": target["pid"], "tid": target["tid"], "ts": target["ts"]}
