"""What the orchestrator did: when each submission went through, how full the rings got, and what made up the time."""

from dataclasses import dataclass

import numpy as np

from .._errors import PyptoxError
from ._deadlock import Deadlock
from ._limits import Limits
from ._stats import Boundary, ScopeStats
from ._submissions import Submissions


@dataclass(frozen=True)
class Held:
    """Bytes of a heap at one moment.

    Attributes:
        head: the oldest task that is not given back.
        by_site: bytes by the scope of the tasks whose they are, the most first.
        behind: those that could be given back were it not for the head.
    """

    head: int
    by_site: dict[str, int]
    behind: int


@dataclass(frozen=True, eq=False)
class Run:
    """What the orchestrator did.

    Attributes:
        work, limits: what it was given.
        service_us, cost_us: from being ready to being finished, and of the submission, as given.
        submitted, finish: of each task, µs; not a number after a deadlock.
        stalls: for each resource the µs that each submission waited for it.
        peak: for each of ``task_window``, ``heap``, ``dep_pool`` the most that each ring held; and ``tensormap``.
        peak_task: for the same rings the task at whose submission it was, -1 for none.
        blockers: the task whose end each submission waited for last, -1 where it did not wait.
        peak_tail: for each ring the place of its oldest task when its heap was fullest.
        consumed: when each task could be given back, but for those before it on its ring.
        held: bytes of its ring's heap that are taken once each task has its own.
        boundaries: of scopes, in order.
        reclaimed: by submission that waited for the tensor map, how many tasks of each ring were reclaimed for it.
        late: ``(producer, reader)`` where the reader is submitted after the producer's storage may have been reused.
        deadlock: why it stopped, or None.
    """

    work: Submissions
    limits: Limits
    submitted: np.ndarray
    finish: np.ndarray
    service_us: np.ndarray
    cost_us: np.ndarray
    stalls: dict[str, np.ndarray]
    blockers: np.ndarray
    peak: dict[str, tuple[int, ...]]
    peak_task: dict[str, tuple[int, ...]]
    peak_tail: tuple[int, ...]
    consumed: np.ndarray
    held: np.ndarray
    boundaries: tuple[Boundary, ...]
    reclaimed: dict[int, tuple[int, ...]]
    late: tuple[tuple[int, int], ...]
    deadlock: Deadlock | None

    @property
    def time_us(self) -> float:
        """The last finish."""
        return float(np.nanmax(self.finish, initial=0.0))

    @property
    def stats(self) -> ScopeStats:
        """The boundaries as the runtime's scope statistics would have them."""
        return ScopeStats(self.limits, self.boundaries, fatal=self.deadlock is not None, total=len(self.boundaries))

    @property
    def stall_us(self) -> float:
        """What the orchestrator waited in all."""
        return float(sum(stall.sum() for stall in self.stalls.values()))

    def at_peak(self, ring: int) -> "Held | None":
        """Whose bytes a ring held when its heap was fullest; None for a ring that held none."""
        task = self.peak_task["heap"][ring]
        if task < 0:
            return None
        tasks = self.work.on(ring)[self.peak_tail[ring] : self.work.place[task] + 1]
        sizes, now = self.work.bytes[tasks], self.submitted[task] - self.cost_us[task]
        over = (self.work.closes[tasks] <= task) & (self.consumed[tasks] <= now)
        totals: dict[str, int] = {}
        for number, size in zip(self.work.scope[tasks].tolist(), sizes.tolist(), strict=True):
            site = self.work.scopes[number].site
            totals[site] = totals.get(site, 0) + size
        ordered = dict(sorted(totals.items(), key=lambda item: -item[1]))
        return Held(int(tasks[0]), ordered, int(sizes[over].sum()))

    def gradient(self) -> tuple[np.ndarray, np.ndarray]:
        """How the time changes with the service and the cost of each task, by walking back along what bound it.

        The time is a sum and maximum of these: they times their derivatives add up to it.

        Raises:
            PyptoxError: after a deadlock there is no time.
        """
        if self.deadlock is not None:
            raise PyptoxError(f"`gradient` is of a run that ends; this one stops with {self.deadlock.error}")
        service, cost = np.zeros(self.work.count), np.zeros(self.work.count)
        place = ("finish", int(np.argmax(self.finish))) if self.work.count else None
        while place is not None:
            kind, task = place
            if kind == "finish" and not self.work.alloc[task]:
                service[task] += 1
                place = self._ready(task)
            elif kind == "submit" and self.blockers[task] < 0:
                cost[task] += 1
                place = ("submit", task - 1) if task else None
            elif kind == "submit":
                cost[task] += 1
                place = self._consumed(int(self.blockers[task]), float(self.submitted[task] - self.cost_us[task]))
            else:
                place = ("submit", task)
        return service, cost

    def _ready(self, task: int) -> tuple[str, int]:
        """What the task waited for before it ran."""
        last = max(self.work.waits[task], key=lambda producer: self.finish[producer], default=None)
        if last is not None and self.finish[last] > self.submitted[task]:
            return "finish", last
        return "submit", task

    def _consumed(self, task: int, until: float) -> tuple[str, int]:
        """What gave a task's storage back: its end, that of a reader, or the end of its scope."""
        for reader in (task, *self.work.holders[task]):
            if abs(self.finish[reader] - until) <= 1e-9 * max(1.0, until):
                return "finish", reader
        return "submit", int(self.work.closes[task]) - 1

    def attribution(self) -> dict[str, float]:
        """Microseconds of the time that are submissions, tasks, and waits for each resource; they add up to the time.

        >>> from pyptox.rings import Limits, Submissions, orchestrate
        >>> from pyptox.program import Scope
        >>> scopes = [
        ...     Scope(0, "auto", 0, "a.py:1", 0, 2),
        ...     *(Scope(n + 1, "auto", 1, "a.py:2", n, n + 1) for n in (0, 1)),
        ... ]
        >>> run = orchestrate(
        ...     Submissions.of([1024, 1024], scopes=scopes), [10, 10], [1, 1], Limits().replace(heap=1024)
        ... )
        >>> run.attribution()
        {'submission': 2.0, 'tasks': 10.0, 'back-pressure: heap': 10.0}
        """
        parts = {"submission": 0.0, "tasks": 0.0}
        if not self.work.count or self.deadlock is not None:
            return parts
        task = int(np.argmax(self.finish))
        while not self.work.alloc[task]:
            parts["tasks"] += float(self.service_us[task])
            kind, before = self._ready(task)
            if kind == "submit":
                break
            task = before
        parts["submission"] = float(self.cost_us[: task + 1].sum())
        for name, stall in self.stalls.items():
            if stall[: task + 1].any():
                parts[f"back-pressure: {name}"] = float(stall[: task + 1].sum())
        return parts
