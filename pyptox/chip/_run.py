"""From a workload to arrays of the machine's sizes, and back to times."""

from typing import Any

import jax
import numpy as np

from .._checks import MOST_US
from .._errors import PyptoxError
from ..cost._compilation_cache import persistent
from ._constants import CONSTANTS, Schedule
from ._machine import Memory, Record, Sizes, Tasks, compiled
from ._memory import COLUMNS
from ._oracle import Times
from ._record import BLOCK
from ._workload import AIV, ALLOC, DUMMY, Workload


def bucket(count: int) -> int:
    """The size that arrays are padded to: a power of two, or three quarters of one, so that few sizes are compiled.

    256 at least: an event takes as long however long the arrays are, and compiling takes seconds.

    >>> bucket(2400), bucket(3500)
    (3072, 4096)
    """
    size = 256
    while size < count:
        size *= 2
    return size * 3 // 4 if size > 256 and size * 3 // 4 >= count else size


def run(
    work: Workload, schedule: Schedule, clusters: int, repeated: bool = False, flight: int | None = None
) -> tuple[Times, Record]:
    """Simulate ``work``: times equal to those of :func:`._oracle.oracle`, and what bound each."""
    _check(work, clusters)
    distance = np.zeros(0) if work.memory is None else work.memory.distances(work.shapes < DUMMY, repeated)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        return _run(work, schedule, clusters, distance, flight or 6 * clusters + 16)


def _check(work: Workload, clusters: int) -> None:
    times = (
        [work.duration_us] if work.memory is None else [work.duration_us, *(getattr(work.memory, n) for n in COLUMNS)]
    )
    longest = np.max(times, axis=0)
    if not (longest <= MOST_US).all():
        task = int(np.argmax(longest))
        raise PyptoxError(
            f"`duration_us` of a block must be {MOST_US:.0e} at most; {work.names[task]} has {longest[task]:.3g}"
        )
    wide = np.where(work.shapes == AIV, 2 * clusters, clusters)
    too_many = np.flatnonzero(work.sync_start & (work.blocks > wide))
    if too_many.size:
        task = int(too_many[0])
        raise PyptoxError(
            f"`sync_start` needs a core for each block at once; {work.names[task]} has {work.blocks[task]} blocks for "
            f"{wide[task]} cores. Use fewer blocks, or leave it out"
        )


def _run(work: Workload, schedule: Schedule, clusters: int, distance: np.ndarray, flight: int) -> tuple[Times, Record]:
    count, constants = work.tasks, schedule.values()
    submitted = work.submissions(constants) if work.gate is None else work.submission_costs(constants)
    tasks, edges = _tasks(work, submitted, clusters)
    memory = _memory(work, distance, len(tasks.shapes) - 1)
    sizes = Sizes(
        clusters,
        schedule.threads,
        len(tasks.shapes) - 1,
        edges,
        flight,
        bool(work.early.any() or work.sync_start.any()),
        len(memory.size),
        len(memory.region),
        0 if work.memory is None or work.memory.warms is None else work.memory.warms.contexts,
        work.gate is not None,
    )
    given = np.array([constants[name] for name in CONSTANTS])
    with persistent():
        machine = compiled(sizes)
    full, ready, stamps, moments, records = machine(given, tasks, memory)
    if full:
        return _run(work, schedule, clusters, distance, 2 * flight)
    if work.gate is not None:
        submitted = _to_the_end(np.asarray(moments)[:count], np.asarray(stamps)[:count, 3], work.gate, submitted)
    alloc = work.shapes == ALLOC
    moments = (np.asarray(ready)[:count], *np.asarray(stamps)[:count].T)
    ready, taken, start, end, finish = (np.where(alloc, submitted, x) for x in moments)
    dispatched, retired, woken, admitted, found, kept, beside = (np.asarray(part)[:count] for part in records)
    block = work.duration_us
    if work.memory is not None:
        kept = np.concatenate([found[:, None], kept], 1)
        block = np.where(work.shapes < DUMMY, kept[:, BLOCK], 0.0)
    return Times(submitted, ready, taken, start, end, finish, block), Record(
        dispatched, retired, woken, admitted, kept, beside
    )


