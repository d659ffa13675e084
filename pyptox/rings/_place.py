"""Other scopes for the same tasks: what is inside one is freed with it, what outlives it is allocated before it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .._errors import PyptoxError
from ..program._graph import Graph
from ..program._scope import Scope
from ._submissions import Submissions

Span = tuple[int, int]
"""First task, and one past the last."""


def last_uses(graph: Graph) -> np.ndarray:
    """For each task the last one that reads or writes what it allocated; the number of tasks where it is returned."""
    last = np.arange(len(graph.tasks))
    for task in graph.tasks:
        for arg in task.args:
            creator = arg.tensor.buffer.creator
            if creator is not None:
                last[creator] = max(last[creator], task.number)
    for result in graph.results:
        if result.buffer.creator is not None:
            last[result.buffer.creator] = len(graph.tasks)
    return last


def crossing(bytes: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Bytes that are used on both sides of the place before each task.

    >>> crossing(np.array([1024, 2048, 1024]), np.array([1, 2, 2])).tolist()
    [0, 1024, 2048]
    """
    count = len(bytes)
    change = np.zeros(count + 2, np.int64)
    np.add.at(change, np.arange(count) + 1, bytes)
    np.add.at(change, np.minimum(last, count) + 1, -bytes)
    return np.cumsum(change)[:count]


@dataclass(frozen=True, eq=False)
class Placed:
    """Tasks in other scopes.

    Attributes:
        work: what is submitted; allocations that were moved out of a scope are tasks of their own.
        spans: the scopes that were placed, by tasks of the program.
        source: of each submission the task of the program; of an allocation the one whose output it is.
        moved: whether each submission is such an allocation.
    """

    work: Submissions
    spans: tuple[Span, ...]
    source: np.ndarray
    moved: np.ndarray


def place(work: Submissions, spans: Iterable[Span], last: np.ndarray) -> Placed:
    """``work`` with the scopes ``spans`` in place of its automatic ones; manual ones stay, with all inside them.

    What a scope's tasks allocate for tasks beyond its end is allocated before it, by a task of its own.

    Args:
        work: of a program.
        spans: scopes, which must nest among each other and with the manual ones.
        last: from :func:`last_uses`.

    Raises:
        PyptoxError: spans that do not nest, or are outside the program.
    """
    spans, count = tuple(sorted(set(spans), key=lambda s: (s[0], -s[1]))), work.count
    if any(not 0 <= begin < end <= count for begin, end in spans):
        raise PyptoxError(f"`spans` must be (first, one past the last) of {count} tasks; got {spans}")
    outliving = _outliving(work.bytes, spans, last)
    beginning: dict[int, list[Span]] = {}
    for span in spans:
        beginning.setdefault(span[0], []).append(span)
    source, moved, at = list[int](), list[bool](), np.zeros(count + 1, np.int64)
    alloc, starts = dict[int, int](), dict[Span, int]()
    for task in range(count):
        for span in beginning.get(task, ()):  # outer ones first
            for owner in outliving[span]:
                alloc[owner] = len(source)
                source.append(owner)
                moved.append(True)
            starts[span] = len(source)
        at[task] = len(source)
        source.append(task)
        moved.append(False)
    at[count] = len(source)
    order = _Order(spans, np.array(source, np.int64), np.array(moved, bool), at, alloc, starts)
    return Placed(_rebuilt(work, order), spans, order.source, order.moved)


@dataclass(frozen=True, eq=False)
class _Order:
    """The order of submissions: where each task is (``at``), the allocation that was moved out of it (``alloc``), and
    where each span begins (``starts``).
    """

    spans: tuple[Span, ...]
    source: np.ndarray
    moved: np.ndarray
    at: np.ndarray
    alloc: dict[int, int]
    starts: dict[Span, int]


def _outliving(size: np.ndarray, spans: Sequence[Span], last: np.ndarray) -> dict[Span, list[int]]:
    """For each span the tasks in it whose outputs outlive it, but for those that outlive one around it."""
    found: dict[Span, list[int]] = {}
    seen = np.zeros(len(size), bool)
    for begin, end in spans:  # outer ones first
        inside = np.arange(begin, end)[(last[begin:end] >= end) & (size[begin:end] > 0) & ~seen[begin:end]]
        seen[inside] = True
        found[begin, end] = inside.tolist()
    return found


def _rebuilt(work: Submissions, order: _Order) -> Submissions:
    source, moved, at, alloc = order.source, order.moved, order.at, order.alloc
    placed = [(*span, "auto", f"before {work.names[span[0]]}", order.starts[span]) for span in order.spans]
    manual = [s for s in work.scopes if s.mode == "manual"]
    stays = [(s.begin, work.count if s.end is None else s.end, s.mode, s.site, int(at[s.begin])) for s in manual]
    scopes = _nested([*placed, *stays], at, work.scopes[0])
    holds: list[tuple[int, ...]] = []
    waits: list[tuple[int, ...]] = []
    fanin, size, entries = work.fanin[source], work.bytes[source], work.entries[source]
    rows: list[tuple[int, bool]] = list(zip(source.tolist(), moved.tolist(), strict=True))
    for number, (task, is_alloc) in enumerate(rows):
        if is_alloc:
            holds.append(())
            waits.append(())
            fanin[number] = entries[number] = 0
            continue
        producers = work.holds[task]
        own = (alloc[task],) if task in alloc else ()
        holds.append((*own, *(alloc.get(p, int(at[p])) for p in producers)))
        waits.append(tuple(int(at[p]) for p in work.waits[task]))
        fanin[number] += len(own) + sum(p in alloc for p in producers)
        if own:
            size[number] = 0
            entries[number] += 1
    inside = np.zeros(len(source), np.int64)
    for scope in scopes:
        inside[scope.begin : scope.end] = scope.number
    return Submissions(
        [f"alloc for {work.names[task]}" if is_alloc else work.names[task] for task, is_alloc in rows],
        inside,
        size,
        fanin,
        entries,
        holds,
        waits,
        [() if is_alloc else tuple(int(at[p]) for p in work.covers[task]) for task, is_alloc in rows],
        scopes,
        work.alloc[source] | moved,
    )


def _nested(intervals: Sequence[tuple[int, int, str, str, int]], at: np.ndarray, root: Scope) -> tuple[Scope, ...]:
    """Scopes from spans of the program's tasks, at the places of those tasks among the submissions."""
    result = [Scope(0, root.mode, 0, root.site, 0, int(at[-1]))]
    around = [(0, len(at) - 1)]
    for begin, end, mode, site, start in sorted(intervals, key=lambda s: (s[0], -s[1], s[2])):
        while around[-1][1] <= begin:
            around.pop()
        if end > around[-1][1]:
            raise PyptoxError(f"scopes must nest; tasks {begin} to {end} do not lie inside {around[-1]}")
        result.append(Scope(len(result), mode, len(around), site, start, int(at[end - 1]) + 1))
        around.append((begin, end))
    return tuple(result)


def as_it_is(work: Submissions) -> Placed:
    """The scopes that ``work`` has."""
    return Placed(work, (), np.arange(work.count), np.zeros(work.count, bool))
