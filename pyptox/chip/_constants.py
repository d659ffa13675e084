"""What the runtime's scheduler costs: a pytree of µs, each number with its source.

Every time in the simulator is a sum and maximum of these constants and the tasks' durations, each times a whole
number. A makespan is therefore homogeneous of degree one in them, and constants times derivatives add up to it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import jax
import numpy as np

from ..hardware._base import Number, _Static

GRID_US = 2.0**-20
"""Times are multiples of this many µs, so that their sums are exact and ties are ties."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Costs of submitting, dispatching and retiring tasks, in µs; ``threads`` schedulers share the clusters evenly.

    A subtask is one block on one core: a block of a MIX task is three.

    Attributes:
        submit_us: the orchestrator submits one task.
        submit_edge_us: the same, for each producer of the task.
        dispatch_us: a scheduler thread takes up a task.
        dispatch_each_us: it publishes one subtask.
        complete_us: a scheduler thread takes up finished subtasks of a task.
        complete_each_us: it retires one of them.
        dummy_us: a scheduler thread retires a dummy task.
        doorbell_us: from publishing to the core's seeing it.
        receive_us: from there to the start of the kernel.
        first_us: the first block of a core starts so much later.
        fin_us: from the end of a block until its core shows it.
        poll_us: looking at one core for its end; a thread looks at its busy cores in turn.
        switch_us: from the end of a block to the start of the one that is pending on the core.
        threads: scheduler threads.
        sources: where each number is from.

    >>> a2a3_schedule().replace(submit_us=1.0).submit_us
    1.0
    """

    submit_us: Number
    submit_edge_us: Number
    dispatch_us: Number
    dispatch_each_us: Number
    complete_us: Number
    complete_each_us: Number
    dummy_us: Number
    doorbell_us: Number
    receive_us: Number
    first_us: Number
    fin_us: Number
    poll_us: Number
    switch_us: Number
    threads: int = 3
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", _Static(self.sources))

    def replace(self, **numbers: Any) -> "Schedule":
        """A copy with some constants changed.

        Raises:
            ValueError: an unknown name, or a number that is negative or not finite.
        """
        known = {f.name for f in fields(self)}
        for name, value in numbers.items():
            if name not in known:
                raise ValueError(f"`{name}` is not a constant of a schedule; known: {', '.join(CONSTANTS)}")
            if name in CONSTANTS and isinstance(value, int | float) and not 0 <= value < float("inf"):
                raise ValueError(f"`{name}` must be a finite number of µs, not negative; got {value!r}")
        if not 1 <= numbers.get("threads", 1) <= 4:
            raise ValueError(f"`threads` must be 1 to 4 scheduler threads; got {numbers['threads']}")
        return dataclasses.replace(self, **numbers)

    def values(self) -> dict[str, float]:
        """Every constant, on the grid of times."""
        return {name: float(on_grid(float(getattr(self, name)))) for name in CONSTANTS}


CONSTANTS = tuple(f.name for f in fields(Schedule) if f.name.endswith("_us"))
"""Names of the constants that times are made of."""

jax.tree_util.register_dataclass(Schedule, data_fields=list(CONSTANTS), meta_fields=["threads", "sources"])

_CAPTURE = "fit to one scheduler thread of a Qwen3-14B decode layer's capture on a2a3 (swimlane level 4): a prior"
_MMIO = "hw-native-sys/simpler:docs/hardware/mmio-performance.md"
_SWITCH = "hw-native-sys/simpler: investigation 2026-07-aicore-swimlane-switch"
_COLD = "hw-native-sys/simpler: investigation 2026-06-aicore-cold-start-warmup"
_SOURCES = {
    "submit_us": f"{_CAPTURE}; median submit of 82",
    "submit_edge_us": f"{_CAPTURE}; a join of 87 edges took 15.84 µs",
    "dispatch_us": f"{_CAPTURE}; 17 records",
    "dispatch_each_us": f"{_CAPTURE}; 17 records",
    "complete_us": f"{_CAPTURE}; 29 records",
    "complete_each_us": f"{_CAPTURE}; 29 records",
    "dummy_us": f"assumed: one pass of an idle scheduler loop, 0.44 µs ({_CAPTURE})",
    "doorbell_us": _MMIO,
    "receive_us": f"{_SWITCH}: 0.28 to 0.42 µs, warm",
    "first_us": f"{_COLD}: 1.9 to 3.2 µs from receiving a core's first task to its start, less those of a warm one",
    "fin_us": f"{_MMIO}: 0.6 µs on average from an end to its being seen, one core looked at, less that look",
    "poll_us": f"{_MMIO}: one COND load takes 95 to 105 ns, one after the other",
    "switch_us": f"{_SWITCH}: 0.29 µs of setup; the 0.52 µs for a swimlane record are left out",
    "threads": "hw-native-sys/simpler:RUNTIME_LOGIC.md: one orchestrator and three schedulers",
}


def a2a3_schedule() -> Schedule:
    """The runtime on Ascend A2 and A3 cards: three schedulers.

    >>> a2a3_schedule().dispatch_each_us
    0.62
    """
    return Schedule(
        submit_us=0.46,
        submit_edge_us=0.18,
        dispatch_us=0.38,
        dispatch_each_us=0.62,
        complete_us=1.50,
        complete_each_us=0.29,
        dummy_us=0.44,
        doorbell_us=0.14,
        receive_us=0.35,
        first_us=2.2,
        fin_us=0.5,
        poll_us=0.10,
        switch_us=0.29,
        sources=_SOURCES,
    )


def a5_schedule() -> Schedule:
    """The runtime on Ascend A5: four schedulers; no cost of theirs is published, so they are those of A2 and A3.

    >>> a5_schedule().threads
    4
    """
    taken = {name: f"taken over from a2a3; no figure is published for a5 ({text})" for name, text in _SOURCES.items()}
    threads = "hw-native-sys/simpler:RUNTIME_LOGIC.md: one orchestrator and four schedulers"
    return dataclasses.replace(a2a3_schedule(), threads=4, sources=taken | {"threads": threads})


MOST_US = 1e9
"""The longest time that is taken for one, µs: a quarter of an hour."""


def on_grid(time_us: Any) -> Any:
    """The nearest multiple of the grid of times.

    >>> float(on_grid(0.1)) * 2**20
    104858.0
    """
    return np.round(np.asarray(time_us, np.float64) / GRID_US) * GRID_US
