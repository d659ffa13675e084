"""From a workload to arrays of the machine's sizes, and back to times."""

from typing import Any

import jax
import numpy as np

from .._errors import PyptoxError
from ..cost._compilation_cache import persistent
from ._constants import CONSTANTS, Schedule
from ._machine import Record, compiled
from ._oracle import Times
from ._workload import AIV, ALLOC, Workload


def bucket(count: int) -> int:
    """The size that arrays are padded to: a power of two, or three quarters of one; 64 at least.

    >>> bucket(2400), bucket(3500)
    (3072, 4096)
    """
    size = 64
    while size < count:
        size *= 2
    return size * 3 // 4 if size > 64 and size * 3 // 4 >= count else size


def run(work: Workload, schedule: Schedule, clusters: int, flight: int | None = None) -> tuple[Times, Record]:
    """Simulate ``work``: times equal to those of :func:`._oracle.oracle`, and what bound each."""
    count, threads = work.tasks, schedule.threads
    wide = np.where(work.shapes == AIV, 2 * clusters, clusters)
    too_many = np.flatnonzero(work.sync_start & (work.blocks > wide))
    if too_many.size:
        task = int(too_many[0])
        raise PyptoxError(
            f"`sync_start` needs a core for each block at once; {work.names[task]} has {work.blocks[task]} blocks for "
            f"{wide[task]} cores. Use fewer blocks, or leave it out"
        )
    constants = schedule.values()
    submitted = work.submissions(constants)
    lengths = np.array([len(p) for p in work.waits], np.int32)
    preds = np.array([p for each in work.waits for p in each], np.int32)
    succs = np.repeat(np.arange(count, dtype=np.int32), lengths)
    order = np.argsort(preds, kind="stable")
    tasks = bucket(count)
    edges = 4 * tasks  # cheap, and one size less to compile for
    while edges < len(preds):
        edges *= 4
    early = bool(work.early.any() or work.sync_start.any())
    pointers = np.zeros(tasks + 2, np.int32)
    pointers[1 : count + 1] = np.cumsum(np.bincount(preds, minlength=count))[:count] if count else 0
    pointers[count + 1 :] = len(preds)

    def padded(values: np.ndarray, size: int, fill: float, dtype: Any) -> np.ndarray:
        result = np.full(size, fill, dtype)
        result[: len(values)] = values
        return result

    flight = flight or 6 * clusters + 16
    with persistent():
        machine = compiled(clusters, threads, tasks, edges, flight, early)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        results = machine(
            np.array([constants[name] for name in CONSTANTS]),
            padded(submitted, tasks + 1, np.inf, np.float64),
            padded(work.shapes, tasks + 1, ALLOC, np.int32),
            padded(work.blocks, tasks + 1, 0, np.int32),
            padded(work.duration_us, tasks + 1, 0.0, np.float64),
            padded(work.early, tasks + 1, False, bool),
            padded(work.sync_start, tasks + 1, False, bool),
            padded(lengths + 1, tasks + 1, 1, np.int32),
            pointers,
            padded(succs[order], edges, 0, np.int32),
            np.int32((work.shapes != ALLOC).sum()),
        )
    if results[0]:
        return run(work, schedule, clusters, 2 * flight)
    ready, stamps, dispatched, retired, woken, admitted = (np.asarray(part)[:count] for part in results[1:])
    alloc = work.shapes == ALLOC
    columns = [np.where(alloc, submitted, x) for x in (ready, *stamps.T)]
    return Times(submitted, *columns), Record(dispatched, retired, woken, admitted)
