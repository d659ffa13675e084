"""Between the arguments that a device dumped and the stages of a program."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._dtypes import dtype_of
from .._errors import PyptoxError
from ..precision import Stage
from ..program._graph import Graph
from ..program._task import Task
from ._args_dump import ArgsDump, DumpedArg
from ._deps import label

_RINGS = 4
"""A task's ring is the depth of its scope, the last one for all deeper ones."""


def task_ids(graph: Graph) -> dict[int, Task]:
    """The tasks of a program by the id that the runtime gives them: ``ring << 32 | place in the ring``."""
    counters, found = [0] * _RINGS, {}
    for task in graph.tasks:
        ring = min(task.depth, _RINGS - 1)
        found[ring << 32 | counters[ring]] = task
        counters[ring] += 1
    return found


def dumped_stages(dump: ArgsDump, graph: Graph) -> list[Stage]:
    """The stages that a device dumped, in order of submission, for :func:`pyptox.precision.walk`.

    Inputs are those before dispatch, outputs those after completion. Payloads that were cut, overwritten or not told
    apart are left out.

    Raises:
        PyptoxError: the dump has a task or an argument that the program has not: it is of another program.
    """
    tasks = task_ids(graph)
    inputs: dict[int, dict[str, np.ndarray]] = {number: {} for number in tasks}
    outputs: dict[int, dict[str, np.ndarray]] = {number: {} for number in tasks}
    for arg in dump.args:
        if not arg.whole or not isinstance(arg.value, np.ndarray):
            continue
        task = tasks.get(arg.task_id)
        if task is None or arg.index >= len(task.args):
            what = "no such task" if task is None else f"{task.label} has {len(task.args)} tensors"
            raise PyptoxError(
                f"`dump` has argument {arg.index} of {label(arg.task_id)}; {what}. Is it of another program?"
            )
        name = task.args[arg.index].name
        if arg.stage == "before_dispatch" and arg.role != "output":
            inputs[arg.task_id][name] = arg.value
        elif arg.stage == "after_completion" and arg.role != "input":
            outputs[arg.task_id][_output(task, name)] = arg.value
    chosen = [number for number in tasks if inputs[number] or outputs[number]]
    return [Stage(tasks[n].label, inputs[n], outputs[n]) for n in sorted(chosen, key=lambda n: tasks[n].number)]


def arguments_of(dump: ArgsDump, graph: Graph, kept: Mapping[str, np.ndarray] | None = None) -> list[Any]:
    """What the device was given for each argument of the program, from what its tasks read before they ran.

    Args:
        dump: of the device.
        graph: of the program.
        kept: arguments by name that are known otherwise; taken before the dump's. Elements that no task reads are 0.

    Raises:
        PyptoxError: a task reads a part of an argument that neither has.
    """
    dumped = {stage.name: stage.inputs for stage in dumped_stages(dump, graph)}
    kept, arguments = kept or {}, {b.number: b for b in graph.buffers if b.creator is None}
    held = {n: np.array(kept.get(b.name, np.zeros(b.shape, dtype_of(b.dtype).jax))) for n, b in arguments.items()}
    settled = {n: np.full(b.shape, b.name in kept or b.values is not None) for n, b in arguments.items()}
    written = {n: np.zeros(b.shape, bool) for n, b in arguments.items()}
    for task in graph.tasks:
        for arg in task.args:
            number = arg.tensor.buffer.number
            if number not in arguments or not (arg.reads or arg.name in dumped.get(task.label, {})):
                continue
            places = arg.tensor.elements().reshape(-1)
            open_ = ~(settled[number].reshape(-1) | written[number].reshape(-1))[places]
            value = dumped.get(task.label, {}).get(arg.name)
            if value is None and open_.any() and task.kernel is not None:
                raise PyptoxError(
                    f"`dump` must hold what {task.label} read of argument `{arguments[number].name}`; it does not. "
                    "Dump it, or give a saved snapshot of the arguments (--replay)"
                )
            if value is not None:
                held[number].reshape(-1)[places[open_]] = np.asarray(value).reshape(-1)[open_]
                settled[number].reshape(-1)[places] = True
        for arg in task.args:
            if arg.writes and arg.tensor.buffer.number in arguments:
                written[arg.tensor.buffer.number].reshape(-1)[arg.tensor.elements().reshape(-1)] = True
    return [spec if spec.values is not None else held[n] for n, spec in enumerate(graph.arguments.values())]


def _output(task: Task, name: str) -> str:
    """The kernel's name of the output that is held by argument ``name``."""
    in_place: Mapping[str, str] = {} if task.kernel is None else task.kernel.in_place
    return next((output for output, source in in_place.items() if source == name), name)


def dump_of(stages: Sequence[Stage], graph: Graph) -> ArgsDump:
    """The stages of a program as a device would dump them, the other way round."""
    numbers = {task.label: number for number, task in task_ids(graph).items()}
    by_label = {task.label: task for task in graph.tasks}
    args: list[DumpedArg] = []
    for stage in stages:
        task, number = by_label[stage.name], numbers[stage.name]
        for index, arg in enumerate(task.args):
            role = {"INPUT": "input", "INOUT": "inout"}.get(arg.direction, "output")
            if arg.name in stage.inputs:
                args.append(DumpedArg(number, role, "before_dispatch", index, stage.inputs[arg.name]))
            title = _output(task, arg.name)
            if role != "input" and title in stage.outputs:
                args.append(DumpedArg(number, role, "after_completion", index, stage.outputs[title]))
    return ArgsDump(tuple(args))
