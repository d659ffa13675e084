"""The outcome of a search for warms."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyptox.chip import Timeline

from ._prefetch_candidates import Candidates, Choice, kinds_of

SHOWN = 8
"""Alternatives that the text shows; the JSON has every choice."""


_METHODS = {
    "given": "those given",
    "exhaustive": "every choice of one warm, and more warms than one from the best",
    "gradient": "the likely ones, not all of one warm",
}

ALIKE = 1e-4
"""Share of the time by which two choices are as fast as each other."""


@dataclass(frozen=True)
class Margin:
    """How what is warmed of one kind lands, over all its uses, µs.

    Attributes:
        weights: which.
        bytes: of one use.
        least_us, mean_us: from its landing to its use; negative where it is late.
        found: the share that is there at its use, on average.
    """

    weights: str
    bytes: float
    least_us: float
    mean_us: float
    found: float


@dataclass(frozen=True)
class Priced:
    """A choice and the time that it takes; ``gradient``: proposed by the gradient on fractions."""

    choice: Choice
    time_us: float
    origin: str = "search"

    @property
    def size(self) -> tuple[int, int]:
        """Weights that it names, and warms."""
        return sum(len(scope.weights) * scope.contexts for scope in self.choice), len(self.choice)

    def __str__(self) -> str:
        return " + ".join(map(str, self.choice)) or "no warm"


def best_of(tried: Iterable[Priced]) -> Priced:
    """The smallest of those that are as fast as the fastest."""
    every = list(tried)
    least = min(one.time_us for one in every)
    return min((one for one in every if one.time_us <= least * (1 + ALIKE)), key=lambda one: (one.size, one.time_us))


@dataclass(frozen=True, eq=False)
class PrefetchResult:
    """What was found.

    Attributes:
        candidates: what can be chosen.
        tried: every choice that was priced, the fastest first.
        method: ``given``; ``exhaustive`` where every choice of one warm was priced, and others after that; ``gradient``
            where the budget was spent before, on the likely ones.
        l2_bytes: of the chip.
        simulate: a choice's timeline, and where the program's own tasks are in it.
    """

    candidates: Candidates
    tried: tuple[Priced, ...]
    method: str
    l2_bytes: float
    simulate: Callable[[Choice], tuple[Timeline, list[int]]]

    @property
    def as_is_us(self) -> float:
        """Without any warm."""
        return self.candidates.base.makespan_us

    @property
    def best(self) -> Priced:
        """The fastest choice, of equals the one with the fewest weights; no warm where none gains."""
        return self.tried[0]

    @property
    def gain_us(self) -> float:
        """What it saves; 0 without a warm."""
        return self.as_is_us - self.best.time_us

    def bytes(self, choice: Choice) -> float:
        """What all its warms together bring for one occurrence of each anchor, on average."""
        names = {name for scope in choice for name in scope.weights}
        return sum(self.candidates.weights[name].bytes for name in names)

    def margins(self, choice: Choice) -> list[Margin]:
        """When each kind of weight lands, against its use."""
        timeline, places = self.simulate(choice)
        task_of = {place: task for task, place in enumerate(places)}
        begins = timeline.times.dispatch[places]
        result = []
        for name in dict.fromkeys(name for scope in choice for name in scope.weights):
            candidate = self.candidates.weights[name]
            users: dict[int, list[int]] = {}
            for task, regions in candidate.uses:
                for region in regions:
                    users.setdefault(region, []).append(task)
            times, found, sizes = [], [], []
            for one in timeline.landings:
                mine = users.get(one.region, [])
                if one.user is None:  # its use, if it had any, had begun before the warm
                    missed = [float(begins[task]) for task in mine if begins[task] <= one.issued_us]
                    needed = max(missed, default=None)
                else:
                    needed = one.needed_us if task_of.get(one.user) in mine else None
                if needed is not None:
                    times.append(needed - min(one.lands_us, timeline.makespan_us))
                    found.append(one.found)
                    sizes.append(one.bytes)
            if times:
                share = float(np.average(found, weights=sizes))
                result.append(Margin(name, candidate.bytes, min(times), float(np.mean(times)), share))
        return result

    def why(self, choice: Choice) -> str:
        """Why a choice gains no more than it does."""
        timeline, places = self.simulate(choice)
        return _why(self, choice, timeline, places)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        best = self.best
        return {
            "l2": self.candidates.base.mode,
            "method": self.method,
            "without_us": self.as_is_us,
            "best": str(best),
            "predicted_us": best.time_us,
            "gain_us": self.gain_us,
            "bytes": self.bytes(best.choice),
            "bytes_by_warm": {str(scope): self.bytes((scope,)) for scope in best.choice},
            "l2_bytes": self.l2_bytes,
            "margins": [vars(m) for m in self.margins(best.choice)] if best.choice else [],
            "why": self.why(best.choice) if best.choice else "",
            "candidates": [
                {"weights": c.name, "bytes": c.bytes, "potential_us": c.potential_us, "uses": len(c.uses)}
                for c in self.candidates.weights.values()
            ],
            "resident": [c.name for c in self.candidates.resident],
            "tried": [
                {"choice": str(one), "predicted_us": one.time_us, "bytes": self.bytes(one.choice), "from": one.origin}
                for one in self.tried
            ],
            "alternatives": [{"choice": str(one), "why": self.why(one.choice)} for one in self._nearest()],
        }

    def _nearest(self) -> list[Priced]:
        """The next best ones, and the best of each other kind of change: sets, anchors, orders, contexts."""
        rest = [one for one in self.tried[1:] if one.choice]
        kinds: dict[Any, Priced] = {}
        for one in rest:
            sets = frozenset(name for scope in one.choice for name in scope.weights)
            for key in (("set", sets), ("anchor", tuple(s.anchor for s in one.choice))):
                kinds.setdefault(key, one)
        chosen = dict.fromkeys([*rest[:2], *sorted(kinds.values(), key=lambda one: one.time_us)])
        return list(chosen)[:SHOWN]

    def __str__(self) -> str:
        base, best, mb = self.candidates.base, self.best, 1e6
        lines = [f"L2        {base.mode}", f"without   {self.as_is_us:,.2f} µs"]
        if best.choice:
            size = self.bytes(best.choice)
            places = ", ".join(f"{self.bytes((s,)) / mb:,.1f} MB behind each {s.anchor}" for s in best.choice)
            lines += [
                f"warm      {best}",
                f"predicted {best.time_us:,.2f} µs, {-self.gain_us:+,.2f} µs ({-self.gain_us / self.as_is_us:+.2%})",
                f"bytes     {places}; {size / self.l2_bytes:.2f} of L2" + (" in all" if len(best.choice) > 1 else ""),
                f"          {self.why(best.choice)}",
                "",
                f"{'weights':<20} {'MB':>8} {'found':>7} {'lands before its use, µs':>26}",
            ]
            lines += [
                f"{m.weights:<20} {m.bytes / mb:>8.1f} {m.found:>7.0%} {m.mean_us:>15.1f}, least {m.least_us:.1f}"
                for m in self.margins(best.choice)
            ]
        else:
            known = self.candidates.weights
            reason = "" if known else ": no weight is cold at its use, or large enough to matter"
            lines.append(f"warm      none pays{reason}")
        count = len(self.tried) - 1
        lines += ["", f"{count:,} {'choice' if count == 1 else 'choices'} priced ({_METHODS[self.method]})"]
        lines += ["nearest alternatives"] if self._nearest() else []
        lines += [
            f"  {one.time_us - self.as_is_us:>+10.2f} µs  {one}: {self.why(one.choice)}" for one in self._nearest()
        ]
        if self.candidates.resident:
            names = ", ".join(c.name for c in self.candidates.resident[:SHOWN])
            lines.append(f"already resident, or too small to matter: {names}")
        return "\n".join(lines)


def _why(result: PrefetchResult, choice: Choice, timeline: Timeline, places: list[int]) -> str:
    """The largest reason in words."""
    if not choice:
        return "nothing is warmed"
    base, kinds = result.candidates.base, kinds_of(result.candidates.base.workload)
    size = max(result.bytes((scope,)) for scope in choice)
    parts = []
    if size > result.l2_bytes:
        parts.append(f"too big: {size / 1e6:.0f} MB for {result.l2_bytes / 1e6:.0f} MB of L2")
    late = [m for m in result.margins(choice) if m.found < 0.5]
    parts += [f"too late: {m.found:.0%} of {m.weights} is there at its use" for m in late]
    blocks, spans = dict.fromkeys(kinds, 0.0), dict.fromkeys(kinds, 0.0)
    after, before = timeline.times, base.times
    slower = after.block[places] - before.block
    longer = (after.finish - after.ready)[places] - (before.finish - before.ready)
    waves = np.maximum(np.ceil(base.workload.blocks / (2 * base.clusters)), 1)
    for task, kind in enumerate(kinds):
        blocks[kind] += float(slower[task] * waves[task])
        spans[kind] += float(longer[task])
    held = {kind: spans[kind] - max(blocks[kind], 0.0) for kind in spans}
    least = 1e-4 * base.makespan_us
    worst, waits = max(blocks, key=blocks.__getitem__), max(held, key=held.__getitem__)
    if blocks[worst] > least:
        parts.append(f"contends with {worst} for HBM, {blocks[worst]:.1f} µs")
    if held[waits] > least:
        parts.append(f"holds a vector core that {waits} waits for, {held[waits]:.1f} µs")
    saved = -sum(time for time in blocks.values() if time < 0)
    beyond = timeline.makespan_us - float(after.finish[places].max())
    if beyond > least:
        parts.append(f"a warm holds its core for {beyond:.1f} µs after the last task")
    if saved > least:
        parts.append(f"blocks save {saved:.1f} µs")
    elif not parts:
        parts.append("no block is faster: they do not wait for what it brings")
    return "; ".join(parts)
