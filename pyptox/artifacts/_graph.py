"""What each task of a capture waited for: stamps of its blocks, and of the blocks that its predecessors ran."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ._deps import Deps
from ._tables import Records

NEVER = np.iinfo(np.int64).min
"""A stamp that does not exist; before every other."""


@dataclass(frozen=True)
class Stamps:
    """Cycles from :attr:`Records.zero`. Without scheduler rows, dispatch is receive and finish is end."""

    dispatch: np.ndarray
    receive: np.ndarray
    start: np.ndarray
    end: np.ndarray
    finish: np.ndarray

    @property
    def first(self) -> int:
        """The earliest of all."""
        return int(np.min(np.minimum(np.minimum(self.dispatch, self.receive), self.start)))

    @property
    def last(self) -> int:
        """The latest of all."""
        return int(np.max(np.maximum(self.finish, self.end)))


def stamps(records: Records) -> Stamps:
    """The stamps of every block."""
    b, zero = records.blocks, records.zero
    dispatch, finish = np.where(b.dispatch > 0, b.dispatch, b.receive), np.where(b.finish > 0, b.finish, b.end)
    return Stamps(dispatch - zero, b.receive - zero, b.start - zero, b.end - zero, finish - zero)


@dataclass(frozen=True)
class Waits:
    """What each task waited for; one entry a task, in the order of ``index``.

    A predecessor without a kernel (a dummy, an allocation) stands for what it waited for itself.

    Attributes:
        index: position by task id.
        task: the position of each block's task.
        pred, succ: edges between positions, each pair once.
        end, finish: latest of the predecessors' blocks, cycles; ``NEVER`` where none has a row.
        block: the block that finished last among them; -1 where none.
        known: the graph lists the task, and each predecessor with a kernel has rows.
        listed: the graph lists the task.
        last_finish, last_dispatch: of the task's own blocks.
        rows: blocks of each task.
    """

    index: Mapping[int, int]
    task: np.ndarray
    pred: np.ndarray
    succ: np.ndarray
    end: np.ndarray
    finish: np.ndarray
    block: np.ndarray
    known: np.ndarray
    listed: np.ndarray
    last_finish: np.ndarray
    last_dispatch: np.ndarray
    rows: np.ndarray


def waits(records: Records, deps: Deps | None) -> Waits:
    """Join the rows with the graph; without one nothing is known of what a task waited for."""
    deps = deps or Deps()
    at, ids, counts = stamps(records), records.blocks.task_id, {task.task_id: task.rows for task in deps.tasks}
    ends = {end for edge in deps.edges for end in (edge.pred, edge.succ)}
    names = sorted({*np.unique(ids).tolist(), *counts, *ends})
    index = {name: n for n, name in enumerate(names)}
    task = np.searchsorted(np.array(names, np.uint64), ids)
    pairs = np.array([(index[edge.pred], index[edge.succ]) for edge in deps.edges], np.int64).reshape(-1, 2)
    pred, succ = np.unique(pairs, axis=0).T
    rows = np.bincount(task, minlength=len(names))
    finish, end, dispatch = (_latest(task, values, len(names)) for values in (at.finish, at.end, at.dispatch))
    block = np.full(len(names), -1)
    order = np.argsort(at.finish, kind="stable")
    block[task[order]] = order  # the last of equal positions stays
    listed = np.array([name in counts for name in names], bool)
    through = (rows == 0) & np.array([counts.get(name, -1) == 0 for name in names], bool)
    missing = (rows == 0) & ~through
    values = (finish.copy(), end.copy(), block.copy(), missing.copy())
    while True:  # once more for each dummy in a row
        found = _gather(values, pred, succ, len(names))
        before = values
        values = tuple(np.where(through, new, old) for new, old in zip(found, before, strict=True))
        if all(np.array_equal(new, old) for new, old in zip(values, before, strict=True)):
            break
    waited_finish, waited_end, waited_block, unknown = found
    return Waits(
        index=index,
        task=task,
        pred=pred,
        succ=succ,
        end=waited_end,
        finish=waited_finish,
        block=waited_block,
        known=listed & ~unknown,
        listed=listed,
        last_finish=finish,
        last_dispatch=dispatch,
        rows=rows,
    )


def _latest(where: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    latest = np.full(count, NEVER)
    np.maximum.at(latest, where, values)
    return latest


def _gather(values: tuple[np.ndarray, ...], pred: np.ndarray, succ: np.ndarray, count: int) -> tuple[np.ndarray, ...]:
    """Latest finish and end over the predecessors, the block with the former, and whether one is missing."""
    finish, end, block, missing = values
    last = np.full(count, -1)
    order = np.argsort(finish[pred], kind="stable")
    last[succ[order]] = block[pred[order]]
    lacking = np.zeros(count, bool)
    np.logical_or.at(lacking, succ, missing[pred])
    return _latest(succ, finish[pred], count), _latest(succ, end[pred], count), last, lacking
