"""Rules of ``chip_swimlane_records.json``."""

from dataclasses import replace

import numpy as np

from .._checks import MOST_US
from ._finding import Finding
from ._records import _CORE, _NEW_PHASES, _NEW_TASKS, _PHASES, _SUBMITS, _TASKS
from ._rules import Rule, findings_of, later_copies
from ._tables import Records, taken

_KINDS_TEXT = (
    "complete async_poll dispatch release dummy early_dispatch drain graph_prepare resolve "
    "resolve_standalone drain_prepare drain_publish dummy_task predicated_skip scan poll idle fanout "
    "prestage"
)
KINDS = frozenset(_KINDS_TEXT.split(" "))
"""Every kind of scheduler phase that was ever written, older names included."""

SKEW_US = 1.0
"""So far stamps of a core and of a scheduler may be in the wrong order: each reads the one counter in 0.1 to 0.2 µs,
and a core shows its end before it takes the stamp of it."""

TIMES = ("stamp", "order", "span")
"""Codes of rules that make a stamp no time."""

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
    for rule in [*_rows(records), *_pairs(records), *_order_on_cores(records)]:
        findings += findings_of(rule, file, f"{_CORE}[]")
    findings += [
        Finding("unpaired-row", "error", file, f"{_tasks_key(records)}[]", n, f"has no partner in `{_CORE}`")
        for n in records.partnerless
    ]
    return findings + _phases(records, file) + _submits(records, file)


def _tasks_key(records: Records) -> str:
    return f"{_NEW_TASKS}.records" if records.layout == "2026-09" else _TASKS


def _rows(records: Records) -> list[Rule]:
    b = records.blocks
    key = b.core_id << 32 | b.reg_task_id
    return [
        Rule(
            later_copies(key),
            "duplicate-row",
            "error",
            lambda n: f"(core_id, reg_task_id) must be unique; ({b.core_id[n]}, {b.reg_task_id[n]}) came before",
        ),
        Rule((b.start == 0) | (b.end == 0), "stamp", "error", lambda n: "start and end must be above 0"),
        *(
            _within_a_run(records, getattr(b, name), name)
            for name in ("dispatch", "receive", "start", "end", "finish")
            if name != "receive" or records.layout != "v2"
        ),
        Rule(
            b.end < b.start,
            "order",
            "error",
            lambda n: f"the end {b.end[n]} must not be before the start {b.start[n]}",
        ),
        Rule(
            (b.task_id >> np.uint64(32)) > 3,
            "ring",
            "warning",
            lambda n: f"rings go from 0 to 3; task {b.task_id[n]} is of ring {int(b.task_id[n]) >> 32}",
        ),
    ]


def _pairs(records: Records) -> list[Rule]:
    b = records.blocks
    if records.level < 2:
        return []
    alone = (b.dispatch == 0) | (b.finish == 0)
    known = ~alone & (records.layout != "v2")  # the receive of v2 is not known
    skew = int(SKEW_US * 1e-6 * records.clock_hz)
    late = ~alone & (b.dispatch - b.receive > skew)
    seen = "start" if records.layout == "v2" else "receive"
    return [
        Rule(
            alone,
            "unpaired-row",
            "error",
            lambda n: (
                f"({b.core_id[n]}, {b.reg_task_id[n]}) must have a row in `{_tasks_key(records)}`, with stamps above 0"
            ),
        ),
        Rule(
            ~alone & (b.finish < b.start),
            "order",
            "error",
            lambda n: f"the finish {b.finish[n]} must not be before the start {b.start[n]}",
        ),
        Rule(
            ~alone & (b.finish >= b.start) & (b.end - b.finish > skew),
            "order",
            "error",
            lambda n: f"the finish {b.finish[n]} must not be before the end {b.end[n]}",
        ),
        Rule(
            late | (~alone & (b.dispatch > b.finish)),
            "order",
            "error",
            lambda n: (
                f"the dispatch {b.dispatch[n]} must not be after the {seen} {b.receive[n]} or the finish {b.finish[n]}"
            ),
        ),
        Rule(
            known & ~late & (b.dispatch > b.receive),
            "order",
            "warning",
            lambda n: f"the dispatch {b.dispatch[n]} is after the receive {b.receive[n]}, by {SKEW_US:g} µs at most",
        ),
    ]


