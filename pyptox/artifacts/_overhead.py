"""Scheduling overhead over time: cores that are idle while blocks that could run on them wait to be dispatched."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._capture import Capture
from ._gaps import submitted
from ._graph import NEVER, stamps, waits
from ._tables import CORE_TYPES


@dataclass(frozen=True, eq=False)
class Steps:
    """A count that changes at moments: ``values[n]`` holds from ``at_us[n]`` to the next."""

    at_us: np.ndarray
    values: np.ndarray


def overhead(capture: Capture) -> dict[str, Steps]:
    """Counts over time, by the names of the toolchain's counters.

    For ``aic`` and ``aiv``: ``oh_*_idle``, cores between two kernels (those with a row, or of a whole capture all);
    ``oh_*_ready``, blocks whose inputs are finished and that are not dispatched; ``oh_*_overhead``, the smaller of the
    two. ``oh_has_overhead`` is 1 while either kind has overhead, ``oh_all_overhead`` while both have. Blocks whose
    inputs are not known do not count as ready. Empty where the records lack dispatches (level 1) or rows.
    """
    records = capture.records
    if records.level < 2 or not len(records.blocks):
        return {}
    at, found, blocks = stamps(records), waits(records, capture.deps), records.blocks
    us = 1e6 / records.clock_hz
    vector = (np.array(records.core_types) == "aiv")[blocks.core_id]
    task = found.task
    ready = np.maximum(np.maximum(found.finish[task], submitted(records, found)[task]), at.first)
    waiting = found.known[task] & (found.finish[task] > NEVER) & (ready < at.dispatch)
    moments = np.unique(np.concatenate([at.start, at.end, at.dispatch, ready[waiting], [at.first]]))
    steps: dict[str, Any] = {}
    for kind, mine in zip(CORE_TYPES, (~vector, vector), strict=True):
        used = len(np.unique(blocks.core_id[mine]))
        cores = records.core_types.count(kind) if capture.whole else used
        idle = cores - _open(moments, at.start[mine], at.end[mine])
        queued = _open(moments, ready[mine & waiting], at.dispatch[mine & waiting])
        steps |= {f"oh_{kind}_idle": idle, f"oh_{kind}_ready": queued, f"oh_{kind}_overhead": np.minimum(idle, queued)}
    both = np.stack([steps[f"oh_{kind}_overhead"] > 0 for kind in CORE_TYPES])
    steps |= {"oh_all_overhead": both.all(0).astype(np.int64), "oh_has_overhead": both.any(0).astype(np.int64)}
    return {name: _changes(moments * us, values) for name, values in steps.items()}


def _open(moments: np.ndarray, since: np.ndarray, until: np.ndarray) -> Any:
    """How many intervals ``[since, until)`` hold each moment."""
    begun = np.searchsorted(np.sort(since), moments, side="right")
    return begun - np.searchsorted(np.sort(until), moments, side="right")


def _changes(at_us: np.ndarray, values: np.ndarray) -> Steps:
    kept = np.concatenate([[True], values[1:] != values[:-1]])
    return Steps(at_us[kept], values[kept])
