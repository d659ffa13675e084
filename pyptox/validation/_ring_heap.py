"""Rows of ``ring_heap.csv``: does a program pass under these capacities, and how full do its rings get."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .._errors import PyptoxError
from ..hardware import Hardware
from ..rings import VISIBLE_BYTES, Limits, Submissions, deadlock
from ..rings._limits import RINGS, parse_bytes
from ._prefill_programs import by_phases, memory_bytes, token_by_token
from ._problem import NotCovered, Question, Row, Source, text

PASS, DEADLOCK, OUT_OF_MEMORY = "pass", "deadlock", "out of memory"
_KINDS = (
    (PASS, r"\bpass"),
    (OUT_OF_MEMORY, r"out of memory|\boom\b|\b207001\b"),
    (DEADLOCK, r"deadlock|507018|overflow"),  # 507018 is what a host sees of any error of the orchestrator
)
_MIB = {"B": 2.0**-20, "KiB": 2.0**-10, "MB": 1.0, "MiB": 1.0, "GB": 1024.0, "GiB": 1024.0}


def measured_outcome(row: Row) -> str | None:
    """``pass``, ``deadlock`` or ``out of memory``; None for a row that states none of them."""
    outcome = text(row, "outcome").lower()
    return next((kind for kind, pattern in _KINDS if re.search(pattern, outcome)), None)


def outcome(row: Row, hardware: Hardware) -> str | None:
    """What a program of the row's sizes and nesting does under the row's capacities."""
    del hardware  # the rings are the runtime's
    limits = limits_of(row)
    workload = _workload(row)
    needed = limits.arena + (0 if workload is None else workload.memory)
    if needed > VISIBLE_BYTES:
        return OUT_OF_MEMORY
    if workload is not None:
        return PASS if deadlock(workload.work(), limits) is None else DEADLOCK
    if text(row, "resource") == "heap high-water" and _value(row) is not None and text(row, "heap_cap"):
        mark = float(text(row, "value")) * _MIB.get(text(row, "unit"), float("nan"))
        return PASS if mark * 2**20 <= limits.heap[_ring(row)] else DEADLOCK
    return None


def limits_of(row: Row) -> Limits:
    """The capacities that a row states; the runtime's defaults for the others."""
    changes: dict[str, tuple[int, ...]] = {}
    columns = {"heap": "heap_cap", "task_window": "task_window_cap", "dep_pool": "dep_pool_cap"}
    for name, column in columns.items():
        stated = text(row, column)
        if not stated:
            continue
        found = re.search(r"(\d+(?:\.\d+)?)\s*([KMG]i?B)?", stated)
        if found is None:
            raise NotCovered(f"column `{column}` is not a capacity")
        amount = parse_bytes(found.group(0))
        only = re.search(r"ring\s*(\d) only", stated)
        default = getattr(Limits(), name)
        changes[name] = tuple(
            amount if only is None or int(only.group(1)) == ring else default[ring] for ring in range(RINGS)
        )
    try:
        return Limits().replace(**changes)
    except PyptoxError as error:
        raise NotCovered(str(error)) from None


@dataclass(frozen=True)
class Mark:
    """One mark of a ring: what was measured, and what the program's sizes say."""

    measured: float
    unit: str
    predicted: float
    assumed: tuple[str, ...]
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """The mark, in the row's unit."""
        del hardware
        return self.predicted, True


def problem(row: Row) -> Question:
    """The mark that a row states."""
    resource, value = text(row, "resource"), _value(row)
    if value is None:
        if text(row, "value"):
            raise NotCovered("no single number is stated, and no capacity")
        raise NotCovered("the sizes of its tensors are not stated" if _workload(row) is None else "an outcome alone")
    if resource == "tensormap":
        return Mark(value, text(row, "unit"), Limits().tensormap, ("the runtime's default",))
    if resource == "scratch":
        return _scratch(row, value)
    if resource == "task-window high-water":
        raise NotCovered("how many tasks the program is cut into is not stated")
    if resource != "heap high-water":
        raise NotCovered(f"{resource}: a time, or a mark that follows from no stated size")
    if text(row, "payload_change"):
        return _changed(row, value)
    workload = _workload(row)
    if workload is None or text(row, "unit") not in _MIB:
        raise NotCovered("the sizes of its tensors are not stated")
    work, ring = workload.work(), _ring(row)
    total = int(work.bytes[work.on(ring)].sum()) / 2**20
    assumed = (*workload.assumed, "the orchestrator is ahead by the whole program: nothing presses it", "MB is 2^20")
    return Mark(value, text(row, "unit"), total / _MIB[text(row, "unit")], assumed)


@dataclass(frozen=True)
class _Workload:
    work: Callable[[], Submissions]
    memory: int
    assumed: tuple[str, ...]


