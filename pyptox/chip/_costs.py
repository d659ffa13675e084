"""From a program's graph to a workload: what its tasks' blocks take and move, by the cost model."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._errors import VerifierError
from .._scalar import maximum
from ..cost._evaluate import cost_of
from ..cost._nest import Options, options_for, record
from ..cost._summary import Cost
from ..cost._verify import verify
from ..hardware import Hardware
from ..program._graph import Graph
from ..program._task import Task
from ..rings import Limits, Storage, submissions
from ._memory import Memory
from ._regions import Regions
from ._warm import Sdma, Warms
from ._workload import Workload

LOADS = ("MTE2", "MTE2V")
"""Pipes that load from GM."""


@dataclass(frozen=True)
class BlockCost:
    """One block of a task on a busy chip, without the launch, µs.

    Attributes:
        cold_us: nothing that it reads is in L2.
        resident_us: everything is.
        hbm_us: how long the blocks that run together occupy what HBM can serve at once, if they find nothing
            (:func:`streaming_us`).
        l2_us: how long L2 takes for them.
        together: how many these are: as many as there are cores for.
        shares: of the traffic from HBM, by tensor.
        passes: how often the task reads each byte of a tensor, through L2.
    """

    cold_us: float
    resident_us: float
    hbm_us: float
    l2_us: float
    together: float
    shares: dict[str, float]
    passes: dict[str, float] = field(default_factory=dict)


def block_cost(task: Task, hardware: Hardware, full: bool = False) -> BlockCost:
    """``(time - launch) / waves`` with an empty L2 and with one that holds every input, and what is moved.

    ``full``: the task's last wave is filled up by other tasks (:func:`filled`).

    Raises:
        VerifierError: the task's kernel, so configured, does not fit the chip.
    """
    assert task.kernel is not None
    chip = plain(hardware)
    cold, shares, passes = _predicted(task, chip, (), full)
    if not cold.legal:
        _refuse(task, hardware)
    warm, *_ = _predicted(task, chip, tuple((name, 1.0) for name in shares), full)
    waves, launch = float(cold.waves), chip.times.launch_us
    moved = float(cold.moved["read"]) + float(cold.moved["write"])
    cold_us = (float(cold.time_us) - launch) / waves
    return BlockCost(
        cold_us,
        min((float(warm.time_us) - launch) / waves, cold_us),
        min(float(streaming_us(cold, chip, full)), cold_us),
        min(moved * chip.times.l2_us / float(waves_of(cold, full)), cold_us),
        float(cold.cores),
        shares,
        passes,
    )


def waves_of(cost: Cost, full: bool) -> Any:
    """Waves of blocks, the last one counted as what there is of it where others fill it up."""
    return cost.blocks / cost.cores if full else cost.waves


def streaming_us(cost: Cost, chip: Hardware, full: bool = False) -> Any:
    """How long the blocks that run together occupy what HBM can serve at once, µs.

    A byte from HBM costs a core ``max(miss_byte, active hbm)`` cycles (:func:`pyptox.lang.rules.load`): so many cores
    as ``miss_byte`` is worth are served at once without delay, or as many as the block was priced beside, and each of
    them has its share while it loads. That makes a block beside others of any task as slow as beside its own.
    """
    at_once = maximum(cost.cores, chip.times.miss_byte / (chip.clock_mhz * chip.times.hbm_us))
    missing = cost.moved["hbm"] / maximum(cost.moved["read"], 1.0)
    loading = maximum(*(cost.busy.get(pipe, 0.0) for pipe in LOADS)) * missing
    serving = maximum(cost.hbm_cycles / waves_of(cost, full), loading / cost.waves * cost.cores / at_once)
    return serving / chip.clock_mhz


def _refuse(task: Task, hardware: Hardware) -> None:
    """Say which limit of the chip the task breaks."""
    assert task.kernel is not None
    found = verify(task.kernel, task.specs(), task.values, hardware)
    values = ",".join(f"{name}={value}" for name, value in task.values.items())
    first = f"`{task.label}` cannot run on {hardware.name} with {values or 'its configuration'}"
    raise VerifierError("; ".join([first, *map(str, found.errors)]))


def _predicted(
    task: Task, chip: Hardware, resident: tuple, full: bool
) -> tuple[Any, dict[str, float], dict[str, float]]:
    """The cost of a task, each tensor's share of the bytes that HBM supplies for the first time, and its passes."""
    assert task.kernel is not None
    specs, options = task.specs(), Options(warm=4, resident=resident, full=full)
    cost = cost_of(task.kernel, specs, task.values, chip, options)
    moved: dict[str, float] = {}
    if resident:
        return cost, {}, {}
    if task.control:
        read = {a.name: float(np.prod(a.tensor.shape)) for a in task.args if a.reads}
    else:
        read = {}
        shapes = {name: tuple(map(float, spec.shape)) for name, spec in specs.items()}
        options = options_for(task.kernel, options, task.values)
        for transfer in record(task.kernel, specs, shapes, task.values, chip, options).traffic.values():
            if transfer.access.mode == "read":
                name = transfer.access.tensor.name
                read[name] = read.get(name, 0.0) + float(transfer.new)
                moved[name] = moved.get(name, 0.0) + float(transfer.moved)
    total = sum(read.values())
    passes = {name: size / read[name] for name, size in moved.items() if read[name]}
    return cost, {name: size / total for name, size in read.items()} if total else {}, passes


