"""The walk back from the makespan along what bound each event: the observed critical path, and the derivative.

Every time is a whole number of constants and durations after the event that bound it. Walking back to zero counts how
often each lies on the path; a count is the derivative of the makespan in that constant or duration, away from ties,
and counts times values add up to the makespan exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ._constants import CONSTANTS, Schedule
from ._machine import DISPATCHED, ELIGIBLE, EMPTIED, HEAD, READY, RETIRED, THREAD, Record
from ._oracle import Times, clusters_of
from ._workload import AIC, AIV, DUMMY, MIX, Workload

DURATION = "duration"
"""Names a piece of the path that is a task's own blocks."""

RING = "ring"
"""The step of a submission that waited for a ring."""

SUBMITTED = "submitted"
"""Names the piece up to a task's submission, where that was measured."""


@dataclass(frozen=True)
class Piece:
    """A stretch of the critical path.

    Attributes:
        task: whose event it leads to.
        step: ``submit``, ``dispatch``, ``start``, ``run``, ``retire`` or ``dummy``; ``ring`` where the submission had
            to wait for a ring until the piece before it was over: it takes no time of its own.
        start_us, end_us: where it lies.
        counts: how often each constant, and the task's ``duration``, make it up; ``submitted`` stands for the moment
            at which the task was measured to be submitted.
    """

    task: int
    step: str
    start_us: float
    end_us: float
    counts: dict[str, int]


