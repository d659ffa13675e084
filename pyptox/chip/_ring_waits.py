"""Back-pressure in a timeline: which submissions waited for a ring, how long, for what, and who pinned it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..rings._needs import NOTHING, RESOURCES
from ._path import RING, pinning

if TYPE_CHECKING:
    from ._timeline import Timeline


@dataclass(frozen=True)
class RingWait:
    """A submission that waited for a ring to reclaim.

    Attributes:
        task: whose submission.
        resource: what it lacked: ``task_window``, ``heap``, ``dep_pool`` or ``tensormap``.
        ring: whose; None for the tensor map, which the rings share.
        head: the oldest task that had to be reclaimed and was not; the task itself, or one of its readers, was at work.
        scope: label of the head's scope.
        until: the task whose finish ended the wait.
        from_us, until_us: when.
        on_path: the makespan hangs on it.
    """

    task: int
    resource: str
    ring: int | None
    head: int
    scope: str
    until: int
    from_us: float
    until_us: float
    on_path: bool

    @property
    def waited_us(self) -> float:
        """How long it waited."""
        return self.until_us - self.from_us


def ring_waits(timeline: "Timeline") -> tuple[RingWait, ...]:
    """In the order of submission."""
    work, times, stored = timeline.workload, timeline.times, timeline.workload.storage
    if stored is None or work.gate is None:
        return ()
    path = {piece.task for piece in timeline.critical() if piece.step == RING}
    found = []
    for task in np.flatnonzero(timeline.stalls > 0).tolist():
        since = float(times.submitted[task - 1]) if task else 0.0
        until = pinning(work, times, task)
        resource, head = _lacked(timeline, task, until)
        ring = None if resource == "tensormap" else int(stored.work.ring[head])
        scope = stored.work.scopes[stored.work.scope[head]].label
        ends = since + float(timeline.stalls[task])
        found.append(RingWait(task, resource, ring, head, scope, until, since, ends, task in path))
    return tuple(found)


def _lacked(timeline: "Timeline", task: int, until: int) -> tuple[str, int]:
    """What a submission lacked for longest, and the oldest task that held it until the end."""
    work, run = timeline.workload.storage, timeline.rings
    assert work is not None
    assert run is not None
    submissions = work.work
    longest = max(run.stalls, key=lambda name: float(run.stalls[name][task]))
    held = {until, *(p for p in submissions.holds[until] if p < task)}
    if longest not in RESOURCES:
        return longest, min(held)
    need = int(work.needs.by_resource[longest][task])
    if need == NOTHING:
        return longest, min(held)
    ring = submissions.ring[need]
    mine = [p for p in held if submissions.ring[p] == ring and submissions.place[p] <= submissions.place[need]]
    return longest, min(mine or held)
