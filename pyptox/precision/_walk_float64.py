"""The first task of a program whose own rounding is worse than it may be, beside float64."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._dtypes import dtype_of
from ..hardware import Hardware, a2a3
from ..program._graph import graph
from ..program._program import Program
from ..program._run import _specs
from ..program._task import adds
from ._check import Bound, golden_and_bound, nearest_report
from ._examine_program import Bounds, Step
from ._gates import AbstractGate, Finding, Verdict, judge, without_baseline
from ._stages import Stage, StageFinding, StageWalk, stages


def walk_float64(
    program: Program,
    *arrays: Any,
    gate: AbstractGate | None = None,
    hardware: Hardware | None = None,
) -> StageWalk:
    """Compare every tensor that ``program`` makes with float64, task by task, and name the first guilty task.

    A task is guilty when what it makes of the inputs that it had is off from float64 of these inputs; what came in is
    shown beside it. :func:`walk` does so for a device's values and the emulated golden.

    Args:
        program: a program.
        arrays: one for each of its arguments.
        gate: of every tensor; by default the bound of what rounding may cost, handed on from task to task.
        hardware: the chip whose staging limits apply.

    >>> import numpy as np, pyptox as px
    >>> from pyptox import program as pp
    >>> from pyptox.precision import RelL2
    >>> @pp.program
    ... def coarse(x, w):
    ...     return pp.submit(px.kernels.matmul, pp.submit(px.kernels.convert("int8"), x), w)
    >>> x = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    >>> found = walk_float64(coarse, x, np.ones((32, 32), np.int8), gate=RelL2(1e-2))
    >>> found.first.name, found.stages[1].alone.passed
    ('t0 convert(int8)', True)
    """
    without_baseline(gate, "walk_float64")
    chip = hardware or a2a3()
    recorded = graph(program, *_specs(program, arrays), hardware=hardware)
    stored = stages(program, *arrays, hardware=hardware)
    steps = Bounds(recorded, arrays, chip).steps()
    return StageWalk(tuple(_finding(stage, step, gate, chip) for stage, step in zip(stored, steps, strict=True)))


def _finding(stage: Stage, step: Step, gate: AbstractGate | None, chip: Hardware) -> StageFinding:
    task = step.task
    assert task.kernel is not None
    specs = task.specs()
    given = {n: np.asarray(a, np.float64) for n, a in step.inputs.items() if n in stage.inputs}
    known = Bound(tuple(step.errors.get(n, np.zeros(a.shape)) for n, a in given.items()))
    inputs = _verdict(gate, stage.inputs, given, known) if given else None
    outputs = _verdict(gate, stage.outputs, step.outputs, step.bound)
    alone = None
    if not any(adds(task, arg, title) for arg, title in step.targets):
        own = [task.control[n] if n in task.control else stage.inputs[n] for n in task.kernel.inputs]
        made, bound = golden_and_bound(task.kernel, specs, task.values, chip, own)
        alone = _verdict(gate, stage.outputs, dict(zip(task.kernel.outputs, made, strict=True)), bound)
    return StageFinding(stage.name, inputs, outputs, alone)


def _verdict(
    gate: AbstractGate | None, candidate: Mapping[str, np.ndarray], golden: Mapping[str, np.ndarray], bound: Bound
) -> Verdict:
    mine = {name: candidate[name] for name in golden}
    if gate is not None:
        return judge(gate, mine, golden)
    findings = []
    for (name, expected), error in zip(golden.items(), bound.errors, strict=True):
        dtype = dtype_of(str(mine[name].dtype)).name
        limit = Bound((error,), bound.narrowed)
        report = nearest_report(name, {}, [dtype], [mine[name]], [expected], limit, 1, 0)
        findings.append(Finding(name, "bound", report.passed, report.summary))
    return Verdict(tuple(findings))
