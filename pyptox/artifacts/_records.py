"""``chip_swimlane_records.json``: reading of all three layouts.

Layouts: ``v2`` has five columns in ``aicore_tasks``, ``v3`` six; that of September 2026 has ``scheduler_tasks`` and
``scheduler_records`` in place of ``aicpu_tasks`` and ``aicpu_scheduler_phases``.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._columns import column, depths, table
from ._json import Where, field, integers, load, records, texts
from ._tables import CORE_TYPES, NO_TASK, Blocks, Phases, Records, Submits, no_phases, no_submits

FILE = "chip_swimlane_records.json"
LEGACY_FILES = ("l2_swimlane_records.json", "l2_perf_records.json")
LEVEL, LEGACY_LEVEL = "chip_swimlane_level", "l2_swimlane_level"
HOST = ("host_orchestrator_phases", "host_device_uploads")
_TASKS, _NEW_TASKS = "aicpu_tasks", "scheduler_tasks"
_PHASES, _NEW_PHASES = "aicpu_scheduler_phases", "scheduler_records"
_SUBMITS = "aicpu_orchestrator_phases"
_CORE = "aicore_tasks"
_KNOWN = {LEVEL, LEGACY_LEVEL, "metadata", _CORE, _TASKS, _NEW_TASKS, _PHASES, _NEW_PHASES, _SUBMITS, *HOST}
_OWN = ("clock_freq_hz", "num_cores", "core_types", "core_to_thread")
_CORE_COLUMNS = ("core_id", "task_token_raw", "reg_task_id", "start_cycles", "end_cycles", "receive_to_start_cycles")
_TASK_COLUMNS = ("core_id", "reg_task_id", "dispatch_cycles", "finish_cycles")
_KEY_BITS = 32
_THREADS = 256
"""Scheduler threads that a file may number; a chip has three or four."""


def read_records(path: str | os.PathLike[str]) -> Records:
    """Read a ``chip_swimlane_records.json`` of any layout; rows are joined on ``(core_id, reg_task_id)``.

    Raises:
        ArtifactError: a newer or damaged file; the message names the key and the record. No file reads as empty
            because its layout is not known.
    """
    path = Path(path)
    content, where = load(path), Where(path.name)
    level = _level(content, where)
    metadata = field(content, "metadata", dict, where)
    clock, types, threads_of = _metadata(metadata, where.under("metadata"))
    notes = [("unexpected-key", key, "is not a key of this file; ignored") for key in content if key not in _KNOWN]
    if LEVEL not in content:
        notes.append(("old-layout", LEGACY_LEVEL, f"is the old name of `{LEVEL}`; newer readers need that one"))

    core, columns = table(content, _CORE, where, (_CORE_COLUMNS[:5], _CORE_COLUMNS), unsigned=1)
    newer = _NEW_TASKS in content or _NEW_PHASES in content
    tasks, key = _scheduler_tasks(content, level, where)
    blocks, partnerless = _blocks(core, tasks, key, types, where)
    phases, threads = no_phases(), 0
    if level >= 3:
        phases, threads = _phases(content, where, notes)
        threads = max(threads, 1 + max(threads_of, default=-1))
    submits, orchestrators = _submits(content, level, where)
    host = {key: content[key] for key in HOST if key in content and level == 4}
    return Records(
        level=level,
        clock_hz=clock,
        core_types=types,
        blocks=blocks,
        phases=phases,
        submits=submits,
        core_to_thread=threads_of if level >= 3 else (),
        threads=threads,
        orchestrators=orchestrators,
        metadata={key: value for key, value in metadata.items() if key not in _OWN} or None,
        host=host or None,
        layout="2026-09" if newer else "v2" if columns == 5 else "v3",
        partnerless=partnerless,
        notes=tuple(notes),
    )


def _level(content: Mapping[str, Any], where: Where) -> int:
    name = LEGACY_LEVEL if LEVEL not in content and LEGACY_LEVEL in content else LEVEL
    level = field(content, name, int, where)
    if level not in (1, 2, 3, 4):
        raise where.under(name).error("level", f"`{name}` must be 1, 2, 3 or 4; got {level}")
    return level


def _metadata(metadata: Mapping[str, Any], where: Where) -> tuple[int, tuple[str, ...], tuple[int, ...]]:
    clock = field(metadata, "clock_freq_hz", int, where)
    if clock <= 0:
        raise where.under("clock_freq_hz").error("clock", f"`clock_freq_hz` must be above 0; got {clock}")
    types = texts(metadata, "core_types", where)
    cores = field(metadata, "num_cores", int, where)
    if cores != len(types):
        raise where.under("num_cores").error("cores", f"`num_cores` must count `core_types`, {len(types)}; got {cores}")
    wrong = [kind for kind in types if kind not in CORE_TYPES]
    if wrong:
        raise where.under("core_types").error("cores", f"`core_types` must be aic or aiv; got {wrong[0]!r}")
    threads = integers(metadata, "core_to_thread", where) if "core_to_thread" in metadata else ()
    if threads and len(threads) != len(types):
        raise where.under("core_to_thread").error(
            "cores", f"`core_to_thread` must have one entry for each of {len(types)} cores; got {len(threads)}"
        )
    beyond = [thread for thread in threads if not -1 <= thread < _THREADS]
    if beyond:
        raise where.under("core_to_thread").error(
            "cores", f"`core_to_thread` must hold threads below {_THREADS}, -1 for none; got {beyond[0]}"
        )
    return clock, types, threads


def _either(content: Mapping[str, Any], old: str, new: str, where: Where) -> str:
    """The name that is there of two; both, or neither, is an error."""
    there = [name for name in (old, new) if name in content]
    if len(there) == 1:
        return there[0]
    if there:
        raise where.under(new).error(
            "unexpected-key", f"`{old}` and `{new}` are both there; one layout has one of them"
        )
    unknown = [key for key in content if key not in _KNOWN]
    others = f"; keys that are not known: {', '.join(unknown)}" if unknown else ""
    raise where.under(old).error(
        "missing-key",
        f"`{old}` (or `{new}`) is missing at this level{others}. A newer or damaged layout? Convert it with the tools "
        "of the run, or record again",
    )


def _versioned(content: Mapping[str, Any], name: str, where: Where) -> Mapping[str, Any]:
    section = field(content, name, dict, where)
    version = field(section, "schema_version", int, where.under(name))
    if version != 1:
        raise where.under(f"{name}.schema_version").error(
            "schema-version", f"`schema_version` must be 1; got {version}. A newer layout: convert it to the one before"
        )
    return section


def _scheduler_tasks(content: Mapping[str, Any], level: int, where: Where) -> tuple[np.ndarray, str]:
    """The rows, and the key that they stand under."""
    if level < 2:
        return np.zeros((0, 4), np.int64), _TASKS
    name = _either(content, _TASKS, _NEW_TASKS, where)
    if name == _TASKS:
        return table(content, name, where, (_TASK_COLUMNS,))[0], name
    section = _versioned(content, name, where)
    return table(section, "records", where.under(name), (_TASK_COLUMNS,))[0], f"{name}.records"


def _blocks(
    core: np.ndarray, tasks: np.ndarray, key: str, types: tuple[str, ...], where: Where
) -> tuple[Blocks, tuple[int, ...]]:
    numbers = core.astype(np.int64)  # the task ids are taken from `core` itself
    for rows, counter, name in ((numbers, 2, _CORE), (tasks, 1, key)):
        for index, limit, what in ((0, len(types), "core_id"), (counter, 2**_KEY_BITS, "reg_task_id")):
            beyond = np.flatnonzero(rows[:, index] >= limit)
            if len(beyond):
                raise Where(where.file, f"{name}[]", int(beyond[0])).error(
                    "core-id" if index == 0 else "stamp",
                    f"`{what}` must be below {limit}; got {rows[beyond[0], index]}",
                )
    core_id, reg, start, end = (numbers[:, n] for n in (0, 2, 3, 4))
    local = numbers[:, 5] if numbers.shape[1] > 5 else np.zeros(len(numbers), np.int64)
    early = np.flatnonzero(local > start)
    if len(early):
        raise Where(where.file, f"{_CORE}[]", int(early[0])).error(
            "stamp", f"`receive_to_start_cycles` must not exceed `start_cycles`; got {local[early[0]]}"
        )
    dispatch, finish = np.zeros((2, len(numbers)), np.int64)
    mine, theirs = core_id << _KEY_BITS | reg, tasks[:, 0] << _KEY_BITS | tasks[:, 1]
    order = np.argsort(theirs, kind="stable")
    partnerless: tuple[int, ...] = ()
    if len(theirs):
        at = order[np.minimum(np.searchsorted(theirs[order], mine), len(theirs) - 1)]
        found = theirs[at] == mine
        dispatch, finish = (np.where(found, tasks[at, n], 0) for n in (2, 3))
        partnerless = tuple(np.setdiff1d(np.arange(len(theirs)), at[found]).tolist())
    receive = start - local
    return Blocks(core[:, 1].astype(np.uint64), core_id, reg, receive, start, end, dispatch, finish), partnerless


def _phases(content: Mapping[str, Any], where: Where, notes: list) -> tuple[Phases, int]:
    """The table, and the number of threads."""
    if _either(content, _PHASES, _NEW_PHASES, where) == _PHASES:
        lists = _lists(content, _PHASES, where)
        threads = list(range(len(lists)))
    else:
        section = _versioned(content, _NEW_PHASES, where)
        streams = []
        for place, stream in records(section, "streams", where.under(_NEW_PHASES)):
            thread = field(stream, "scheduler_id", int, place)
            if not 0 <= thread < _THREADS:
                raise place.under("scheduler_id").error(
                    "cores", f"`scheduler_id` must be from 0 to {_THREADS - 1}; got {thread}"
                )
            streams.append((thread, _stream(stream, place, notes)))
        streams.sort(key=lambda stream: stream[0])
        threads, lists = [thread for thread, _ in streams], [items for _, items in streams]
    items = [item for each in lists for item in each]
    kinds = [field(item, "kind", str, place) for place, item in items]
    made = Phases(
        thread=np.repeat(np.array(threads, np.int64), [len(each) for each in lists]),
        kind=np.array(kinds, str) if kinds else np.zeros(0, "U1"),
        start=column(items, "start_cycles"),
        end=column(items, "end_cycles"),
        loop_iter=column(items, "loop_iter"),
        tasks_processed=column(items, "tasks_processed"),
        pop_hit=column(items, "pop_hit", -1),
        pop_miss=column(items, "pop_miss", -1),
        task_id=column(items, "task_id", NO_TASK),
        shared_at_start=depths(items, "shared_at_start"),
        shared_at_end=depths(items, "shared_at_end"),
    )
    return made, 1 + max(threads, default=-1)


def _stream(stream: Mapping[str, Any], where: Where, notes: list) -> list[tuple[Where, dict]]:
    """The records of one stream, each with what `metrics` says of it."""
    inner = Where(where.file, where.key.replace("[]", f"[{where.record}]"))
    items = [(place, dict(item)) for place, item in records(stream, "records", inner)]
    for place, metric in records(stream, "metrics", inner, default=[]):
        index = field(metric, "record_index", int, place)
        if not 0 <= index < len(items):
            raise place.under("record_index").error(
                "record-index", f"`record_index` must name one of {len(items)} records; got {index}"
            )
        items[index][1].update({key: value for key, value in metric.items() if key != "record_index"})
    capture = field(stream, "capture", dict, where, default={})
    if capture.get("dropped") or capture.get("truncated"):
        notes.append(
            (
                "lost-records",
                inner.under("capture").key,
                f"the stream lost records: dropped {capture.get('dropped', 0)}, "
                f"truncated {capture.get('truncated', False)}. Record with a larger buffer",
            )
        )
    return items


def _lists(content: Mapping[str, Any], name: str, where: Where) -> list[list[tuple[Where, dict]]]:
    """Lists of objects, one a thread; a record's number counts in its own thread."""
    outer = field(content, name, list, where)
    for number, inner in enumerate(outer):
        if not isinstance(inner, list):
            raise Where(where.file, f"{name}[]", number).error("type", f"`{name}` must hold one list for each thread")
    return [records({f"{name}[{number}]": inner}, f"{name}[{number}]", where) for number, inner in enumerate(outer)]


def _submits(content: Mapping[str, Any], level: int, where: Where) -> tuple[Submits, int]:
    if level < 4:
        return no_submits(), 0
    if _SUBMITS not in content and any(key in content for key in HOST):
        return no_submits(), 0
    lists = _lists(content, _SUBMITS, where)
    items = [item for each in lists for item in each]
    made = Submits(
        thread=np.repeat(np.arange(len(lists)), [len(each) for each in lists]),
        submit_idx=column(items, "submit_idx"),
        task_id=column(items, "task_id"),
        start=column(items, "start_cycles"),
        end=column(items, "end_cycles"),
    )
    return made, len(lists)
