"""Deadlocks: found before anything runs, with the runtime's code, what pins the ring, and what would let it drain."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ..program._scope import Scope
from ._limits import CODES, RINGS, Limits, show_bytes
from ._needs import (
    ALL_AND_MORE,
    NOTHING,
    RESOURCES,
    Needs,
    heap_positions,
    needs,
    open_entries,
    open_tasks,
    reclaimable,
)
from ._smallest import smallest_heap, smallest_pool, smallest_window
from ._submissions import Submissions

_WORDS = {
    "heap": "the heap",
    "task_window": "the task window",
    "dep_pool": "the dependency pool",
    "tensormap": "the tensor map",
    "scope_tasks": "the list of tasks of open scopes",
}


@dataclass(frozen=True)
class Deadlock:
    """A submission that waits for ever.

    Attributes:
        code, error: number and name of the runtime's error.
        cause: ``scope leak``, ``head-of-line pin``, ``window too small``, ``heap too small``, ``pool overflow``,
            ``larger than the ring``, ``tensor map overflow`` or ``too many tasks in open scopes``.
        resource: the capacity that ran out.
        ring: whose; None for what the rings share.
        task: number of the task whose submission waits.
        asked: what it asks for.
        held: what cannot be given back: everything from the head of the ring on.
        capacity: what there is.
        enough: the smallest capacity with which the program passes.
        head: number of the task that pins the ring, None where there is none.
        head_scope: label of its scope, which is still open.
        behind: what of ``held`` was already free to go but is behind the head.
        what: one sentence.
        remedies: what would let it drain, each of them checked.
        after_us: None where the runtime sees at once that the head's scope is open; otherwise how long it waited.
    """

    code: int
    error: str
    cause: str
    resource: str
    ring: int | None
    task: int
    asked: int
    held: int
    capacity: int
    enough: int
    head: int | None
    head_scope: str | None
    behind: int
    what: str
    remedies: tuple[str, ...]
    after_us: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.error} ({self.code}): {self.cause}", f"  {self.what}"]
        return "\n".join([*lines, *(f"  would let it drain: {remedy}" for remedy in self.remedies)])


class DeadlockError(PyptoxError):
    """A submission waits for ever: the program is as it is, and does not pass.

    Attributes:
        deadlock: which, with its code, its cause and what would let it drain.
    """

    exit_code = 1

    def __init__(self, deadlock: Deadlock) -> None:
        super().__init__(f"{deadlock}\n  to see it with other capacities give `rings` (--caps)")
        self.deadlock = deadlock


def deadlock(work: Submissions, limits: Limits, found: Needs | None = None) -> Deadlock | None:
    """The first submission of ``work`` that waits for ever under ``limits``; None when all go through.

    A task is never reclaimed while its scope, or that of an older task on its ring, is open. So a submission that needs
    such a task back waits for ever, whatever the tasks take.

    >>> print(deadlock(Submissions.of([4096] * 3), Limits().replace(heap=8192)))
    HEAP_RING_DEADLOCK (2): heap too small
      t2 asks ring 0 for 4 KiB of the heap; 8 of 8 KiB are held from t0 on, whose scope s0 program is open
      would let it drain: heap of ring 0: 12 KiB
      would let it drain: close s0 program before t2, or put what comes before t2 into a scope of its own
    """
    found = needs(work, limits) if found is None else found
    stuck = _first_stuck(work, limits, found)
    if stuck is None:
        return None
    task, name = stuck
    if name in RESOURCES:
        return _of_ring(work, limits, name, task, int(found.by_resource[name][task]))
    return _of_shared(work, name, task, _shared(work)[name], getattr(limits, name))


def passes(work: Submissions, limits: Limits) -> bool:
    """No submission of ``work`` waits for ever under ``limits``.

    >>> passes(Submissions.of([4096] * 3), Limits().replace(heap=12288))
    True
    """
    return _first_stuck(work, limits, needs(work, limits)) is None


def _shared(work: Submissions) -> dict[str, np.ndarray]:
    """What the rings share, as far as it is taken at each submission and cannot be given back."""
    return {"scope_tasks": open_tasks(work), "tensormap": open_entries(work)}


def _first_stuck(work: Submissions, limits: Limits, found: Needs) -> tuple[int, str] | None:
    """The first task that waits for ever, and the capacity: in the order in which a submission asks."""
    free_at, order = reclaimable(work), np.arange(work.count)
    never = {name: held > getattr(limits, name) for name, held in _shared(work).items()}
    for name in RESOURCES:
        need = found.by_resource[name]
        known = (need != NOTHING) & (need != ALL_AND_MORE)
        never[name] = (need == ALL_AND_MORE) | (known & (free_at[np.where(known, need, 0)] > order))
    firsts = [(int(np.argmax(stuck)), rank, name) for rank, (name, stuck) in enumerate(never.items()) if stuck.any()]
    return (min(firsts)[0], min(firsts)[2]) if firsts else None


def _of_shared(work: Submissions, name: str, task: int, held: np.ndarray, capacity: int) -> Deadlock:
    code, cause = (11, "tensor map overflow") if name == "tensormap" else (10, "too many tasks in open scopes")
    asked = int(work.entries[task]) if name == "tensormap" else 1
    enough = int(held.max())
    open_now = [s for s in work.scopes if s.begin <= task and (s.end is None or s.end > task)]
    amount = work.entries if name == "tensormap" else np.ones(work.count, np.int64)
    totals = np.bincount(work.scope[:task], weights=amount[:task], minlength=len(work.scopes))
    fullest = max(open_now, key=lambda s: totals[s.number])
    if fullest.end is None:
        cause = "scope leak"
    before = int(held[task]) - asked
    what = (
        f"{work.names[task]} adds {asked:,} to {_WORDS[name]}; {before:,} of {capacity:,} are taken until scopes "
        f"close, most of them by {fullest.label} ({int(totals[fullest.number]):,})"
    )
    remedies = (f"{name}: {enough:,}", _closing(fullest, work.names[task]))
    return Deadlock(
        code,
        CODES[code],
        cause,
        name,
        None,
        task,
        asked,
        before,
        capacity,
        enough,
        None,
        fullest.label,
        0,
        what,
        remedies,
    )


def _of_ring(work: Submissions, limits: Limits, name: str, task: int, need: int) -> Deadlock:
    ring = int(work.ring[task])
    tasks, capacity = work.on(ring), getattr(limits, name)[ring]
    before = tasks[: work.place[task]]
    amount = {"heap": work.bytes, "dep_pool": work.fanin, "task_window": np.ones(work.count, np.int64)}[name]
    enough = {
        "heap": lambda: smallest_heap(work, ring)[0],
        "dep_pool": lambda: smallest_pool(work, ring),
        "task_window": lambda: smallest_window(work, ring),
    }[name]()
    asked, shown = int(amount[task]), show_bytes if name == "heap" else "{:,}".format
    usable = capacity - 1 if name == "task_window" else capacity
    direct = int((work.scope[:task] == work.scope[task]).sum())
    code = {"heap": 2, "dep_pool": 4, "task_window": 1 if direct >= usable else 3}[name]
    start = f"{work.names[task]} asks ring {ring} for {shown(asked)} of {_WORDS[name]}"
    grow = f"{name} of ring {ring}: {shown(enough)}"
    if need == ALL_AND_MORE:
        what = f"{start}, which has {shown(capacity)} in all"
        cause = "pool overflow" if name == "dep_pool" else "larger than the ring"
        return Deadlock(
            code, CODES[code], cause, name, ring, task, asked, 0, capacity, enough, None, None, 0, what, (grow,)
        )
    stays = before[np.maximum.accumulate(work.closes[before]) > task]
    head = int(stays[0])
    scope = work.scopes[work.scope[head]]
    held = int(amount[stays].sum())
    behind = int(amount[stays][work.closes[stays] <= task].sum())
    pinning = f", whose scope {scope.label} is open"
    if scope.end is None:
        pinning = f", whose scope {scope.label} is never closed"
    what = f"{start}; {_of(held, usable, name)} are held from {work.names[head]} on{pinning}"
    cause = {"heap": "heap too small", "dep_pool": "pool overflow", "task_window": "window too small"}[name]
    if scope.end is None:
        cause = "scope leak"
    elif behind and held - behind + asked <= usable:
        cause = "head-of-line pin"
        what += f"; {shown(behind)} behind it are free but cannot go before it"
    if name == "heap" and held + asked <= capacity:
        what += _in_pieces(work, ring, task, head, capacity)
    remedies = [grow, *_drains(work, limits, task, need)]
    return Deadlock(
        code, CODES[code], cause, name, ring, task, asked, held, capacity, enough, head, scope.label, behind, what,
        tuple(remedies),
    )  # fmt: skip


def _in_pieces(work: Submissions, ring: int, task: int, head: int, capacity: int) -> str:
    """Why a block does not fit although as many bytes are free: not in one piece, and a block does not straddle."""
    tasks = work.on(ring)
    size, first, last = work.bytes[tasks], int(work.place[head]), int(work.place[task]) - 1
    end, free = heap_positions(size, capacity)
    tail, top = int(free[first - 1]) if first else 0, int(end[last])
    text = "; what is free is not in one piece: "
    if top <= (tail // capacity + 1) * capacity:
        return (
            f"{text}{show_bytes(tail % capacity)} at its start, before {work.names[head]}, and "
            f"{show_bytes(-top % capacity)} at its end, after {work.names[tasks[last]]}, and no block straddles the end"
        )
    begin = end[first : last + 1] - size[first : last + 1]
    over = first + int(np.argmax(begin // capacity > tail // capacity))  # the first block of the new lap
    between = tail + capacity - top
    rest = capacity - int(size[first : last + 1].sum()) - between
    return (
        f"{text}{show_bytes(between)} after {work.names[tasks[last]]}, up to where it is taken back, and "
        f"{show_bytes(rest)} at its end, left out before {work.names[tasks[over]]} and taken back with it"
    )


def _of(held: int, usable: int, name: str) -> str:
    if name != "heap":
        return f"{held:,} of {usable:,}"
    first, second = show_bytes(held), show_bytes(usable)
    return f"{first.split()[0] if first.split()[1] == second.split()[1] else first} of {second}"


def _closing(scope: Scope, name: str) -> str:
    if scope.end is None:
        return f"close {scope.label} where it should end; it is left open"
    return f"close {scope.label} before {name}, or put what comes before {name} into a scope of its own"


def _drains(work: Submissions, limits: Limits, task: int, need: int) -> list[str]:
    """Scopes that have to be closed before ``task`` so that ``need``, and all before it on its ring, can go."""
    ring = int(work.ring[task])
    wanted = work.on(ring)
    wanted = wanted[(wanted <= need) & (work.closes[wanted] > task)]
    numbers = list(dict.fromkeys(work.scope[wanted].tolist()))
    result = ["; and ".join(_closing(work.scopes[number], work.names[task]) for number in numbers)]
    head = work.scopes[numbers[0]]
    if ring == RINGS - 1 and work.scopes[work.scope[task]].depth > head.depth and head.end is not None:
        moved = replace(work, scope=np.where(work.scope == head.number, 0, work.scope))
        stuck = _first_stuck(moved, limits, needs(moved, limits))
        if stuck is None or stuck[0] > task:
            result.append(
                f"allocate what is long-lived in {head.label} in a scope of depth 0 to {RINGS - 2}: all deeper ones "
                f"share ring {RINGS - 1}"
            )
    return result
