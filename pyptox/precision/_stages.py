"""The first stage with good inputs and bad outputs, over the tasks of a program or the named tiles of a kernel.

The rule is msprobe's: an operation is guilty when what it was given passes and what it made does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._checks import instance, unmasked
from .._dtypes import dtype_of
from .._errors import PyptoxError
from ..hardware import Hardware
from ..program._graph import Graph, graph
from ..program._program import Program
from ..program._run import _specs
from ..program._task import OUTPUT, Task, adds
from ._emulate import emulated
from ._gates import AbstractGate, BitEqual, Verdict, judge, without_baseline


@dataclass(frozen=True)
class Stage:
    """One task: what it read and wrote, by the kernel's names, as NumPy arrays."""

    name: str
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class StageFinding:
    """What was found of one stage.

    Attributes:
        name: of the stage.
        inputs, outputs: verdicts on its tensors against the golden; None where the candidate has none of them.
        alone: verdict on its outputs against the golden computed from the candidate's own inputs, where these are
            all there: it is not blamed for what came in.
    """

    name: str
    inputs: Verdict | None
    outputs: Verdict | None
    alone: Verdict | None

    @property
    def guilty(self) -> bool:
        """Bad outputs from good inputs, or from its own inputs."""
        if self.alone is not None:
            return not self.alone.passed
        good = self.inputs is None or self.inputs.passed
        return good and self.outputs is not None and not self.outputs.passed

    def to_dict(self) -> dict[str, Any]:
        verdicts = {name: getattr(self, name) for name in ("inputs", "outputs", "alone")}
        return {"name": self.name, "guilty": self.guilty} | {n: v and v.to_dict() for n, v in verdicts.items()}

    def __str__(self) -> str:
        def word(verdict: Verdict | None) -> str:
            return "-" if verdict is None else "good" if verdict.passed else "BAD"

        line = f"{word(self.inputs):>6} {word(self.outputs):>7} {word(self.alone):>5}  {self.name}"
        bad = self.alone if self.alone is not None else self.outputs
        return f"{line}\n{'':22}{bad.summary}" if self.guilty and bad is not None else line


@dataclass(frozen=True)
class StageWalk:
    """Every stage in dependency order; ``first`` is the first guilty one, None where there is none."""

    stages: tuple[StageFinding, ...]

    @property
    def first(self) -> StageFinding | None:
        return next((stage for stage in self.stages if stage.guilty), None)

    @property
    def passed(self) -> bool:
        return self.first is None

    def to_dict(self) -> dict[str, Any]:
        first = self.first
        return {"first": first and first.name, "stages": [stage.to_dict() for stage in self.stages]}

    def __str__(self) -> str:
        first = self.first
        head = "every stage is good" if first is None else f"first bad stage: {first.name}"
        return "\n".join([head, f"{'inputs':>6} {'outputs':>7} {'alone':>5}", *map(str, self.stages)])


def stages(program: Program, *arrays: Any, hardware: Hardware | None = None) -> list[Stage]:
    """Every task of ``program`` in order of submission with the values that it reads and writes.

    The values are those of the emulated golden: stored types, one rounding an operation.

    >>> import numpy as np, pyptox as px
    >>> from pyptox import program as pp
    >>> @pp.program
    ... def twice(x, w):
    ...     return pp.submit(px.kernels.matmul, pp.submit(px.kernels.matmul, x, w), w)
    >>> x, w = np.ones((16, 32), "bfloat16"), np.ones((32, 32), "bfloat16")
    >>> [(stage.name, float(stage.outputs["out"][0, 0])) for stage in stages(twice, x, w)]
    [('t0 matmul', 32.0), ('t1 matmul', 1024.0)]
    """
    recorded = graph(program, *_specs(program, arrays), hardware=hardware)
    return _walk(recorded, arrays, hardware)


def _walk(recorded: Graph, arrays: Sequence[Any], hardware: Hardware | None) -> list[Stage]:
    contents: dict[int, np.ndarray] = {
        buffer.number: np.asarray(arrays[buffer.number])
        if buffer.creator is None
        else np.zeros(buffer.shape, dtype_of(buffer.dtype).jax)
        for buffer in recorded.buffers
    }
    found = []
    for task in recorded.tasks:
        if task.kernel is None:
            continue
        args = {arg.name: arg for arg in task.args}
        inputs = {n: np.asarray(args[n].tensor.read(contents[args[n].tensor.buffer.number])) for n in _tensors(task)}
        outputs: dict[str, np.ndarray] = {}
        for title, value in _computed(task, inputs, hardware).items():
            arg = args[task.kernel.in_place.get(title, title)]
            before = contents[arg.tensor.buffer.number]
            if adds(task, arg, title):
                value = np.asarray(arg.tensor.read(before)) + value
            whole = value if arg.direction == OUTPUT else np.asarray(arg.tensor.write(jnp.asarray(before), value))
            contents[arg.tensor.buffer.number], outputs[title] = whole, value
        found.append(Stage(task.label, inputs, outputs))
    return found


def _tensors(task: Task) -> list[str]:
    assert task.kernel is not None
    return [name for name in task.kernel.inputs if name not in task.control]


def _computed(task: Task, inputs: Mapping[str, np.ndarray], hardware: Hardware | None) -> dict[str, np.ndarray]:
    """The emulated outputs of one task."""
    assert task.kernel is not None
    given = [task.control[name] if name in task.control else inputs[name] for name in task.kernel.inputs]
    made = emulated(task.kernel, *given, hardware=hardware, **task.values)
    return dict(zip(task.kernel.outputs, made if isinstance(made, tuple) else (made,), strict=True))