def _workload(row: Row) -> _Workload | None:
    """A coarse program of the row's workload; None where its sizes are not known."""
    name, config, mode = (text(row, column) for column in ("workload", "config", "scope_mode"))
    layers = _found(name, r"(\d+) layers")
    if not name.startswith("Qwen3-14B prefill") or layers is None:
        return None
    batch = _found(name, r"\bb(\d+)\b") or 1
    tokens = _found(name, r"\bseq(\d+)") or _found(name, r"\bx (\d+)\b") or 128
    memory = memory_bytes(layers, batch, max(tokens, 1))
    if re.match(r"auto|manual 4-ring", mode):
        nesting = _found(mode, r"(\d+) nested") or 7
        by_hand = mode.startswith("manual")
        told = ("attention token by token with scratch for 4,096 positions", "fp32 out of cube stages, bf16 into them")
        return _Workload(lambda: _token_by_token(layers, batch * tokens, nesting, by_hand), memory, told)
    whole = config.startswith("baseline") or "layer-major" in config
    if whole or "window-major" in config:
        chunk = min(_found(name, r"\bchunk(\d+)") or tokens, tokens)
        rows = chunk if whole else min(128, tokens)
        told = ("a layer keeps queries, attention and residual between its phases", "the hidden state is in place")
        return _Workload(lambda: _by_phases(layers, batch * rows, -(-tokens // rows)), memory, told)
    return None


_token_by_token = lru_cache(maxsize=16)(token_by_token)
_by_phases = lru_cache(maxsize=16)(by_phases)


def _scratch(row: Row, value: float) -> Mark:
    """Arrays with a row for every position of the longest context, as the notes of the row's group give them."""
    positions, at = _found(text(row, "workload"), r"max_seq (\d+)"), _found(text(row, "sizes"), r"\bat (\d+)")
    variant = {"before": 0, "after": 1}.get(text(row, "config"))
    changes = re.findall(r"([\w/]+) ([\d.]+) -> ([\d.]+)", text(row, "sizes"))
    if positions is None or at is None or variant is None or not changes:
        raise NotCovered("no row of its group states the sizes of its arrays")
    total = sum(len(names.split("/")) * float((old, new)[variant]) for names, old, new in changes)
    return Mark(value, text(row, "unit"), total * positions / at, ("scratch is in proportion to the longest context",))


def _changed(row: Row, value: float) -> Mark:
    """A mark after a change, from the one before it and what the change took away."""
    before, old, new = map(float, text(row, "payload_change").split())
    cap = limits_of(row).heap[_ring(row)] / 2**20 if text(row, "heap_cap") else float("inf")
    fits = min(before - old + new, cap) if measured_outcome(row) == PASS else before - old + new
    return Mark(value, text(row, "unit"), fits, ("the mark before, less what the change took away",))


def fill(rows: Sequence[Row]) -> list[Row]:
    """Rows with what others of their group state: sizes of arrays, and a mark before a change."""
    result = []
    for row in rows:
        group = [other for other in rows if text(other, "group") == text(row, "group")]
        sizes = next((text(o, "note") for o in group if re.search(r"\d -> \d.* at \d+", text(o, "note"))), "")
        result.append({**row, "sizes": sizes, "payload_change": _payload(row, group)})
    return result


def _payload(row: Row, group: Sequence[Row]) -> str:
    for other in group:
        change = re.search(r"payload ([\d.]+) MiB -> (?:about )?([\d.]+) MiB", text(other, "note"))
        same = (text(other, "ring"), text(other, "resource")) == (text(row, "ring"), text(row, "resource"))
        if change and same and "(before)" in text(other, "config") and "(after)" in text(row, "config"):
            return f"{text(other, 'value')} {change.group(1)} {change.group(2)}"
    return ""


def _found(content: str, pattern: str) -> int | None:
    found = re.search(pattern, content)
    return None if found is None else int(found.group(1))


def _value(row: Row) -> float | None:
    try:
        return float(text(row, "value"))
    except ValueError:
        return None


def _ring(row: Row) -> int:
    ring = _found(text(row, "ring"), r"^([0-3])$")
    if ring is None:
        raise NotCovered("column `ring` is not a ring")
    return ring


_RESTS_ON = (
    "calibrated: which tensors the coarse prefill programs keep between stages, and in which scope, was read off "
    "the marks and outcomes of this file; sizes follow from the model. These rows show that one program explains "
    "them all, not more. Given capacities, outcomes follow from the runtime's rules without a fitted number. At "
    "risk in other rows: marks under pressure, which depend on times; programs cut otherwise; task counts, which "
    "are not stated and not compared."
)
SOURCE = Source(problem, outcome, fill, measured_outcome, _RESTS_ON)
"""How ``ring_heap.csv`` is read."""
