"""Measured counters beside predicted ones."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ._file import Capture
from ._groups import READ_HITS, pipe
from ._rollup import Measured, read_hit_share, roll_up
from ._view import View

EVIDENCE = "rank 3 of 4: hardware counters of one kernel"
HIT_SHARE = "L2 read hit share"


@dataclass(frozen=True)
class Line:
    """One counter of one kernel. ``core`` is ``AIC``, ``AIV``, or ``all``.

    ``predicted`` is None where the model does not determine the counter, ``measured`` where the capture lacks it;
    ``ratio`` is predicted / measured, None where either is missing or nothing was measured.
    """

    kernel: str
    func_id: int
    core: str
    counter: str
    measured: float | None
    predicted: float | None

    @property
    def ratio(self) -> float | None:
        """Predicted / measured."""
        return None if self.predicted is None or not self.measured else self.predicted / self.measured

    def to_dict(self) -> dict[str, Any]:
        """Its fields and the ratio."""
        return asdict(self) | {"ratio": self.ratio}


@dataclass(frozen=True)
class Comparison:
    """Every counter of every kernel, and what stands against comparing them."""

    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Lines and notes."""
        return {"lines": [line.to_dict() for line in self.lines], "notes": list(self.notes), "evidence": EVIDENCE}

    def __str__(self) -> str:
        lines = ["kernel            func  core  counter                            measured     predicted  ratio"]
        for line in self.lines:
            measured, predicted = (_number(x) for x in (line.measured, line.predicted))
            ratio = "    -" if line.ratio is None else f"{line.ratio:>5.2f}"
            lines.append(
                f"{line.kernel:<16} {line.func_id:>5}  {line.core:<4}  {line.counter:<28} "
                f"{measured} {predicted}  {ratio}"
            )
        return "\n".join([*lines, "", *self.notes, f"evidence of what was measured: {EVIDENCE}"])


def _number(value: float | None) -> str:
    if value is None:
        return f"{'-':>13}"
    return f"{value:>13.3f}" if 0 < value < 1 else f"{value:>13,.0f}"


def compare(views: Sequence[View], capture: Capture) -> Comparison:
    """Set predictions beside a capture of the same event group; kernels meet by ``func_id``.

    Args:
        views: predicted kernels, each with its ``func_id`` in the capture.
        capture: from :func:`pyptox.pmu.read`.

    Raises:
        ValueError: another event group, or a kernel that the capture does not have.
    """
    measured = {(m.func_id, m.core): m for m in roll_up(capture)}
    lines: list[Line] = []
    notes: list[str] = []
    for one in views:
        if one.group.event_type != capture.event_type:
            raise ValueError(
                f"`views` must be of the capture's event type {capture.event_type}; got {one.group.event_type}. Try "
                f"view(..., event_type={capture.event_type})"
            )
        if one.func_id not in capture.functions:
            raise ValueError(
                f"`func_id` must be one of the capture's: {', '.join(map(str, capture.functions))}; got {one.func_id}"
            )
        for core in sorted({*one.counters, *(c for f, c in measured if f == one.func_id)}):
            found = measured.get((one.func_id, core))
            lines += _lines(one, core, found, capture.counters)
            notes += _notes(one, core, found)
        if set(READ_HITS) <= set(capture.counters):
            share = read_hit_share(capture, one.func_id)
            lines.append(Line(one.kernel, one.func_id, "all", HIT_SHARE, share, one.l2_hit))
    return Comparison(tuple(lines), tuple(notes))


def _lines(one: View, core: str, found: Measured | None, names: Sequence[str]) -> list[Line]:
    predicted = one.counters.get(core)
    total = Line(
        one.kernel,
        one.func_id,
        core,
        "pmu_total_cycles",
        found.total_cycles if found else None,
        None if predicted is None else float(one.total_cycles),
    )
    lines = [total]
    for name in names:
        expected = (predicted or {}).get(name)
        lines.append(
            Line(
                one.kernel,
                one.func_id,
                core,
                name,
                found.counters[name] if found else None,
                None if expected is None else float(expected),
            )
        )
    return lines


def _notes(one: View, core: str, found: Measured | None) -> list[str]:
    label = f"{one.kernel} {core}: "
    if found is None:
        return [label + f"the capture has no {core} rows of func_id {one.func_id}; the model expects work there"]
    notes = [
        label + f"measured is the busiest of up to {found.cores} cores of each task, median of {found.tasks} tasks"
    ]
    if core not in one.counters:
        return [*notes, label + f"the model expects no work on {core} cores: another kernel?"]
    for name, expected in one.counters[core].items():
        if expected and found.counters.get(name) == 0:
            notes.append(label + f"degenerate capture: {name} is 0 where the kernel has work")
    shares = {n: v / found.total_cycles for n, v in found.counters.items() if v is not None and pipe(n, core)}
    if shares and found.total_cycles:
        limit = max(shares, key=shares.__getitem__)
        notes.append(label + f"the busiest measured pipe is {limit}, {shares[limit]:.0%} of the cycles")
    return notes
