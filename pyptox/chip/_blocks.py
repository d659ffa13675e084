"""Every block of a simulated task: which core ran it, when it was published, began and was seen to end.

The machine places the blocks of a task in closed form and records how many each core was given. Here they are laid out
one by one, by the same rules as the walk back of :mod:`._path`, only forward.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ._path import Walk
from ._timeline import Timeline
from ._workload import AIC, AIV, DUMMY, MIX


@dataclass(frozen=True, eq=False)
class Blocks:
    """One row for each block on each core that it occupies (three of a MIX block); times in µs.

    Attributes:
        task: number of its task.
        cluster, lane: its core; lane 0 is the AIC, 1 and 2 are the AIVs.
        order: place among the blocks of its task on the core, from 0.
        dispatch: the scheduler published it.
        receive: the core saw it, at the earliest when the block before had ended, or when it was released.
        start, end: of the kernel.
        finish: its thread had retired it.
    """

    task: np.ndarray
    cluster: np.ndarray
    lane: np.ndarray
    order: np.ndarray
    dispatch: np.ndarray
    receive: np.ndarray
    start: np.ndarray
    end: np.ndarray
    finish: np.ndarray


class Served(NamedTuple):
    """A stretch of work of a scheduler thread: ``dispatch``, ``complete`` or ``dummy``."""

    thread: int
    kind: str
    task: int
    start_us: float
    end_us: float
    subtasks: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Blocks, and what the scheduler threads did, each in the order of its start."""

    blocks: Blocks
    served: tuple[Served, ...]


class _Run(NamedTuple):
    """The blocks that a task had on one core, or cluster."""

    task: int
    unit: int
    amount: int
    published: float
    start: float
    before: float  # end of the block ahead, on the core of the cluster that was busy longest
    finish: float


class _Forward(Walk):
    """The time of any event, each computed once."""

    known: dict[tuple, float]

    def time(self, event: tuple | None) -> float:
        """When it happened; 0 for the beginning."""
        if event is None:
            return 0.0
        name, task = event[0], int(event[1])
        if name == "submission":
            return float(self.times.submitted[task])
        if name == "taken":
            return float(self.times.dispatch[task])
        if name == "dummied":
            return float(self.times.finish[task])
        if event not in self.known:
            _, of, counts, before = self._before(*event)
            moment = self.time(before) + self._length(of, counts)
            woken = int(self.record.woken[task])
            if name == "first" and woken >= 0 and self.times.dispatch[task] < self.times.ready[task]:
                moment = max(moment, float(self.times.finish[woken]) + self.values["doorbell_us"])
            self.known[event] = moment
        return self.known[event]

    def round_us(self, task: int) -> float:
        """From the start of one block to that of the next on the same core."""
        return self._length(task, self._rounds(task, 1))


def layout(timeline: Timeline) -> Layout:
    """Lay out the blocks of a timeline.

    The last block of a core is finished when its thread has retired the task's part; one before it, when a thread that
    does nothing else would have.

    >>> from pyptox import chip
    >>> blocks = layout(chip.simulate(chip.Workload.of(["AIC"], [30], [10.0], [[]]))).blocks
    >>> len(blocks.task), blocks.order.max().item()
    (30, 1)
    """
    work, times = timeline.workload, timeline.times
    walk = _Forward(work, timeline.schedule, timeline.clusters, times, timeline.record)
    walk.now, walk.known = -1.0, {}
    kernels = work.shapes < DUMMY
    moments = np.concatenate([times.end[kernels], times.dispatch[work.shapes <= DUMMY]])
    ended = np.concatenate([np.ones(kernels.sum(), bool), np.zeros((work.shapes <= DUMMY).sum(), bool)])
    tasks = np.concatenate([np.flatnonzero(kernels), np.flatnonzero(work.shapes <= DUMMY)])
    busy = np.full((timeline.clusters, 3, 2), -np.inf)  # start and end of the last block of each core
    runs: dict[int, list[_Run]] = {}
    served: list[Served] = []
    rank = np.where(ended, -1, work.shapes[tasks] + np.where(timeline.staged[tasks], DUMMY + 1, 0))  # as ties go
    for place in np.lexsort((tasks, rank, moments)).tolist():
        task = int(tasks[place])
        if work.shapes[task] == DUMMY:
            thread = _dummy_thread(walk, task, served)
            served.append(Served(thread, "dummy", task, float(times.dispatch[task]), float(times.finish[task]), 0))
        elif ended[place]:
            served += _retired(walk, task)
        else:
            runs[task] = _placed(walk, task, busy)
            served += _published(walk, task)
    every = [run for task in sorted(runs) for run in runs[task]]
    return Layout(
        _expanded(walk, timeline, every), tuple(sorted(served, key=lambda s: (s.thread, s.start_us, s.end_us)))
    )


def _threads(walk: _Forward, task: int) -> list[tuple[int, int]]:
    """Threads that served a task, and how many subtasks each had."""
    counts = ((thread, walk._weight(task) * walk._served(task, thread)) for thread in range(walk.threads))
    return [(thread, count) for thread, count in counts if count]


