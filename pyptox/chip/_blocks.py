"""Every block of a simulated task: which core ran it, when it was published, began and was seen to end.

The machine places the blocks of a task in closed form and records how many each core was given. Here they are laid out
one by one, by the same rules as the walk back of :mod:`._path`, only forward.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._path import Walk
from ._record import HEAD
from ._workload import AIC, AIV, DUMMY, MIX

if TYPE_CHECKING:
    from ._timeline import Timeline


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
    published: float  # the first of them
    start: float
    step: float  # from one start to the next
    turn: float  # from a start to the publication of the next
    before: float  # end of the block ahead, on the core of the cluster that was busy longest


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

    def published(self, task: int, unit: int, opened: float) -> float:
        """When the first block of a unit was; ``opened`` is when its slot was, as far as the record does not say."""
        packed, taken = self._packed(task, unit), float(self.times.dispatch[task])
        if not packed >> 28 & 1:
            counts, before = self._rank(task, unit)
            return self.time(before) + self._length(task, counts)
        if not packed >> 29 & 1 or self.work.shapes[task] != MIX:  # the core that opened last is the recorded one
            previous = int(self.record.dispatched[task, HEAD + unit])
            opened = self.time(self._given(task, unit, packed >> 26 & 3, previous, "started"))
        return max(opened, taken) + self.values["dispatch_us"] + self._weight(task) * self.values["dispatch_each_us"]


def layout(timeline: "Timeline") -> Layout:
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
    kernels, taken = np.flatnonzero(work.shapes < DUMMY), np.flatnonzero(work.shapes <= DUMMY)
    tasks, ended = np.concatenate([kernels, taken]), np.arange(len(kernels) + len(taken)) < len(kernels)
    moments = np.where(ended, times.end[tasks], times.dispatch[tasks])
    busy = np.full((timeline.clusters, 3, 2), -np.inf)  # start and end of the last block of each core
    free = np.zeros(walk.threads)  # when each thread is
    runs: list[_Run] = []
    served: list[Served] = []
    rank = np.where(ended, -1, work.shapes[tasks] + np.where(timeline.staged[tasks], DUMMY + 1, 0))  # as ties go
    for place in np.lexsort((tasks, rank, moments)).tolist():
        task = int(tasks[place])
        if work.shapes[task] == DUMMY:  # the record does not say which thread: the first that was free
            begin, end = float(times.dispatch[task]), float(times.finish[task])
            new = [Served(int(np.argmin(free)), "dummy", task, begin, end, 0)]
        elif ended[place]:
            new = _served(walk, task, "complete", "retired")
        else:
            runs += _placed(walk, task, busy)
            new = _served(walk, task, "dispatch", "dispatched")
        for one in new:
            free[one.thread] = max(free[one.thread], one.end_us)
        served += new
    served.sort(key=lambda one: (one.thread, one.start_us, one.end_us))
    runs.sort()
    return Layout(_rows(timeline, _expanded(walk, timeline, runs)), tuple(served))


def _served(walk: _Forward, task: int, kind: str, event: str) -> list[Served]:
    """What each thread did for a task: ``kind`` names it and its constants, ``event`` its end."""
    result = []
    for thread in range(walk.threads):
        count = walk._weight(task) * walk._served(task, thread)
        if count:
            end = walk.time((event, task, thread))
            cost = walk.values[f"{kind}_us"] + walk.values[f"{kind}_each_us"] * count
            result.append(Served(thread, kind, task, end - cost, end, count))
    return result


def _placed(walk: _Forward, task: int, busy: np.ndarray) -> list[_Run]:
    """Where a task's blocks went; ``busy`` then holds its last block on each core."""
    shape, values = walk.work.shapes[task], walk.values
    duration, step = float(walk.times.block[task]), walk._length(task, walk._rounds(task, 1))
    owned = walk._weight(task) * walk._owned(task)
    turn = values["dispatch_us"] + values["complete_us"]
    turn += owned * (values["dispatch_each_us"] + values["complete_each_us"])
    units = range(2 * walk.clusters if shape == AIV else walk.clusters)
    result = []
    for unit in units:
        packed = walk._packed(task, unit)
        amount = packed & 0xFFFFF
        if not amount:
            continue
        cores, start = busy[_cores(shape, unit)], walk.time(("first", task, unit))
        published = walk.published(task, unit, float(cores[..., 0].max()))
        result.append(_Run(task, unit, amount, float(published), start, step, turn, float(cores[..., 1].max())))
        last = start + (amount - 1) * step
        cores[..., 0], cores[..., 1] = last, last + duration
    return result


def _cores(shape: int, unit: int) -> tuple:
    """The cores of a unit, as an index into arrays over clusters and lanes."""
    if shape == AIV:
        return unit // 2, slice(1 + unit % 2, 2 + unit % 2)
    return unit, slice(0, 1) if shape == AIC else slice(0, 3)


def _expanded(walk: _Forward, timeline: "Timeline", runs: list[_Run]) -> dict[str, np.ndarray]:
    """Columns of one row a block."""
    work, values = timeline.workload, walk.values
    kinds = {name: np.int64 if kind is int else np.float64 for name, kind in _Run.__annotations__.items()}
    table: dict[str, Any] = {name: np.array([getattr(one, name) for one in runs], kind) for name, kind in kinds.items()}
    run = np.repeat(np.arange(len(runs)), table["amount"])
    columns = {name: column[run] for name, column in table.items()}
    task, step = columns["task"], columns["step"]
    order = np.arange(len(run)) - np.searchsorted(run, run)
    duration = timeline.times.block[task]
    start = columns["start"] + order * step
    end, last = start + duration, start - step
    first = order == 0
    dispatch = np.where(first, columns["published"], last + columns["turn"])
    ahead = np.where(first, columns["before"], last + duration)
    released = timeline.times.finish[np.maximum(timeline.record.woken[task], 0)] + values["doorbell_us"]
    gate = np.where(timeline.staged[task], released, -np.inf)
    receive = np.minimum(np.maximum(np.maximum(dispatch + values["doorbell_us"], ahead), gate), start)
    weight = np.where(work.shapes[task] == MIX, 3, 1)
    alone = end + values["fin_us"] + values["poll_us"] + values["complete_us"] + weight * values["complete_each_us"]
    seen = np.array([walk.time(("retired", one.task, walk._thread(one.task, one.unit))) for one in runs], float)[run]
    finish = np.where(order == columns["amount"] - 1, seen, np.minimum(alone, seen))
    times = {"dispatch": dispatch, "receive": receive, "start": start, "end": end, "finish": finish}
    return {"task": task, "unit": columns["unit"], "order": order, **times}


def _rows(timeline: "Timeline", blocks: dict[str, np.ndarray]) -> Blocks:
    """Rows of blocks, three of a MIX block."""
    shape = timeline.workload.shapes[blocks["task"]]
    row = np.repeat(np.arange(len(shape)), np.where(shape == MIX, 3, 1))
    part = np.arange(len(row)) - np.searchsorted(row, row)
    of = {name: column[row] for name, column in blocks.items()}
    vector, unit = shape[row] == AIV, of.pop("unit")
    return Blocks(cluster=np.where(vector, unit // 2, unit), lane=np.where(vector, 1 + unit % 2, part), **of)
