"""``examine_program``: a whole program beside float64, by the same figures, gates and snapshots as a kernel."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._checks import instance
from .._dtypes import dtype_of
from ..hardware import Hardware, a2a3
from ..lang._types import Spec
from ..program import run as run_program
from ..program._graph import Graph, graph
from ..program._program import Program
from ..program._run import reference as reference_of
from ..program._task import OUTPUT, Arg, Task, adds
from ..program._tensor import Tensor
from ._check import LARGEST, Bound, TooLargeError, _tuple, golden_and_bound
from ._examine import Examination, Subject, _kept, _origin, _taken
from ._gates import AbstractGate, without_baseline
from ._inputs import draw_all
from ._lookups import places_of
from ._shrink import reduction_length
from ._snapshot import identity_of


def examine_program(
    program: Program,
    specs: Mapping[str, Spec] | None = None,
    hardware: Hardware | None = None,
    seed: int = 0,
    *,
    gate: AbstractGate | Mapping[str, AbstractGate] | None = None,
    distribution: str | Mapping[str, str] = "normal",
    save_to: str | os.PathLike[str] | None = None,
    replay: str | os.PathLike[str] | None = None,
) -> Examination:
    """Run ``program`` and its float64 reading on the same inputs, and judge what it returns, all of it.

    Without a gate the bound of each task's rounding errors is handed on to the tasks that read what it wrote. It knows
    no decisions: an index that comes out otherwise because its scores are rounded fails, see :class:`TopK`.

    Args:
        program: a program.
        specs: of every argument, from :meth:`pyptox.program.Program.specs`; its named sizes' defaults where left out.
        hardware, seed, gate, distribution, save_to, replay: as in :func:`pyptox.precision.examine`. What a program
            returns is called by its buffer, ``matmul.out``; a second tensor of it ends in ``.1``.

    Raises:
        TooLargeError, SnapshotError: as said there.

    >>> import pyptox as px
    >>> from pyptox import program as pp
    >>> @pp.program
    ... def twice(x, w):
    ...     return pp.submit(px.kernels.matmul, pp.submit(px.kernels.matmul, x, w), w)
    >>> specs = twice.specs(px.spec((16, 32), "bf16"), px.spec((32, 32), "bf16"))
    >>> found = examine_program(twice, specs, distribution="outliers")
    >>> found.passed, found.report["matmul.out"].shape
    (True, (16, 32))
    """
    instance("program", program, Program, "an @program")
    without_baseline(gate, "examine_program")
    chip = hardware or a2a3()
    specs = specs or program.specs()
    recorded = graph(program, *specs.values(), hardware=chip)
    elements = sum(math.prod(buffer.shape) for buffer in recorded.buffers)
    if elements > LARGEST:
        raise TooLargeError(
            f"`specs` of a program that is compared with float64 must make it hold at most {LARGEST:,} elements; "
            f"{program.name} has {elements:,}. Try smaller sizes, or fewer layers"
        )
    identity, kept = _taken(lambda: identity_of(recorded, hardware=chip), replay, save_to, distribution, seed)
    if kept is None:
        inputs = sample_program_inputs(recorded, chip, seed, distribution)
    else:
        inputs = [spec if spec.values is not None else _kept(kept.inputs, name) for name, spec in specs.items()]
    origin = _origin(distribution) if replay is None else f"replayed from {replay}"
    subject = of_program(program, recorded, inputs, chip, origin, seed if kept is None else kept.seed)
    return subject.examine(gate, kept and kept.golden, save_to, identity)


def result_names(recorded: Graph) -> list[str]:
    """A name for each tensor that a program returns."""
    counts: dict[str, int] = {}
    names = []
    for tensor in recorded.results:
        name = tensor.buffer.name
        number = counts.get(name, 0)
        counts[name] = number + 1
        names.append(f"{name}.{number}" if number else name)
    return names


def of_program(
    program: Program, recorded: Graph, inputs: Sequence[Any], chip: Hardware, origin: str, seed: int | None
) -> Subject:
    """A program on these inputs."""
    names, kinds = result_names(recorded), [tensor.dtype for tensor in recorded.results]
    shown = recorded.arguments | {n: t.spec for n, t in zip(names, recorded.results, strict=True)}
    kernels = {(task.kernel, tuple(task.specs().items())) for task in recorded.tasks if task.kernel is not None}

    def bounded() -> tuple[tuple, Bound]:
        steps = Bounds(recorded, inputs, chip)
        narrowed = tuple(dict.fromkeys(place for step in steps.steps() for place in step.bound.narrowed))
        ends = [steps.read(tensor) for tensor in recorded.results]
        return tuple(value for value, _ in ends), Bound(tuple(error for _, error in ends), narrowed)

    return Subject(
        name=program.name,
        specs=shown,
        outputs=dict(zip(names, kinds, strict=True)),
        run=lambda: _tuple(run_program(program, *inputs, whole=False, hardware=chip)),
        golden=lambda: _tuple(reference_of(program, *inputs, hardware=chip)),
        bounded=bounded,
        baseline=None,
        inputs=dict(zip(program.tensors, inputs, strict=True)),
        reduction=max((reduction_length(kernel, dict(specs)) for kernel, specs in kernels), default=1),
        origin=origin,
        seed=seed,
        values={},
    )


@dataclass(frozen=True)
class Step:
    """A task in float64: what it read and made, by the kernel's names, with bounds of their errors."""

    task: Task
    inputs: dict[str, Any]
    errors: dict[str, Any]
    outputs: dict[str, np.ndarray]
    bound: Bound

    @property
    def targets(self) -> list[tuple[Arg, str]]:
        """Each output's argument, and its title."""
        kernel, args = self.task.kernel, {arg.name: arg for arg in self.task.args}
        assert kernel is not None
        return [(args[kernel.in_place.get(title, title)], title) for title in kernel.outputs]


