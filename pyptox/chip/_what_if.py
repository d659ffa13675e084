"""A simulation beside another, in which something is changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hardware import Hardware
from ..program._graph import Graph
from ._constants import Schedule
from ._scenario import AbstractEdit, Scenario
from ._simulate import simulate
from ._timeline import Timeline
from ._workload import Workload

SHOWN = 12
"""Tasks that the text shows; the JSON has them all."""

EARLIER = "before the first dispatch"
"""The part of a recorded run's makespan that is counted, and does not belong to it."""

LEAST_US = 0.005
"""A task that moved by less is not called moved."""


@dataclass(frozen=True)
class Move:
    """How a task of before moved: its first start and last finish, µs; later is positive."""

    name: str
    start_us: float
    finish_us: float
    start_shift_us: float
    finish_shift_us: float


@dataclass(frozen=True, eq=False)
class WhatIf:
    """Before and after.

    Attributes:
        edits: the changes, in the order in which they were made.
        before, after: the timelines.
        origin: for each task of ``after`` the numbers of the tasks of ``before`` that it was; empty for a new one.
        from_us: the moment that both makespans are counted from; 0, the first submission, for a program.
    """

    edits: tuple[AbstractEdit, ...]
    before: Timeline
    after: Timeline
    origin: tuple[tuple[int, ...], ...]
    from_us: float = 0.0

    @property
    def before_us(self) -> float:
        """Makespan before, from ``from_us`` on."""
        return self.before.makespan_us - self.from_us

    @property
    def after_us(self) -> float:
        """Makespan after, from the same moment on."""
        return self.after.makespan_us - self.from_us

    @property
    def saved_us(self) -> float:
        """Makespan before less makespan after."""
        return self.before.makespan_us - self.after.makespan_us

    def moves(self) -> list[Move]:
        """Every task of before that is still there, the largest shift of a finish first."""
        old, new = self.before.times, self.after.times
        start, finish = np.full(len(old.start), np.inf), np.full(len(old.start), -np.inf)
        for task, of in enumerate(self.origin):
            for number in of:
                start[number] = min(start[number], new.start[task])
                finish[number] = max(finish[number], new.finish[task])
        found = [
            Move(name, float(old.start[n]), float(old.finish[n]), float(a - old.start[n]), float(b - old.finish[n]))
            for n, (name, a, b) in enumerate(zip(self.before.workload.names, start, finish, strict=True))
            if np.isfinite(a)
        ]
        return sorted(found, key=lambda move: -abs(move.finish_shift_us))

    def staged(self) -> tuple[list[str], list[str]]:
        """Tasks that early dispatch staged before, and after."""
        before, after = ([t.workload.names[n] for n in np.flatnonzero(t.staged)] for t in (self.before, self.after))
        return before, after

    def attribution(self) -> dict[str, tuple[float, float]]:
        """Microseconds of the makespan by constant and kind of task, before and after; each adds up to its makespan."""
        old, new = self.before.attribution(), self.after.attribution()
        if self.from_us:
            old, new = (parts | {EARLIER: -self.from_us} for parts in (old, new))
        return {name: (old.get(name, 0.0), new.get(name, 0.0)) for name in {**old, **new}}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        before, after = self.staged()
        return {
            "edits": [str(edit) for edit in self.edits],
            "from_us": self.from_us,
            "before_us": self.before_us,
            "after_us": self.after_us,
            "saved_us": self.saved_us,
            "limit": {"before": self.before.limit, "after": self.after.limit},
            "staged": {"before": before, "after": after},
            "attribution": {name: {"before": a, "after": b} for name, (a, b) in self.attribution().items()},
            "moves": [vars(move) for move in self.moves()],
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
        }

    def __str__(self) -> str:
        before, after = self.before_us, self.after_us
        share = after / before - 1 if before else 0.0
        staged, now = (set(names) for names in self.staged())
        lines = [
            *map(str, self.edits),
            f"makespan  {before:,.2f} µs before, {after:,.2f} µs after ({after - before:+,.2f} µs, {share:+.2%})"
            + ("; from the first dispatch on" if self.from_us else ""),
            f"limit     {self.before.limit} before, {self.after.limit} after",
            *([] if self.before.workload.memory is None else [f"L2        {self.before.mode}"]),
            f"bound     {self.before.bound_us:,.2f} µs before, {self.after.bound_us:,.2f} µs after",
            f"staged    {len(staged)} tasks before, {len(now)} after"
            + "".join(
                f"; {title}: {', '.join(sorted(names)[:SHOWN])}"
                for title, names in (("now", now - staged), ("no longer", staged - now))
                if names
            ),
        ]
        moved = [m for m in self.moves() if max(abs(m.start_shift_us), abs(m.finish_shift_us)) >= LEAST_US]
        lines += ["", self._moved(moved)]
        if moved:
            lines.append(f"{'before the change':<28} {'start µs':>9} {'shift':>9} {'finish µs':>10} {'shift':>9}")
        for m in moved[:SHOWN]:
            lines.append(
                f"{m.name:<28} {m.start_us:>9.2f} {m.start_shift_us:>+9.2f} {m.finish_us:>10.2f} "
                f"{m.finish_shift_us:>+9.2f}"
            )
        if len(moved) > SHOWN:
            lines.append(f"... {len(moved) - SHOWN:,} tasks more; --json has them all")
        lines += ["", f"{'of the makespan':<20} {'before':>9} {'after':>9}    µs"]
        for name, (old, new) in sorted(self.attribution().items(), key=lambda item: -max(item[1])):
            if old or new:
                lines.append(f"{name:<20} {old:>9.2f} {new:>9.2f}")
        return "\n".join(lines)

    def _moved(self, moved: list[Move]) -> str:
        """How many tasks moved; those in parts count once."""
        work = self.before.workload
        whole = {name: work.whole(n) for n, name in enumerate(work.names)}
        if len(whole) < work.tasks or len(set(whole.values())) == work.tasks:
            return f"{len(moved):,} of {work.tasks:,} tasks moved"
        tasks = {whole[move.name] for move in moved}
        parts = f"{len(moved):,} of the {work.tasks:,} parts that they were recorded in"
        return f"{len(tasks):,} of {len(set(whole.values())):,} tasks moved, {parts}"


