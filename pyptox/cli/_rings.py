"""What ``pyptox rings`` shows: a program's rings, their smallest capacities, or the scope statistics of a run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifacts import SCOPE_STATS_FILE, read_scope_stats
from ..chip import Pressure, pressure
from ..hardware import Hardware
from ..rings import ScopeStats, parse_limits
from ..rings._limits import parse_bytes
from ._programs import graph_at

if TYPE_CHECKING:
    from autotune import RingsResult


@dataclass(frozen=True)
class Shown:
    """A program's rings, and what was found for them."""

    pressure: Pressure
    solved: "RingsResult | None"

    @property
    def stats(self) -> ScopeStats:
        return self.pressure.run.stats

    def chart(self) -> str:
        return self.pressure.chart()

    def to_dict(self) -> dict[str, Any]:
        found = self.pressure.to_dict()
        content = found if self.solved is None else found | {"solved": self.solved.to_dict()}
        return json.loads(json.dumps(content))

    def __str__(self) -> str:
        return str(self.pressure) if self.solved is None else f"{self.pressure}\n\n{self.solved}"


@dataclass(frozen=True)
class Stats:
    """Scope statistics of a run."""

    stats: ScopeStats

    def chart(self) -> str:
        return self.stats.chart()

    def to_dict(self) -> dict[str, Any]:
        return self.stats.to_dict()

    def __str__(self) -> str:
        return str(self.stats)


def rings_of(
    place: str | None,
    sizes: Sequence[str],
    caps: Sequence[str],
    hardware: Hardware,
    solve: bool,
    memory: str | None,
    added_time: float | None,
) -> tuple[Shown, bool]:
    """The rings of a program, and whether it passes."""
    if place is None:
        raise ValueError("`PROGRAM` or `--capture` is needed. Try docs/programs/mlp.py:mlp, or --capture FILE.jsonl")
    limits = parse_limits(part for text in caps for part in text.split())
    found = graph_at(place, sizes, hardware)
    if not solve:
        given = {"--memory": memory, "--added-time": added_time}
        alone = [name for name, value in given.items() if value is not None]
        if alone:
            raise ValueError(f"`{alone[0]}` is about what --solve finds; got it without --solve. Add --solve")
        result = pressure(found, limits, hardware=hardware)
        return Shown(result, None), result.passed
    import autotune

    budget = None if memory is None else parse_bytes(memory)
    more = {} if added_time is None else {"added_time": added_time}
    solved = autotune.rings(found, limits=limits, hardware=hardware, memory=budget, **more)
    return Shown(solved.pressure, solved), solved.best.allowed


def ring_stats(capture: Path, given: Sequence[str]) -> tuple[Stats, bool]:
    """The scope statistics of a run, and whether they show no error, no leak, and nothing that cannot be."""
    if given:
        raise ValueError(f"`--capture` shows a run as it was; it does not go with {', '.join(given)}")
    places = [capture, capture / SCOPE_STATS_FILE, capture / "scope_stats" / SCOPE_STATS_FILE]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise FileNotFoundError(
            f"`--capture` must name a {SCOPE_STATS_FILE}, or the folder of a run with one; {str(capture)!r} is neither"
        )
    stats = read_scope_stats(file)
    return Stats(stats), not (stats.fatal or stats.leaks or stats.broken)
