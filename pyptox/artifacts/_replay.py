"""A capture run again: its durations and its graph, through the simulator's scheduler."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..chip import Schedule, Timeline, a2a3_schedule, simulate
from ..hardware import Hardware, a2a3
from ._capture import Capture
from ._deps import label
from ._gaps import CAUSES, gaps
from ._recorded import Recorded, recorded
from ._simulated import simulated_capture

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
        return float(self.timeline.times.finish[self.recorded.ran].max() - self._published.min())

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
        lines = [f"{'task':<28} {'blocks':>6} {'start µs':>9} {'simulated':>9} {'finish µs':>9} {'simulated':>9}"]
        for task_id, blocks, held, *times in rows[:SHOWN]:
            stamps = " ".join(f"{time:>9.2f}" for time in times)
            lines.append(f"{self._name(task_id):<28} {blocks:>6} {stamps}" + ("  held back" if held else ""))
        if len(rows) > SHOWN:
            lines.append(f"... {len(rows) - SHOWN:,} tasks more; --json has them all")
        error = self.simulated_us / self.measured_us - 1 if self.measured_us else 0.0
        lines += [
            "",
            f"makespan  measured {self.measured_us:,.2f} µs, simulated {self.simulated_us:,.2f} µs ({error:+.1%})",
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
        PyptoxError: no rows, or tasks that wait for each other.

    >>> from pyptox import artifacts, chip
    >>> timeline = chip.simulate(chip.Workload.of(["AIC", "AIV"], [24, 48], [10.0, 5.0], [[], [0]]))
    >>> again = artifacts.replay(artifacts.simulated_capture(timeline))
    >>> bool(abs(again.simulated_us - again.measured_us) < 0.01)
    True
    """
    schedule = schedule or a2a3_schedule()
    found = recorded(capture, schedule)
    chip = (hardware or a2a3()).replace(aic=found.clusters, aiv=2 * found.clusters)
    threads = min(capture.records.threads or schedule.threads, 4, found.clusters)
    timeline = simulate(found.work, hardware=chip, schedule=schedule.replace(threads=threads))
    return Replay(capture, found, timeline, _assumed(capture, found))


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
