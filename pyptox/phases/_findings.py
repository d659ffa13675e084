"""What is wrong with a matrix of timestamps, and which of its stamps can be used."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from ._layout import STAMPS

Stamps = dict[str, dict[int, int]]
"""Cycles by slot, by boundary."""


@dataclass(frozen=True)
class Finding:
    """One reason not to trust a profile as it stands.

    Attributes:
        kind: ``stale`` (the row is of another generation), ``unwritten``, ``non-monotonic``, ``inactive`` (a core is
            counted in a phase it did not take part in), ``epoch`` (two sources count from different times), or
            ``order`` (global boundaries that cannot follow each other).
        slot: the core slot; None where it is about the whole.
        message: what was expected and what arrived.
    """

    kind: str
    slot: int | None
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.kind}: " + (f"slot {self.slot} " if self.slot is not None else "") + self.message


def newest_generation(rows: Sequence[Mapping[str, int]], slots: Sequence[int]) -> int | None:
    """The largest generation among ``slots``; None where rows carry none."""
    return max((rows[slot]["generation"] for slot in slots if "generation" in rows[slot]), default=None)


def inspect_rows(
    rows: Sequence[Mapping[str, int]], masks: Mapping[str, Sequence[int]], generation: int | None
) -> tuple[list[Finding], Stamps]:
    """Findings of single rows, and the stamps that belong to this run.

    A stamp that was not written in this generation is left out: its value would be that of another run, or 0. A row
    that runs backwards is kept, since nothing says which of its stamps is wrong.

    Args:
        rows: each slot's words by name.
        masks: the slots counted in each boundary; those of ``entry`` are the active cores.
        generation: what each row must carry; None to accept any.
    """
    findings: list[Finding] = []
    stamps: Stamps = {name: {} for name in STAMPS}
    active = set(masks["entry"])
    for name in STAMPS:
        for slot in masks[name]:
            if slot not in active:
                findings.append(
                    Finding("inactive", slot, f"is counted in `{name}` but is not an active core; left out")
                )
    for slot in masks["entry"]:
        row = rows[slot]
        if not any(row.values()):
            findings.append(Finding("unwritten", slot, "holds only zeros; left out"))
            continue
        if generation is not None and row.get("generation", generation) != generation:
            findings.append(
                Finding("stale", slot, f"is of generation {row['generation']}, expected {generation}; left out")
            )
            continue
        counted = [name for name in STAMPS if slot in masks[name]]
        for name in counted:
            if row[name]:
                stamps[name][slot] = row[name]
            else:
                findings.append(Finding("inactive", slot, f"is counted in `{name}` but has no stamp of it; left out"))
        findings += _backwards(slot, [(name, row[name]) for name in counted if row[name]])
    return findings, stamps


def _backwards(slot: int, passed: Sequence[tuple[str, int]]) -> list[Finding]:
    return [
        Finding("non-monotonic", slot, f"has `{after}` {late} before `{before}` {early}")
        for (before, early), (after, late) in pairwise(passed)
        if late < early
    ]


def inspect_epochs(rows: Sequence[Mapping[str, int]], slots: Sequence[int], of_task: int | None) -> list[Finding]:
    """Rows whose stamps count from another time than most, and a task whose bounds do."""
    epochs = {slot: rows[slot]["epoch"] for slot in slots if "epoch" in rows[slot]}
    if not epochs:
        return []
    usual = Counter(epochs.values()).most_common(1)[0][0]
    findings = [
        Finding("epoch", slot, f"counts from epoch {epoch}, most slots from {usual}: their stamps do not compare")
        for slot, epoch in epochs.items()
        if epoch != usual
    ]
    if of_task is not None and of_task != usual:
        findings.append(Finding("epoch", None, f"the task's bounds count from epoch {of_task}, the slots from {usual}"))
    return findings
