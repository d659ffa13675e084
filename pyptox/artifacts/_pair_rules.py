"""Rules that hold between records, graph and names of one run."""

from collections.abc import Iterator

import numpy as np

from ._capture import Capture
from ._deps import CORE_SLOTS, Deps, label
from ._finding import Finding
from ._graph import stamps, waits
from ._records import _CORE, _SUBMITS
from ._tables import Records


def check_pair(records: Records, deps: Deps, file: str, deps_file: str) -> list[Finding]:
    """Every rule that the records break together with the graph."""
    return [*_rows(records, deps, file, deps_file), *_submits(records, deps, file), *_order(records, deps, deps_file)]


def _rows(records: Records, deps: Deps, file: str, deps_file: str) -> Iterator[Finding]:
    ids, first, inverse = np.unique(records.blocks.task_id, return_index=True, return_inverse=True)
    is_aiv = np.array([kind == "aiv" for kind in records.core_types], bool)[records.blocks.core_id]
    counts = {
        kind: dict(zip(ids.tolist(), np.bincount(inverse, mask, len(ids)).astype(int).tolist(), strict=True))
        for kind, mask in (("aic", ~is_aiv), ("aiv", is_aiv))
    }
    tasks = {task.task_id for task in deps.tasks}
    for task_id, row in zip(ids.tolist(), first.tolist(), strict=True):
        if task_id not in tasks:
            text = f"task {task_id} ({label(task_id)}) is not in {deps_file}; is the graph whole, and of this run?"
            yield Finding("unknown-task", "warning", file, f"{_CORE}[].task_token_raw", row, text)
    for n, task in enumerate(deps.tasks):
        for kind, had in counts.items():
            slots = zip(task.kernel_ids, CORE_SLOTS, strict=False)
            wanted = task.block_num * sum(kernel >= 0 and slot == kind for kernel, slot in slots)
            got = had.get(task.task_id, 0)
            if got == wanted:
                continue
            code = "row-count" if got > wanted else "partial-task" if got else "no-rows"
            text = (
                f"{label(task.task_id)} must have {wanted} rows on {kind} cores in {file}, blocks x active kernel "
                f"slots; got {got}"
            )
            yield Finding(code, "error" if got > wanted else "warning", deps_file, "tasks[]", n, text)


def _submits(records: Records, deps: Deps, file: str) -> Iterator[Finding]:
    tasks = {task.task_id for task in deps.tasks}
    threads, ids = records.submits.thread, records.submits.task_id
    for row, task_id in enumerate(ids.tolist()):
        if task_id not in tasks:
            thread = int(threads[row])
            n = row - int(np.searchsorted(threads, thread))
            text = f"task {task_id} ({label(task_id)}) is not in the graph"
            yield Finding("unknown-submit", "warning", file, f"{_SUBMITS}[{thread}][].task_id", n, text)


def _order(records: Records, deps: Deps, deps_file: str) -> Iterator[Finding]:
    """Edges whose consumer started before its producer ended."""
    if not len(records.blocks):
        return
    at, found = stamps(records), waits(records, deps)
    start = np.full(len(found.index), np.iinfo(np.int64).max)
    np.minimum.at(start, found.task, at.start)
    end = np.full(len(found.index), np.iinfo(np.int64).min)
    np.maximum.at(end, found.task, at.end)
    us = 1e6 / records.clock_hz
    for n, edge in enumerate(deps.edges):
        pred, succ = found.index[edge.pred], found.index[edge.succ]
        if "wait" in edge.flags and found.rows[pred] and found.rows[succ] and end[pred] > start[succ]:
            text = (
                f"{label(edge.succ)} started {(end[pred] - start[succ]) * us:.2f} µs before {label(edge.pred)} ended; "
                "is the graph of this run?"
            )
            yield Finding("happens-before", "warning", deps_file, "edges[]", n, text)


def check_names(capture: Capture) -> Iterator[Finding]:
    """Kernels of the graph without a name."""
    if capture.deps is None or capture.names is None:
        return
    told: set[int] = set()
    for n, task in enumerate(capture.deps.tasks):
        for kernel in task.kernel_ids:
            if kernel >= 0 and kernel not in capture.names.names and kernel not in told:
                told.add(kernel)
                text = f"kernel {kernel} has no name in {capture.files['names']}"
                yield Finding("unnamed-kernel", "warning", capture.files["deps"], "tasks[].kernel_ids", n, text)


def check_counters(capture: Capture) -> Iterator[Finding]:
    """Counter rows of tasks that the graph lacks, or that it runs with another kernel."""
    if capture.deps is None or capture.pmu is None:
        return
    tasks = {task.task_id: task for task in capture.deps.tasks}
    for n, row in enumerate(capture.pmu.rows):
        task = tasks.get(row.task_id)
        if task is None:
            text = f"task {row.task_id} ({label(row.task_id)}) is not in the graph"
            yield Finding("unknown-task", "warning", capture.files["pmu"], "[].task_id", n, text)
        elif row.func_id not in task.kernel_ids:
            text = f"{label(row.task_id)} runs the kernels {list(task.kernel_ids)}; got {row.func_id}"
            yield Finding("kernel", "warning", capture.files["pmu"], "[].func_id", n, text)
