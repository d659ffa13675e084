"""All files of a run, written into one folder."""

import os
from dataclasses import replace
from pathlib import Path

from .. import pmu
from ..chip._costs import same_work
from ..chip._timeline import Timeline
from ..pmu import Row, group
from ..program._graph import Graph
from . import _deps, _names, _records, _swimlane
from ._capture import PMU_FILE, Capture
from ._deps import Deps, write_deps
from ._names import NameMap, write_names, write_program
from ._program_deps import kernel_slots, program_deps, task_ids
from ._simulated import simulated_capture
from ._swimlane import write_swimlane
from ._write_records import write_records

NAMES_FILE = "name_map.json"


def write_capture(folder: str | os.PathLike[str], capture: Capture) -> list[Path]:
    """Write what a capture holds, each file whole, into a folder that is made where it is missing.

    Returns:
        The files: records, graph, name map, program, counters, and the swimlane for Perfetto.

    Raises:
        ArtifactError: something in it breaks a rule of its file.
    """
    folder = _made(folder)
    written = [folder / _records.FILE]
    write_records(written[0], capture.records)
    written += _write_graph(folder, capture.deps, capture.names, capture.program)
    if capture.pmu is not None:
        pmu.write(folder / PMU_FILE, capture.pmu)
        written.append(folder / PMU_FILE)
    write_swimlane(folder / _swimlane.FILE, capture)
    return [*written, folder / _swimlane.FILE]


def write_simulation(folder: str | os.PathLike[str], timeline: Timeline, *, program: str = "") -> list[Path]:
    """Write a simulation as the files of a run; counters too, where the tasks are kernels of a program.

    ``program`` is its name: that of the timeline's graph where left out.
    """
    capture = simulated_capture(timeline, program=program)
    return write_capture(folder, replace(capture, pmu=_counters(timeline, capture)))


def write_graph(folder: str | os.PathLike[str], graph: Graph) -> list[Path]:
    """Write a program's graph: ``deps.json``, its name map and its name."""
    names, kernels = kernel_slots([task.name for task in graph.tasks], [task.shape for task in graph.tasks])
    return _write_graph(_made(folder), program_deps(graph, kernels), names, graph.name)


def _made(folder: str | os.PathLike[str]) -> Path:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_graph(folder: Path, deps: Deps | None, names: NameMap | None, program: str | None) -> list[Path]:
    written = []
    if deps is not None:
        write_deps(folder / _deps.FILE, deps)
        written.append(folder / _deps.FILE)
    if names is not None:
        write_names(folder / NAMES_FILE, names)
        written.append(folder / NAMES_FILE)
    if program is not None:
        write_program(folder / _names.PROGRAM_FILE, program)
        written.append(folder / _names.PROGRAM_FILE)
    return written


def _counters(timeline: Timeline, capture: Capture) -> pmu.Capture | None:
    """What the busiest core of each kind counts of each task, as far as the cost model determines it."""
    graph = timeline.graph
    if graph is None or capture.deps is None:
        return None
    rows, known = [], {}
    for task, listed, task_id in zip(graph.tasks, capture.deps.tasks, task_ids(graph), strict=True):
        if task.kernel is None:
            continue
        key = same_work(task)
        if key not in known:
            known[key] = pmu.view(task.kernel, task.specs(), task.values, timeline.hardware)
        seen = known[key]
        for core, counters in seen.counters.items():
            rows.append(Row(None, None, task_id, listed.kernel(core.lower()), core, seen.total_cycles, counters))
    events = group(timeline.hardware.name, pmu.PIPE_UTIL)
    return pmu.Capture(events.event_type, events.counters, tuple(rows)) if rows else None
