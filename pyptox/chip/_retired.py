"""Edges of producers that had finished before the submission: they cost nothing.

Whether a producer has finished depends on when its consumer is submitted, and that on what the submissions before it
cost. The simulation is therefore run again with the edges that the one before it leaves, until these repeat: once where
the orchestrator is ahead of all the work, else three or four times. An event depends on earlier ones alone, so that
every round settles more of the submissions, first to last.
"""

import dataclasses

import numpy as np

from ._constants import Schedule
from ._oracle import Times
from ._record import Record
from ._run import run
from ._workload import Workload

ROUNDS = 12
"""Where edges do not repeat in so many rounds the last stands; each is a whole simulation of its own edges."""


def settled(work: Workload, schedule: Schedule, clusters: int, repeated: bool) -> tuple[Workload, Times, Record]:
    """Simulate ``work``, and say how many edges of each task had lapsed when it was submitted."""
    if not work.lapses or work.submitted_us is not None:
        return work, *run(work, schedule, clusters, repeated)
    producers = [np.array(each, np.int64) for each in work.waits]
    work = dataclasses.replace(work, lapsed=np.zeros(work.tasks, np.int32))
    times, record = run(work, schedule, clusters, repeated)
    lapsed = _lapsed(work, producers, times.finish, schedule)
    if lapsed.any():  # from the other side: submissions as early as can be settle in fewer rounds
        lapsed = np.array([len(each) for each in producers], np.int32)
    for _ in range(ROUNDS):
        if (lapsed == work.lapsed).all():
            break
        work = dataclasses.replace(work, lapsed=lapsed)
        times, record = run(work, schedule, clusters, repeated)
        lapsed = _lapsed(work, producers, times.finish, schedule)
    return work, times, record


def _lapsed(work: Workload, producers: list[np.ndarray], finish: np.ndarray, schedule: Schedule) -> np.ndarray:
    """How many producers of each task have finished when its submission begins."""
    constants, now = schedule.values(), 0.0
    base, edge = constants["submit_us"], constants["submit_edge_us"]
    lapsed = np.zeros(work.tasks, np.int32)
    for task, (edges, preds) in enumerate(zip(work.edges.tolist(), producers, strict=True)):
        if len(preds):
            lapsed[task] = np.count_nonzero(finish[preds] <= now)
        now += base + edge * (edges - int(lapsed[task]))
    return lapsed
