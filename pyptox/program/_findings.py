"""What the runtime cannot know: orderings that are missing, edges that change nothing, and needless waits.

All three compare the graph with what every block truly reads and writes (:func:`pyptox.regions`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..lang._regions import regions
from ._graph import Graph
from ._task import Task
from ._tensor import Buffer, Tensor


@dataclass(frozen=True)
class Finding:
    """Something about two tasks.

    Attributes:
        kind: ``RAW``, ``WAW`` or ``WAR`` of a missing ordering; ``redundant`` or ``needed``; ``false serialisation``.
        first, second: numbers of the tasks, in the order of submission.
        tensor: name of the buffer; empty for a redundant edge.
        part: the smallest slice of it that holds those elements, such as ``x[16:32, :]``; empty where there are none.
        elements: first element and one past the last of what both touch; None where they share nothing.
        message: in words.
    """

    kind: str
    first: int
    second: int
    tensor: str
    elements: tuple[int, int] | None
    message: str
    part: str = ""

    def __str__(self) -> str:
        return self.message


def missing_orderings(graph: Graph) -> list[Finding]:
    """Pairs of tasks that touch the same elements, one of them writing, without a path between them.

    A read after a write, a write after a write, and a write after a read: the last of these the runtime never orders
    by itself.
    """
    found, reach, seen = [], graph.ancestors(), set()
    touches = _touches(graph)
    for number, mine in touches.items():
        for position, (second, after, writes) in enumerate(mine):
            for first, before, wrote in mine[:position]:
                if first == second or not (writes or wrote) or reach[second] >> first & 1:
                    continue
                kind = "RAW" if wrote and not writes else "WAW" if wrote else "WAR"
                shared = _shared(before, after)
                if shared is None or (kind, first, second, number) in seen:
                    continue
                seen.add((kind, first, second, number))
                name, part = graph.buffers[number].name, _slice(graph.buffers[number], shared)
                verbs = {"RAW": ("writes", "reads"), "WAW": ("writes", "writes"), "WAR": ("reads", "writes")}[kind]
                a, b = graph.tasks[first].label, graph.tasks[second].label
                found.append(
                    Finding(
                        kind,
                        first,
                        second,
                        name,
                        shared,
                        f"{kind}: {a} {verbs[0]} and {b} {verbs[1]} `{part}` (elements {shared[0]} to {shared[1]}), "
                        f"and nothing orders them",
                        part,
                    )
                )
    advised = [replace(f, message=f"{f.message}; {_advice(f, found, graph, reach)}") for f in found]
    return sorted(advised, key=lambda f: (f.second, f.first, f.kind))


def _advice(finding: Finding, found: list[Finding], graph: Graph, reach: list[int]) -> str:
    """The dependency to declare, or the other one that orders these two as well."""

    def before(a: int, b: int) -> bool:
        return a == b or bool(reach[b] >> a & 1)

    pair = finding.first, finding.second
    for other in found:
        others = other.first, other.second
        if others != pair and before(pair[0], others[0]) and before(others[1], pair[1]):
            first, second = (graph.tasks[n].label for n in others)
            return f"they are in order too once {second} waits for {first}"
    second, first = graph.tasks[finding.second].name, graph.tasks[finding.first].label
    return f"submit `{second}` with deps= on {first}"


def redundant_edges(graph: Graph) -> list[Finding]:
    """Pairs whose order a longer path implies as well.

    Their kind is ``redundant``, or ``needed`` where a creator edge keeps the storage of the first alive: without it
    that would be free too early.
    """
    reach, waits = graph.ancestors(), graph.waits()
    created = {(e.pred, e.succ) for e in graph.edges if e.source == "creator"}
    found = []
    for succ, preds in enumerate(waits):
        for pred in preds:
            through = [p for p in preds if p != pred and reach[p] >> pred & 1]
            if through:
                needed = (pred, succ) in created
                first, between, second = (graph.tasks[n].label for n in (pred, through[0], succ))
                text = f"{second} waits for {first} through {between} as well"
                text += "; the edge keeps its storage alive" if needed else ""
                found.append(Finding("needed" if needed else "redundant", pred, succ, "", None, text))
    return found


def false_serialisation(graph: Graph) -> list[Finding]:
    """Pairs that the tensor map alone orders although no element is written by one and touched by the other."""
    sources: dict[tuple[int, int], set[str]] = {}
    for edge in graph.edges:
        if "wait" in edge.flags:
            sources.setdefault((edge.pred, edge.succ), set()).add(edge.source)
    touches = _touches(graph)
    found = []
    for (pred, succ), kinds in sources.items():
        if kinds != {"tensormap"}:
            continue
        conflict, names = False, set()
        for number, mine in touches.items():
            before = [(at, writes) for task, at, writes in mine if task == pred]
            after = [(at, writes) for task, at, writes in mine if task == succ]
            if before and after:
                names.add(graph.buffers[number].name)
            conflict = conflict or any((a or b) and _shared(x, y) for x, a in before for y, b in after)
        if not conflict:
            a, b, name = graph.tasks[pred].label, graph.tasks[succ].label, ", ".join(sorted(names))
            text = f"{b} waits for {a} by views of `{name}` that share no element; hand the tensor over with no_dep"
            found.append(Finding("false serialisation", pred, succ, name, None, text))
    return found


def _touches(graph: Graph) -> dict[int, list[tuple[int, np.ndarray, bool]]]:
    """By buffer, in the order of submission: task, the runs of elements that it touches, and whether it writes them."""
    known: dict = {}
    result: dict[int, list[tuple[int, np.ndarray, bool]]] = {}
    for task in graph.tasks:
        for tensor, runs, writes in _of_task(task, known):
            result.setdefault(tensor.buffer.number, []).append((task.number, runs, writes))
    return result


def _of_task(task: Task, known: dict) -> Iterator[tuple[Tensor, np.ndarray, bool]]:
    if task.kernel is None:
        return
    specs = task.specs()
    key = task.kernel, tuple(specs.items()), tuple(task.values.items())
    if key not in known:
        known[key] = [
            (r.tensor, r.mode, joined(np.concatenate([r.starts, r.sizes], 1)))
            for r in regions(task.kernel, specs, task.values)
        ]
    args = {arg.name: arg.tensor for arg in task.args}
    args |= {output: args[source] for output, source in task.kernel.in_place.items() if source in args}
    for name, mode, boxes in known[key]:
        tensor = args.get(name)
        if tensor is None:  # a control input is no tensor of the program
            continue
        place = name, mode, tensor.offset, tensor.strides
        runs = known.get((key, place))
        if runs is None:
            runs = known[key, place] = _runs(tensor, boxes)
        if len(runs):
            if mode != "read":
                yield tensor, runs, True
            if mode != "write":
                yield tensor, runs, False


def joined(boxes: np.ndarray) -> np.ndarray:
    """Fewer boxes, ``[starts, sizes]`` a row, that hold the same elements: neighbours along one axis become one.

    >>> joined(np.array([[0, 0, 4, 8], [4, 0, 4, 8], [0, 8, 4, 8], [4, 8, 4, 8]])).tolist()
    [[0, 0, 8, 16]]
    """
    rank = boxes.shape[1] // 2
    boxes = boxes[(boxes[:, rank:] > 0).all(axis=1)]
    for axis in reversed(range(rank)):
        if not len(boxes):
            break
        rest = np.delete(boxes, [axis, rank + axis], axis=1)
        order = np.lexsort((boxes[:, axis], *rest.T))
        boxes, rest = boxes[order], rest[order]
        first, last = boxes[:, axis], boxes[:, axis] + boxes[:, rank + axis]
        other = np.concatenate([[False], (rest[1:] != rest[:-1]).any(axis=1)])
        far = np.cumsum(other) * (int(last.max()) + 1)  # boxes that differ elsewhere lie beyond all before
        end = np.maximum.accumulate(last + far)
        new = np.concatenate([[True], other[1:] | ((first + far)[1:] > end[:-1])])
        final = np.concatenate([new[1:], [True]])
        size = (end - far)[final] - first[new]
        boxes = boxes[new]
        boxes[:, rank + axis] = size
    return boxes


def _runs(tensor: Tensor, boxes: np.ndarray) -> np.ndarray:
    """Intervals of linear positions, sorted and joined, [runs, 2], that boxes of a view cover."""
    rank = boxes.shape[1] // 2
    starts, sizes = boxes[:, :rank], boxes[:, rank:]
    inside = (sizes > 0).all(axis=1)
    starts, sizes = starts[inside], sizes[inside]
    pieces = []
    strides = np.asarray(tensor.strides)
    for start, size in zip(starts, sizes, strict=True):
        length, axis = 1, rank
        while axis and strides[axis - 1] == length:  # axes whose rows follow on without a gap
            axis -= 1
            length *= int(size[axis])
            if size[axis] * strides[axis] != (strides[axis - 1] if axis else length):
                break
        first = np.asarray(tensor.offset + int(start @ strides))
        for outer in range(axis):
            first = np.add.outer(first, np.arange(size[outer]) * strides[outer])
        first = first.reshape(-1)
        pieces.append(np.stack([first, first + length], axis=1))
    if not pieces:
        return np.zeros((0, 2), np.int64)
    runs = np.concatenate(pieces)
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    end = np.maximum.accumulate(runs[:, 1])
    new = np.concatenate([[True], runs[1:, 0] > end[:-1]])
    last = np.flatnonzero(np.concatenate([new[1:], [True]]))
    return np.stack([runs[new, 0], end[last]], axis=1)


def _slice(buffer: Buffer, elements: tuple[int, int]) -> str:
    """The smallest slice along one axis, whole along those after it, that holds a stretch of elements.

    >>> _slice(Buffer(0, "x", (8, 6), "bf16"), (12, 24)), _slice(Buffer(0, "x", (8, 6), "bf16"), (14, 16))
    ('x[2:4, :]', 'x[2, 2:4]')
    """
    first, last = (np.unravel_index(at, buffer.shape) for at in (elements[0], elements[1] - 1))
    parts: list[str] = []
    for a, b in zip(first, last, strict=True):
        if a != b or len(parts) + 1 == len(buffer.shape):
            parts.append(f"{a}:{b + 1}")
            break
        parts.append(str(a))
    return f"{buffer.name}[{', '.join(parts + [':'] * (len(buffer.shape) - len(parts)))}]"


def _shared(first: np.ndarray, second: np.ndarray) -> tuple[int, int] | None:
    """The first stretch of positions that two sets of intervals share."""
    at = np.searchsorted(second[:, 1], first[:, 0], side="right")
    inside = at < len(second)
    start = np.maximum(first[inside, 0], second[at[inside], 0])
    stop = np.minimum(first[inside, 1], second[at[inside], 1])
    some = np.flatnonzero(start < stop)
    return (int(start[some[0]]), int(stop[some[0]])) if len(some) else None
