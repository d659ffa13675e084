"""What the orchestrator submits, as arrays: on which ring, how much of each resource, in which scope, for whom."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._dtypes import dtype_of
from .._errors import PyptoxError
from ..program._graph import Graph
from ..program._scope import Scope
from ..program._task import INOUT, OUTPUT, OUTPUT_EXISTING
from ..program._tensor import Buffer
from ._limits import ALIGNMENT, RINGS

NEVER = np.iinfo(np.int64).max
"""Where a scope that is never closed closes."""


@dataclass(frozen=True, eq=False)
class Submissions:
    """Tasks in the order of submission.

    Attributes:
        names: for people.
        scope: number of the scope that each task is submitted in.
        bytes: of the heap, every output aligned.
        fanin: distinct producers: entries of the dependency pool.
        entries: tensors that the tensor map gets.
        holds: producers whose storage a task keeps until it is done (retain edges), earlier ones.
        waits: producers that a task waits for.
        covers: producers of whose entries in the tensor map the task takes one away, once an entry.
        scopes: every scope, in the order of opening; the first is the root.
        alloc: tasks without a kernel, complete when they are submitted.
    """

    names: Sequence[str]
    scope: np.ndarray
    bytes: np.ndarray
    fanin: np.ndarray
    entries: np.ndarray
    holds: Sequence[Sequence[int]]
    waits: Sequence[Sequence[int]]
    covers: Sequence[Sequence[int]]
    scopes: tuple[Scope, ...]
    alloc: np.ndarray

    @classmethod
    def of(
        cls,
        bytes: Sequence[int],
        *,
        scopes: Sequence[Scope] | None = None,
        waits: Sequence[Sequence[int]] | None = None,
        entries: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> "Submissions":
        """From plain lists: bytes of the outputs of every task (one output each), and scopes by ``begin`` and ``end``.

        A task holds what it waits for. A task is in the innermost of the scopes around it.

        Raises:
            PyptoxError: lists of different lengths, a negative size, a producer that is not earlier, or scopes that do
                not nest.

        >>> two = Submissions.of([1024, 5000], waits=[[], [0]])
        >>> two.bytes.tolist(), two.ring.tolist()
        ([1024, 5120], [0, 0])
        """
        count = len(bytes)
        root = Scope(0, "auto", 0, "program", 0, count)
        scopes = (root,) if scopes is None else tuple(scopes)
        given = {"waits": waits, "entries": entries, "names": names}
        for name, value in given.items():
            if value is not None and len(value) != count:
                raise PyptoxError(f"`{name}` must have an entry for each of {count} tasks; got {len(value)}")
        size = np.asarray(bytes, np.int64).reshape(count)
        if (size < 0).any():
            raise PyptoxError(f"`bytes` must not be negative; task {int(np.argmax(size < 0))} has {size.min()}")
        producers = [sorted(set(each)) for each in waits] if waits is not None else [[] for _ in range(count)]
        for number, each in enumerate(producers):
            if each and not (each[0] >= 0 and each[-1] < number):
                raise PyptoxError(f"`waits` of task {number} must be earlier tasks; got {each}")
        return cls(
            tuple(names) if names is not None else tuple(f"t{n}" for n in range(count)),
            _innermost(scopes, count),
            aligned(size),
            np.array([len(each) for each in producers], np.int64).reshape(count),
            np.zeros(count, np.int64) if entries is None else np.asarray(entries, np.int64).reshape(count),
            producers,
            producers,
            [()] * count,
            scopes,
            np.zeros(count, bool),
        )

    @property
    def count(self) -> int:
        return len(self.names)

    @cached_property
    def ring(self) -> np.ndarray:
        """Of each task."""
        return self.ring_of_scope[self.scope]

    @cached_property
    def ring_of_scope(self) -> np.ndarray:
        return np.minimum([scope.depth for scope in self.scopes], RINGS - 1).astype(np.int64)

    @cached_property
    def closes(self) -> np.ndarray:
        """For each task how many are submitted when its scope closes; :data:`NEVER` for one that leaks."""
        ends = np.array([NEVER if scope.end is None else scope.end for scope in self.scopes], np.int64)
        return ends[self.scope]

    def on(self, ring: int) -> np.ndarray:
        """Numbers of the tasks on a ring."""
        return self._by_ring[ring]

    @cached_property
    def _by_ring(self) -> list[np.ndarray]:
        return [np.flatnonzero(self.ring == ring) for ring in range(RINGS)]

    @cached_property
    def place(self) -> np.ndarray:
        """Of each task among those of its ring."""
        place = np.zeros(self.count, np.int64)
        for tasks in self._by_ring:
            place[tasks] = np.arange(len(tasks))
        return place

    @cached_property
    def holders(self) -> list[list[int]]:
        """For each task the later ones that keep its storage."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        for task, producers in enumerate(self.holds):
            for producer in producers:
                found[producer].append(task)
        return found

    def copies(
        self,
        rows: Sequence[int],
        waits: Sequence[Sequence[int]],
        fanin: Sequence[int] | np.ndarray,
        *,
        names: Sequence[str],
        fresh: Sequence[int] = (),
    ) -> "Submissions":
        """Copies of tasks in another number or order: the first of each has its storage, all are in its scope.

        Args:
            rows: the task that each is a copy of; of a new one the task in whose scope it is.
            waits: places of what each waits for; edges that there were not before keep storage as well.
            fanin: producers of each.
            names: of each.
            fresh: places of those that are new: they have no storage.

        >>> Submissions.of([1024, 2048], waits=[[], [0]]).copies(
        ...     [0, 1, 1], [[], [0], [0]], [0, 1, 1], names=["a", "b", "b"]
        ... ).bytes.tolist()
        [1024, 2048, 0]
        """
        of, new, place = np.array(rows, np.int64), set(fresh), dict[int, int]()
        for at, row in enumerate(rows):
            if at not in new:
                place.setdefault(row, at)
        owns = np.array([place.get(row) == at for at, row in enumerate(rows)], bool)
        none: tuple[int, ...] = ()
        holds = [
            tuple(waits[at]) if at in new else self._held(row, waits[at], rows, place) for at, row in enumerate(rows)
        ]
        covers = [
            tuple(place[p] for p in self.covers[row] if p in place) if own else none
            for row, own in zip(rows, owns.tolist(), strict=True)
        ]
        return Submissions(
            tuple(names),
            self.scope[of],
            np.where(owns, self.bytes[of], 0),
            np.asarray(fanin, np.int64),
            np.where(owns, self.entries[of], 0),
            holds,
            [tuple(each) for each in waits],
            covers,
            tuple(_moved(scope, of) for scope in self.scopes),
            self.alloc[of] & owns,
        )

    def _held(self, row: int, waits: Sequence[int], rows: Sequence[int], place: dict[int, int]) -> tuple[int, ...]:
        """What a copy of a task keeps: what the task kept, and what it did not wait for."""
        kept, waited = set(self.holds[row]), set(self.waits[row])
        found = {p for p in waits if rows[p] in kept or rows[p] not in waited}
        return tuple(sorted(found | {place[p] for p in kept if self.alloc[p] and p in place}))

    def boundaries(self) -> Iterator[tuple[int, Scope, str]]:
        """Tasks submitted so far, scope, and ``begin`` or ``end``, in order of the program."""
        stack: list[Scope] = []
        for scope in self.scopes:
            for other in [s for s in reversed(stack) if s.end is not None and s.depth >= scope.depth]:
                stack.remove(other)
                yield other.end or 0, other, "end"
            stack.append(scope)
            yield scope.begin, scope, "begin"
        for other in reversed(stack):
            if other.end is not None:
                yield other.end, other, "end"