def _published(walk: _Forward, task: int) -> list[Served]:
    result = []
    for thread, count in _threads(walk, task):
        end = walk.time(("dispatched", task, thread))
        cost = walk.values["dispatch_us"] + walk.values["dispatch_each_us"] * count
        result.append(Served(thread, "dispatch", task, end - cost, end, count))
    return result


def _retired(walk: _Forward, task: int) -> list[Served]:
    result = []
    for thread, count in _threads(walk, task):
        end = walk.time(("retired", task, thread))
        cost = walk.values["complete_us"] + walk.values["complete_each_us"] * count
        result.append(Served(thread, "complete", task, end - cost, end, count))
    return result


def _dummy_thread(walk: _Forward, task: int, served: list[Served]) -> int:
    """The thread that was free first: the record does not hold it."""
    free = [0.0] * walk.threads
    for one in served:
        free[one.thread] = max(free[one.thread], one.end_us)
    return int(np.argmin(free))


def _placed(walk: _Forward, task: int, busy: np.ndarray) -> list[_Run]:
    """Where a task's blocks went; ``busy`` then holds its last block on each core."""
    shape, values = walk.work.shapes[task], walk.values
    duration, step = float(walk.times.block[task]), walk.round_us(task)
    units = range(2 * walk.clusters if shape == AIV else walk.clusters)
    result = []
    for unit in units:
        packed = walk._packed(task, unit)
        amount = packed & 0xFFFFF
        if not amount:
            continue
        cores = busy[_cores(shape, unit)]
        if packed >> 28 & 1:
            published = cores[..., 0].max() + values["dispatch_us"] + walk._weight(task) * values["dispatch_each_us"]
        else:
            counts, before = walk._rank(task, unit)
            published = walk.time(before) + walk._length(task, counts)
        start = walk.time(("first", task, unit))
        result.append(_Run(task, unit, amount, float(published), start, float(cores[..., 1].max()), 0.0))
        last = start + (amount - 1) * step
        cores[..., 0], cores[..., 1] = last, last + duration
    return result


def _cores(shape: int, unit: int) -> tuple:
    """The cores of a unit, as an index into arrays over clusters and lanes."""
    if shape == AIV:
        return unit // 2, slice(1 + unit % 2, 2 + unit % 2)
    return unit, slice(0, 1) if shape == AIC else slice(0, 3)


def _expanded(walk: _Forward, timeline: Timeline, runs: list[_Run]) -> Blocks:
    """Runs as rows, one a block and core."""
    work, values = timeline.workload, walk.values
    if not runs:
        return Blocks(*(np.zeros(0, np.int64),) * 4, *(np.zeros(0),) * 5)
    task, unit, amount = (np.array([getattr(run, name) for run in runs]) for name in ("task", "unit", "amount"))
    published, begins, before = (
        np.array([getattr(r, name) for r in runs]) for name in ("published", "start", "before")
    )
    weight = np.where(work.shapes[task] == MIX, 3, 1)
    owned = weight * walk.each * np.where(work.shapes[task] == AIV, 2, 1)
    turn = values["dispatch_us"] + values["complete_us"]
    turn = turn + owned * (values["dispatch_each_us"] + values["complete_each_us"])
    steps = {number: walk.round_us(number) for number in np.unique(task).tolist()}
    step = np.array([steps[number] for number in task.tolist()])
    seen = np.array(
        [walk.time(("retired", t, walk._thread(t, u))) for t, u in zip(task.tolist(), unit.tolist(), strict=True)]
    )
    run = np.repeat(np.arange(len(runs)), amount)
    order = np.arange(len(run)) - np.repeat(np.cumsum(amount) - amount, amount)
    duration = timeline.times.block[task][run]
    start = begins[run] + order * step[run]
    end = start + duration
    ahead = np.where(order == 0, before[run], start - step[run] + duration)
    dispatch = np.where(order == 0, published[run], start - step[run] + turn[run])
    woken = timeline.record.woken[task][run]
    gate = np.where(
        timeline.staged[task][run], timeline.times.finish[np.maximum(woken, 0)] + values["doorbell_us"], -np.inf
    )
    receive = np.minimum(np.maximum(np.maximum(dispatch + values["doorbell_us"], ahead), gate), start)
    alone = end + values["fin_us"] + values["poll_us"] + values["complete_us"]
    alone = alone + weight[run] * values["complete_each_us"]
    finish = np.where(order == amount[run] - 1, seen[run], np.minimum(alone, seen[run]))
    # a MIX block is three rows
    shape = work.shapes[task][run]
    rows = np.repeat(np.arange(len(run)), weight[run])
    part = np.arange(len(rows)) - np.repeat(np.cumsum(weight[run]) - weight[run], weight[run])
    kind, number = shape[rows], unit[run][rows]
    cluster = np.where(kind == AIV, number // 2, number)
    lane = np.where(kind == AIV, 1 + number % 2, part)
    columns = (x[rows] for x in (dispatch, receive, start, end, finish))
    return Blocks(task[run][rows], cluster, lane, order[rows], *columns)
