"""Early dispatch in a simulated timeline: which consumers were staged before their inputs were ready, and why not."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._workload import AIV, DUMMY

if TYPE_CHECKING:
    from ._timeline import Timeline


@dataclass(frozen=True)
class Producer:
    """One producer of a consumer.

    Attributes:
        task: its number.
        flagged: it was submitted with ``allow_early_resolve``.
        published_us: when its last block was; None without a kernel.
        finish_us: when it was finished.
    """

    task: int
    flagged: bool
    published_us: float | None
    finish_us: float


@dataclass(frozen=True)
class EarlyUse:
    """One consumer: a task with a kernel that waits for a task with one.

    Attributes:
        task: its number.
        blocks, early: its blocks, and those published before the last producer was finished.
        producers: what it waits for.
        reason: all that kept it from being staged; empty where it was.
    """

    task: int
    blocks: int
    early: int
    producers: tuple[Producer, ...]
    reason: str

    @property
    def verdict(self) -> str:
        """``full``, ``partial`` or ``none``."""
        return "none" if not self.early else "full" if self.early == self.blocks else "partial"


def early_uses(timeline: "Timeline") -> tuple[EarlyUse, ...]:
    """Every consumer, in the order of submission, proven by when its blocks were published."""
    work, times = timeline.workload, timeline.times
    blocks = timeline.layout.blocks
    published = np.full(work.tasks, -np.inf)
    np.maximum.at(published, blocks.task, blocks.dispatch)
    last = np.array([max((times.finish[p] for p in of), default=-np.inf) for of in work.waits])
    # a MIX block is published once, to its AIC
    first = (blocks.lane == 0) | (work.shapes[blocks.task] == AIV) if len(blocks.task) else np.zeros(0, bool)
    early = np.bincount(blocks.task[first & (blocks.dispatch < last[blocks.task])], minlength=work.tasks)
    result = []
    for task, preds in enumerate(work.waits):
        if work.shapes[task] >= DUMMY or not any(work.shapes[p] < DUMMY for p in preds):
            continue
        producers = tuple(
            Producer(
                p,
                bool(work.early[p]),
                float(published[p]) if work.shapes[p] < DUMMY else None,
                float(times.finish[p]),
            )
            for p in preds
        )
        reason = "" if early[task] else _reason(timeline, task, producers)
        result.append(EarlyUse(task, int(work.blocks[task]), int(early[task]), producers, reason))
    return tuple(result)


def _reason(timeline: "Timeline", task: int, producers: tuple[Producer, ...]) -> str:
    """Everything that forbids it; where nothing does, why there was no occasion."""
    work, last = timeline.workload, max(p.finish_us for p in producers)
    cores = timeline.clusters * (2 if work.shapes[task] == AIV else 1)
    reasons = [f"{work.blocks[task]} blocks for {cores} cores"] if work.blocks[task] > cores else []
    reasons += ["predicated"] if work.predicated[task] else []
    for p in producers:
        if not p.flagged and p.finish_us == last:
            kind = "is a dummy" if work.shapes[p.task] == DUMMY else "is not flagged"
            reasons.append(f"{work.names[p.task]} {kind}")
    if reasons:
        return "; ".join(reasons)
    if timeline.times.submitted[task] >= last:
        return "submitted after its producers were finished"
    return "ready tasks went first, or no slots were open"
