"""Where the time between blocks went, from measured stamps alone."""

from dataclasses import dataclass

import numpy as np

from ._deps import Deps
from ._graph import NEVER, Stamps, Waits, stamps, waits
from ._tables import Records

CAUSES = ("submit", "producer", "fin", "undispatched", "unknown", "pickup", "gate", "setup")
"""Why a core that could run a block did not yet, in the order in which they follow each other:

- ``submit``: the orchestrator had not submitted its task;
- ``producer``: a predecessor still ran;
- ``fin``: the last predecessor had ended, no scheduler had seen it;
- ``undispatched``: everything was ready, the scheduler had not dispatched it;
- ``unknown``: not dispatched, and the graph or a row that would say why is not in the capture;
- ``pickup``: dispatched, the core had not seen it;
- ``gate``: the same, of a block that was dispatched before its inputs were ready;
- ``setup``: the core had seen it and prepared the call.
"""

TICKS = 2
"""A dispatch this many ticks or fewer before a finish counts as simultaneous."""


@dataclass(frozen=True)
class Gaps:
    """One entry a block.

    Attributes:
        pickup_us: dispatch → receive; NaN without scheduler rows. It includes the wait behind the block ahead.
        setup_us: receive → start.
        kernel_us: start → end.
        fin_us: end → finish; NaN without scheduler rows.
        before_us: end of the block ahead on the same core → start; NaN for the first of a core.
        causes_us: that gap by cause (:data:`CAUSES`); the parts add up to it.
        previous: the block ahead on the same core; -1 for the first.
    """

    pickup_us: np.ndarray
    setup_us: np.ndarray
    kernel_us: np.ndarray
    fin_us: np.ndarray
    before_us: np.ndarray
    causes_us: dict[str, np.ndarray]
    previous: np.ndarray


def gaps(records: Records, deps: Deps | None = None) -> Gaps:
    """The four intervals of each block, and the gap before it by cause."""
    at, found, previous = stamps(records), waits(records, deps), previous_blocks(records)
    us = 1e6 / records.clock_hz
    first, dispatched = previous < 0, records.blocks.dispatch > 0
    since = np.where(first, at.start, at.end[previous])
    parts = split(since, at.start, np.arange(len(at.start)), at, found, submitted(records, found))
    return Gaps(
        pickup_us=np.where(dispatched, (at.receive - at.dispatch) * us, np.nan),
        setup_us=(at.start - at.receive) * us,
        kernel_us=(at.end - at.start) * us,
        fin_us=np.where(records.blocks.finish > 0, (at.finish - at.end) * us, np.nan),
        before_us=np.where(first, np.nan, (at.start - since) * us),
        causes_us={cause: np.where(first, np.nan, cycles * us) for cause, cycles in parts.items()},
        previous=previous,
    )


def previous_blocks(records: Records) -> np.ndarray:
    """The block ahead of each on the same core, by start; -1 for the first."""
    b = records.blocks
    order = np.lexsort((b.reg_task_id, b.start, b.core_id))
    previous = np.full(len(b), -1)
    neighbours = b.core_id[order[1:]] == b.core_id[order[:-1]]
    previous[order[1:][neighbours]] = order[:-1][neighbours]
    return previous


def submitted(records: Records, found: Waits) -> np.ndarray:
    """When the submit of each task ended, cycles from the earliest stamp; ``NEVER`` where not recorded."""
    result = np.full(len(found.index), NEVER)
    for task, end in zip(records.submits.task_id.tolist(), records.submits.end.tolist(), strict=True):
        if task in found.index:
            result[found.index[task]] = end - records.zero
    return result


def split(
    since: np.ndarray, start: np.ndarray, block: np.ndarray, at: Stamps, found: Waits, submit: np.ndarray
) -> dict[str, np.ndarray]:
    """The cycles from ``since`` to the ``start`` of each ``block``, by cause.

    They add up exactly wherever ``since`` is not after ``start``, whatever the other stamps are.
    """
    task = found.task[block]
    early = at.dispatch[block] + TICKS < found.finish[task]
    parts = {cause: np.zeros(len(block), np.int64) for cause in CAUSES}
    cursor = np.asarray(since)

    def upto(stamp: np.ndarray) -> np.ndarray:
        nonlocal cursor
        before, cursor = cursor, np.maximum(cursor, np.minimum(stamp, start))
        return cursor - before

    parts["submit"] = upto(np.where(found.finish[task] > submit[task], NEVER, submit[task]))
    parts["producer"], parts["fin"] = upto(found.end[task]), upto(found.finish[task])
    idle, known = upto(at.dispatch[block]), found.known[task]
    parts["undispatched"], parts["unknown"] = np.where(known, idle, 0), np.where(known, 0, idle)
    pickup = upto(at.receive[block])
    parts["pickup"], parts["gate"] = np.where(early, 0, pickup), np.where(early, pickup, 0)
    parts["setup"] = start - cursor
    return parts


def utilisation(records: Records) -> dict[int, float]:
    """Share of the makespan in which each core ran a kernel, by core id; cores without a row are left out."""
    at, b = stamps(records), records.blocks
    if not len(b):
        return {}
    span = max(at.last - at.first, 1)
    busy = np.bincount(b.core_id, weights=at.end - at.start)
    return {core: float(busy[core] / span) for core in np.unique(b.core_id).tolist()}


def makespan_us(records: Records) -> float:
    """From the first dispatch to the last finish, µs (without scheduler rows, first receive to last end)."""
    if not len(records.blocks):
        return 0.0
    at = stamps(records)
    return (at.last - at.first) * (1e6 / records.clock_hz)