class Bounds:
    """What the buffers of a program hold in float64, and a bound of each element's error; filled in task by task."""

    def __init__(self, recorded: Graph, arrays: Sequence[Any], chip: Hardware):
        self.recorded, self.chip = recorded, chip
        self.values: dict[int, np.ndarray] = {}
        self.errors: dict[int, np.ndarray] = {}
        for buffer in recorded.buffers:
            given = arrays[buffer.number] if buffer.creator is None else np.zeros(buffer.shape, np.float64)
            self.values[buffer.number] = np.asarray(given.values if isinstance(given, Spec) else given)

    def read(self, tensor: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The elements of a view, and the bounds of their errors."""
        number = tensor.buffer.number
        value = np.asarray(tensor.read(self.values[number])).astype(np.float64)
        error = self.errors.get(number)
        return value, np.zeros(value.shape) if error is None else np.asarray(tensor.read(error))

    def steps(self) -> Iterator[Step]:
        """Every task with a kernel, in the order of submission."""
        for task in self.recorded.tasks:
            if task.kernel is not None:
                yield self._step(task)

    def _step(self, task: Task) -> Step:
        kernel, args = task.kernel, {arg.name: arg for arg in task.args}
        assert kernel is not None
        inputs: dict[str, Any] = {}
        errors: dict[str, Any] = {}
        for name in kernel.inputs:
            if name in task.control:
                inputs[name] = task.control[name]
                continue
            tensor = args[name].tensor
            inputs[name] = tensor.read(self.values[tensor.buffer.number])
            if tensor.buffer.number in self.errors and dtype_of(tensor.dtype).name != "int32":
                errors[name] = tensor.read(self.errors[tensor.buffer.number])
        given = [inputs[name] for name in kernel.inputs]
        made, bound = golden_and_bound(kernel, task.specs(), task.values, self.chip, given, errors)
        step = Step(task, inputs, errors, dict(zip(kernel.outputs, made, strict=True)), bound)
        known = []
        for (arg, title), error in zip(step.targets, bound.errors, strict=True):
            step.outputs[title], error = self._write(task, arg, title, step.outputs[title], error)
            known.append(error)
        return replace(step, bound=replace(bound, errors=tuple(known)))

    def _write(self, task: Task, arg: Arg, title: str, value: np.ndarray, error: np.ndarray) -> tuple:
        """Store an output, and give what is there now."""
        tensor, number = arg.tensor, arg.tensor.buffer.number
        if adds(task, arg, title):
            before, known = self.read(tensor)
            value, error = before + value, known + error + dtype_of(tensor.dtype).unit_roundoff * np.abs(before + value)
        if arg.direction == OUTPUT:
            self.values[number], self.errors[number] = value, error
        else:
            known = self.errors.get(number, np.zeros(tensor.buffer.shape))
            self.values[number] = written(tensor, self.values[number].astype(np.float64), value)
            self.errors[number] = written(tensor, known, error)
        return value, error


def written(tensor: Tensor, array: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The buffer's contents with this view's elements replaced; NumPy, in any scope."""
    made = np.array(array)
    made.reshape(-1)[tensor.elements().reshape(-1)] = np.asarray(values).reshape(-1)
    return made


def sample_program_inputs(
    recorded: Graph, hardware: Hardware, seed: int = 0, distribution: str | Mapping[str, str] = "normal"
) -> list[Any]:
    """Seeded arguments of a program, as :func:`sample_inputs` draws those of a kernel.

    What its kernels take for places in a tensor is in range, and distinct within each view that is written through.
    """
    if any(spec.dtype == "int32" and spec.values is None for spec in recorded.arguments.values()):
        places = _places(recorded, hardware, np.random.default_rng(seed + 1))
    else:
        places = {}
    return draw_all(recorded.arguments, tuple(recorded.arguments), seed, distribution, places, recorded.name)


def _places(recorded: Graph, hardware: Hardware, generator: np.random.Generator) -> dict[str, np.ndarray]:
    arguments = {buffer.number: buffer for buffer in recorded.buffers if buffer.creator is None}
    found: dict[str, np.ndarray] = {}
    drawn: set[tuple] = set()
    for task in recorded.tasks:
        if task.kernel is None:
            continue
        args = {arg.name: arg.tensor for arg in task.args}
        chosen = {n: t for n, t in args.items() if t.buffer.number in arguments and t.dtype == "int32"}
        keys = {n: (t.buffer.number, t.offset, t.shape, t.strides) for n, t in chosen.items()}
        if all(key in drawn for key in keys.values()):
            continue
        for name, values in places_of(task.kernel, task.specs(), generator, hardware).items():
            if name in chosen and keys[name] not in drawn:
                drawn.add(keys[name])
                buffer = arguments[chosen[name].buffer.number]
                before = found.get(buffer.name, np.zeros(buffer.shape, np.int32))
                found[buffer.name] = written(chosen[name], before, values)
    return found
