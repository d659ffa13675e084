"""One merged task against the tasks that it was split into, round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

Interval = tuple[int, int]
"""Absolute start and end of a task, cycles."""


@dataclass(frozen=True)
class Chain:
    """The tasks of one variant in one round, in order.

    Durations and gaps add up to ``last end - first start`` exactly. A negative gap is an overlap and is kept.

    >>> chain = Chain(((0, 10), (8, 20)))
    >>> chain.durations, chain.gaps, chain.chained, chain.envelope
    ((10, 12), (-2,), 20, 20)
    """

    tasks: tuple[Interval, ...]

    @property
    def durations(self) -> tuple[int, ...]:
        """Cycles of each task."""
        return tuple(end - start for start, end in self.tasks)

    @property
    def gaps(self) -> tuple[int, ...]:
        """Cycles from each task's end to the start of the next."""
        return tuple(after[0] - before[1] for before, after in pairwise(self.tasks))

    @property
    def chained(self) -> int:
        """``last end - first start``, cycles."""
        return self.tasks[-1][1] - self.tasks[0][0]

    @property
    def envelope(self) -> int:
        """``max end - min start``, cycles: the total, also where a later task ends before an earlier one."""
        return max(end for _, end in self.tasks) - min(start for start, _ in self.tasks)

    @property
    def exact(self) -> bool:
        """Whether durations and gaps add up to ``chained``."""
        return sum(self.durations) + sum(self.gaps) == self.chained

    def to_dict(self) -> dict[str, Any]:
        """Durations, gaps and totals."""
        return {
            "durations": list(self.durations),
            "gaps": list(self.gaps),
            "chained": self.chained,
            "envelope": self.envelope,
            "identity": self.exact,
        }


@dataclass(frozen=True)
class Comparison:
    """Pairs ``(merged, split)``, one for each round. Differences are split minus merged: positive favours merging."""

    pairs: tuple[tuple[Chain, Chain], ...]

    @property
    def differences(self) -> tuple[int, ...]:
        """Envelope of the split variant minus that of the merged one, by round, cycles."""
        return tuple(split.envelope - merged.envelope for merged, split in self.pairs)

    @property
    def merged_wins(self) -> int:
        """Rounds in which the merged variant is the shorter one."""
        return sum(difference > 0 for difference in self.differences)

    def to_dict(self) -> dict[str, Any]:
        """Every pair, and the differences."""
        return {
            "rounds": [{"merged": merged.to_dict(), "split": split.to_dict()} for merged, split in self.pairs],
            "differences": list(self.differences),
            "mean": fmean(self.differences),
            "median": median(self.differences),
            "merged_wins": self.merged_wins,
        }

    def __str__(self) -> str:
        lines = ["round       merged        split  split-merged  gaps between split tasks"]
        for n, ((merged, split), difference) in enumerate(zip(self.pairs, self.differences, strict=True)):
            gaps = " ".join(f"{gap:+,}" for gap in split.gaps) or "-"
            note = "" if split.chained == split.envelope else "; the last task does not end last: totals are envelopes"
            lines.append(f"{n:>5} {merged.envelope:>12,} {split.envelope:>12,} {difference:>+13,}  {gaps}{note}")
        lines.append(
            f"split - merged: median {median(self.differences):+,.0f}, mean {fmean(self.differences):+,.1f} cycles; "
            f"merged is shorter in {self.merged_wins} of {len(self.pairs)} rounds"
        )
        return "\n".join(lines)


def compare(merged: Sequence[Sequence[Interval]], split: Sequence[Sequence[Interval]]) -> Comparison:
    """Pair the rounds of two variants.

    Args:
        merged: for each round, start and end of each task in order, cycles; usually one task. ``Profile.envelope``
            or a task's own bounds, the same kind for both variants.
        split: the same rounds of the split variant. Clocks may differ between variants, not inside one.

    Raises:
        ValueError: another number of rounds, a round without tasks, or a task that ends before it starts.

    >>> compare([[(100, 180)], [(0, 85)]], [[(7, 50), (55, 97)], [(0, 42), (40, 80)]]).differences
    (10, -5)
    """
    if not merged or len(merged) != len(split):
        raise ValueError(
            f"`merged` and `split` must have the same rounds, at least one; got {len(merged)} and {len(split)}"
        )
    pairs = zip(_chains(merged, "merged"), _chains(split, "split"), strict=True)
    return Comparison(tuple(pairs))


def _chains(rounds: Sequence[Sequence[Interval]], name: str) -> list[Chain]:
    chains = []
    for number, tasks in enumerate(rounds):
        chain = Chain(tuple((int(start), int(end)) for start, end in tasks))
        if not chain.tasks or min(chain.durations) < 0:
            raise ValueError(
                f"`{name}` must have tasks that end after they start in every round; got {list(chain.tasks)} in round "
                f"{number}"
            )
        chains.append(chain)
    return chains