def walk(
    program: Program,
    *arrays: Any,
    candidate: Mapping[str, Stage] | Sequence[Stage],
    gate: AbstractGate | None = None,
    hardware: Hardware | None = None,
) -> StageWalk:
    """Compare a candidate's tensors with the emulated golden, task by task, and name the first guilty one.

    A task whose inputs the candidate has is computed from these by itself, so that an error that came in is not
    blamed on it; the others are judged by the golden's run.

    Args:
        program: a program.
        arrays: one for each of its arguments, as the candidate was given them.
        candidate: what the candidate read and wrote, by the task's name (``t3 down``) or in a list; tensors that it
            does not have are left out, but one output there must be.
            :func:`pyptox.artifacts.dumped_stages` reads them from a device's dump.
        gate: of every tensor; bit equality by default.
        hardware: the chip whose staging limits apply.

    Raises:
        PyptoxError: the candidate names a task or tensor that there is none of, a tensor is of another shape or type,
            or nothing would be judged.

    >>> import numpy as np, pyptox as px
    >>> from pyptox import program as pp
    >>> @pp.program
    ... def twice(x, w):
    ...     return pp.submit(px.kernels.matmul, pp.submit(px.kernels.matmul, x, w), w, name="second")
    >>> x, w = np.ones((16, 32), "bfloat16"), np.ones((32, 32), "bfloat16")
    >>> first, second = stages(twice, x, w)
    >>> wrong = Stage(second.name, second.inputs, {"out": second.outputs["out"] * 2})
    >>> walk(twice, x, w, candidate=[first, wrong]).first.name
    't1 second'
    """
    given = _by_name(candidate)
    without_baseline(gate, "walk")
    recorded = graph(program, *_specs(program, arrays), hardware=hardware)
    golden = _walk(recorded, arrays, hardware)
    known = [stage.name for stage in golden]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise PyptoxError(f"`candidate` names {', '.join(unknown)}; the tasks are {', '.join(known) or 'none'}")
    given = {stage.name: _checked(given[stage.name], stage) for stage in golden if stage.name in given}
    if not any(mine.outputs for mine in given.values()):
        raise PyptoxError(
            f"`candidate` must hold an output of a task, or nothing is judged; there are {', '.join(known) or 'none'}"
        )
    tasks = {task.label: task for task in recorded.tasks}
    findings = []
    for stage in golden:
        mine = given.get(stage.name)
        if mine is None:
            findings.append(StageFinding(stage.name, None, None, None))
            continue
        task = tasks[stage.name]
        inputs = _verdict(gate, mine.inputs, stage.inputs)
        outputs, alone = _verdict(gate, mine.outputs, stage.outputs), None
        added = any(a.direction == "INOUT" and a.name in mine.outputs and a.name not in mine.inputs for a in task.args)
        if mine.outputs and set(_tensors(task)) <= mine.inputs.keys() and not added:
            alone = outputs if inputs is not None and _same(mine, stage) else None
            alone = alone or _verdict(gate, mine.outputs, _computed(task, mine.inputs, hardware))
        findings.append(StageFinding(stage.name, inputs, outputs, alone))
    return StageWalk(tuple(findings))


def _by_name(candidate: Any) -> dict[str, Stage]:
    """The candidate's stages by their tasks."""
    named = isinstance(candidate, Mapping)
    found = list(candidate.values() if named else candidate if isinstance(candidate, list | tuple) else [candidate])
    for stage in found:
        instance("candidate", stage, Stage, "stages, in a list or by the task's name")
    names = list(candidate if named else (stage.name for stage in found))
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise PyptoxError(f"`candidate` must have each task once; got {', '.join(twice)} more than once")
    return dict(zip(names, found, strict=True))


def _checked(mine: Stage, golden: Stage) -> Stage:
    """The candidate's stage in NumPy arrays; tensors that the golden has not, or not so, are refused."""
    return Stage(
        mine.name,
        _like("input", mine.name, mine.inputs, golden.inputs),
        _like("output", mine.name, mine.outputs, golden.outputs),
    )


def _like(side: str, task: str, mine: Mapping[str, Any], golden: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, value in mine.items():
        if name not in golden:
            known = ", ".join(golden) or "none"
            raise PyptoxError(f"`candidate` has the {side} {name!r} of {task}, whose {side}s are {known}")
        unmasked(name, value)
        arrays[name] = array = np.asarray(value)
        expected = golden[name]
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise PyptoxError(
                f"`{name}` of the candidate's {task} must be {expected.dtype}{list(expected.shape)}; got "
                f"{array.dtype}{list(array.shape)}"
            )
    return arrays


def _same(mine: Stage, golden: Stage) -> bool:
    """The candidate was given exactly what the golden was."""
    return all(np.array_equal(mine.inputs[n], a, equal_nan=a.dtype.kind == "f") for n, a in golden.inputs.items())


def _verdict(
    gate: AbstractGate | None, candidate: Mapping[str, np.ndarray], golden: Mapping[str, np.ndarray]
) -> Verdict | None:
    shared = {name: array for name, array in candidate.items() if name in golden}
    if not shared:
        return None
    return judge(gate or BitEqual(), shared, {name: golden[name] for name in shared})
