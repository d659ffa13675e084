"""A program's rings: whether it passes, how full they get, what waits, and the least that passes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..hardware import Hardware
from ..program._graph import Graph
from ..rings import (
    RINGS,
    DeadlockError,
    Limits,
    Run,
    Smallest,
    Submissions,
    orchestrate,
    show_bytes,
    smallest,
    unlimited,
)
from ..rings._chart import heap_chart
from ..rings._limits import PER_RING
from ._constants import Schedule
from ._simulate import simulate, under
from ._timeline import Timeline

MOST_LATE = 5
"""Late readers that are named in print."""


@dataclass(frozen=True, eq=False)
class Pressure:
    """What the rings do to a program.

    Attributes:
        name: of the program.
        run: under the limits that were asked for; up to its deadlock where there is one.
        free: with capacities that nothing fills.
        timeline: the simulation of ``run``; None where it ends in a deadlock.
    """

    name: str
    run: Run
    free: Run
    timeline: Timeline | None

    @property
    def work(self) -> Submissions:
        return self.run.work

    @property
    def passed(self) -> bool:
        """It runs to its end."""
        return self.run.deadlock is None

    @cached_property
    def smallest(self) -> Smallest:
        """The smallest capacities that pass."""
        return smallest(self.work)

    @property
    def added_us(self) -> float:
        """What waiting for the rings adds to the time; not a number where it does not pass."""
        return self.run.time_us - self.free.time_us if self.passed else float("nan")

    @property
    def service_us(self) -> np.ndarray:
        """Of each task, from being ready to being finished, where nothing waits for a ring."""
        return self.free.service_us

    @property
    def cost_us(self) -> np.ndarray:
        """Of each submission."""
        return self.free.cost_us

    def rows(self) -> list[dict[str, Any]]:
        """By ring and resource: peak, capacity, the smallest that passes, what nothing waits for, and the scope of the
        task at whose submission the peak was.
        """
        found = []
        for ring in range(RINGS):
            for resource in PER_RING:
                at = self.run.peak_task[resource][ring]
                if at >= 0:
                    found.append(
                        {
                            "ring": ring,
                            "resource": resource,
                            "peak": self.run.peak[resource][ring],
                            "capacity": getattr(self.run.limits, resource)[ring],
                            "smallest": getattr(self.smallest.limits, resource)[ring],
                            "no_waits": self.free.peak[resource][ring],
                            "task": self.work.names[at],
                            "scope": self.work.scopes[self.work.scope[at]].site,
                        }
                    )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        run = self.run
        return {
            "program": self.name,
            "tasks": self.work.count,
            "passed": self.passed,
            "deadlock": None if run.deadlock is None else run.deadlock.to_dict(),
            "limits": run.limits.to_dict(),
            "rings": self.rows(),
            "at_peak": {
                ring: {"head": self.work.names[held.head], "by_site": held.by_site, "behind": held.behind}
                for ring in range(RINGS)
                if (held := run.at_peak(ring)) is not None
            },
            "tensormap_peak": run.peak["tensormap"][0],
            "time_us": run.time_us if self.passed else None,
            "added_us": self.added_us if self.passed else None,
            "attribution": run.attribution(),
            "stall_us": {name: float(stall.sum()) for name, stall in run.stalls.items()},
            "smallest": self.smallest.to_dict(),
            "scopes": run.stats.to_dict()["sites"],
            "open_scopes": self.open_scopes(),
            "late": [[self.work.names[p], self.work.names[reader]] for p, reader in run.late],
        }

    def open_scopes(self) -> list[dict[str, Any]]:
        """Scopes that are open at the deadlock, and what their own tasks hold of their rings."""
        stuck = self.run.deadlock
        if stuck is None:
            return []
        held = self.work.scope[: stuck.task]
        sizes = np.bincount(held, self.work.bytes[: stuck.task], len(self.work.scopes)).astype(int).tolist()
        counts = np.bincount(held, minlength=len(self.work.scopes)).tolist()
        return [
            {"scope": s.label, "depth": s.depth, "ring": ring, "tasks": counts[s.number], "heap": sizes[s.number]}
            for s, ring in zip(self.work.scopes, self.work.ring_of_scope.tolist(), strict=True)
            if s.begin <= stuck.task and (s.end is None or s.end > stuck.task)
        ]

    def _held_at_peaks(self) -> list[str]:
        lines = []
        for ring in range(RINGS):
            held = self.run.at_peak(ring)
            if held is not None:
                parts = [f"{show_bytes(size)} of {site}" for site, size in list(held.by_site.items())[:3]]
                stuck = f"; {show_bytes(held.behind)} done, behind {self.work.names[held.head]}" if held.behind else ""
                lines.append(f"ring {ring} at its peak holds {', '.join(parts)}{stuck}")
        return [*lines, ""] if lines else []

    def chart(self) -> str:
        """Bytes held by each ring over the submissions, in plain text."""
        count = len(self.run.held)
        rings = [(ring, self.work.on(ring)) for ring in range(RINGS) if len(self.work.on(ring))]
        held = {ring: self.run.held[tasks[tasks < count]] for ring, tasks in rings}
        return heap_chart(held, "the ring's submissions")

    def __str__(self) -> str:
        run = self.run
        lines = [str(run.deadlock)] if run.deadlock else [f"{self.name}: passes, {self.work.count:,} tasks"]
        lines += [
            "",
            f"{'ring':>4} {'resource':<12} {'peak':>11} {'capacity':>11} {'smallest':>11} {'no waits':>11}  at",
        ]
        for row in self.rows():
            shown = show_bytes if row["resource"] == "heap" else "{:,}".format
            values = " ".join(f"{shown(row[name]):>11}" for name in ("peak", "capacity", "smallest", "no_waits"))
            lines.append(f"{row['ring']:>4} {row['resource']:<12} {values}  {row['task']} in {row['scope']}")
        taken, least = run.peak["tensormap"][0], self.smallest.limits.tensormap
        lines.append(f"     {'tensormap':<12} {taken:>11,} {run.limits.tensormap:>11,} {least:>11,}")
        lines.append("")
        lines += [
            f"open at the deadlock: {s['scope']}, ring {s['ring']}: its tasks hold {s['tasks']:,} slots and "
            f"{show_bytes(s['heap'])}"
            for s in self.open_scopes()
        ]
        lines += self._held_at_peaks()
        if self.passed:
            lines += [*run.stats.site_table(), ""]
            parts = ", ".join(f"{name} {part:.2f}" for name, part in run.attribution().items())
            lines.append(f"time         {run.time_us:.2f} µs, {self.added_us:.2f} of them added by the rings: {parts}")
        lines.append(f"heaps        {show_bytes(run.limits.arena)} before the first task; the smallest that pass: ")
        lines[-1] += f"{show_bytes(self.smallest.limits.arena)}"
        for producer, reader in run.late[:MOST_LATE]:
            lines.append(
                f"late reader  {self.work.names[reader]} reads what {self.work.names[producer]} made, after its scope "
                "closed and it was given back: its storage may have been written to again"
            )
        if len(run.late) > MOST_LATE:
            lines.append(f"             and {len(run.late) - MOST_LATE:,} more")
        return "\n".join(lines)


def pressure(
    graph: Graph,
    limits: Limits | None = None,
    *,
    hardware: Hardware | None = None,
    schedule: Schedule | None = None,
) -> Pressure:
    """What the rings do to a program under ``limits``; the runtime's defaults where left out.

    The program is simulated with them, and with none. Where it comes to a deadlock, what happens up to there is told
    with the tasks' times of the latter.

    >>> import pyptox as px
    >>> from pyptox import chip, program as pp, rings
    >>> @pp.program(sizes=lambda: {"x": px.spec((16, 256), "bf16"), "w": px.spec((256, 256), "bf16")})
    ... def steps(x, w):
    ...     for _ in range(3):
    ...         x = pp.submit(px.kernels.matmul, x, w, m=16, n=64, k=64)
    ...     return x
    >>> found = chip.pressure(pp.graph(steps), rings.Limits().replace(heap=16384))
    >>> found.run.deadlock.cause, found.smallest.limits.heap[0]
    ('heap too small', 24576)
    """
    limits = limits or Limits()
    free = simulate(graph, hardware=hardware, schedule=schedule, rings=unlimited(limits))
    free_run = _account(free)
    try:
        timeline = simulate(under(free.workload, limits), hardware=hardware, schedule=schedule)
    except DeadlockError:
        return Pressure(
            graph.name, orchestrate(free_run.work, free_run.service_us, free_run.cost_us, limits), free_run, None
        )
    return Pressure(graph.name, _account(timeline), free_run, timeline)


def _account(timeline: Timeline) -> Run:
    assert timeline.rings is not None
    return timeline.rings
