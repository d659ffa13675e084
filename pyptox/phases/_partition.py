"""A task cut at its global boundaries; the pieces add up to the whole in integer cycles."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

REDUCTIONS = {
    "entry": ("E", min),
    "produced": ("R", max),
    "arrival": ("B", max),
    "release": ("A", min),
    "done": ("F", max),
}
"""Symbol and reduction over cores of each boundary: first entry, last producer, last arrival, first release, last
body."""

MEANING = {
    "M0": "task start",
    "E": "before the first core enters",
    "R": "until the last producer is done",
    "B": "until the last core arrives",
    "A": "until the first core is released",
    "F": "until the last body is done",
    "M1": "until the task ends",
}


@dataclass(frozen=True)
class Boundary:
    """A global boundary: symbol, absolute cycle, and the lowest slot that set it (None for a task's own bound)."""

    symbol: str
    cycle: int
    slot: int | None


@dataclass(frozen=True)
class Piece:
    """The cycles from one boundary to the next; negative where they come in the other order."""

    start: str
    end: str
    cycles: int


@dataclass(frozen=True)
class Partition:
    """Global boundaries in their order ``M0 E R B A F M1``; those that a kernel does not have are absent.

    ``(R-E) + (B-R) + (A-B) + (F-A) = F-E`` holds exactly, in integers, since consecutive pieces share a boundary.
    Each boundary is a minimum or maximum over cores of *absolute* stamps; maxima of durations over different cores
    must not be added.

    >>> cut = Partition((Boundary("E", 10, 0), Boundary("R", 25, 1), Boundary("F", 40, 0)))
    >>> [piece.cycles for piece in cut.pieces], cut.span, cut.exact
    ([15, 15], 30, True)
    """

    boundaries: tuple[Boundary, ...]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The cycles between consecutive boundaries."""
        pairs = pairwise(self.boundaries)
        return tuple(Piece(a.symbol, b.symbol, b.cycle - a.cycle) for a, b in pairs)

    @property
    def span(self) -> int | None:
        """``F - E``, cycles: the envelope of the cores; None where no core has both."""
        at = {b.symbol: b.cycle for b in self.boundaries}
        return at["F"] - at["E"] if "E" in at and "F" in at else None

    @property
    def whole(self) -> int:
        """From the first boundary to the last, cycles: ``M1 - M0`` with a task's bounds, ``F - E`` without."""
        return self.boundaries[-1].cycle - self.boundaries[0].cycle if self.boundaries else 0

    @property
    def exact(self) -> bool:
        """Whether the pieces add up to the whole, and those between E and F to the span."""
        inner = sum(p.cycles for p in self.pieces if p.start != "M0" and p.end != "M1")
        return sum(p.cycles for p in self.pieces) == self.whole and self.span in (None, inner)

    def to_dict(self) -> dict[str, Any]:
        """Boundaries, pieces and the identity."""
        return {
            "boundaries": {b.symbol: {"cycle": b.cycle, "slot": b.slot} for b in self.boundaries},
            "pieces": {f"{p.end}-{p.start}": p.cycles for p in self.pieces},
            "span": self.span,
            "identity": {"sum": sum(p.cycles for p in self.pieces), "whole": self.whole, "holds": self.exact},
        }

    def __str__(self) -> str:
        if not self.boundaries:
            return "no core has a stamp of this round: nothing to take apart"
        setters = {b.symbol: b for b in self.boundaries}
        lines = ["piece        cycles   share  set by"]
        for piece in self.pieces:
            slot = setters[piece.end].slot
            share = f"{piece.cycles / self.whole:>6.1%}" if self.whole else "     -"
            by = "task" if slot is None else f"slot {slot}"
            label = f"{piece.end}-{piece.start}"
            lines.append(f"{label:<6} {piece.cycles:>12,}  {share}  {by:<9} {MEANING[piece.end]}")
        total = sum(p.cycles for p in self.pieces)
        ends = f"{self.boundaries[-1].symbol}-{self.boundaries[0].symbol}"
        verdict = "adds up to" if self.exact else "DOES NOT add up to"
        lines.append(f"{'sum':<6} {total:>12,}  {verdict} {ends} = {self.whole:,}")
        return "\n".join(lines)


def partition(stamps: Mapping[str, Mapping[int, int]], task: tuple[int, int] | None) -> Partition:
    """Reduce stamps by boundary and slot to global boundaries, with the task's own bounds where known."""
    found = [] if task is None else [Boundary("M0", task[0], None)]
    for name, (symbol, reduce) in REDUCTIONS.items():
        if stamps[name]:
            slot = reduce(stamps[name], key=stamps[name].__getitem__)
            found.append(Boundary(symbol, stamps[name][slot], slot))
    if task is not None:
        found.append(Boundary("M1", task[1], None))
    return Partition(tuple(found))
