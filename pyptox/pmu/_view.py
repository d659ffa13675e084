"""The counters of one kernel that a prediction determines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cost import Options, cost_of
from ..cost._nest import options_for
from ..cost._range import outside
from ..cost._verify import misfits, plain_hardware, plain_nest
from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._file import CORES, Capture, Row
from ._groups import PIPE_UTIL, PIPES_OF, Group, group, pipe


@dataclass(frozen=True)
class View:
    """What the PMU of the busiest core of each kind would count.

    Attributes:
        kernel, hardware: their names.
        values: the configuration.
        func_id: which kernel it is in a ``pmu.csv``.
        group: the event group.
        total_cycles: execution on the busiest core, its launch not included. Both kinds of core of a mixed kernel get
            the cluster's, which the model does not divide.
        counters: by kind of core, each counter of the group; None where the model does not determine it.
        uncounted: busy cycles of the pipes that the group has no counter for, such as FIXPIPE on a2a3.
        moved: bytes of the whole kernel that no counter states: ``read`` and ``write`` in whole lines, ``hbm`` of the
            read.
        l2_hit: share of the read bytes that L2 supplies.
        legal: whether the configuration fits the chip.
        basis, outside: what the prediction rests on, and where it leaves the range that was fitted.
        misfits: why it does not fit the chip; empty where it does.
    """

    kernel: str
    hardware: str
    values: dict[str, Any]
    func_id: int
    group: Group
    total_cycles: int
    counters: dict[str, dict[str, int | None]]
    uncounted: dict[str, int]
    moved: dict[str, float]
    l2_hit: float
    legal: bool
    basis: str
    outside: tuple[str, ...]
    misfits: tuple[str, ...] = ()

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Counters of the group that stay empty."""
        return tuple(n for n in self.group.counters if all(found[n] is None for found in self.counters.values()))

    def to_dict(self) -> dict[str, Any]:
        """Everything; what is not determined is null."""
        return {
            "kernel": self.kernel,
            "hardware": self.hardware,
            "values": dict(self.values),
            "func_id": self.func_id,
            "event_type": self.group.event_type,
            "event_group": self.group.name,
            "total_cycles": self.total_cycles,
            "counters": {core: dict(found) for core, found in self.counters.items()},
            "undetermined": list(self.undetermined),
            "uncounted": dict(self.uncounted),
            "moved": dict(self.moved),
            "l2_hit": self.l2_hit,
            "legal": self.legal,
            "misfits": list(self.misfits),
            "basis": self.basis,
            "outside": list(self.outside),
        }

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.values.items())
        lines = [f"does not fit the chip: {text}" for text in self.misfits]
        lines += [
            f"{self.kernel} on {self.hardware}: {values}",
            f"event group {self.group.event_type} {self.group.name}, predicted for the busiest core of each kind",
            "",
            "core  counter                          predicted   share",
        ]
        for core, found in self.counters.items():
            lines.append(f"{core:<5} {'pmu_total_cycles':<28} {self.total_cycles:>13,}  100.0%")
            for name, value in found.items():
                if value is not None:
                    lines.append(f"{core:<5} {name:<28} {value:>13,}  {value / max(self.total_cycles, 1):>6.1%}")
        lines.append("")
        if self.undetermined:
            lines.append(f"left empty, not determined by the model: {', '.join(self.undetermined)}")
        if self.uncounted:
            pipes = ", ".join(f"{name} {cycles:,} cycles" for name, cycles in self.uncounted.items())
            lines.append(f"busy, without a counter in this group: {pipes}")
        lines.append(
            f"whole kernel: reads {self.moved['read'] / 1024:,.0f} KiB, {self.moved['hbm'] / 1024:,.0f} of them from "
            f"HBM (L2 supplies {self.l2_hit:.0%}); writes {self.moved['write'] / 1024:,.0f} KiB"
        )
        lines.append(f"rests on: {self.basis}")
        return "\n".join(lines + [f"outside what was calibrated: {note}" for note in self.outside])


def view(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(warm=4),  # noqa: B008  (frozen)
    *,
    event_type: int = PIPE_UTIL,
    func_id: int = 0,
) -> View:
    """Predict the counters of one kernel. The first five arguments are those of :func:`pyptox.cost.explain`.

    Args:
        kernel, specs, values, hardware, options: what runs, on what.
        event_type: the event group; 2 (``PIPE_UTIL``) by default.
        func_id: which kernel it is in a ``pmu.csv``.

    >>> import pyptox as px
    >>> specs = px.kernels.matmul.specs(px.spec((16, 5120), "bf16"), px.spec((5120, 17408), "bf16"))
    >>> found = view(px.kernels.matmul, specs, {"m": 16, "n": 256, "k": 256}, px.hardware.a2a3())
    >>> found.counters["AIC"]["mte2_busy_cycles"] <= found.total_cycles, found.counters["AIC"]["icache_miss"]
    (True, None)
    """
    values = kernel.configuration(values)
    events = group(hardware.name, event_type)
    options = options_for(kernel, options, values)
    chip = plain_hardware(hardware)
    cost = cost_of(kernel, specs, values, chip, options)
    busy = {name: float(cycles) for name, cycles in cost.busy.items()}
    counted = {pipe(name, core) for name in events.counters for core in CORES}
    cores = [core for core in CORES if PIPES_OF[core] & set(busy)]
    return View(
        kernel=kernel.name,
        hardware=hardware.name,
        values=dict(values),
        func_id=func_id,
        group=events,
        total_cycles=round(float(cost.cycles)),
        counters={core: {name: _busy(busy, name, core) for name in events.counters} for core in cores},
        uncounted={name: round(cycles) for name, cycles in busy.items() if name not in counted},
        moved={way: float(amount) for way, amount in cost.moved.items()},
        l2_hit=float(cost.l2_hit),
        legal=bool(cost.legal),
        basis=hardware.basis,
        outside=outside(plain_nest(kernel, specs, values, hardware, options), chip),
        misfits=() if cost.legal else misfits(kernel, specs, values, hardware, options),
    )


def _busy(busy: Mapping[str, float], counter: str, core: str) -> int | None:
    """Busy cycles of the counter's pipe: 0 where the kernel has no instruction on it."""
    name = pipe(counter, core)
    return None if name is None else round(busy.get(name, 0.0))


def capture_of(views: Sequence[View]) -> Capture:
    """Predictions as the rows of a ``pmu.csv``: one for each kernel and kind of core, the busiest core's.

    Task ids count the kernels from 0. Thread and core stay empty: the model has neither.
    """
    groups = {v.group for v in views}
    if len(groups) != 1:
        raise ValueError(
            f"`views` must be of one event group, as a run records one; got {sorted(g.name for g in groups) or 'none'}"
        )
    (events,) = groups
    rows = [
        Row(None, None, task, v.func_id, core, v.total_cycles, found)
        for task, v in enumerate(views)
        for core, found in v.counters.items()
    ]
    return Capture(events.event_type, events.counters, tuple(rows))