def plain(hardware: Hardware) -> Hardware:
    """The chip with plain numbers."""
    return hardware.replace(**{name: float(value) for name, value in hardware.flat().items()})


AHEAD = 64
"""Later submissions that are looked at for one that can fill up a task's last wave."""


def filled(graph: Graph, hardware: Hardware) -> np.ndarray:
    """By task, whether others fill up its last wave: one of the next that needs cores of its kind can run beside it."""
    tasks, found = graph.tasks, np.zeros(len(graph.tasks), bool)
    waits = graph.waits()
    for number, task in enumerate(tasks):
        if (
            task.kernel is None
            or not task.blocks % hardware.cores(task.shape)
            or task.blocks < hardware.cores(task.shape)
        ):
            continue
        after = {number}
        for other in range(number + 1, min(number + 1 + AHEAD, len(tasks))):
            if after.intersection(waits[other]):
                after.add(other)
            elif tasks[other].kernel is not None and (
                tasks[other].shape == task.shape or "MIX" in (task.shape, tasks[other].shape)
            ):
                found[number] = True
                break
    return found


def same_work(task: Task) -> Any:
    """Equal for tasks whose blocks take equally long."""
    return task.kernel, tuple(task.specs().items()), tuple(sorted(task.values.items(), key=lambda item: item[0]))


def workload(
    graph: Graph,
    hardware: Hardware,
    sdma: Sdma | None = None,
    rings: Limits | None = None,
    known: dict[Any, BlockCost] | None = None,
) -> Workload:
    """The tasks of a program's graph, each with what the cost model says of one block; ``sdma``: what warms cost.

    ``rings``: capacities; the runtime's where left out and the program has scopes of its own. ``known`` is added to:
    who asks about many graphs on one chip passes the same dictionary, and pays for no kernel twice.

    Blocks of a task are taken to be alike, and to run beside as many others of it as there are cores. A last wave that
    is not full has the bandwidth to itself, if nothing else can fill it (:func:`filled`).
    """
    known = {} if known is None else known
    nothing = BlockCost(0.0, 0.0, 0.0, 0.0, 1.0, {})
    sdma = sdma or Sdma()
    costs, full = [], filled(graph, hardware)
    for task in graph.tasks:
        if task.kernel is None:
            costs.append(replace(nothing, cold_us=(us := sdma.issue_us * len(task.warms)), resident_us=us))
            continue
        key = same_work(task), bool(full[task.number])
        if key not in known:
            known[key] = block_cost(task, hardware, key[1])
        costs.append(known[key])
    regions = Regions(graph)
    memory = Memory.of(
        *([getattr(cost, name) for cost in costs] for name in ("resident_us", "hbm_us", "l2_us")),
        regions=regions.sizes,
        uses=[regions.uses(task, cost.shares) for task, cost in zip(graph.tasks, costs, strict=True)],
        passes=[regions.passes(task, cost.passes) for task, cost in zip(graph.tasks, costs, strict=True)],
        together=[cost.together for cost in costs],
        capacity=float(hardware.sizes.l2),
        warms=Warms.of(
            [regions.warmed(task) for task in graph.tasks],
            context=[task.context for task in graph.tasks],
            hbm_byte_us=float(hardware.times.hbm_us),
            sdma=sdma,
        )
        if any(task.warms for task in graph.tasks)
        else None,
    )
    scoped = any(scope.number and scope.end is not None for scope in graph.scopes)
    producers: list[set[int]] = [set() for _ in graph.tasks]
    for edge in graph.edges:
        producers[edge.succ].add(edge.pred)
    return Workload.of(
        [t.shape for t in graph.tasks],
        [t.blocks for t in graph.tasks],
        [cost.cold_us for cost in costs],
        graph.waits(),
        edges=[len(p) for p in producers],
        early=[t.early for t in graph.tasks],
        sync_start=[t.sync_start for t in graph.tasks],
        memory=memory,
        names=[t.label for t in graph.tasks],
        # a task is retired when its scope has closed: of one that stays open to the end every edge is made
        lapses=scoped,
        storage=Storage(submissions(graph), rings or Limits()) if rings is not None or len(graph.scopes) > 1 else None,
    )
