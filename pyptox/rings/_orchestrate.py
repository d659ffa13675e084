"""The orchestrator over time: when each submission goes through, what it waited for, and how full the rings get.

The rules, as in the runtime (MULTI_RING.md and RUNTIME_LOGIC.md of simpler):

* A submission waits for a slot of its ring, then for its bytes, then for entries of the dependency pool; before all
  that for room in the tensor map. Then it costs the orchestrator its time.
* A task is finished so long after it is submitted and its producers are finished as it is given: ``service_us``.
* A task is consumed when it is finished, its scope has closed, and all those are finished that keep its storage. A task
  submitted when a producer is already consumed does not keep it: the producer's storage may be written to again.
* A ring reclaims in the order of submission: what is consumed behind one that is not has to wait.
* The runtime gives up when a submission has waited 0.5 s without any reclaim on its ring.

What is simplified: releasing and reclaiming take no time; producers that have retired still count as entries of the
pools; the tensor map's retired entries are gone at once, where the runtime cleans up every 64 retirements.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from .._errors import PyptoxError
from ..program._scope import Scope
from ._deadlock import Deadlock, deadlock
from ._limits import CODES, RINGS, STALL_US, Limits
from ._needs import NOTHING, RESOURCES, Needs, heap_positions, needs
from ._run import Run
from ._stats import Boundary
from ._submissions import Submissions

_CODE = {"task_window": 3, "heap": 2, "dep_pool": 4, "tensormap": 11}


def orchestrate(work: Submissions, service_us: ArrayLike, cost_us: ArrayLike, limits: Limits | None = None) -> Run:
    """Submit every task of ``work``, each costing the orchestrator ``cost_us``, under ``limits``.

    Raises:
        PyptoxError: times that are not one for each task, or negative.

    >>> work = Submissions.of([4096] * 3, scopes=None)
    >>> run = orchestrate(work, [10.0] * 3, [1.0] * 3)
    >>> run.submitted.tolist(), run.finish.tolist(), run.peak["heap"][0]
    ([1.0, 2.0, 3.0], [11.0, 12.0, 13.0], 12288)
    """
    limits = limits or Limits()
    times = {"service_us": np.asarray(service_us, float), "cost_us": np.asarray(cost_us, float)}
    for name, value in times.items():
        if value.shape != (work.count,) or not (np.isfinite(value) & (value >= 0)).all():
            raise PyptoxError(
                f"`{name}` must be a finite time that is not negative for each of {work.count} tasks; got {value}"
            )
    found = needs(work, limits)
    stuck = deadlock(work, limits, found)
    return _Orchestrator(work, limits, found, times["service_us"], times["cost_us"]).run(stuck)


class _Orchestrator:
    def __init__(self, work: Submissions, limits: Limits, found: Needs, service: np.ndarray, cost: np.ndarray):
        self.work, self.limits = work, limits
        self.service, self.cost = service.tolist(), cost.tolist()
        self.needed = found.task.tolist()
        self.by_resource = {name: found.by_resource[name].tolist() for name in RESOURCES}
        self.tasks = [work.on(ring).tolist() for ring in range(RINGS)]
        self.ring, self.place, self.closes = work.ring.tolist(), work.place.tolist(), work.closes.tolist()
        end, free, pool = (np.zeros(work.count, np.int64) for _ in range(3))
        for ring in range(RINGS):
            on = work.on(ring)
            end[on], free[on] = heap_positions(work.bytes[on], limits.heap[ring])
            pool[on] = np.cumsum(work.fanin[on])
        ordered = np.argsort(work.scope, kind="stable")
        cuts = np.searchsorted(work.scope[ordered], np.arange(1, len(work.scopes)))
        self.members = [part.tolist() for part in np.split(ordered, cuts)]
        self.end, self.free, self.pool = end.tolist(), free.tolist(), pool.tolist()
        self.entries, self.live = work.entries.tolist(), 0
        self.clock, self.submitting = 0.0, 0
        self.tail, self.head = [0] * RINGS, [0] * RINGS  # places: reclaimed and submitted tasks
        self.consumed: list[float] = []
        self.submitted: list[float] = []
        self.finish: list[float] = []
        self.stalls = {name: np.zeros(work.count) for name in (*RESOURCES, "tensormap")}
        self.peak = {name: [(0, -1)] * RINGS for name in RESOURCES}
        self.peak_tail = [0] * RINGS
        self.blockers = np.full(work.count, -1, np.int64)
        self.fullest = (0, -1)
        self.held: list[int] = []
        self.boundaries: list[Boundary] = []
        self.late: list[tuple[int, int]] = []
        self.reclaimed: dict[int, tuple[int, ...]] = {}

    def run(self, stuck: Deadlock | None) -> Run:
        count = self.work.count if stuck is None else stuck.task
        boundaries = list(self.work.boundaries())[::-1]
        for task in range(count + 1):
            self.submitting = task
            while boundaries and boundaries[-1][0] <= task:
                self.cross(*boundaries.pop()[1:])
            gave_up = self.submit(task) if task < count else None
            if gave_up is not None:
                return self.result(gave_up)
        return self.result(stuck)

    def cross(self, scope: Scope, phase: str) -> None:
        """A scope begins or ends now."""
        ring = int(self.work.ring_of_scope[scope.number])
        if phase == "end":
            for task in self.members[scope.number]:
                if task < self.submitting:
                    self.consumed[task] = max(self.consumed[task], self.clock)
        self.advance()
        head, tail = self.head[ring], self.tail[ring]
        self.boundaries.append(
            Boundary(
                scope.site,
                phase,
                scope.depth,
                ring,
                (tail, head),
                self.span(ring, self.end, self.free),
                self.span(ring, self.pool, self.pool),
                self.live,
            )
        )

    def span(self, ring: int, given: list[int], freed: list[int]) -> tuple[int, int]:
        """What has been reclaimed of a ring, and what has been given out."""
        tasks, tail, head = self.tasks[ring], self.tail[ring], self.head[ring]
        last = given[tasks[head - 1]] if head else 0
        return min(freed[tasks[tail - 1]], last) if tail else 0, last

    def advance(self) -> None:
        """Every ring reclaims what it can."""
        for ring in range(RINGS):
            tasks, tail = self.tasks[ring], self.tail[ring]
            while tail < self.head[ring]:
                task = tasks[tail]
                if self.closes[task] > self.submitting or self.consumed[task] > self.clock:
                    break
                self.live -= self.entries[task]
                tail += 1
            self.tail[ring] = tail

    def submit(self, task: int) -> Deadlock | None:
        """Wait for what the task needs, then submit it; why not, otherwise."""
        self.advance()
        gave_up = self.room(task) if self.live + self.added(task) > self.limits.tensormap else None
        ring = self.ring[task]
        if gave_up is None and self.needed[task] != NOTHING and self.place[self.needed[task]] >= self.tail[ring]:
            for name in RESOURCES:
                gave_up = gave_up or self.wait(task, name)
        if gave_up is not None:
            return gave_up
        self.head[ring] = self.place[task] + 1
        self.live += self.added(task)
        for producer in self.covered(task):
            self.entries[producer] -= 1
        self.note(task, ring)
        self.clock += self.cost[task]
        self.execute(task)
        return None

    def wait(self, task: int, name: str) -> Deadlock | None:
        """Until the task that ``name`` needs back, and all before it, are reclaimed."""
        need, ring = self.by_resource[name][task], self.ring[task]
        if need == NOTHING or self.place[need] < self.tail[ring]:
            return None
        start = last = self.clock
        for other in self.tasks[ring][self.tail[ring] : self.place[need] + 1]:
            if self.consumed[other] > last + STALL_US:
                return self.given_up(task, name, other)
            if self.consumed[other] > last:
                last = self.consumed[other]
                self.blockers[task] = other
        self.clock = last
        self.stalls[name][task] = last - start
        self.advance()
        return None

    def room(self, task: int) -> Deadlock | None:
        """Until enough entries of the tensor map are gone."""
        start = self.clock
        while self.live + self.added(task) > self.limits.tensormap:
            heads = [self.tasks[r][self.tail[r]] for r in range(RINGS) if self.tail[r] < self.head[r]]
            free = [other for other in heads if self.closes[other] <= task]
            other = min(free, key=self.consumed.__getitem__)
            if self.consumed[other] > self.clock + STALL_US:
                return self.given_up(task, "tensormap", other)
            self.clock = max(self.clock, self.consumed[other])
            self.blockers[task] = other
            self.advance()
        self.stalls["tensormap"][task] = self.clock - start
        self.reclaimed[task] = tuple(self.tail)
        return None

    def covered(self, task: int) -> list[int]:
        """Producers of whose live entries the task takes one away."""
        left = {producer: self.entries[producer] for producer in self.work.covers[task]}
        found = []
        for producer in self.work.covers[task]:
            if left[producer] and self.place[producer] >= self.tail[self.ring[producer]]:
                left[producer] -= 1
                found.append(producer)
        return found

    def added(self, task: int) -> int:
        """Entries that the tensor map has more with the task."""
        return self.entries[task] - len(self.covered(task))

    def given_up(self, task: int, name: str, head: int) -> Deadlock:
        """No reclaim for too long: the runtime takes it for a deadlock."""
        names, ring, code = self.work.names, self.ring[task], _CODE[name]
        capacity = getattr(self.limits, name)
        what = (
            f"{names[task]} waits for {name} of ring {ring} while {names[head]} or a reader of it runs for "
            f"{(self.consumed[head] - self.clock) / 1e3:,.0f} ms: after {STALL_US / 1e3:g} ms without a reclaim the "
            "runtime gives up"
        )
        return Deadlock(
            code=code,
            error=CODES[code],
            cause="slow reader",
            resource=name,
            ring=None if name == "tensormap" else ring,
            task=task,
            asked=0,
            held=0,
            capacity=capacity if name == "tensormap" else capacity[ring],
            enough=0,
            head=head,
            head_scope=self.work.scopes[self.work.scope[head]].label,
            behind=0,
            what=what,
            remedies=("a shorter task, or a capacity at which nothing waits for it",),
            after_us=STALL_US,
        )

    def note(self, task: int, ring: int) -> None:
        """Peaks, at the moment at which the task has its storage."""
        if self.live > self.fullest[0]:
            self.fullest = self.live, task
        tasks, tail = self.tasks[ring], self.tail[ring]
        held = {
            "task_window": self.place[task] + 1 - tail,
            "heap": self.end[task] - (self.free[tasks[tail - 1]] if tail else 0),
            "dep_pool": self.pool[task] - (self.pool[tasks[tail - 1]] if tail else 0),
        }
        self.held.append(held["heap"])
        for name, amount in held.items():
            if amount > self.peak[name][ring][0]:
                self.peak[name][ring] = amount, task
                if name == "heap":
                    self.peak_tail[ring] = tail

    def execute(self, task: int) -> None:
        """The task is submitted; when it will be finished, and for how long it keeps what it reads."""
        self.submitted.append(self.clock)
        ready = max([self.clock, *(self.finish[p] for p in self.work.waits[task])])
        end = self.clock if self.work.alloc[task] else ready + self.service[task]
        self.finish.append(end)
        self.consumed.append(end)
        for producer in self.work.holds[task]:
            if self.closes[producer] > task or self.consumed[producer] > self.clock:
                self.consumed[producer] = max(self.consumed[producer], end)
            elif self.work.bytes[producer]:
                self.late.append((producer, task))

    def result(self, stuck: Deadlock | None) -> Run:
        missing = [np.nan] * (self.work.count - len(self.submitted))
        peak = {name: tuple(n for n, _ in self.peak[name]) for name in RESOURCES}
        tasks = {name: tuple(t for _, t in self.peak[name]) for name in RESOURCES}
        return Run(
            self.work,
            self.limits,
            np.array(self.submitted + missing),
            np.array(self.finish + missing),
            np.array(self.service),
            np.array(self.cost),
            self.stalls,
            self.blockers,
            peak | {"tensormap": (self.fullest[0],)},
            tasks | {"tensormap": (self.fullest[1],)},
            tuple(self.peak_tail),
            np.array(self.consumed + missing),
            np.array(self.held, np.int64),
            tuple(self.boundaries),
            self.reclaimed,
            tuple(self.late),
            stuck,
        )


def unlimited(limits: Limits | None = None) -> Limits:
    """Capacities that no program fills.

    >>> unlimited().heap[0] > 2**50
    True
    """
    return replace(
        limits or Limits(),
        heap=(2**56,) * RINGS,
        task_window=(2**40,) * RINGS,
        dep_pool=(2**40,) * RINGS,
        tensormap=2**40,
        scope_tasks=2**40,
    )
