"""A simulated timeline as a capture: the records, graph and names that a real run of it would leave."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..chip._blocks import Blocks as Placed
from ..chip._blocks import Served
from ..chip._oracle import clusters_of
from ..chip._retired import retirements
from ..chip._timeline import Timeline
from ..chip._workload import AIC, AIV, MIX, SHAPES, Workload
from ..program._graph import Graph
from ._capture import Capture
from ._deps import Deps, Edge, Task
from ._program_deps import kernel_slots, program_deps, task_ids
from ._tables import NO_TASK, Blocks, Phases, Records, Submits

CLOCK_HZ = 1_000_000_000
"""Ticks of 1 ns, as on A5. With those of A2 and A3 cards, 20 ns, a replay would see tasks in another order wherever
two of them become ready within a tick."""

ZERO = 1000
"""The counter at the first submission; 0 would read as not recorded."""


def simulated_capture(timeline: Timeline, *, clock_hz: int = CLOCK_HZ, program: str = "") -> Capture:
    """What a recorder of level 4 would have written down of ``timeline``, on a counter of ``clock_hz``.

    Stamps are rounded to ticks. Blocks that wait on a core for the one ahead are published when a round of their
    thread says so (:mod:`pyptox.chip._oracle`); the order of the blocks of one task over cores is the simulator's.

    >>> from pyptox import artifacts, chip
    >>> timeline = chip.simulate(chip.Workload.of(["AIC", "AIV"], [24, 48], [10.0, 5.0], [[], [0]]))
    >>> capture = artifacts.simulated_capture(timeline)
    >>> len(capture.records.blocks), capture.missing
    (72, ())
    """
    work, graph = timeline.workload, timeline.graph
    ids = task_ids(graph) if graph is not None else list(range(work.tasks))
    kinds = [work.whole(n).partition(" ")[2] or work.whole(n) for n in range(work.tasks)]
    names, kernels = kernel_slots(kinds, [SHAPES[shape] for shape in work.shapes])
    deps = program_deps(_left(timeline, graph), kernels) if graph is not None else _workload_deps(work, kernels)
    records = _records(timeline, np.array(ids, np.uint64), clock_hz)
    return Capture(Path(), records, deps, names, program or (graph.name if graph is not None else "workload"))


def _left(timeline: Timeline, graph: Graph) -> Graph:
    """The graph without what no run would leave: tensor-map edges of producers that had retired by the submission."""
    begun = np.concatenate([[0.0], timeline.times.submitted])
    free_at, retired = retirements(timeline.workload, timeline.times)
    gone = (free_at[e.pred] <= e.succ and retired[e.pred] <= begun[e.succ] for e in graph.edges)
    edges = (e for e, lapsed in zip(graph.edges, gone, strict=True) if e.source != "tensormap" or not lapsed)
    return replace(graph, edges=tuple(edges)) if timeline.workload.lapses else graph


def _workload_deps(work: Workload, kernels: Sequence[tuple[int, ...]]) -> Deps:
    tasks = tuple(
        Task(number, kernels[number], max(int(work.blocks[number]), 1), early_dispatch=bool(work.early[number]))
        for number in range(work.tasks)
    )
    return Deps(tasks, (), tuple(Edge(pred, task) for task, preds in enumerate(work.waits) for pred in preds))


def _records(timeline: Timeline, ids: np.ndarray, clock_hz: int) -> Records:
    placed = timeline.layout
    clusters, threads = timeline.clusters, timeline.schedule.threads
    each = clusters_of(clusters, threads)
    owners = np.arange(clusters) // each

    def ticks(us: np.ndarray) -> np.ndarray:
        return np.rint(np.asarray(us) * (clock_hz / 1e6)).astype(np.int64) + ZERO

    return Records(
        level=4,
        clock_hz=clock_hz,
        core_types=("aic",) * clusters + ("aiv",) * 2 * clusters,
        blocks=_blocks(placed.blocks, ids, clusters, ticks),
        phases=_phases(timeline, placed.served, ids, ticks),
        submits=_submits(timeline, ids, ticks),
        core_to_thread=tuple(owners.tolist()) + tuple(np.repeat(owners, 2).tolist()),
        threads=threads,
        orchestrators=1,
    )


def _blocks(b: Placed, ids: np.ndarray, clusters: int, ticks) -> Blocks:
    core = np.where(b.lane == 0, b.cluster, clusters + 2 * b.cluster + b.lane - 1)
    order = np.lexsort((b.order, b.start, core))
    sorted_cores = core[order]
    dispatch_number = np.empty(len(core), np.int64)
    first = np.searchsorted(sorted_cores, sorted_cores)
    dispatch_number[order] = np.arange(len(core)) - first + 1
    stamps = (ticks(x) for x in (b.receive, b.start, b.end, b.dispatch, b.finish))
    return Blocks(ids[b.task], core, dispatch_number, *stamps)


def _phases(timeline: Timeline, served: tuple[Served, ...], ids: np.ndarray, ticks) -> Phases:
    """One row for each stretch of a thread's work, and a marker for each dummy."""
    rows = [(s, s.kind) for s in served]
    rows = [row for s, kind in rows for row in ([(s, kind), (s, "dummy_task")] if kind == "dummy" else [(s, kind)])]
    count = len(rows)
    thread = np.array([s.thread for s, _ in rows], np.int64)
    start, end = (np.array([getattr(s, name) for s, _ in rows], float) for name in ("start_us", "end_us"))
    kinds = np.array([kind for _, kind in rows], str) if rows else np.zeros(0, "U1")
    marker, pops = kinds == "dummy_task", np.where(kinds == "dispatch", 1, -1)
    return Phases(
        thread=thread,
        kind=kinds,
        start=ticks(start),
        end=ticks(end),
        loop_iter=np.arange(count) - np.searchsorted(thread, thread),
        tasks_processed=np.array([max(s.subtasks, 1) for s, _ in rows], np.int64),
        pop_hit=pops,
        pop_miss=np.where(pops > 0, 0, -1),
        task_id=np.where(marker, ids[[s.task for s, _ in rows]] if rows else NO_TASK, NO_TASK),
        shared_at_start=_depths(timeline, start),
        shared_at_end=_depths(timeline, end),
    )


def _depths(timeline: Timeline, at: np.ndarray) -> np.ndarray:
    """Tasks in the ready queues of AIC, AIV and MIX at each moment, [moments, 3]."""
    work, times, queued = timeline.workload, timeline.times, ~timeline.staged

    def depth(shape: int) -> np.ndarray:
        mine = queued & (work.shapes == shape)
        arrived, left = np.sort(times.ready[mine]), np.sort(times.dispatch[mine])
        return np.searchsorted(arrived, at, side="right") - np.searchsorted(left, at, side="right")

    return np.stack([depth(shape) for shape in (AIC, AIV, MIX)], axis=1)


def _submits(timeline: Timeline, ids: np.ndarray, ticks) -> Submits:
    work, end, cost = timeline.workload, timeline.times.submitted, timeline.schedule.values()
    least = cost["submit_us"] + cost["submit_edge_us"] * work.wired
    start = np.maximum(np.concatenate([[0.0], end])[: len(end)], end - least)
    zeros = np.zeros(len(ids), np.int64)
    return Submits(zeros, np.arange(len(ids)), ids, ticks(start), ticks(end))
