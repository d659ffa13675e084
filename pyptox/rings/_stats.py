"""Scope statistics: what each scope allocated, held at its worst, and left behind; from a run or from a capture."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ._boundary_rules import broken_rules
from ._chart import heap_chart
from ._limits import PER_RING, RINGS, Limits, show_bytes


@dataclass(frozen=True)
class Boundary:
    """The state of a scope's ring where the scope begins or ends.

    Attributes:
        site: ``file:line`` of the scope.
        phase: ``begin`` or ``end``.
        depth: of the scope; 0 for the root.
        ring: that it is on.
        task_window, heap, dep_pool: what the ring has taken back and what it has given out, slots, bytes and entries,
            both counted up from the start of the run.
        tensormap: entries that are live.
    """

    site: str
    phase: str
    depth: int
    ring: int
    task_window: tuple[int, int] = (0, 0)
    heap: tuple[int, int] = (0, 0)
    dep_pool: tuple[int, int] = (0, 0)
    tensormap: int = 0


@dataclass(frozen=True)
class Amounts:
    """Slots, bytes and entries."""

    task_window: int = 0
    heap: int = 0
    dep_pool: int = 0


@dataclass(frozen=True)
class Visit:
    """One time that a scope was open.

    Attributes:
        site, depth, ring: of the scope.
        high_water: what was given out until it ended less what had been taken back when it began: no less than the ring
            held in between.
        live_at_exit: what the ring held when it ended.
        allocated: what the ring gave out inside it.
        complete: it was seen to end.
    """

    site: str
    depth: int
    ring: int
    high_water: Amounts
    live_at_exit: Amounts
    allocated: Amounts
    complete: bool = True


@dataclass(frozen=True)
class Site:
    """All visits of one site on one ring: how many, their largest amounts, and all that they allocated."""

    site: str
    depth: int
    ring: int
    visits: int
    open: int
    high_water: Amounts
    live_at_exit: Amounts
    allocated: Amounts


@dataclass(frozen=True)
class Peak:
    """The most that a ring held of one resource, as far as boundaries show.

    Attributes:
        ring, resource: of what.
        held: at a boundary, so the true peak is no smaller.
        high_water: the largest of a visit, so the true peak is no larger.
        capacity: what there is; 0 where it is not known.
        site: of the visit with the largest high water; of those the one that allocated most, since a scope shows the
            high water of those inside it too.
    """

    ring: int
    resource: str
    held: int
    high_water: int
    capacity: int
    site: str

    @property
    def share(self) -> float:
        """High water over capacity."""
        return self.high_water / self.capacity if self.capacity else 0.0


@dataclass(frozen=True)
class ScopeStats:
    """The boundaries of scopes in the order in which they were passed.

    Attributes:
        limits: capacities of the run.
        boundaries: of every scope.
        fatal: the run ended with an error.
        dropped: boundaries that were lost.
        total: boundaries that there were.
        version: of the file that they are from.
        lines: of that file, by boundary, from 1; empty for a simulated run.
    """

    limits: Limits
    boundaries: tuple[Boundary, ...]
    fatal: bool = False
    dropped: int = 0
    total: int = 0
    version: int = 6
    lines: tuple[int, ...] = field(default=(), compare=False)

    def visits(self) -> list[Visit]:
        """Every visit, in the order of their ends; those without an end last."""
        found, stack = [], list[Boundary]()
        for boundary in self.boundaries:
            if boundary.phase == "begin":
                stack.append(boundary)
                continue
            begun = [n for n, b in enumerate(stack) if (b.site, b.depth) == (boundary.site, boundary.depth)]
            if begun:
                found.append(_visit(stack.pop(begun[-1]), boundary))
        last = {boundary.ring: boundary for boundary in self.boundaries}
        return found + [_visit(begin, last[begin.ring], False) for begin in stack]

    def sites(self) -> list[Site]:
        """Visits by site and ring, the largest high water of the heap first."""
        groups: dict[tuple[str, int, int], list[Visit]] = {}
        for visit in self.visits():
            groups.setdefault((visit.site, visit.depth, visit.ring), []).append(visit)
        sites = [
            Site(
                *key,
                visits=len(group),
                open=sum(not visit.complete for visit in group),
                high_water=_over(group, "high_water", max),
                live_at_exit=_over(group, "live_at_exit", max),
                allocated=_over(group, "allocated", sum),
            )
            for key, group in groups.items()
        ]
        return sorted(sites, key=lambda s: (-s.high_water.heap, -s.high_water.task_window, s.ring, s.site))

    def peaks(self) -> list[Peak]:
        """By ring and resource, for rings that scopes are on."""
        visits, found = self.visits(), []
        for ring in range(RINGS):
            on = [visit for visit in visits if visit.ring == ring]
            for resource in PER_RING:
                if not on:
                    continue
                spans = [getattr(b, resource) for b in self.boundaries if b.ring == ring]
                top = max(getattr(v.high_water, resource) for v in on)
                causes = [v for v in on if getattr(v.high_water, resource) == top]
                cause = max(causes, key=lambda v: getattr(v.allocated, resource))
                held = max(end - start for start, end in spans)
                found.append(Peak(ring, resource, held, top, getattr(self.limits, resource)[ring], cause.site))
        return found

    @property
    def tensormap_peak(self) -> int:
        """The most entries that were live at a boundary."""
        return max((boundary.tensormap for boundary in self.boundaries), default=0)

    @property
    def leaks(self) -> list[Site]:
        """Sites that were opened and not closed by a run that came to its end."""
        return [] if self.fatal else [site for site in self.sites() if site.open]

    @property
    def broken(self) -> list[str]:
        """Boundaries that cannot be, as sentences (:mod:`pyptox.rings._boundary_rules`)."""
        return broken_rules(self)

    def findings(self) -> list[str]:
        """What is wrong, or missing from the record."""
        found = self.broken
        if self.fatal:
            inside = ", ".join(dict.fromkeys(site.site for site in self.sites() if site.open))
            found.append("the run ended with an error" + (f", inside {inside}" if inside else ""))
        if self.dropped or self.total > len(self.boundaries):
            lost = self.dropped or self.total - len(self.boundaries)
            found.append(
                f"{lost} of {max(self.total, len(self.boundaries) + lost)} boundaries are missing from the record"
            )
        for site in self.leaks:
            found.append(
                f"scope leak: {site.site} (depth {site.depth}, ring {site.ring}) was opened and not closed "
                f"{site.open} times; it holds {show_bytes(site.live_at_exit.heap)}"
            )
        for peak in self.peaks():
            if peak.share > FULL:
                found.append(
                    f"{peak.resource} of ring {peak.ring} was up to {peak.share:.0%} full, at {peak.site}: "
                    f"{_show(peak.resource, peak.high_water)} of {_show(peak.resource, peak.capacity)}"
                )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Peaks, sites and findings as plain values."""
        return {
            "version": self.version,
            "limits": self.limits.to_dict(),
            "peaks": [asdict(peak) | {"share": peak.share} for peak in self.peaks()],
            "tensormap_peak": self.tensormap_peak,
            "sites": [asdict(site) for site in self.sites()],
            "findings": self.findings(),
        }

    def chart(self) -> str:
        """Bytes held by each ring at its boundaries, in plain text."""
        rings = sorted({boundary.ring for boundary in self.boundaries})
        held = {r: np.array([b.heap[1] - b.heap[0] for b in self.boundaries if b.ring == r]) for r in rings}
        return heap_chart(held, "boundaries of the ring's scopes")

    def __str__(self) -> str:
        lines = [
            f"{'ring':>4} {'resource':<12} {'held':>12} {'high water':>12} {'capacity':>12} {'share':>7}  caused by",
        ]
        for p in self.peaks():
            if not (p.capacity or p.high_water):
                lines.append(f"{p.ring:>4} {p.resource:<12} {'not recorded':>12}")
                continue
            held, high, capacity = (f"{_show(p.resource, n):>12}" for n in (p.held, p.high_water, p.capacity))
            if not p.capacity:
                capacity, share = f"{'unknown':>12}", f"{'':>7}"
            else:
                share = f"{p.share:>7.1%}"
            lines.append(f"{p.ring:>4} {p.resource:<12} {held} {high} {capacity} {share}  {p.site}")
        lines += [f"     tensormap    {self.tensormap_peak:>12,} {'':>12} {self.limits.tensormap:>12,}", ""]
        return "\n".join([*lines, *self.site_table(), *(f"\n{finding}" for finding in self.findings())])

    def site_table(self) -> Iterator[str]:
        """Lines of a table of :meth:`sites`."""
        titles = f"{'high water':>12} {'live at exit':>12} {'allocated':>12} {'slots':>8}"
        yield f"{'scope':<28} {'ring':>4} {'visits':>7} {titles}"
        for s in self.sites():
            heaps = " ".join(f"{show_bytes(a.heap):>12}" for a in (s.high_water, s.live_at_exit, s.allocated))
            yield f"{s.site:<28} {s.ring:>4} {s.visits:>7,} {heaps} {s.high_water.task_window:>8,}"


FULL = 0.9
"""Share of a capacity from which it is worth a word."""


def _visit(begin: Boundary, end: Boundary, complete: bool = True) -> Visit:
    spans = {name: (getattr(begin, name), getattr(end, name)) for name in PER_RING}
    return Visit(
        begin.site,
        begin.depth,
        begin.ring,
        Amounts(**{name: last[1] - first[0] for name, (first, last) in spans.items()}),
        Amounts(**{name: last[1] - last[0] for name, (_, last) in spans.items()}),
        Amounts(**{name: last[1] - first[1] for name, (first, last) in spans.items()}),
        complete,
    )


def _over(visits: list[Visit], what: str, combine: Any) -> Amounts:
    return Amounts(**{name: combine(getattr(getattr(v, what), name) for v in visits) for name in PER_RING})


def _show(resource: str, amount: int) -> str:
    return show_bytes(amount) if resource == "heap" else f"{amount:,}"