def submissions(graph: Graph) -> Submissions:
    """What the orchestrator submits for a program: outputs that the runtime allocates, edges that it wires.

    No producer is taken to have retired before its consumer is submitted: pools are at their fullest.
    """
    count = len(graph.tasks)
    holds: list[dict[int, None]] = [{} for _ in range(count)]
    waits: list[dict[int, None]] = [{} for _ in range(count)]
    both: list[set[int]] = [set() for _ in range(count)]
    covers: list[list[int]] = [[] for _ in range(count)]
    for edge in graph.edges:
        both[edge.succ].add(edge.pred)
        if "retain" in edge.flags:
            holds[edge.succ][edge.pred] = None
        if "wait" in edge.flags:
            waits[edge.succ][edge.pred] = None
        if edge.overlap == "covered" and graph.tasks[edge.succ].args[edge.arg].direction == INOUT:
            covers[edge.succ].append(edge.pred)
    size, entries = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for task in graph.tasks:
        made = [_bytes(a.tensor.buffer) for a in task.args if a.direction == OUTPUT]
        size[task.number] = int(aligned(np.array(made, np.int64)).sum())
        written = [a for a in task.args if a.direction in (INOUT, OUTPUT_EXISTING) and not a.tensor.buffer.manual_dep]
        entries[task.number] = 0 if task.scope == "manual" else len(written)
    return Submissions(
        tuple(task.label for task in graph.tasks),
        np.array([task.scope_number for task in graph.tasks], np.int64).reshape(count),
        size,
        np.array([len(each) for each in both], np.int64).reshape(count),
        entries,
        [tuple(each) for each in holds],
        [tuple(each) for each in waits],
        covers,
        graph.scopes,
        np.array([task.shape == "ALLOC" for task in graph.tasks], bool).reshape(count),
    )


def aligned(size: np.ndarray) -> np.ndarray:
    """Sizes in bytes, rounded up to :data:`ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _bytes(buffer: Buffer) -> int:
    return int(np.prod(buffer.shape)) * dtype_of(buffer.dtype).bytes


def _moved(scope: Scope, rows: np.ndarray) -> Scope:
    """A scope around the copies of the tasks that were in it."""
    end = len(rows) if scope.end is None else scope.end
    inside = np.flatnonzero((rows >= scope.begin) & (rows < end))
    begin = int(inside[0]) if len(inside) else int((rows < scope.begin).sum())
    return replace(scope, begin=begin, end=None if scope.end is None else int(inside[-1]) + 1 if len(inside) else begin)


def _innermost(scopes: tuple[Scope, ...], count: int) -> np.ndarray:
    inside = np.zeros(count, np.int64)
    around: list[Scope] = []
    for number, scope in enumerate(scopes):
        end = count if scope.end is None else scope.end
        while around and around[-1].end is not None and around[-1].depth >= scope.depth:
            around.pop()
        outer = around[-1] if around else None
        if scope.number != number or scope.depth != len(around) or not 0 <= scope.begin <= end <= count:
            raise PyptoxError(f"`scopes` must be numbered in the order of opening and nest; got {scope}")
        if outer is not None and not (outer.begin <= scope.begin and (outer.end is None or end <= outer.end)):
            raise PyptoxError(f"`scopes` must nest: {scope.label} is not inside {outer.label}")
        around.append(scope)
        inside[scope.begin : end] = number
    return inside