def _order_on_cores(records: Records) -> list[Rule]:
    b = records.blocks
    order = np.lexsort((b.end, b.start, b.core_id))
    core, reg, start, end = b.core_id[order], b.reg_task_id[order], b.start[order], b.end[order]
    neighbours = core[1:] == core[:-1]

    def on(wrong: np.ndarray) -> np.ndarray:
        mask = np.zeros(len(b), bool)
        mask[order[1:][neighbours & wrong]] = True
        return mask

    return [
        Rule(
            on(start[1:] < end[:-1]),
            "overlap",
            "error",
            lambda n: f"starts on core {b.core_id[n]} before the block ahead of it ends",
        ),
        Rule(
            on(reg[1:] < reg[:-1]),
            "dispatch-order",
            "warning",
            lambda n: f"dispatch {b.reg_task_id[n]} of core {b.core_id[n]} starts after a later dispatch",
        ),
    ]


def _phases(records: Records, file: str) -> list[Finding]:
    p = records.phases
    newer = records.layout == "2026-09"
    findings = []
    for thread in np.unique(p.thread).tolist():
        mine = p.thread == thread
        kind, start, end = p.kind[mine], p.start[mine], p.end[mine]
        key = f"{_NEW_PHASES}.streams[scheduler_id={thread}].records[]" if newer else f"{_PHASES}[{thread}][]"
        rules = [
            _not_backwards(start, end),
            *(_within_a_run(records, stamps, name) for name, stamps in (("start", start), ("end", end))),
            Rule(
                np.concatenate([[False], start[1:] < start[:-1]]),
                "phase-order",
                "warning",
                lambda n, start=start: f"must start in order of time; {start[n]} follows {start[n - 1]}",
            ),
            Rule(
                ~np.isin(kind, sorted(KINDS)), "kind", "warning", lambda n, kind=kind: f"{str(kind[n])!r} is not known"
            ),
        ]
        findings += [finding for rule in rules for finding in findings_of(rule, file, key)]
    if records.level >= 3 and not len(p):
        text = "holds no record; sched_overhead_analysis refuses that"
        findings.append(Finding("empty-phases", "warning", file, _NEW_PHASES if newer else _PHASES, None, text))
    if records.level >= 3 and not records.core_to_thread:
        text = "is missing; which scheduler serves a core is not known"
        findings.append(Finding("core-to-thread", "warning", file, "metadata.core_to_thread", None, text))
    return findings


def _submits(records: Records, file: str) -> list[Finding]:
    s = records.submits
    findings = []
    for thread in np.unique(s.thread).tolist():
        mine = s.thread == thread
        task = s.task_id[mine]
        rules = [
            _not_backwards(s.start[mine], s.end[mine]),
            *(_within_a_run(records, getattr(s, name)[mine], name) for name in ("start", "end")),
            Rule(
                later_copies(task),
                "submit-twice",
                "warning",
                lambda n, task=task: f"task {task[n]} was submitted before",
            ),
        ]
        findings += [finding for rule in rules for finding in findings_of(rule, file, f"{_SUBMITS}[{thread}][]")]
    return findings


def _not_backwards(start: np.ndarray, end: np.ndarray) -> Rule:
    return Rule(end < start, "order", "error", lambda n: f"the end {end[n]} must not be before the start {start[n]}")


def _within_a_run(records: Records, stamps: np.ndarray, name: str) -> Rule:
    """No stamp may be further from the others than a run can last."""
    seconds = MOST_US * 1e-6

    def message(n: int) -> str:
        return f"the {name} {stamps[n]} must be within {seconds:,.0f} s of the other stamps, longer than any run"

    return Rule(records.beyond(stamps), "span", "error", message)


def sound(records: Records) -> tuple[Records, int]:
    """The records without those whose stamps are no times (:data:`TIMES`), and how many these are."""
    b, p, s = records.blocks, records.phases, records.submits
    rules = [rule for rule in [*_rows(records), *_pairs(records)] if rule.severity == "error" and rule.code in TIMES]
    wrong = [
        np.logical_or.reduce([rule.broken for rule in rules]),
        *((t.end < t.start) | records.beyond(t.start) | records.beyond(t.end) for t in (p, s)),
    ]
    count = sum(int(mask.sum()) for mask in wrong)
    if not count:
        return records, 0
    blocks, phases, submits = (taken(t, ~mask) for t, mask in zip((b, p, s), wrong, strict=True))
    return replace(records, blocks=blocks, phases=phases, submits=submits), count
