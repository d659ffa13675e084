"""What a makespan is made of, exactly: constants and tasks times how often each lies on the critical path."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..hardware import Hardware
from ..program._graph import Graph
from ._constants import Schedule
from ._early import EarlyUse, early_uses
from ._landing import Effect, effects
from ._simulate import simulate
from ._timeline import MEASURED, Timeline
from ._workload import Workload

SHOWN = 16
"""Lines of each list that the text shows; the JSON has them all."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """An account of a timeline.

    The makespan is homogeneous of degree one in the constants and the durations, so that these times their derivatives
    add up to it; one walk back along what bound each event gives all derivatives.

    Attributes:
        timeline: what is explained.
    """

    timeline: Timeline

    @property
    def total_us(self) -> float:
        """The makespan."""
        return self.timeline.makespan_us

    @property
    def limit(self) -> str:
        """The largest part."""
        return self.timeline.limit

    @property
    def by_constant(self) -> dict[str, float]:
        """Microseconds by constant of the schedule; with :attr:`by_task` they add up to the makespan."""
        known = self.timeline.schedule.values()
        return {name: part for name, part in self.timeline.attribution().items() if name in known or name == MEASURED}

    @cached_property
    def by_task(self) -> dict[int, float]:
        """Microseconds of a task's own blocks, by number; tasks off the critical path are left out."""
        spent = self.timeline.gradient()[1] * self.timeline.times.block
        return {int(n): float(spent[n]) for n in np.flatnonzero(spent)}

    @cached_property
    def on_path(self) -> dict[int, float]:
        """Microseconds of the critical path that lead to a task's events, by number: blocks, costs and waits."""
        totals: dict[int, float] = {}
        for piece in self.timeline.critical():
            totals[piece.task] = totals.get(piece.task, 0.0) + piece.end_us - piece.start_us
        return totals

    @cached_property
    def early(self) -> tuple[EarlyUse, ...]:
        """Early dispatch by consumer."""
        return early_uses(self.timeline)

    @cached_property
    def warms(self) -> tuple[Effect, ...]:
        """What warms saved and cost each task."""
        return tuple(effects(self.timeline))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        names = self.timeline.workload.names
        static = self.timeline.static_path()
        return {
            "makespan_us": self.total_us,
            "limit": self.limit,
            "by_constant": self.by_constant,
            "by_task": [{"number": n, "name": names[n], "us": part} for n, part in self.by_task.items()],
            "by_hardware": self.timeline.by_hardware(),
            "bound_us": self.timeline.bound_us,
            "static_path": {"time_us": static.time_us, "tasks": list(static.tasks)},
            "critical": [vars(piece) for piece in self.timeline.critical()],
            "l2": self.timeline.mode,
            "rings": [vars(wait) for wait in self.timeline.ring_waits],
            "warms": [vars(effect) | {"name": names[effect.task]} for effect in self.warms],
            "early_dispatch": [
                {
                    "task": use.task,
                    "name": names[use.task],
                    "verdict": use.verdict,
                    "blocks": use.blocks,
                    "early": use.early,
                    "reason": use.reason,
                    "producers": [vars(producer) | {"name": names[producer.task]} for producer in use.producers],
                }
                for use in self.early
            ],
        }

    def __str__(self) -> str:
        t, names, total = self.timeline, self.timeline.workload.names, self.total_us or 1.0
        static = t.static_path()
        lines = [
            f"makespan  {self.total_us:,.2f} µs; no schedule beats {t.bound_us:,.2f} µs",
            f"limit     {self.limit}",
            f"L2        {t.mode}",
            "",
            f"{'of the makespan':<28} {'µs':>9} {'share':>7}",
        ]
        parts = dict(self.by_constant) | {f"blocks of {names[n]}": part for n, part in self.by_task.items()}
        ordered = sorted(((name, part) for name, part in parts.items() if part), key=lambda item: -item[1])
        lines += [f"{name:<28} {part:>9.2f} {part / total:>7.1%}" for name, part in ordered[:SHOWN]]
        rest = ordered[SHOWN:]
        if rest:
            left = sum(part for _, part in rest)
            lines.append(f"{f'{len(rest)} more':<28} {left:>9.2f} {left / total:>7.1%}")
        lines.append(f"{'sum':<28} {sum(parts.values()):>9.2f} {sum(parts.values()) / total:>7.1%}")
        hardware = sorted(t.by_hardware().items(), key=lambda item: -item[1])
        if hardware:
            lines.append("of the blocks: " + ", ".join(f"{name} {part:.2f} µs" for name, part in hardware[:6] if part))
        lines += ["", f"critical path, {len(t.critical())} pieces; of it until a task's events"]
        path = sorted(self.on_path.items())
        lines += [f"  {names[n]:<26} {part:>9.2f} {part / total:>7.1%}" for n, part in path[:SHOWN]]
        if len(path) > SHOWN:
            lines.append(f"  ... {len(path) - SHOWN:,} tasks more; --json has every piece")
        chain = [names[n] for n in static.tasks]
        shown = " → ".join(chain if len(chain) <= SHOWN else [*chain[:3], "...", *chain[-3:]])
        lines.append(f"static path {static.time_us:,.2f} µs: {shown}")
        return "\n".join([*lines, *self._ring_lines(), *self._warm_lines(), "", *self._early_lines()])

    def _ring_lines(self) -> list[str]:
        t, waits = self.timeline, self.timeline.ring_waits
        if not waits:
            return []
        names, on_path = t.workload.names, sum(wait.waited_us for wait in waits if wait.on_path)
        lines = [
            "",
            f"rings: {len(waits):,} submissions waited {t.stalls.sum():,.2f} µs, {on_path:,.2f} µs of it on the path",
        ]
        for wait in sorted(waits, key=lambda w: (not w.on_path, -w.waited_us))[:SHOWN]:
            what = wait.resource if wait.ring is None else f"{wait.resource} of ring {wait.ring}"
            held = f"held by {names[wait.head]} in {wait.scope} until {names[wait.until]} finished"
            path = ", on the path" if wait.on_path else ""
            lines.append(f"  {names[wait.task]:<26} {wait.waited_us:>9.2f}  {what}, {held}{path}")
        if len(waits) > SHOWN:
            lines.append(f"  ... {len(waits) - SHOWN:,} submissions more; --json has them all")
        return lines

    def _warm_lines(self) -> list[str]:
        without, names = self.timeline.without_warms, self.timeline.workload.names
        if without is None:
            return []
        before = without[0].makespan_us
        lines = ["", f"warms: {before:,.2f} µs without them, {self.total_us - before:+,.2f} µs"]
        lines.append(f"  {'µs of a block':<26} {'saved':>9} {'spent':>9}")
        ordered = sorted(self.warms, key=lambda e: -(e.saved_us + e.spent_us))
        lines += [f"  {names[e.task]:<26} {e.saved_us:>9.2f} {e.spent_us:>9.2f}" for e in ordered[:SHOWN]]
        if len(ordered) > SHOWN:
            lines.append(f"  ... {len(ordered) - SHOWN:,} tasks more; --json has them all")
        return lines

    def _early_lines(self) -> list[str]:
        names, uses = self.timeline.workload.names, self.early
        count = {verdict: sum(use.verdict == verdict for use in uses) for verdict in ("full", "partial", "none")}
        lines = ["early dispatch: " + ", ".join(f"{verdict} {n}" for verdict, n in count.items())]
        for use in uses[:SHOWN]:
            why = f"  {use.reason}" if use.reason else ""
            lines.append(f"  {names[use.task]:<26} {use.verdict} {use.early}/{use.blocks}{why}")
        if len(uses) > SHOWN:
            lines.append(f"  ... {len(uses) - SHOWN:,} consumers more")
        return lines


def explain(
    what: Timeline | Graph | Workload,
    *,
    hardware: Hardware | None = None,
    schedule: Schedule | None = None,
    repeated: bool = False,
) -> Explanation:
    """Say what the makespan is made of.

    Args:
        what: a timeline, or what to simulate first.
        hardware, schedule, repeated: as for :func:`simulate`; only where ``what`` is not a timeline.

    >>> from pyptox import chip
    >>> found = chip.explain(chip.Workload.of(["AIC", "AIV"], [24, 48], [10.0, 5.0], [[], [0]]))
    >>> sum(found.by_constant.values()) + sum(found.by_task.values()) == found.total_us
    True
    """
    if not isinstance(what, Timeline):
        what = simulate(what, hardware=hardware, schedule=schedule, repeated=repeated)
    return Explanation(what)
