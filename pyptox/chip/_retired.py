"""What submissions depend on that only a simulation shows: edges that have lapsed, and what rings wait for.

An edge costs nothing where its producer has retired before the submission: where its ring has reclaimed it, or, for
tasks whose storage is not stated, where it has finished. Whether it has depends on when the consumer is submitted, and
that on what the submissions before it cost. The same holds for the few readers that keep a storage,
or not, by the time at which they are submitted, and for room in a tensor map that runs full
(:mod:`pyptox.rings._gates`). The simulation is therefore run again with what the one before it shows, until that
repeats: once where the orchestrator is ahead of all the work, else three or four times. An event depends on earlier
ones alone, so that every round settles more of the submissions, first to last.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from ..rings import DeadlockError, Storage, gates
from ..rings import orchestrate as orchestrated
from ..rings._limits import STALL_US
from ..rings._run import Run
from ._constants import Schedule
from ._oracle import Times
from ._record import Record
from ._run import run
from ._workload import Workload

ROUNDS = 12
"""Where edges do not repeat in so many rounds the last stands; each is a whole simulation of its own edges."""


class _Shown(NamedTuple):
    """What a simulation assumes, or shows."""

    lapsed: np.ndarray | None
    gate: np.ndarray | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shown) and all(map(np.array_equal, map(_listed, self), map(_listed, other)))

    def __hash__(self) -> int:
        raise TypeError


def _listed(column: np.ndarray | None) -> np.ndarray:
    return np.zeros(0) if column is None else column


def settled(work: Workload, schedule: Schedule, clusters: int, repeated: bool) -> tuple[Workload, Times, Record]:
    """Simulate ``work``; with it how many edges of each task had lapsed when it was submitted, and what rings wait for.

    Raises:
        DeadlockError: a submission waits for ever.
    """
    if work.submitted_us is not None:
        return work, *run(work, schedule, clusters, repeated)
    storage = work.storage
    producers = [np.array(each, np.int64) for each in work.waits] if work.lapses else []
    assumed = _Shown(
        np.zeros(work.tasks, np.int32) if work.lapses else None, None if storage is None else gates(storage)
    )
    work, times, record = _simulated(work, assumed, schedule, clusters, repeated)
    shown = _shown(work, producers, times, schedule)
    if shown.lapsed is not None and shown.lapsed.any():
        # from the other side: submissions as early as can be settle in fewer rounds
        shown = shown._replace(lapsed=np.array([len(each) for each in producers], np.int32))
    for _ in range(ROUNDS):
        if shown == assumed:
            break
        assumed = shown
        work, times, record = _simulated(work, assumed, schedule, clusters, repeated)
        shown = _shown(work, producers, times, schedule)
    if work.gate is not None and stalls(work, times, schedule).max(initial=0.0) > STALL_US:
        stuck = replayed(work, times, schedule).deadlock
        if stuck is not None:
            raise DeadlockError(stuck)
    return work, times, record


def _simulated(
    work: Workload, assumed: _Shown, schedule: Schedule, clusters: int, repeated: bool
) -> tuple[Workload, Times, Record]:
    work = dataclasses.replace(work, lapsed=assumed.lapsed, gate=assumed.gate)
    return work, *run(work, schedule, clusters, repeated)


def _shown(work: Workload, producers: list[np.ndarray], times: Times, schedule: Schedule) -> _Shown:
    gate, storage = work.gate, work.storage
    if storage is not None and (storage.readers or storage.crowded):
        reclaimed = replayed(work, times, schedule).reclaimed if storage.crowded else {}
        gate = gates(storage, storage.late(times.submitted, times.finish), reclaimed)
    return _Shown(_lapsed(work, producers, times, schedule) if work.lapses else None, gate)


def _lapsed(work: Workload, producers: list[np.ndarray], times: Times, schedule: Schedule) -> np.ndarray:
    """How many producers of each task have retired when its submission begins."""
    free_at, retired = retirements(work, times)
    constants, now = schedule.values(), 0.0
    base, edge = constants["submit_us"], constants["submit_edge_us"]
    lapsed = np.zeros(work.tasks, np.int32)
    for task, (edges, preds, opens) in enumerate(
        zip(work.edges.tolist(), producers, opened(work, times.finish).tolist(), strict=True)
    ):
        now = max(now, opens)
        if len(preds):
            lapsed[task] = np.count_nonzero((free_at[preds] <= task) & (retired[preds] <= now))
        now += base + edge * (edges - int(lapsed[task]))
    return lapsed


def retirements(work: Workload, times: Times) -> tuple[np.ndarray, np.ndarray]:
    """How many tasks must be submitted before each one can retire, and when it does, µs, once they are."""
    if work.storage is None:
        return np.zeros(work.tasks, np.int64), times.finish
    return work.storage.free_at, work.storage.reclaimed_us(times.submitted, times.finish)


def opened(work: Workload, finish: np.ndarray) -> np.ndarray:
    """When the last task that each submission waits for was finished, µs; 0 where it waits for none."""
    times = np.zeros(work.tasks + 1)
    if work.gate is not None:
        np.maximum.at(times, work.gate, finish)
    return times[: work.tasks]


def stalls(work: Workload, times: Times, schedule: Schedule) -> np.ndarray:
    """How long each submission waited for its ring, µs."""
    if work.gate is None:
        return np.zeros(work.tasks)
    return np.diff(times.submitted, prepend=0.0) - work.submission_costs(schedule.values())


def replayed(work: Workload, times: Times, schedule: Schedule) -> Run:
    """The account of the rings under these times: the same submissions, with what each ring held."""
    assert work.storage is not None
    storage: Storage = work.storage
    ready = [max((times.finish[p] for p in waits), default=0.0) for waits in storage.work.waits]
    service = np.maximum(times.finish - np.maximum(times.submitted, ready), 0.0) if work.tasks else np.zeros(0)
    return orchestrated(storage.work, service, work.submission_costs(schedule.values()), storage.limits)
