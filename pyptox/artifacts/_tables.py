"""Tables of a capture: one NumPy array a column, one row a block, scheduler phase or submit."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._checks import MOST_US

NO_TASK = np.uint64(2**64 - 1)
"""In a column of task ids: none recorded."""

CORE_TYPES = ("aic", "aiv")


def same(one: Any, other: Any) -> bool:
    """Two values of the same dataclass hold equal columns."""
    return type(one) is type(other) and all(
        np.array_equal(getattr(one, item.name), getattr(other, item.name)) for item in fields(one) if item.compare
    )


def taken(table: Any, mask: np.ndarray) -> Any:
    """The rows of a table where ``mask`` is true."""
    return type(table)(*(getattr(table, item.name)[mask] for item in fields(table)))


@dataclass(frozen=True, eq=False)
class Blocks:
    """One row for each run of a kernel on a core. Stamps are raw cycles of the counter; 0 where not recorded.

    Attributes:
        task_id: ``ring << 32 | number``, uint64.
        core_id: which core.
        reg_task_id: number of the dispatch on that core, from 1.
        receive: the core saw the doorbell. In the five-column layout, which lacks it, it is ``start``.
        start, end: of the kernel.
        dispatch: the scheduler rang the doorbell.
        finish: the scheduler saw the end.
    """

    task_id: np.ndarray
    core_id: np.ndarray
    reg_task_id: np.ndarray
    receive: np.ndarray
    start: np.ndarray
    end: np.ndarray
    dispatch: np.ndarray
    finish: np.ndarray

    __eq__ = same
    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.task_id)


@dataclass(frozen=True, eq=False)
class Phases:
    """What the scheduler threads did, in order by thread. -1 stands for a count that was not recorded.

    Attributes:
        thread: the scheduler.
        kind: ``complete``, ``dispatch``, ``release``, ...
        start, end: raw cycles.
        loop_iter: iteration of the scheduler's loop.
        tasks_processed: subtasks completed or dispatched, slots released.
        pop_hit, pop_miss: ready-queue pops of a dispatch.
        task_id: of a marker; ``NO_TASK`` elsewhere.
        shared_at_start, shared_at_end: ready queue depths, shape (n, 3): aic, aiv, mix.
    """

    thread: np.ndarray
    kind: np.ndarray
    start: np.ndarray
    end: np.ndarray
    loop_iter: np.ndarray
    tasks_processed: np.ndarray
    pop_hit: np.ndarray
    pop_miss: np.ndarray
    task_id: np.ndarray
    shared_at_start: np.ndarray
    shared_at_end: np.ndarray

    __eq__ = same
    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.thread)


@dataclass(frozen=True, eq=False)
class Submits:
    """What the orchestrator threads submitted: one row a submit, raw cycles."""

    thread: np.ndarray
    submit_idx: np.ndarray
    task_id: np.ndarray
    start: np.ndarray
    end: np.ndarray

    __eq__ = same
    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.thread)


def _none(count: int = 0) -> np.ndarray:
    return np.zeros(count, np.int64)


def no_phases() -> Phases:
    """A table without rows."""
    empty, three = _none(), np.zeros((0, 3), np.int64)
    kinds, ids = np.zeros(0, "U1"), np.zeros(0, np.uint64)
    return Phases(empty, kinds, empty, empty, empty, empty, empty, empty, ids, three, three)


def no_submits() -> Submits:
    """A table without rows."""
    return Submits(_none(), _none(), np.zeros(0, np.uint64), _none(), _none())


@dataclass(frozen=True, eq=False)
class Records:
    """A ``chip_swimlane_records.json``: who ran what when.

    Attributes:
        level: 1 cores only, 2 dispatch and finish too, 3 scheduler phases too, 4 submits too.
        clock_hz: ticks a second of the counter.
        core_types: ``aic`` or ``aiv`` by core id.
        blocks, phases, submits: the tables.
        core_to_thread: the scheduler thread of each core, -1 for none; empty where not recorded.
        threads: scheduler threads, those without a record included.
        orchestrators: orchestrator threads.
        metadata: what else the metadata holds, as it is.
        host: records of an orchestrator on the host, as they are.
        layout: ``v3`` (six columns), ``v2`` (five), or ``2026-09``; not compared.
        partnerless: numbers of the scheduler's task records without a partner on the core, which are in no row.
        notes: what a reader should know of the file: keys it does not know, records that the device dropped.
    """

    level: int
    clock_hz: int
    core_types: tuple[str, ...]
    blocks: Blocks
    phases: Phases
    submits: Submits
    core_to_thread: tuple[int, ...] = ()
    threads: int = 0
    orchestrators: int = 0
    metadata: dict[str, Any] | None = None
    host: dict[str, Any] | None = None
    layout: str = "v3"
    partnerless: tuple[int, ...] = ()
    notes: tuple[tuple[str, str, str], ...] = ()

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        apart = ("layout", "partnerless", "notes")
        return isinstance(other, Records) and all(
            getattr(self, item.name) == getattr(other, item.name) for item in fields(self) if item.name not in apart
        )

    @cached_property
    def _stamps(self) -> np.ndarray:
        """Every stamp that is not 0."""
        b, p, s = self.blocks, self.phases, self.submits
        stamps = np.concatenate([b.receive, b.start, b.end, b.dispatch, b.finish, p.start, p.end, s.start, s.end])
        return stamps[stamps > 0]

    @cached_property
    def zero(self) -> int:
        """The earliest stamp that is not 0, raw cycles; 0 where there is none."""
        return int(self._stamps.min()) if len(self._stamps) else 0

    def beyond(self, cycles: np.ndarray) -> np.ndarray:
        """Whether each raw stamp is so far from the middle one that no run can have both: :data:`MOST_US`."""
        if not len(self._stamps):
            return np.zeros(len(cycles), bool)
        middle = int(np.partition(self._stamps, len(self._stamps) // 2)[len(self._stamps) // 2])
        return (cycles > 0) & (np.abs(cycles - middle) > MOST_US * 1e-6 * self.clock_hz)

    def us(self, cycles: Any) -> np.ndarray:
        """µs from :attr:`zero` of raw stamps; NaN where a stamp is 0."""
        stamps = np.asarray(cycles, np.int64)
        return np.where(stamps > 0, (stamps - self.zero) * (1e6 / self.clock_hz), np.nan)

    @cached_property
    def table(self) -> dict[str, np.ndarray]:
        """The blocks by column: ids, ``core_type``, and every stamp in µs and, ``*_cycles``, in raw cycles."""
        blocks = self.blocks
        stamps = {name: getattr(blocks, name) for name in ("receive", "start", "end", "dispatch", "finish")}
        return {
            "task_id": blocks.task_id,
            "core_id": blocks.core_id,
            "core_type": np.array(self.core_types or [""])[blocks.core_id],
            "reg_task_id": blocks.reg_task_id,
            **{name: self.us(cycles) for name, cycles in stamps.items()},
            **{f"{name}_cycles": cycles for name, cycles in stamps.items()},
        }

    def at_level(self, level: int) -> "Records":
        """The same run as a lower ``level`` records it."""
        if not 1 <= level <= self.level:
            raise ValueError(f"`level` must be from 1 to {self.level}, what was recorded; got {level}")
        result = replace(self, level=level)
        if level < 4:
            result = replace(result, submits=no_submits(), orchestrators=0, host=None)
        if level < 3:
            result = replace(result, phases=no_phases(), threads=0, core_to_thread=())
        if level < 2:
            bare = np.zeros(len(self.blocks), np.int64)
            result = replace(result, blocks=replace(self.blocks, dispatch=bare, finish=bare), partnerless=())
        return result
