"""Writing of ``chip_swimlane_records.json``, always in the six-column layout that every present reader knows."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .._files import write_whole
from ._tables import NO_TASK, Records


def write_records(path: str | os.PathLike[str], records: Records, *, level: int | None = None) -> None:
    """Write ``records`` at ``level`` (theirs by default), whole or not at all.

    Raises:
        ArtifactError: they break a rule; unequal core and scheduler rows, for example.
    """
    from ._record_rules import check_records
    from ._rules import refuse

    path = Path(path)
    records = records if level is None else records.at_level(level)
    refuse(check_records(records, path.name))
    write_whole(path, json.dumps(records_json(records)) + "\n")


def records_json(records: Records) -> dict[str, Any]:
    """The object that the file holds."""
    b, level = records.blocks, records.level
    metadata: dict[str, Any] = {
        "clock_freq_hz": records.clock_hz,
        "num_cores": len(records.core_types),
        "core_types": list(records.core_types),
    }
    if level >= 3:
        metadata["core_to_thread"] = list(records.core_to_thread)
    content: dict[str, Any] = {"chip_swimlane_level": level, "metadata": metadata | (records.metadata or {})}
    core = (b.core_id, b.task_id, b.reg_task_id, b.start, b.end, b.start - b.receive)
    content["aicore_tasks"] = _rows(core)
    if level >= 2:
        content["aicpu_tasks"] = _rows((b.core_id, b.reg_task_id, b.dispatch, b.finish))
    if level >= 3:
        content["aicpu_scheduler_phases"] = _phases(records)
    if level >= 4:
        if records.orchestrators or not records.host:
            content["aicpu_orchestrator_phases"] = _submits(records)
        content |= records.host or {}
    return content


def _rows(columns: tuple[np.ndarray, ...]) -> list[list[int]]:
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _phases(records: Records) -> list[list[dict[str, Any]]]:
    p = records.phases
    lists: list[list[dict[str, Any]]] = [[] for _ in range(records.threads)]
    names = ("start_cycles", "end_cycles", "loop_iter", "kind", "tasks_processed")
    columns = (p.start, p.end, p.loop_iter, p.kind, p.tasks_processed)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for number, (thread, row) in enumerate(zip(p.thread.tolist(), rows, strict=True)):
        item = dict(zip(names, row, strict=True))
        item |= {key: int(getattr(p, key)[number]) for key in ("pop_hit", "pop_miss") if getattr(p, key)[number] >= 0}
        if p.task_id[number] != NO_TASK:
            item["task_id"] = int(p.task_id[number])
        for key in ("shared_at_start", "shared_at_end"):
            if (depths := getattr(p, key)[number].tolist())[0] >= 0:
                item[key] = depths
        lists[thread].append(item)
    return lists


def _submits(records: Records) -> list[list[dict[str, Any]]]:
    s = records.submits
    lists: list[list[dict[str, Any]]] = [[] for _ in range(records.orchestrators)]
    columns = (s.thread, s.submit_idx, s.task_id, s.start, s.end)
    for thread, index, task, start, end in zip(*(column.tolist() for column in columns), strict=True):
        lists[thread].append({"submit_idx": index, "task_id": task, "start_cycles": start, "end_cycles": end})
    return lists
