"""Regions of GM whose place in L2 is followed: the buffers of a program, cut where its tasks cut them.

A buffer is cut along the one axis on which the views of it differ most, at the ends of these views; along the others it
stays whole. A view uses every part that it touches. A view that is no box of the buffer uses all of it.
"""

import math

from .._dtypes import dtype_of
from ..program._graph import Graph
from ..program._task import Task
from ..program._tensor import Tensor, _box

PARTS = 256
"""Parts of a buffer at most; finer cuts are left out evenly."""


class Regions:
    """The regions of a graph.

    Attributes:
        sizes: bytes of each.
    """

    def __init__(self, graph: Graph) -> None:
        views: dict[int, list[Tensor]] = {}
        for task in graph.tasks:
            for arg in task.args:
                views.setdefault(arg.tensor.buffer.number, []).append(arg.tensor)
            for tensor in task.warms:
                views.setdefault(tensor.buffer.number, []).append(tensor)
        self.sizes: list[int] = []
        self._cuts: dict[int, tuple[int, list[int], int]] = {}  # axis, ends of parts, number of the first part
        for number, each in views.items():
            buffer = each[0].buffer
            shape = buffer.shape or (1,)
            axis, ends = _cut(shape, each)
            row = math.prod(shape) // shape[axis] * dtype_of(buffer.dtype).bytes
            self._cuts[number] = axis, ends, len(self.sizes)
            self.sizes += [max((b - a) * row, 1) for a, b in zip([0, *ends], ends, strict=False)]

    def uses(self, task: Task, shares: dict[str, float]) -> list[tuple[int, float]]:
        """Regions of a task's tensors, with their parts of each tensor's share."""
        used: dict[int, float] = {}
        for arg in task.args:
            regions = self._of(arg.tensor)
            total = sum(self.sizes[region] for region in regions)
            share = shares.get(arg.name, 0.0) if arg.reads else 0.0
            for region in regions:
                used[region] = used.get(region, 0.0) + share * self.sizes[region] / total
        return list(used.items())

    def passes(self, task: Task, passes: dict[str, float]) -> list[float]:
        """How often the task reads each byte of these regions; 1 of what it writes."""
        used: dict[int, float] = {}
        for arg in task.args:
            for region in self._of(arg.tensor):
                used[region] = max(used.get(region, 1.0), passes.get(arg.name, 1.0) if arg.reads else 1.0)
        return list(used.values())

    def warmed(self, task: Task) -> list[tuple[int, float]]:
        """Regions that a warm brings, in order, each whole."""
        found = [region for tensor in task.warms for region in self._of(tensor)]
        return [(region, 1.0) for region in dict.fromkeys(found)]

    def _of(self, view: Tensor) -> list[int]:
        axis, ends, first = self._cuts[view.buffer.number]
        box = _box(view)
        low, high = (0, ends[-1]) if box is None else (box[0][axis], box[0][axis] + box[1][axis])
        starts = [0, *ends]
        return [first + n for n in range(len(ends)) if starts[n] < high and ends[n] > low]


def _cut(shape: tuple[int, ...], views: list[Tensor]) -> tuple[int, list[int]]:
    """The axis, and where the parts along it end."""
    boxes = [box for box in map(_box, {id(v): v for v in views}.values()) if box is not None]
    best, ends = 0, [shape[0]]
    for axis, extent in enumerate(shape):
        places = {extent}
        for starts, sizes in boxes:
            places |= {starts[axis], starts[axis] + sizes[axis]}
        found = sorted(places - {0})
        if len(found) > len(ends):
            best, ends = axis, found
    if len(ends) > PARTS:
        step = len(ends) / PARTS
        ends = [*(ends[int((n + 1) * step) - 1] for n in range(PARTS - 1)), ends[-1]]
    return best, ends