def _to_the_end(submitted: np.ndarray, finish: np.ndarray, gate: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """When each submission ended, those after the last finish too: allocations."""
    done = int(np.count_nonzero(submitted >= 0))
    submitted, now = submitted.copy(), float(submitted[done - 1]) if done else 0.0
    for task in range(done, len(submitted)):
        now = max(now, float(finish[gate == task].max(initial=0.0))) + float(cost[task])
        submitted[task] = now
    return submitted


def _tasks(work: Workload, submitted: np.ndarray, clusters: int) -> tuple[Tasks, int]:
    """The workload as the machine takes it, and the size that its edges are padded to."""
    count, tasks = work.tasks, bucket(work.tasks)
    lengths = np.array([len(p) for p in work.waits], np.int32)
    preds = np.array([p for each in work.waits for p in each], np.int32)
    succs = np.repeat(np.arange(count, dtype=np.int32), lengths)
    edges = _four_times(tasks, len(preds))
    pointers = _pointers(np.bincount(preds, minlength=count), tasks)
    wide = np.where(work.shapes == AIV, 2 * clusters, clusters)
    stageable = (work.shapes < DUMMY) & (work.blocks <= wide) & ~work.predicated
    rows = tasks + 1
    gate = gating = np.zeros(0, np.int32)
    if work.gate is not None:
        some = np.where(work.gate < count, work.gate, tasks)
        gate = _padded(some, rows, tasks, np.int32)
        gating = _padded(np.bincount(some, minlength=rows)[:count], rows, 0, np.int32)
    return Tasks(
        _padded(submitted, rows, np.inf, np.float64),
        _padded(work.shapes, rows, ALLOC, np.int32),
        _padded(work.blocks, rows, 0, np.int32),
        _padded(work.duration_us, rows, 0.0, np.float64),
        _padded(work.early, rows, False, bool),
        _padded(work.sync_start, rows, False, bool),
        _padded(stageable, rows, False, bool),
        _padded(lengths + 1, rows, 1, np.int32),
        pointers,
        _padded(succs[np.argsort(preds, kind="stable")], edges, 0, np.int32),
        np.int32((work.shapes != ALLOC).sum()),
        gate,
        gating,
    ), edges


def _memory(work: Workload, distance: np.ndarray, tasks: int) -> Memory:
    """What blocks move as the machine takes it; empty arrays where nothing is stated."""
    none, m = np.zeros(0), work.memory
    if m is None:
        numbers = np.zeros(0, np.int32)
        return Memory(none, none, none, none, numbers, numbers, none, none, none, np.float64(0.0), numbers, none)
    listed, context, sdma = m.uses, np.zeros(0, np.int32), none
    if m.warms is not None and m.warms.contexts:
        listed = tuple(warmed or used for warmed, used in zip(m.warms.targets, m.uses, strict=True))
        context, sdma = _padded(m.warms.context, tasks + 1, -1, np.int32), np.array(m.warms.constants())
    region = np.array([region for each in listed for region, _ in each], np.int32)
    share = np.array([share for each in listed for _, share in each])
    uses, regions = _four_times(tasks, len(region)), bucket(len(m.regions))
    pointers = _pointers(np.array([len(each) for each in listed], np.int32), tasks)
    times = (_padded(column, tasks + 1, 1.0, np.float64) for column in (m.resident_us, m.hbm_us, m.l2_us, m.together))
    resident, hbm, l2, together = times
    region, share = _padded(region, uses, 0, np.int32), _padded(share, uses, 0.0, np.float64)
    size, distance = _padded(m.regions, regions, 1.0, np.float64), _padded(distance, regions, np.inf, np.float64)
    moved = resident, hbm, l2, together, pointers, region, share, size, distance
    return Memory(*moved, np.float64(m.capacity), context, sdma)


def _four_times(tasks: int, count: int) -> int:
    """The size of a list with some entries a task: cheap, and one size less to compile for."""
    size = 4 * tasks
    while size < count:
        size *= 4
    return size


def _pointers(lengths: np.ndarray, tasks: int) -> np.ndarray:
    """Where each task's entries begin in a flat list."""
    pointers = np.zeros(tasks + 2, np.int32)
    pointers[1 : len(lengths) + 1] = np.cumsum(lengths)
    pointers[len(lengths) + 1 :] = lengths.sum()
    return pointers


def _padded(values: np.ndarray, size: int, fill: float, dtype: Any) -> np.ndarray:
    result = np.full(size, fill, dtype)
    result[: len(values)] = values
    return result