class Walk:
    """Events of one simulation, each with what it followed."""

    def __init__(self, work: Workload, schedule: Schedule, clusters: int, times: Times, record: Record):
        self.work, self.times, self.record = work, times, record
        self.threads, self.clusters = schedule.threads, clusters
        self.each = clusters_of(clusters, schedule.threads)
        self.values = schedule.values()
        self.wide = 2 * clusters
        self.edges = np.cumsum(work.wired)
        begun = times.submitted - work.submission_costs(self.values)
        late = begun > np.concatenate([[0.0], times.submitted[:-1]]) if work.gate is not None else begun > np.inf
        self.waited = np.maximum.accumulate(np.where(late, np.arange(work.tasks), -1))
        self.now = 0.0

    def back(self) -> Iterator[Piece]:
        """The pieces from the makespan to zero, latest first."""
        if not self.work.tasks:
            return
        task = int(np.argmax(self.times.finish))
        now = self.now = float(self.times.finish[task])
        at: tuple | None = self._finish(task)
        while at is not None:
            step, task, counts, at = self._before(*at)
            if counts or step == RING:
                before = now - self._length(task, counts)
                yield Piece(task, step, before, now, counts)
                now = self.now = before

    def _length(self, task: int, counts: dict[str, int]) -> float:
        own = {DURATION: self.times.block[task], SUBMITTED: self.times.submitted[task]}
        return sum(n * float(own[name] if name in own else self.values[name]) for name, n in counts.items())

    def _before(self, event: str, task: int, *more: int) -> tuple[str, int, dict[str, int], tuple | None]:
        return getattr(self, f"_{event}_back")(task, *more)

    # an event is its name, its task and numbers; `..._back` gives its step, task, counts and the event before

    def _finish(self, task: int) -> tuple:
        shape = self.work.shapes[task]
        if shape > DUMMY:
            return ("submission", task)
        if shape == DUMMY:
            return ("dummied", task)
        return ("retired", task, int(self.record.retired[task, 3 * self.threads]))

    def _source(self, label: int, task: int) -> tuple:
        """The event after which a thread was free; ``task`` has no part in it."""
        del task
        thread, kind = label // 4 % 4, label % 4
        name = {DISPATCHED: "dispatched", RETIRED: "retired"}.get(kind, "dummied")
        return (name, label // 16) if name == "dummied" else (name, label // 16, thread)

    def _submission_back(self, task: int):
        if self.work.submitted_us is not None:
            return "submit", task, {SUBMITTED: 1}, None
        since = int(self.waited[task])  # the last submission up to this one that waited for a ring
        if since < 0:
            return "submit", task, _some(submit_us=task + 1, submit_edge_us=int(self.edges[task])), None
        edges = int(self.edges[task] - self.edges[since] + self.work.wired[since])
        return "submit", task, _some(submit_us=task - since + 1, submit_edge_us=edges), ("ring", since)

    def _ring_back(self, task: int):
        return RING, task, {}, self._finish(pinning(self.work, self.times, task))

    def _ready_back(self, task: int):
        by = int(self.record.woken[task])
        return "submit", task, {}, ("submission", task) if by < 0 else self._finish(by)

    def _eligible_back(self, task: int):
        by = int(self.record.eligible[task])
        if by < 0:
            return "submit", task, {}, ("submission", task)
        return "dispatch", task, {}, ("published", by // 2) if by % 2 else self._finish(by // 2)

    def _published_back(self, task: int):
        """When the last block was published."""
        unit, opened_by, which = self.record.dispatched[task, 7:HEAD].tolist()
        packed, weight = self._packed(task, unit), self._weight(task)
        amount = packed & 0xFFFFF
        if amount > 1:
            owned = weight * self._owned(task)
            counts = {"dispatch_us": 1, "complete_us": 1, "dispatch_each_us": owned, "complete_each_us": owned}
            for name, n in self._rounds(task, amount - 2).items():
                counts[name] = counts.get(name, 0) + n
            return "dispatch", task, counts, ("first", task, unit)
        if opened_by >= 0:
            counts = {"dispatch_us": 1, "dispatch_each_us": weight}
            return "dispatch", task, counts, self._given(task, unit, which, opened_by, "started")
        return "dispatch", task, *self._rank(task, unit)

    def _rank(self, task: int, unit: int) -> tuple[dict[str, int], tuple | None]:
        """What a thread did before it published the first block of a core that had been open, and since when."""
        rank = self._packed(task, unit) >> 20 & 63
        counts = {"dispatch_us": 1, "dispatch_each_us": self._weight(task) * (rank + 1)}
        return counts, self._begun(task, self._thread(task, unit))

    def _taken_back(self, task: int):
        """When the task was taken up."""
        bound, why, where = self.record.dispatched[task, :3].tolist()
        if bound == READY:
            return "dispatch", task, {}, ("ready", task)
        if bound == ELIGIBLE:
            return "dispatch", task, {}, ("eligible", task)
        if bound == EMPTIED:
            return "dispatch", task, {}, ("taken", why)
        if bound == THREAD:
            return "dispatch", task, {}, self._source(why, task) if why >= 0 else None
        return "dispatch", task, {}, self._given(task, where // 4, where % 4, why, "started")

    def _begun(self, task: int, thread: int) -> tuple | None:
        """When a thread began with the task: when it was free, or the task was taken up."""
        source = int(self.record.dispatched[task, 3 + thread])
        return self._source(source, task) if source >= 0 else ("taken", task)

    def _dispatched_back(self, task: int, thread: int):
        count = self._weight(task) * self._served(task, thread)
        return "dispatch", task, _some(dispatch_us=1, dispatch_each_us=count), self._begun(task, thread)

    def _dummied_back(self, task: int):
        return "dummy", task, {"dummy_us": 1}, ("taken", task)

    def _retired_back(self, task: int, thread: int):
        row = self.record.retired[task]
        source, looked, unit = (int(row[thread + n * self.threads]) for n in range(3))
        count = self._weight(task) * self._served(task, thread)
        counts = _some(complete_us=1, complete_each_us=count)
        if source >= 0:
            return "retire", task, counts, self._source(source, task)
        return "retire", task, counts | _some(fin_us=1, poll_us=looked), ("ended", task, unit)

    def _ended_back(self, task: int, unit: int):
        return "run", task, {DURATION: 1}, ("started", task, unit)

    def _started_back(self, task: int, unit: int):
        """The start of the last block that the task had on a core."""
        amount = self._packed(task, unit) & 0xFFFFF
        return "run", task, self._rounds(task, amount - 1), ("first", task, unit)

    def _first_back(self, task: int, unit: int):
        packed, weight = self._packed(task, unit), self._weight(task)
        which, opened, switched = packed >> 26 & 3, packed >> 28 & 1, packed >> 29 & 1
        flight = self._flight(1) | ({"first_us": 1} if packed < 0 else {})
        previous, woken = int(self.record.dispatched[task, HEAD + unit]), int(self.record.woken[task])
        held = woken >= 0 and self.times.dispatch[task] <= self.times.ready[task]
        if held and self.now == self.times.finish[woken] + self.values["doorbell_us"]:
            return "start", task, {"doorbell_us": 1}, self._finish(woken)
        if switched:
            return "start", task, {"switch_us": 1}, self._given(task, unit, which, previous, "ended")
        if opened:
            counts = flight | {"dispatch_us": 1, "dispatch_each_us": weight}
            return "start", task, counts, self._given(task, unit, which, previous, "started")
        if packed >> 30 & 1:  # all start after the last publication
            return "start", task, flight, ("published", task)
        counts, before = self._rank(task, unit)
        return "start", task, flight | counts, before

    # the arithmetic of the rules

    def _flight(self, count: int) -> dict[str, int]:
        return {"doorbell_us": count, "receive_us": count}

    def _rounds(self, task: int, count: int) -> dict[str, int]:
        """``count`` blocks one after another on a core."""
        if not count:
            return {}
        weight = self._weight(task)
        owned = weight * self._owned(task)
        v = self.values
        busy = float(self.times.block[task]) + v["switch_us"]
        served = v["dispatch_us"] + v["complete_us"] + owned * (v["dispatch_each_us"] + v["complete_each_us"])
        if busy >= served + v["doorbell_us"] + v["receive_us"]:
            return {DURATION: count, "switch_us": count}
        each = {"dispatch_each_us": count * owned, "complete_each_us": count * owned}
        return self._flight(count) | {"dispatch_us": count, "complete_us": count} | each

    def _weight(self, task: int) -> int:
        return 3 if self.work.shapes[task] == MIX else 1

    def _thread(self, task: int, unit: int) -> int:
        return unit // self._owned(task)

    def _owned(self, task: int) -> int:
        """Cores of the task's kind, or clusters, that a thread owns."""
        return self.each * (2 if self.work.shapes[task] == AIV else 1)

    def _packed(self, task: int, unit: int) -> int:
        return int(self.record.dispatched[task, HEAD + self.wide + unit])

    def _served(self, task: int, thread: int) -> int:
        """Cores of a thread that the task had blocks on."""
        owned = self._owned(task)
        low = HEAD + self.wide + thread * owned
        high = min(low + owned, HEAD + 2 * self.wide)
        return int(np.count_nonzero(self.record.dispatched[task, low:high] & 0xFFFFF))

    def _given(self, task: int, unit: int, which: int, previous: int, event: str) -> tuple | None:
        """An event of the task that had a core before: ``which`` core of the unit of ``task``."""
        if previous < 0:
            return None
        shape, before = self.work.shapes[task], self.work.shapes[previous]
        cluster, lane = (unit // 2, 1 + unit % 2) if shape == AIV else (unit, which if shape == MIX else 0)
        return event, previous, cluster if before in (MIX, AIC) else 2 * cluster + lane - 1


def pinning(work: Workload, times: Times, task: int) -> int:
    """The task whose finish the submission of another waited for last."""
    assert work.gate is not None
    waited_for = np.flatnonzero(work.gate == task)
    return int(waited_for[np.argmax(times.finish[waited_for])])


def _some(**counts: int) -> dict[str, int]:
    return {name: n for name, n in counts.items() if n}


@dataclass(frozen=True)
class Totals:
    """How often each constant and each task's duration lie on a path, and the submission that it began with.

    Attributes:
        constants: by name.
        durations: by task.
        submitted: the task whose measured submission began the path; None where there is none.
    """

    constants: dict[str, int]
    durations: np.ndarray
    submitted: int | None = None


def totals(pieces: list[Piece], tasks: int) -> Totals:
    """The counts of all pieces together."""
    constants, durations, submitted = dict.fromkeys(CONSTANTS, 0), np.zeros(tasks, np.int64), None
    for piece in pieces:
        for name, n in piece.counts.items():
            if name == DURATION:
                durations[piece.task] += n
            elif name == SUBMITTED:
                submitted = piece.task
            else:
                constants[name] += n
    return Totals(constants, durations, submitted)
