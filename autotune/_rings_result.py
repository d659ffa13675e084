"""What the search over rings found: capacities, placements of scopes, and what the memory forbids."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyptox.chip import Pressure
from pyptox.rings import RINGS, Limits, Smallest, show_bytes

AS_IS = "as it is"
"""Name of the choice that has the scopes of the program."""


@dataclass(frozen=True, eq=False)
class ScopeChoice:
    """Scopes for a program, and what they cost.

    Attributes:
        name: in one word or two.
        spans: the scopes, by tasks (first, one past the last); empty for the program as it is.
        moved: tasks whose outputs are allocated before the scope that they are made in.
        smallest: capacities that pass.
        limits: the smallest of those tried with which the rings add no more time than allowed.
        time_us, added_us: with these, and what of it is due to scopes and rings.
        allowed: the added time is within the cap, and the heaps within the memory.
    """

    name: str
    spans: tuple[tuple[int, int], ...]
    moved: tuple[int, ...]
    smallest: Smallest
    limits: Limits
    time_us: float
    added_us: float
    allowed: bool

    @property
    def arena(self) -> int:
        """Bytes of the four heaps."""
        return self.limits.arena

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        names = ("name", "spans", "moved", "time_us", "added_us", "allowed")
        own = {name: getattr(self, name) for name in names}
        return own | {"smallest": self.smallest.to_dict(), "limits": self.limits.to_dict(), "arena": self.arena}


@dataclass(frozen=True, eq=False)
class RingsResult:
    """What the rings of a program may be.

    Attributes:
        pressure: the program as it is, under the limits that were asked about.
        memory: bytes that the four heaps may have together.
        added_time: share of the time that rings may add.
        choices: scopes, the best first; the program as it is is one of them.
    """

    pressure: Pressure
    memory: int
    added_time: float
    choices: tuple[ScopeChoice, ...]

    @property
    def best(self) -> ScopeChoice:
        """The allowed choice with the smallest heaps, or one that needs a little more and changes less; the smallest of
        all where none is allowed.
        """
        return self.choices[0]

    @property
    def as_is(self) -> ScopeChoice:
        """The scopes of the program."""
        return next(choice for choice in self.choices if choice.name == AS_IS)

    @property
    def largest_for_all(self) -> int:
        """The largest heap that all four rings can have: more, and the run is out of memory before its first task."""
        return max(0, self.memory // 4 // 1024 * 1024)

    def arena(self) -> list[str]:
        """What the heaps, which are allocated before the first task, forbid."""
        asked, least = self.pressure.run.limits.arena, self.pressure.smallest.limits
        lines = [
            f"memory {show_bytes(self.memory)} for four heaps: one capacity for all rings can be "
            f"{show_bytes(self.largest_for_all)} at most"
        ]
        if asked > self.memory:
            lines.append(f"the limits asked for take {show_bytes(asked)}: out of memory before the first task")
        scalar = 4 * max(least.heap)
        if scalar > self.memory >= least.arena:
            lines.append(
                f"one capacity for all rings would take 4 x {show_bytes(max(least.heap))}: out of memory. Give each "
                f"ring its own: {show_bytes(least.arena)} in all"
            )
        if least.arena > self.memory:
            lines.append(
                f"the program as it is needs {show_bytes(least.arena)}: no capacity passes. Other scopes, or less at a "
                "time"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "program": self.pressure.name,
            "smallest": self.pressure.smallest.to_dict(),
            "memory": self.memory,
            "largest_for_all": self.largest_for_all,
            "arena": self.arena(),
            "added_time": self.added_time,
            "best": self.best.to_dict(),
            "choices": [choice.to_dict() for choice in self.choices],
        }

    def __str__(self) -> str:
        least = self.pressure.smallest
        lines = ["smallest that pass, as the program is"]
        for ring in range(RINGS):
            if len(self.pressure.work.on(ring)):
                safe = "" if least.safe_heap[ring] == least.limits.heap[ring] else (
                    f"; surely all from {show_bytes(least.safe_heap[ring])} on"
                )  # fmt: skip
                lines.append(
                    f"  ring {ring}  heap {show_bytes(least.limits.heap[ring])} ({least.limits.heap[ring]:,} B{safe})"
                    f", window {least.limits.task_window[ring]:,}, dep pool {least.limits.dep_pool[ring]:,}"
                )
        lines += ["", *self.arena(), ""]
        lines.append(
            f"{'scopes':<32} {'number':>6} {'moved':>6} {'smallest':>11} {'heaps':>11} {'µs':>11} {'added':>9}"
        )
        for choice in self.choices[:12]:
            lines.append(
                f"{choice.name:<32} {len(choice.spans):>6} {len(choice.moved):>6} "
                f"{show_bytes(choice.smallest.limits.arena):>11} {show_bytes(choice.arena):>11} "
                f"{choice.time_us:>11.2f} {choice.added_us:>9.2f}" + ("" if choice.allowed else "  not allowed")
            )
        return "\n".join([*lines, *self._advice()])

    def _advice(self) -> Iterator[str]:
        best, names = self.best, self.pressure.work.names
        if best.name == AS_IS:
            yield "\nno other scopes need less"
            return
        yield f"\nplace {len(best.spans)} scopes:"
        for begin, end in best.spans[:8]:
            yield f"  from {names[begin]} to {names[end - 1]}"
        if len(best.spans) > 8:
            yield f"  and {len(best.spans) - 8:,} more"
        if best.moved:
            shown = ", ".join(names[task] for task in best.moved[:4])
            more = f" and {len(best.moved) - 4:,} more" if len(best.moved) > 4 else ""
            yield f"allocate before its scope (`empty`, then `out=`) what these make: {shown}{more}"
