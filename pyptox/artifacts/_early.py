"""Early dispatch: which consumers were staged before their inputs were ready, proven by stamps."""

from dataclasses import dataclass

import numpy as np

from ._deps import Deps
from ._gaps import TICKS
from ._graph import stamps, waits
from ._tables import Records


@dataclass(frozen=True)
class Early:
    """One consumer: a task with a row, of which a direct predecessor has a row.

    Attributes:
        task_id: the consumer.
        blocks: its rows.
        early: those dispatched more than two ticks before the last direct predecessor's finish.
        eligible: those of ``early`` where each direct predecessor was an allocation, complete, or flagged and
            dispatched as a whole: the runtime's own condition.
        complete: all direct predecessors with a kernel have rows; if not, ``none`` only means not seen.
    """

    task_id: int
    blocks: int
    early: int
    eligible: int
    complete: bool

    @property
    def verdict(self) -> str:
        """``full``, ``partial`` or ``none``, by the stamps."""
        return "none" if not self.early else "full" if self.early == self.blocks else "partial"


def early_dispatch(records: Records, deps: Deps) -> tuple[Early, ...]:
    """Every consumer, in order of task id: ``block.dispatch + 2 ticks < max(pred.finish)``.

    Raises:
        ValueError: records of level 1, which have neither stamp.
    """
    if records.level < 2:
        raise ValueError(
            "`records` must be of level 2 or above to prove early dispatch; got level 1. Record with "
            "enable_chip_swimlane=2 or more"
        )
    at, found = stamps(records), waits(records, deps)
    flagged = np.zeros(len(found.index), bool)
    kernelless = np.zeros(len(found.index), bool)
    for task in deps.tasks:
        position = found.index[task.task_id]
        flagged[position], kernelless[position] = task.early_dispatch and task.rows > 0, task.rows == 0
    fed = np.zeros(len(found.index), bool)
    fed[found.succ] = True
    allocation = (kernelless | ~found.listed) & ~fed & (found.rows == 0)
    blocks_of = _groups(found.task, len(found.index))
    preds_of = _groups(found.succ, len(found.index))
    results = []
    for task_id, position in found.index.items():
        preds = found.pred[preds_of(position)]
        ran = preds[found.rows[preds] > 0]
        if not found.rows[position] or not len(ran):
            continue
        dispatch = at.dispatch[blocks_of(position)]
        early = dispatch + TICKS < found.last_finish[ran].max()
        reached = dispatch[:, None]
        done = (found.rows[preds] > 0) & (found.last_finish[preds] <= reached + TICKS)
        published = flagged[preds] & (found.rows[preds] > 0) & (found.last_dispatch[preds] <= reached)
        eligible = early & (allocation[preds] | done | published).all(axis=1)
        complete = bool(((found.rows[preds] > 0) | kernelless[preds]).all())
        results.append(Early(task_id, len(dispatch), int(early.sum()), int(eligible.sum()), complete))
    return tuple(results)


def _groups(of: np.ndarray, count: int):
    """The positions at which each value of ``of`` stands."""
    order = np.argsort(of, kind="stable")
    bounds = np.searchsorted(of[order], np.arange(count + 1))
    return lambda value: order[bounds[value] : bounds[value + 1]]
