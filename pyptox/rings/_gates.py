"""Back-pressure as gates: for each task the first submission that cannot go through before the task is finished.

Rings reclaim in the order of submission. So what a submission needs back is known before anything runs, up to a task of
its ring and all before that (:func:`.needs`), and that is consumed when these tasks are finished, and those submitted
since that keep their storage. Each of them is waited for once: what one submission has waited for, later ones find
gone. A gate is therefore one number a task, and the orchestrator waits as for ordinary producers.

Two things depend on times. A reader that is submitted after its producer's scope has closed keeps the storage only
where it is not consumed by then (``late``). And room in the tensor map, which all rings share, may come from any of
them (``reclaimed``). Most programs have neither; a simulation that meets one is run again with what it shows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ._deadlock import DeadlockError, deadlock
from ._limits import RINGS, Limits
from ._needs import NOTHING, Needs, needs, reclaimable
from ._submissions import Submissions

Pair = tuple[int, int]
"""A producer and a reader of its storage."""


@dataclass(frozen=True, eq=False)
class Storage:
    """What tasks take of the rings, and what there is of it.

    Attributes:
        work: the tasks, in the order of submission.
        limits: capacities.
    """

    work: Submissions
    limits: Limits

    @cached_property
    def needs(self) -> Needs:
        """What every submission needs back.

        Raises:
            DeadlockError: one waits for ever.
        """
        found = needs(self.work, self.limits)
        stuck = deadlock(self.work, self.limits, found)
        if stuck is not None:
            raise DeadlockError(stuck)
        return found

    @cached_property
    def readers(self) -> tuple[Pair, ...]:
        """Readers that are submitted after their producer's scope has closed, in the order of submission."""
        producers, readers = _pairs(self.work)
        outside = self.work.closes[producers] <= readers
        return tuple(zip(producers[outside].tolist(), readers[outside].tolist(), strict=True))

    @property
    def crowded(self) -> bool:
        """The tensor map may run full."""
        return int(self.work.entries.sum()) > self.limits.tensormap

    @cached_property
    def free_at(self) -> np.ndarray:
        """How many tasks must be submitted before each one can be reclaimed (:func:`.reclaimable`)."""
        return reclaimable(self.work)

    def reclaimed_us(self, submitted: np.ndarray, finish: np.ndarray) -> np.ndarray:
        """When each task is reclaimed, by these times, once :attr:`free_at` are submitted: with all before it."""
        work = self.work
        producers, readers = _pairs(work)
        late = self.late(submitted, finish)
        if late:
            keeps = np.array([pair not in late for pair in zip(producers.tolist(), readers.tolist(), strict=True)])
            producers, readers = producers[keeps], readers[keeps]
        times = finish.astype(np.float64)
        np.maximum.at(times, producers, finish[readers])
        for ring in range(RINGS):
            times[work.on(ring)] = np.maximum.accumulate(times[work.on(ring)])
        return times

    def late(self, submitted: np.ndarray, finish: np.ndarray) -> frozenset[Pair]:
        """Of :attr:`readers` those whose producer is consumed when they are submitted, by these times."""
        if not self.readers:
            return frozenset()
        work, found = self.work, set[Pair]()
        consumed = {p: max(finish[p], submitted[work.closes[p] - 1]) for p, _ in self.readers}
        for producer in consumed:
            inside = [finish[r] for r in work.holders[producer] if r < work.closes[producer]]
            consumed[producer] = max(consumed[producer], *inside, 0.0)
        for producer, reader in self.readers:
            if consumed[producer] <= submitted[reader]:
                found.add((producer, reader))
            else:
                consumed[producer] = max(consumed[producer], finish[reader])
        return frozenset(found)


def gates(
    storage: Storage, late: Iterable[Pair] = (), reclaimed: Mapping[int, tuple[int, ...]] | None = None
) -> np.ndarray | None:
    """For each task the first submission that waits for its finish; the number of tasks where none does.

    Args:
        storage: the tasks and the capacities.
        late: producers and readers that do not keep them.
        reclaimed: by submission, for each ring how many of its tasks the tensor map needs back.

    Returns:
        None where no submission waits for anything.

    Raises:
        DeadlockError: a submission waits for ever.

    >>> work = Submissions.of([4096] * 3, scopes=_apart(3))
    >>> gates(Storage(work, Limits().replace(heap=8192))).tolist()
    [2, 3, 3]
    """
    work, found = storage.work, storage.needs
    wanted = np.full((RINGS, work.count), -1, np.int64)
    some = np.flatnonzero(found.task != NOTHING)
    wanted[work.ring[some], some] = work.place[found.task[some]]
    for task, tails in (reclaimed or {}).items():
        wanted[:, task] = np.maximum(wanted[:, task], np.array(tails) - 1)
    first = np.full(work.count, work.count, np.int64)
    for ring in range(RINGS):
        tasks = work.on(ring)
        first[tasks] = np.searchsorted(np.maximum.accumulate(wanted[ring]), np.arange(len(tasks)), "left")
    if (first == work.count).all():
        return None
    gate = first.copy()
    producers, readers = _pairs(work)
    keeps = readers < first[producers]
    if late:
        skipped = set(late)
        keeps &= np.array([pair not in skipped for pair in zip(producers.tolist(), readers.tolist(), strict=True)])
    np.minimum.at(gate, readers[keeps], first[producers[keeps]])
    gate[work.alloc] = work.count  # finished when they are submitted
    return gate


def _pairs(work: Submissions) -> tuple[np.ndarray, np.ndarray]:
    """Producers and the readers that keep their storage, by reader."""
    count = [len(each) for each in work.holds]
    producers = np.array([p for each in work.holds for p in each], np.int64)
    return producers, np.repeat(np.arange(work.count), count)


def _apart(count: int):
    """A scope for each task."""
    from ..program._scope import Scope

    root = Scope(0, "auto", 0, "program", 0, count)
    return [root, *(Scope(n + 1, "auto", 1, "task", n, n + 1) for n in range(count))]