def what_if(
    what: Timeline | Graph | Workload,
    edits: Sequence[AbstractEdit],
    *,
    from_us: float = 0.0,
    hardware: Hardware | None = None,
    schedule: Schedule | None = None,
    repeated: bool = False,
) -> WhatIf:
    """Make changes, one after another, and simulate again.

    Args:
        what: a timeline (of a program, of a workload, or ``replay(capture).timeline``), or what to simulate first.
        edits: the changes.
        from_us: the moment that makespans are counted from; ``replay(capture).from_us`` for a run.
        hardware, schedule, repeated: as for :func:`simulate`; only where ``what`` is not a timeline, which has its own.

    Raises:
        PyptoxError: a change names a task that is not there, or cannot be made.

    >>> from pyptox import chip
    >>> work = chip.Workload.of(["AIC", "AIV"], [12, 12], [50.0, 10.0], [[], [0]], names=["t0 up", "t1 silu"])
    >>> answer = chip.what_if(work, [chip.FlagProducer("up")])
    >>> answer.saved_us > 2.0, answer.staged()
    (True, ([], ['t1 silu']))
    """
    if not isinstance(what, Timeline):
        what = simulate(what, hardware=hardware, schedule=schedule, repeated=repeated)
    scenario = Scenario.of(what)
    for edit in edits:
        scenario = edit.apply(scenario)
    after = simulate(scenario.workload, hardware=scenario.hardware, schedule=scenario.schedule, repeated=what.repeated)
    return WhatIf(tuple(edits), what, after, scenario.origin, from_us)
