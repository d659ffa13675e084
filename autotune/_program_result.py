"""What :func:`autotune.tune_program` answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._config import Config


@dataclass(frozen=True)
class Check:
    """Whether a configuration computes what it should; ``details`` are numbers by name."""

    passed: bool
    details: dict[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{k} {v:.2e}" if isinstance(v, float) else f"{k} {v}" for k, v in self.details.items())
        return f"{'passed' if self.passed else 'failed'}: {shown}"


@dataclass(frozen=True)
class Change:
    """One parameter's step on the way from the start; ``saved_us`` is negative where it costs until a later one."""

    parameter: str
    before: Any
    after: Any
    saved_us: float


@dataclass(frozen=True)
class ProgramCandidate:
    """A configuration, its simulated makespan, and its check where one was asked for."""

    config: Config
    time_us: float
    check: Check | None


@dataclass(frozen=True, eq=False)
class ProgramResult:
    """The answer; prints the changes that pay.

    Attributes:
        best: the chosen configuration, never slower than ``start``.
        start: where the search began.
        finalists: the best few, with their checks.
        changes: from ``start`` to ``best``, one parameter at a time; what they save adds up.
        evaluations: simulations of the search.
        refused: why configurations were illegal.
        curve: the best time after each simulation, µs.
        seed, hardware: of the search.
    """

    best: ProgramCandidate
    start: ProgramCandidate
    finalists: tuple[ProgramCandidate, ...]
    changes: tuple[Change, ...]
    evaluations: int
    refused: tuple[str, ...]
    curve: np.ndarray
    seed: int
    hardware: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""

        def candidate(c: ProgramCandidate) -> dict[str, Any]:
            check = None if c.check is None else vars(c.check)
            return {"config": c.config.to_dict(), "time_us": c.time_us, "check": check}

        return {
            "best": candidate(self.best),
            "start": candidate(self.start),
            "finalists": [candidate(c) for c in self.finalists],
            "changes": [vars(change) for change in self.changes],
            "evaluations": self.evaluations,
            "refused": len(self.refused),
            "seed": self.seed,
            "hardware": self.hardware,
        }

    def __str__(self) -> str:
        start, best = self.start.time_us, self.best.time_us
        saved = start - best
        lines = [
            f"{start:,.1f} µs at the start, {best:,.1f} µs tuned ({best / start - 1:+.1%}) on {self.hardware}",
            f"{self.evaluations} simulations, {len(self.refused)} refused, seed {self.seed}",
            "",
            f"{'change':<18} {'from':>8} {'to':>8} {'saved µs':>9} {'share':>7}",
        ]
        for c in self.changes:
            share = c.saved_us / saved if saved else 0.0
            lines.append(f"{c.parameter:<18} {c.before!s:>8} {c.after!s:>8} {c.saved_us:>9.2f} {share:>7.1%}")
        lines.append(f"{'sum':<18} {'':>8} {'':>8} {saved:>9.2f} {1 if saved else 0:>7.1%}")
        lines += [f"finalist {c.time_us:,.1f} µs {c.check}" for c in self.finalists if c.check is not None]
        return "\n".join(lines)
