"""Attribution of a program: its tasks forward in both precisions, then backward one task at a time.

Every kind of task is compiled once, however often it is submitted. What is kept between the passes are the tensors
that tasks exchange; tiles are recomputed block by block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._dtypes import dtype_of
from .._float64 import float64_scope
from ..cost._compilation_cache import persistent
from ..hardware import Hardware
from ..lang._types import Spec
from ..program._graph import Graph, graph
from ..program._program import Program
from ..program._run import _specs
from ..program._task import OUTPUT, Arg, Task, adds
from ..program._tensor import Tensor
from ._attribute import Attribution, Functional, along_error, made_of, shares_of, weights_of
from ._shadow import Shadow, shadow_of


@dataclass
class _Step:
    """One executed task: what it was given and how it is pulled back."""

    task: Task
    shadow: Shadow
    low: dict[str, Any]
    high: dict[str, Any]  # at theta = 1/2
    statistics: np.ndarray


class _Contents:
    """What the buffers of a program hold: stored values and, where they differ from it, the reference."""

    def __init__(self, recorded: Graph, arrays: tuple[Any, ...]):
        self.low: dict[int, Any] = {}
        self.ideal: dict[int, Any] = {}
        for buffer in recorded.buffers:
            if buffer.creator is None:
                self.low[buffer.number] = jnp.asarray(arrays[buffer.number])
            else:
                self.low[buffer.number] = jnp.zeros(buffer.shape, dtype_of(buffer.dtype).jax)

    def read(self, tensor: Tensor) -> tuple[Any, Any | None]:
        number = tensor.buffer.number
        ideal = self.ideal.get(number)
        return _read(tensor, self.low[number]), None if ideal is None else _read(tensor, ideal)

    def write(self, arg: Arg, low: Any, ideal: Any) -> None:
        tensor, number = arg.tensor, arg.tensor.buffer.number
        if arg.direction == OUTPUT:
            self.low[number], self.ideal[number] = low, ideal
            return
        before = self.ideal.get(number, self.low[number].astype(jnp.float64))
        self.low[number] = tensor.write(self.low[number], low.astype(self.low[number].dtype))
        self.ideal[number] = tensor.write(before, ideal)


def _read(tensor: Tensor, array: Any) -> Any:
    whole = tensor.shape == tensor.buffer.shape
    return array if whole else tensor.read(array)


def attribute_program(
    program: Program, *arrays: Any, functional: Functional = along_error, hardware: Hardware | None = None
) -> Attribution:
    """A signed share of the error of what ``program`` returns for every operation and cast of every task.

    Args:
        program: a program.
        arrays: one for each of its arguments.
        functional: as for :func:`attribute`.
        hardware: the chip whose staging limits apply.

    >>> import numpy as np, pyptox as px
    >>> from pyptox import program as pp
    >>> @pp.program
    ... def norm_then_project(x, gain, w):
    ...     return pp.submit(px.kernels.matmul, pp.submit(px.kernels.rms_norm, x, gain), w, name="project")
    >>> rng = np.random.default_rng(0)
    >>> x, w = (rng.standard_normal(shape).astype("bfloat16") for shape in ((16, 64), (64, 32)))
    >>> report = attribute_program(norm_then_project, x, np.ones(64, np.float32), w)
    >>> report.holds, sorted({share.task for share in report.shares})
    (True, ['t0 rms_norm', 't1 project'])
    """
    recorded = graph(program, *_specs(program, arrays), hardware=hardware)
    with persistent(), float64_scope():
        contents = _Contents(recorded, arrays)
        steps = [_forward(task, contents, hardware) for task in recorded.tasks if task.kernel is not None]
        low = [np.asarray(tensor.read(contents.low[tensor.buffer.number])) for tensor in recorded.results]
        reference = [np.asarray(_shadow(contents, tensor)) for tensor in recorded.results]
        weights = weights_of(functional, low, reference)
        slopes = _backward(steps, recorded, weights)
    shares, flips = [], {}
    for step, slope in zip(steps, slopes, strict=True):
        more, changed = shares_of(step.shadow.sites, slope, step.statistics, step.task.label)
        shares += more
        flips |= changed
    return made_of(program.name, shares, flips, low, reference, weights)


def _shadow(contents: _Contents, tensor: Tensor) -> Any:
    low, ideal = contents.read(tensor)
    return low.astype(jnp.float64) if ideal is None else ideal


def _forward(task: Task, contents: _Contents, hardware: Hardware | None) -> _Step:
    """Run a task on the stored values and on the reference; what it is pulled back at lies half-way."""
    kernel = task.kernel
    assert kernel is not None
    args = {arg.name: arg for arg in task.args}
    low: dict[str, Any] = {}
    ideal: dict[str, Any] = {}
    for name in kernel.inputs:
        if name in task.control:
            low[name] = jnp.asarray(np.asarray(task.control[name].values, np.int32))
            continue
        low[name], wide = contents.read(args[name].tensor)
        if wide is not None:
            ideal[name] = wide
    shadow = shadow_of(kernel, task.specs(), task.values, frozenset(ideal), hardware)
    made, exact, statistics = shadow.forward(low, ideal, jnp.zeros(shadow.capacity, jnp.float64))
    half = {name: (wide + low[name].astype(jnp.float64)) / 2 for name, wide in ideal.items()}
    for title, stored, wide in zip(kernel.outputs, made, exact, strict=True):
        arg = args[kernel.in_place.get(title, title)]
        if adds(task, arg, title):
            stored, wide = contents.read(arg.tensor)[0] + stored, _shadow(contents, arg.tensor) + wide
        contents.write(arg, stored, wide)
    return _Step(task, shadow, low, half, np.asarray(statistics))


def _backward(steps: list[_Step], recorded: Graph, weights: list[np.ndarray]) -> list[np.ndarray]:
    """For each task the derivatives of the functional by its sites."""
    slopes: dict[int, Any] = {}

    def add(tensor: Tensor, slope: Any) -> None:
        number = tensor.buffer.number
        before = slopes.get(number)
        if before is None:
            before = jnp.zeros(tensor.buffer.shape, jnp.float64)
        slopes[number] = tensor.write(before, tensor.read(before) + slope)

    for tensor, weight in zip(recorded.results, weights, strict=True):
        add(tensor, jnp.asarray(weight))
    found = []
    for step in reversed(steps):
        kernel = step.task.kernel
        assert kernel is not None
        args = {arg.name: arg for arg in step.task.args}
        specs: Mapping[str, Spec] = step.task.specs()
        pulled = []
        for title in kernel.outputs:
            arg = args[kernel.in_place.get(title, title)]
            whole = slopes.get(arg.tensor.buffer.number)
            here = jnp.zeros(specs[title].shape, jnp.float64) if whole is None else arg.tensor.read(whole)
            pulled.append(here)
            if whole is not None and not adds(step.task, arg, title):  # what was there before is overwritten
                slopes[arg.tensor.buffer.number] = arg.tensor.write(whole, jnp.zeros_like(here))
        half = jnp.full(step.shadow.capacity, 0.5, jnp.float64)
        by_site, by_input = step.shadow.pull(step.low, step.high, half, tuple(pulled))
        found.append(np.asarray(by_site))
        for name, slope in by_input.items():
            add(args[name].tensor, slope)
    return found[::-1]
