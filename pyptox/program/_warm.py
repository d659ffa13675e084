"""Warms: weights brought into L2 ahead of their use, while other work runs."""

import math
from collections.abc import Iterable
from typing import Any

from .._checks import integer, text
from ._submit import _placed, _tasks, current
from ._task import Task
from ._tensor import ProgramError, Tensor, dense_strides


def warm(*tensors: Tensor, deps: Iterable[Task | Tensor] = (), context: int = 0, name: str = "warm") -> Task:
    """Bring regions of GM into L2 by SDMA: one task of one block on a vector core, which writes nothing.

    It changes no value, so :func:`pyptox.program.run` and :func:`pyptox.program.reference` pass it over. Nothing waits
    for it: a task that comes before a region has landed reads the rest from HBM.

    Args:
        tensors: what to warm, in this order: arguments of the program, or parts of them without gaps.
        deps: the anchor: tasks, or what they returned, after which it begins.
        context: which SDMA context streams it; warms of one context queue up, several share worse than one.
        name: for people.

    Raises:
        ProgramError: a region that is computed on the device, has gaps, or whose place or size is not known before.

    >>> import pyptox as px
    >>> from pyptox import program as pp
    >>> @pp.program(sizes=lambda: {"x": px.spec((16, 64), "bf16"), "w": px.spec((2, 64, 64), "bf16")})
    ... def layers(x, w):
    ...     x = pp.submit(px.kernels.matmul, x, w[0])
    ...     pp.warm(w[1], deps=[x])
    ...     return pp.submit(px.kernels.matmul, x, w[1])
    >>> [(task.name, task.shape, task.warms) for task in pp.graph(layers).tasks][1]
    ('warm', 'AIV', (w bf16[64,64] at 4096,))
    """
    recording = current()
    if not tensors:
        raise ProgramError("`warm` expects the tensors to warm, in order; got none. Try pp.warm(weight, deps=[task])")
    integer("context", context, 0, MOST_CONTEXTS - 1)
    text("name", name, "warm")
    for number, tensor in enumerate(tensors):
        _check(tensor)
        recording.own(tensor, "`warm`")
        if any(_overlap(tensor, other) for other in tensors[:number]):
            raise ProgramError(f"`warm` expects each region once; got {tensor!r} again. Leave one out")
    task = Task(
        len(recording.tasks),
        name,
        None,
        (),
        blocks=1,
        shape="AIV",
        deps=_tasks(deps, recording),
        warms=tensors,
        context=context,
        **_placed(recording),
    )
    recording.tasks.append(task)
    return task


MOST_CONTEXTS = 4
"""SDMA contexts that a program may use."""


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two regions without gaps have elements in common."""
    ends = [tensor.offset + math.prod(tensor.shape) for tensor in (one, other)]
    return one.buffer is other.buffer and one.offset < ends[1] and other.offset < ends[0]


def _check(tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise ProgramError(
            f"`warm` expects tensors of the program, whose place and size are known; got {type(tensor).__name__}. What "
            "is chosen by data cannot be warmed: name all of it, or a part that is fixed"
        )
    name = tensor.buffer.name
    if tensor.buffer.creator is not None:
        raise ProgramError(
            f"`warm` expects arguments of the program; `{name}` is made by task t{tensor.buffer.creator}, so that its "
            "place in GM is not known before, and its values come through L2 anyway"
        )
    wanted, step = dense_strides(tensor.shape), tensor.strides
    if any(size > 1 and a != b for size, a, b in zip(tensor.shape, step, wanted, strict=True)):
        raise ProgramError(
            f"`warm` expects regions without gaps; {tensor!r} has rows {max(step)} elements apart that are shorter. "
            "Warm whole rows, one part after another"
        )
