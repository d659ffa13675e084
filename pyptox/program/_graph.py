"""The graph reading: edges exactly as the runtime's dependency inference makes them.

Two sources alone make edges: dependencies that the program declares, and the tensor map, which knows the creator of
every buffer and who wrote which part of it. It follows true dependencies and writes after writes; **a write after a
read leaves no edge**, since readers leave no entry.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._checks import instance, integer
from ..hardware import Hardware
from ..lang._types import Spec
from ._program import Program
from ._scope import Scope
from ._task import INOUT, INPUT, OUTPUT, OUTPUT_EXISTING, Task
from ._tensor import Buffer, Tensor, indices


@dataclass(frozen=True)
class Edge:
    """``succ`` waits for ``pred``, or keeps its storage alive.

    Attributes:
        source: ``explicit``, ``creator`` or ``tensormap``.
        flags: ``wait`` gates the start; ``retain`` holds the storage of ``pred`` until ``succ`` is released.
        arg: which tensor of ``succ``; -1 for a declared one.
        overlap: of a tensor-map edge, ``covered`` (all of what was written is replaced or read) or ``other``.
    """

    pred: int
    succ: int
    source: str
    flags: tuple[str, ...]
    arg: int = -1
    overlap: str | None = None


@dataclass(frozen=True, eq=False)
class Graph:
    """Tasks in the order of submission, and their edges; one pair of tasks may have several."""

    name: str
    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...]
    buffers: tuple[Buffer, ...]
    arguments: dict[str, Spec]
    results: tuple[Tensor, ...]
    scopes: tuple[Scope, ...] = ()

    def waits(self) -> list[list[int]]:
        """For each task the tasks that it waits for, in order, once each."""
        found: list[dict[int, None]] = [{} for _ in self.tasks]
        for edge in self.edges:
            if "wait" in edge.flags:
                found[edge.succ][edge.pred] = None
        return [sorted(preds) for preds in found]

    def ancestors(self) -> list[int]:
        """For each task the tasks with a path to it, as a set of bits."""
        reach: list[int] = []
        for preds in self.waits():
            bits = 0
            for pred in preds:
                bits |= reach[pred] | 1 << pred
            reach.append(bits)
        return reach

    def to_dict(self) -> dict[str, Any]:
        """Tasks and edges as plain JSON values."""
        return {
            "program": self.name,
            "tasks": [
                {
                    "number": t.number,
                    "name": t.name,
                    "shape": t.shape,
                    "blocks": t.blocks,
                    "scope": t.scope,
                    "early": t.early,
                    "args": [[a.name, a.direction, repr(a.tensor)] for a in t.args],
                }
                for t in self.tasks
            ],
            "edges": [
                {"pred": e.pred, "succ": e.succ, "source": e.source, "flags": list(e.flags), "overlap": e.overlap}
                for e in self.edges
            ],
        }

    def dot(self) -> str:
        """The graph for Graphviz: declared edges bold, tensor-map edges dashed."""
        style = {"explicit": "bold", "creator": "solid", "tensormap": "dashed"}
        lines = [f'digraph "{self.name}" {{', "  rankdir=TB; node [shape=box, fontname=sans];"]
        lines += [f'  t{t.number} [label="{t.label}\\n{t.shape} x {t.blocks}"];' for t in self.tasks]
        lines += [f"  t{e.pred} -> t{e.succ} [style={style[e.source]}];" for e in self.edges]
        return "\n".join([*lines, "}"])

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.tasks)} tasks, {len(self.edges)} edges"]
        into: dict[int, list[Edge]] = {}
        for edge in self.edges:
            into.setdefault(edge.succ, []).append(edge)
        for task in self.tasks:
            after = ", ".join(f"t{e.pred} ({e.source})" for e in into.get(task.number, []))
            blocks = f"{task.blocks:>5} block{'s' * (task.blocks != 1)}"
            lines.append(f"{task.label:<28} {task.shape:<5} {blocks}" + (f"  after {after}" if after else ""))
        return "\n".join(lines)


class _Views:
    """Numbers for the distinct views of a program, and how each pair of one buffer overlaps: computed once."""

    def __init__(self):
        self.numbers: dict[tuple, int] = {}
        self.views: list[Tensor] = []
        self.kinds: dict[tuple[int, int], str | None] = {}

    def number(self, view: Tensor) -> int:
        """The same for views that address the same elements of a buffer."""
        key = view.buffer.number, view.offset, view.shape, view.strides
        found = self.numbers.setdefault(key, len(self.views))
        if found == len(self.views):
            self.views.append(view)
        return found

    def overlap(self, reader: int, written: int) -> str | None:
        """:func:`overlap` of two of them."""
        pair = reader, written
        if pair not in self.kinds:
            self.kinds[pair] = overlap(self.views[reader], self.views[written])
        return self.kinds[pair]


def infer(tasks: tuple[Task, ...], retired_after: int | None = None) -> Iterator[Edge]:
    """The edges of tasks in the order of their submission.

    Args:
        tasks: the tasks.
        retired_after: an entry of the tensor map is gone when so many tasks have been submitted since; by default no
            task is taken to have retired.

    Source: pto_dep_compute.h and pto_tensormap.h of the runtime.
    """
    live: dict[int, deque[tuple[int, int]]] = {}  # by buffer: task and view of what was written, newest first
    views = _Views()
    for task in tasks:
        for pred in task.deps:
            yield Edge(pred, task.number, "explicit", ("wait", "retain"))
        if task.scope == "manual":
            continue
        for position, arg in enumerate(task.args):
            creator = arg.tensor.buffer.creator
            if arg.direction != OUTPUT and creator is not None:
                yield Edge(creator, task.number, "creator", ("wait", "retain"), position)
            if arg.direction in (INPUT, INOUT) and not arg.tensor.buffer.manual_dep and not arg.no_dep:
                entries, view = live.get(arg.tensor.buffer.number, deque()), views.number(arg.tensor)
                while retired_after is not None and entries and entries[-1][0] < task.number - retired_after:
                    entries.pop()
                kinds = [views.overlap(view, written) for _, written in entries]
                for (pred, _), kind in zip(entries, kinds, strict=True):
                    if kind is not None:
                        yield Edge(pred, task.number, "tensormap", ("wait",), position, kind)
                if arg.direction == INOUT and "covered" in kinds:
                    left = (entry for entry, kind in zip(entries, kinds, strict=True) if kind != "covered")
                    live[arg.tensor.buffer.number] = deque(left)
        for arg in task.args:
            if arg.direction in (INOUT, OUTPUT_EXISTING) and not arg.tensor.buffer.manual_dep:
                entry = task.number, views.number(arg.tensor)
                live.setdefault(arg.tensor.buffer.number, deque()).appendleft(entry)


def overlap(reader: Tensor, written: Tensor) -> str | None:
    """Whether two views of one buffer share elements, as far as the runtime can tell.

    Returns:
        None when they are disjoint; ``covered`` when the first holds all of the second; ``other`` when they overlap
        or cannot be told apart: views of other strides count as overlapping when their extents do.
    """
    first, second = _extent(reader), _extent(written)
    if first[1] <= second[0] or second[1] <= first[0]:
        return None
    strides = reader.strides
    comparable = (
        strides == written.strides
        and len(strides) > 0
        and strides[-1] == 1
        and all(a % b == 0 for a, b in itertools.pairwise(strides))
    )
    if not comparable:
        return "other"
    a, b = indices(reader.offset, reader.shape, strides), indices(written.offset, written.shape, strides)
    if a is None or b is None:
        return "other"
    covered = True
    for x, y, m, n in zip(a, b, reader.shape, written.shape, strict=True):
        if x + m <= y or y + n <= x:
            return None
        covered = covered and x <= y and y + n <= x + m
    return "covered" if covered else "other"


def _extent(view: Tensor) -> tuple[int, int]:
    """First element, and one past the last."""
    reach = sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    return view.offset, view.offset + reach + 1


def graph(
    program: Program,
    *specs: Spec,
    hardware: Hardware | None = None,
    retired_after: int | None = None,
    **sizes: Any,
) -> Graph:
    """The tasks and edges of a program on arguments of these specs, or of its named sizes.

    Args:
        program: the program.
        specs: one for each argument, or none.
        hardware: the chip that kernels choose their grids for; a2a3 by default.
        retired_after: tasks are taken to have retired, and left the tensor map, when so many more were submitted. By
            default none has, so that tasks which write one buffer again and again wait for all writers before: edges
            grow with the square of the tasks. A window keeps a long program's graph small; a race that crosses it is
            then reported though the runtime may still see it.
        sizes: named sizes.

    Raises:
        ProgramError: a window below 1, or what the program asks for in vain.
    """
    instance("program", program, Program, "a function marked @program")
    instance("hardware", hardware, (Hardware, type(None)), "a chip, such as px.hardware.a2a3()")
    if retired_after is not None:
        integer("retired_after", retired_after, 1)
    arguments: Mapping[str, Spec] = program.specs(*specs, **sizes)
    recording, results = program.record(arguments, hardware)
    tasks = tuple(recording.tasks)
    return Graph(
        program.name,
        tasks,
        tuple(infer(tasks, retired_after)),
        tuple(recording.buffers),
        dict(arguments),
        results,
        recording.scopes.finished(len(tasks)),
    )
