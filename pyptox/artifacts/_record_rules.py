"""Rules of ``chip_swimlane_records.json``."""

import numpy as np

from ._finding import Finding
from ._records import _CORE, _NEW_PHASES, _NEW_TASKS, _PHASES, _SUBMITS, _TASKS
from ._rules import each, later_copies
from ._tables import Records

_KINDS_TEXT = (
    "complete async_poll dispatch release dummy early_dispatch drain graph_prepare resolve "
    "resolve_standalone drain_prepare drain_publish dummy_task predicated_skip scan poll idle fanout "
    "prestage"
)
KINDS = frozenset(_KINDS_TEXT.split(" "))
"""Every kind of scheduler phase that was ever written, older names included."""

_LAYOUTS = {
    "v2": ("old-layout", _CORE, "rows have five columns, without receive; critical_path refuses them"),
    "2026-09": ("new-layout", _NEW_TASKS, "readers of August 2026 and before find no tasks in this layout"),
}


def check_records(records: Records, file: str) -> list[Finding]:
    """Every rule that the records alone break."""
    findings = [Finding(code, "warning", file, key, None, text) for code, key, text in records.notes]
    if records.layout in _LAYOUTS:
        code, key, text = _LAYOUTS[records.layout]
        findings.append(Finding(code, "warning", file, key, None, f"{text}; write it again to have the one between"))
    if not len(records.blocks):
        findings.append(Finding("empty", "error", file, _CORE, None, "there must be at least one task row; got none"))
    return findings + _blocks(records, file) + _overlaps(records, file) + _phases(records, file)


def _blocks(records: Records, file: str) -> list[Finding]:
    b = records.blocks
    tasks = _NEW_TASKS if records.layout == "2026-09" else _TASKS
    key = b.core_id << 32 | b.reg_task_id
    findings = each(
        later_copies(key),
        "duplicate-row",
        "error",
        file,
        _CORE,
        lambda n: f"core {b.core_id[n]} has dispatch {b.reg_task_id[n]} twice; (core_id, reg_task_id) must be unique",
    )
    findings += each(
        (b.start == 0) | (b.end == 0), "stamp", "error", file, _CORE, lambda n: "start and end must be above 0"
    )
    findings += each(
        b.end < b.start, "order", "error", file, _CORE, lambda n: f"the end {b.end[n]} is before the start {b.start[n]}"
    )
    findings += each((b.task_id >> np.uint64(32)) > 3, "ring", "warning", file, _CORE, lambda n: "rings go from 0 to 3")
    if records.level < 2:
        return findings
    alone = (b.dispatch == 0) | (b.finish == 0)
    findings += each(
        alone,
        "unpaired-row",
        "error",
        file,
        _CORE,
        lambda n: (
            f"core {b.core_id[n]}, dispatch {b.reg_task_id[n]} has no row with stamps in `{tasks}`; every row "
            "must have its partner"
        ),
    )
    findings += [
        Finding("unpaired-row", "error", file, tasks, n, f"has no partner in `{_CORE}`; is in no joined row")
        for n in records.partnerless
    ]
    findings += each(
        ~alone & (b.finish < b.start),
        "order",
        "error",
        file,
        _CORE,
        lambda n: f"the finish {b.finish[n]} is before the start {b.start[n]}",
    )
    findings += each(
        ~alone & (b.dispatch > b.receive) & (records.layout != "v2"),
        "order",
        "warning",
        file,
        _CORE,
        lambda n: f"the dispatch {b.dispatch[n]} is after the receive {b.receive[n]}",
    )
    return findings


def _overlaps(records: Records, file: str) -> list[Finding]:
    b = records.blocks
    order = np.lexsort((b.end, b.start, b.core_id))
    core, reg, start, end = b.core_id[order], b.reg_task_id[order], b.start[order], b.end[order]
    neighbours = core[1:] == core[:-1]

    def on(wrong: np.ndarray) -> np.ndarray:
        mask = np.zeros(len(b), bool)
        mask[order[1:][neighbours & wrong]] = True
        return mask

    findings = each(
        on(start[1:] < end[:-1]),
        "overlap",
        "error",
        file,
        _CORE,
        lambda n: f"starts on core {b.core_id[n]} before the block ahead of it ends",
    )
    return findings + each(
        on(reg[1:] < reg[:-1]),
        "dispatch-order",
        "warning",
        file,
        _CORE,
        lambda n: f"dispatch {b.reg_task_id[n]} of core {b.core_id[n]} starts after a later dispatch",
    )


def _phases(records: Records, file: str) -> list[Finding]:
    p, s, level = records.phases, records.submits, records.level
    key = f"{_NEW_PHASES}.records" if records.layout == "2026-09" else _PHASES
    findings = each(
        p.end < p.start, "order", "error", file, key, lambda n: f"the end {p.end[n]} is before the start {p.start[n]}"
    )
    if len(p):
        late = np.concatenate([[False], (p.thread[1:] == p.thread[:-1]) & (p.start[1:] < p.start[:-1])])
        findings += each(
            late, "phase-order", "warning", file, key, lambda n: f"thread {p.thread[n]} goes back in time here"
        )
        odd = ~np.isin(p.kind, sorted(KINDS))
        findings += each(odd, "kind", "warning", file, f"{key}.kind", lambda n: f"{str(p.kind[n])!r} is no known kind")
    elif level >= 3:
        text = "holds no record; sched_overhead_analysis refuses that"
        findings.append(Finding("empty-phases", "warning", file, key, None, text))
    if level >= 3 and not records.core_to_thread:
        text = "is missing; which scheduler serves a core is not known"
        findings.append(Finding("core-to-thread", "warning", file, "metadata.core_to_thread", None, text))
    findings += each(
        s.end < s.start,
        "order",
        "error",
        file,
        _SUBMITS,
        lambda n: f"the end {s.end[n]} is before the start {s.start[n]}",
    )
    return findings + each(
        later_copies(s.task_id), "submit-twice", "warning", file, _SUBMITS, lambda n: f"task {s.task_id[n]} came before"
    )
