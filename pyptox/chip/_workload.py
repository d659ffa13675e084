"""What the simulator runs: tasks with cores, blocks and durations, and what each waits for."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ..rings import Storage
from ._constants import MOST_US, on_grid
from ._memory import Memory, ratios

SHAPES = ("MIX", "AIC", "AIV", "DUMMY", "ALLOC")
"""What a task occupies, in the order in which schedulers look for work; ``ALLOC`` is completed at its submission."""

MIX, AIC, AIV, DUMMY, ALLOC = range(5)
MOST_BLOCKS = 1_000_000


@dataclass(frozen=True, eq=False)
class Workload:
    """Tasks in the order of submission.

    Attributes:
        names: for people.
        shapes: index into :data:`SHAPES`.
        blocks: of each task, 0 without a kernel.
        duration_us: of one block, on the grid of times.
        edges: producers that the orchestrator wires at each submission.
        waits: producers that gate each task's start, allocations left out.
        early: consumers of the task may be staged before it is finished (``allow_early_resolve``).
        sync_start: the task's blocks start together.
        predicated: whether the task runs is decided on the device; it is never staged.
        memory: what its blocks move, where that is known.
        submitted_us: when each submission ends, where that was measured; never falling, on the grid of times. None
            where the schedule's constants say it.
        lapses: an edge costs nothing where its producer, one of ``waits``, has finished before the submission.
        lapsed: how many of each task's edges had so, by a simulation; none where left out.
        storage: what the tasks take of the rings, and what there is; None where nothing waits for them.
        gate: for each task the first submission that waits for its finish, for a ring to reclaim, by a simulation; the
            number of tasks where none does. None where no submission waits.

    >>> chain = Workload.of(["AIC", "AIV"], [24, 48], [10.0, 5.0], [[], [0]])
    >>> chain.tasks, chain.edges.tolist()
    (2, [0, 1])
    """

    names: tuple[str, ...]
    shapes: np.ndarray
    blocks: np.ndarray
    duration_us: np.ndarray
    edges: np.ndarray
    waits: tuple[tuple[int, ...], ...]
    early: np.ndarray
    sync_start: np.ndarray
    predicated: np.ndarray
    memory: Memory | None = None
    submitted_us: np.ndarray | None = None
    lapses: bool = False
    lapsed: np.ndarray | None = None
    storage: Storage | None = None
    gate: np.ndarray | None = None

    @property
    def tasks(self) -> int:
        return len(self.names)

    @property
    def wired(self) -> np.ndarray:
        """Producers that each submission pays for."""
        return self.edges if self.lapsed is None else self.edges - self.lapsed

    @classmethod
    def of(
        cls,
        shapes: Sequence[str],
        blocks: Sequence[int],
        duration_us: Sequence[float],
        waits: Sequence[Sequence[int]],
        *,
        edges: Sequence[int] | None = None,
        early: Sequence[bool] | None = None,
        sync_start: Sequence[bool] | None = None,
        predicated: Sequence[bool] | None = None,
        memory: Memory | None = None,
        names: Sequence[str] | None = None,
        submitted_us: Sequence[float] | None = None,
        lapses: bool = False,
        storage: Storage | None = None,
    ) -> "Workload":
        """From plain lists; ``edges`` is the number of producers in ``waits`` where left out.

        A flag on a task without a kernel has no effect. A predicated task that does not run is a ``DUMMY``.

        Raises:
            PyptoxError: lists of different lengths, an unknown shape, a task that waits for itself or a later one, or
                blocks and durations that the shape does not allow.
        """
        count = len(shapes)
        given = {"blocks": blocks, "duration_us": duration_us, "waits": waits, "edges": edges}
        given |= {"early": early, "sync_start": sync_start, "names": names, "submitted_us": submitted_us}
        given |= {"storage": None if storage is None else storage.work.names, "predicated": predicated}
        given |= {} if memory is None else memory.columns()
        for name, value in given.items():
            if value is not None and len(value) != count:
                raise PyptoxError(f"`{name}` must have an entry for each of {count} tasks; got {len(value)}")
        for number, (shape, n, time, preds) in enumerate(zip(shapes, blocks, duration_us, waits, strict=True)):
            if shape not in SHAPES:
                raise PyptoxError(f"`shapes` must be of {', '.join(SHAPES)}; task {number} has {shape!r}")
            kernel = shape not in ("DUMMY", "ALLOC")
            if not (1 <= n <= MOST_BLOCKS if kernel else n == 0):
                expected = f"1 to {MOST_BLOCKS:,}" if kernel else "0"
                raise PyptoxError(f"`blocks` of a task of shape {shape} must be {expected}; task {number} has {n}")
            if not (0 <= time < float("inf")) or (not kernel and time != 0):
                raise PyptoxError(f"`duration_us` of task {number} ({shape}) cannot be {time!r}")
            if any(not 0 <= p < number for p in preds):
                raise PyptoxError(f"`waits` of task {number} must be earlier tasks; got {list(preds)}")
            if shape == "ALLOC" and any(shapes[p] != "ALLOC" for p in preds):
                raise PyptoxError(f"`waits` of task {number} must be empty: an allocation is made at its submission")
        moments = None if submitted_us is None else on_grid(submitted_us).reshape(count)
        if moments is not None and not (np.isfinite(moments).all() and (np.diff(moments, prepend=0.0) >= 0).all()):
            raise PyptoxError("`submitted_us` must be in the order of submission: from 0 on, never falling")
        kinds = np.array([SHAPES.index(shape) for shape in shapes], np.int32)
        distinct = [sorted(set(map(int, preds))) for preds in waits]
        return cls(
            tuple(names) if names is not None else tuple(f"t{n}" for n in range(count)),
            kinds,
            np.asarray(blocks, np.int32).reshape(count),
            on_grid(duration_us).reshape(count),
            np.array([len(p) for p in distinct] if edges is None else edges, np.int32).reshape(count),
            tuple(tuple(p for p in preds if kinds[p] != ALLOC) for preds in distinct),
            _flags(early, kinds),
            _flags(sync_start, kinds),
            _flags(predicated, kinds),
            memory,
            moments,
            lapses,
            storage=storage,
        )

    def kind(self, number: int) -> str:
        """What a task is called without its number: the second word of its name on, or its name.

        >>> Workload.of(["AIC"], [1], [1.0], [[]], names=["t0 gate"]).kind(0)
        'gate'
        """
        label, _, rest = self.names[number].partition(" ")
        return rest or label

    def whole(self, number: int) -> str:
        """Its name without the part that it is: what a split task, or one recorded in parts, is called as a whole.

        >>> Workload.of(["AIC"], [1], [1.0], [[]], names=["t0 gate[1]"]).whole(0)
        't0 gate'
        """
        name, bracket, part = self.names[number].rpartition("[")
        return name if bracket and part.removesuffix("]").isdigit() else self.names[number]

    def submissions(self, constants: Mapping[str, float]) -> np.ndarray:
        """When each submission ends, µs: as measured, or one after another; where none waits for a ring."""
        if self.submitted_us is not None:
            return self.submitted_us
        ordinal, producers = np.arange(1.0, self.tasks + 1), np.cumsum(self.wired.astype(np.float64))
        return constants["submit_us"] * ordinal + constants["submit_edge_us"] * producers

    def submission_costs(self, constants: Mapping[str, float]) -> np.ndarray:
        """What each submission takes, µs."""
        return constants["submit_us"] + constants["submit_edge_us"] * self.wired.astype(np.float64)

    def with_durations(self, duration_us: Any) -> "Workload":
        """The same tasks with other durations of a block, µs; the times of its memory go along.

        Raises:
            PyptoxError: another number of durations, or one that is no time.
        """
        given = np.asarray(duration_us, np.float64)
        if given.shape != (self.tasks,):
            raise PyptoxError(f"`duration_us` must be {self.tasks} times; got an array of shape {given.shape}")
        if not ((given >= 0) & (given <= MOST_US)).all():
            task = int(np.argmin((given >= 0) & (given <= MOST_US)))
            raise PyptoxError(f"`duration_us` must be 0 to {MOST_US:g} µs; task {task} has {given[task]}")
        changed, memory = on_grid(given), self.memory
        if memory is not None:
            memory = memory.taken(range(self.tasks), ratios(changed, self.duration_us))
        return dataclasses.replace(self, duration_us=changed, memory=memory)


def _flags(given: Sequence[bool] | None, kinds: np.ndarray) -> np.ndarray:
    """A flag of every task with a kernel; none where left out."""
    return np.array([False] * len(kinds) if given is None else given, bool).reshape(len(kinds)) & (kinds < DUMMY)
