"""A capture run again: its durations and its graph, through the simulator's scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ..chip import AbstractEdit, FlagProducer, Schedule, Timeline, a2a3_schedule, simulate
from ..chip._scenario import Scenario
from ..hardware import Hardware, a2a3
from ._capture import Capture
from ._deps import label
from ._finding import ArtifactError, Finding
from ._gaps import CAUSES, gaps
from ._record_rules import TIMES, check_records
from ._recorded import Recorded, recorded
from ._records import _CORE, _SUBMITS
from ._records import FILE as RECORDS
from ._simulated import simulated_capture
from ._validate import check_capture

FEW = 3
"""Broken rules that the text shows; ``pyptox capture`` and the JSON have them all."""

_TIMED = (_CORE, _SUBMITS)
"""Where a replay takes its times from."""

SHOWN = 24
"""Tasks that the text shows; the JSON has them all."""


@dataclass(frozen=True, eq=False)
class Replay:
    """A capture beside its simulation. Times are in µs from the capture's earliest stamp.

    Attributes:
        capture: what was recorded.
        recorded: its tasks as the simulator takes them.
        timeline: those, simulated.
        assumed: what the replay takes for granted where the capture is silent.
    """

    capture: Capture
    recorded: Recorded
    timeline: Timeline
    assumed: tuple[str, ...]

    @cached_property
    def _published(self) -> np.ndarray:
        """When the first block of each part was published in the simulation; infinite without blocks."""
        blocks = self.timeline.layout.blocks
        first = np.full(self.timeline.workload.tasks, np.inf)
        np.minimum.at(first, blocks.task, blocks.dispatch)
        return first

    @property
    def offset_us(self) -> float:
        """What is added to simulated times: 0 where submissions are measured, else the first dispatches agree."""
        if self.recorded.timed:
            return 0.0
        return float(np.nanmin(self.recorded.dispatch_us) - self._published.min())

    @cached_property
    def tasks(self) -> dict[str, np.ndarray]:
        """One entry a task with rows, by first measured start: ``task_id``, blocks, whether it is held back, and first
        starts and last finishes, measured and simulated."""
        r, times, ran = self.recorded, self.timeline.times, self.recorded.ran
        ids, at = np.unique(r.task_id[ran], return_inverse=True)

        def first(values: np.ndarray) -> np.ndarray:
            result = np.full(len(ids), np.inf)
            np.minimum.at(result, at, values[ran])
            return result

        columns = {
            "task_id": ids,
            "blocks": np.bincount(at, self.timeline.workload.blocks[ran]).astype(np.int64),
            "held": np.bincount(at, r.held[ran]) > 0,
            "start_us": first(r.start_us),
            "simulated_start_us": first(times.start) + self.offset_us,
            "finish_us": -first(-r.finish_us),
            "simulated_finish_us": -first(-times.finish) + self.offset_us,
        }
        order = np.argsort(columns["start_us"], kind="stable")
        return {name: column[order] for name, column in columns.items()}

    @property
    def start_error_us(self) -> np.ndarray:
        """Simulated less measured first start, of each of :attr:`tasks`."""
        return self.tasks["simulated_start_us"] - self.tasks["start_us"]

    @property
    def finish_error_us(self) -> np.ndarray:
        """The same of the last finish."""
        return self.tasks["simulated_finish_us"] - self.tasks["finish_us"]

    @property
    def measured_us(self) -> float:
        """Makespan as measured: first dispatch to last finish."""
        return float(np.nanmax(self.recorded.finish_us) - np.nanmin(self.recorded.dispatch_us))

    @property
    def simulated_us(self) -> float:
        """Makespan as simulated, between the same two events."""
        return float(self.timeline.times.finish[self.recorded.ran].max() - self.from_us)

    @property
    def from_us(self) -> float:
        """The first dispatch on the timeline's own clock: where the makespan of a run begins."""
        return float(self._published.min())

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Rules that the capture's files break, errors first."""
        return check_capture(self.capture)

    @property
    def passed(self) -> bool:
        """No finding is an error."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def broken(self) -> tuple[str, ...]:
        """What the text says of rules that are broken; nothing where none is."""
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if not errors:
            return ()
        few = "" if len(errors) <= FEW else f"; the first {FEW}"
        return (
            f"the capture breaks rules, {len(errors):,} errors; its times are to be taken with care{few}:",
            *map(str, errors[:FEW]),
        )

    def require_an_answer(self, edits: Sequence[AbstractEdit]) -> None:
        """Refuse a question that the capture cannot answer.

        Raises:
            PyptoxError: a task is flagged, and all that could be staged for it is held back.
        """
        work, held = self.timeline.workload, self.recorded.held
        scenario = Scenario.of(self.timeline)
        for edit in edits:
            if not isinstance(edit, FlagProducer):
                continue
            flagged = set(scenario.kernels(edit.task))
            names = [work.whole(n) for n, waits in enumerate(work.waits) if flagged & set(waits) and not held[n]]
            if not names:
                raise PyptoxError(
                    f"`{edit.task}` flagged for early dispatch is no question for this capture: it holds no consumer "
                    f"of it that is free to move ({len(np.unique(self.recorded.task_id[held])):,} of "
                    f"{len(self.tasks['task_id']):,} tasks are held to their measured pickup, because a producer of "
                    "theirs was not recorded). Try a capture of every core, with its deps.json"
                )

    @cached_property
    def gap_causes_us(self) -> dict[str, dict[str, float]]:
        """Gaps between blocks of one core by cause, over all cores: ``measured`` and ``simulated``.

        The wait of a part that is held back is ``unknown``, as it is in the capture.
        """
        again = simulated_capture(self.timeline)
        measured, simulated = (gaps(one.records, one.deps).causes_us for one in (self.capture, again))
        held = self.recorded.held[again.records.blocks.task_id.astype(np.int64)]
        waited = np.where(held, simulated["submit"], 0.0)
        simulated |= {"submit": simulated["submit"] - waited, "unknown": simulated["unknown"] + waited}
        both = {"measured": measured, "simulated": simulated}
        return {cause: {name: float(np.nansum(causes[cause])) for name, causes in both.items()} for cause in CAUSES}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        rows = zip(*(column.tolist() for column in self.tasks.values()), strict=True)
        start, free = self.start_error_us, ~self.tasks["held"]
        return {
            "folder": str(self.capture.folder),
            "missing": list(self.capture.missing),
            "assumed": list(self.assumed),
            "findings": [finding.to_dict() for finding in self.findings],
            "from_us": self.from_us,
            "measured_us": self.measured_us,
            "simulated_us": self.simulated_us,
            "start_error_us": _statistics(start),
            "start_error_of_free_tasks_us": _statistics(start[free]),
            "finish_error_us": _statistics(self.finish_error_us),
            "gap_causes_us": self.gap_causes_us,
            "tasks": [{"name": self._name(row[0])} | dict(zip(self.tasks, row, strict=True)) for row in rows],
            "timeline": self.timeline.to_dict(),
        }

    def _name(self, task_id: int) -> str:
        return f"{label(task_id)} {self.capture.name(task_id)}"

    def __str__(self) -> str:
        rows = list(zip(*(column.tolist() for column in self.tasks.values()), strict=True))
        lines = [*self.broken, ""] if self.broken else []
        lines += [f"{'task':<28} {'blocks':>6} {'start µs':>9} {'simulated':>9} {'finish µs':>9} {'simulated':>9}"]
        for task_id, blocks, held, *times in rows[:SHOWN]:
            stamps = " ".join(f"{time:>9.2f}" for time in times)
            lines.append(f"{self._name(task_id):<28} {blocks:>6} {stamps}" + ("  held back" if held else ""))
        if len(rows) > SHOWN:
            lines.append(f"... {len(rows) - SHOWN:,} tasks more; --json has them all")
        error = self.simulated_us / self.measured_us - 1 if self.measured_us else 0.0
        lines += [
            "",
            f"makespan  measured {self.measured_us:,.2f} µs, simulated {self.simulated_us:,.2f} µs ({error:+.1%}), "
            "first dispatch to last finish; times above are from the earliest stamp on",
            f"start     {_errors(self.start_error_us)} over {len(rows):,} tasks",
            f"finish    {_errors(self.finish_error_us)}",
            "",
            "gaps between blocks of one core, over all cores   measured   simulated   µs",
        ]
        for cause, pair in self.gap_causes_us.items():
            if any(pair.values()):
                lines.append(f"  {cause:<46} {pair['measured']:>10,.2f} {pair['simulated']:>11,.2f}")
        lines += [f"missing: {text}" for text in self.capture.missing]
        return "\n".join([*lines, *(f"assumed: {text}" for text in self.assumed)])


def _errors(values: np.ndarray) -> str:
    found = _statistics(values)
    return f"median error {found['median']:.2f} µs, p90 {found['p90']:.2f} µs, max {found['max']:.2f} µs"


def _statistics(values: np.ndarray) -> dict[str, Any]:
    """Of absolute values."""
    if not len(values):
        return {"count": 0, "median": None, "p90": None, "max": None}
    sizes = np.abs(values)
    numbers = {"median": np.median(sizes), "p90": np.percentile(sizes, 90), "max": sizes.max()}
    return {"count": len(values), **{name: float(number) for name, number in numbers.items()}}


def replay(capture: Capture, *, hardware: Hardware | None = None, schedule: Schedule | None = None) -> Replay:
    """Simulate the tasks of a capture with their measured durations.

    Every task has the blocks that were recorded. Where all run at once, each takes as long as the longest of them, so
    that the task ends when it did; else the mean. Submissions are the measured ones where the capture has them, at
    level 4.

    Of a partial capture only the clusters with a recorded core are simulated. A task there whose inputs are not known
    is held back: its blocks are taken up when they were measured to be, those published and ended one after another
    together, and then go through the simulator.

    Args:
        capture: with its records; the graph, where there is one, says what waits for what.
        hardware: the chip that the timeline names; its cores are those of the capture. a2a3 by default.
        schedule: the scheduler's constants; those of a2a3 by default.

    Raises:
        PyptoxError: no rows, tasks that wait for each other, or stamps that are no times: out of order, 0, or further
            apart than any run is long. Other rules may be broken; :attr:`Replay.findings` has them.

    >>> from pyptox import artifacts, chip
    >>> timeline = chip.simulate(chip.Workload.of(["AIC", "AIV"], [24, 48], [10.0, 5.0], [[], [0]]))
    >>> again = artifacts.replay(artifacts.simulated_capture(timeline))
    >>> bool(abs(again.simulated_us - again.measured_us) < 0.01)
    True
    """
    schedule = schedule or a2a3_schedule()
    _refuse_impossible(capture)
    found = recorded(capture, schedule)
    chip = (hardware or a2a3()).replace(aic=found.clusters, aiv=2 * found.clusters)
    threads = min(capture.records.threads or schedule.threads, 4, found.clusters)
    timeline = simulate(found.work, hardware=chip, schedule=schedule.replace(threads=threads))
    return Replay(capture, found, timeline, _assumed(capture, found))


def _refuse_impossible(capture: Capture) -> None:
    """Raise where stamps are no times."""
    found = check_records(capture.records, capture.files.get("records", RECORDS))
    errors = [f for f in found if f.severity == "error"]
    wrong = [f for f in errors if f.code == "span" or (f.code in TIMES and f.key.startswith(_TIMED))]
    if wrong:
        more = f"; {len(wrong) - 1:,} more like it" if len(wrong) > 1 else ""
        said = f"{wrong[0].message}{more}. Times of such a run mean nothing; try `pyptox capture` on its folder"
        raise ArtifactError(replace(wrong[0], message=said))


def _assumed(capture: Capture, found: Recorded) -> tuple[str, ...]:
    result = []
    if not capture.whole:
        result.append(f"{found.clusters} clusters, those with a recorded core, run the recorded blocks and no others")
    held = len(np.unique(found.task_id[found.held]))
    if held:
        result.append(
            f"blocks of {held} of {len(np.unique(found.task_id[found.ran]))} tasks are taken up when they were "
            "measured to be, because what they waited for is not in the capture; nothing moves them to before that"
        )
    if not found.timed:
        result.append("submissions follow each other as the schedule's constants say; the first dispatches agree")
    return tuple(result)
