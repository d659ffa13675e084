"""Between the arguments that a device dumped and the stages of a program."""

from collections.abc import Mapping, Sequence

import numpy as np

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
