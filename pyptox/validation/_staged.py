"""Programs of like tasks in stages, from what a row states, and the one number that its group's baseline sets."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..chip import Schedule, Timeline, Workload, a2a3_schedule, simulate
from ..hardware import Hardware

SIMULATED = 380
"""Tasks beyond which a program is simulated at this size and at twice it, and the rest taken to go on alike."""

MOST_FACTOR = 32.0


@dataclass(frozen=True)
class Program:
    """``tasks`` tasks of ``blocks`` blocks in ``stages``, each of which waits for the one before.

    Attributes:
        shape: ``AIC``, ``AIV`` or ``MIX``.
        work_us: core time of all blocks together; of all stages one after another, where ``whole``.
        whole: a stage takes as long however many tasks share it.
        added_us: what its time has besides.
    """

    tasks: int
    stages: int
    blocks: int = 1
    shape: str = "AIC"
    work_us: float = 0.0
    whole: bool = False
    added_us: float = 0.0

    def time_us(self, hardware: Hardware, schedule: Schedule) -> float:
        """The makespan; of a very long program, extrapolated."""
        if self.tasks <= 2 * SIMULATED:
            return self.timeline(hardware, schedule).makespan_us + self.added_us
        width = max(round(self.tasks / self.stages), 1)
        sizes = (SIMULATED, 2 * SIMULATED)
        low, high = (
            replace(self, tasks=n, stages=-(-n // width), work_us=self.work_us * n / self.tasks, added_us=0.0).time_us(
                hardware, schedule
            )
            for n in sizes
        )
        return high + (self.tasks - sizes[1]) * (high - low) / SIMULATED + self.added_us

    def timeline(self, hardware: Hardware, schedule: Schedule) -> Timeline:
        """All tasks simulated; a task waits for the like one and the last one of the stage before."""
        stage = np.arange(self.tasks) * self.stages // self.tasks
        first = np.searchsorted(stage, np.arange(self.stages + 1))
        waits = []
        for task, number in enumerate(stage.tolist()):
            before = (int(first[number - 1]), int(first[number])) if number else (0, 0)
            like = min(before[0] + task - int(first[number]), before[1] - 1)
            waits.append(sorted({like, before[1] - 1}) if number else [])
        duration = self.work_us / (self.stages if self.whole else self.tasks * self.blocks)
        work = Workload.of([self.shape] * self.tasks, [self.blocks] * self.tasks, [duration] * self.tasks, waits)
        return simulate(work, hardware=hardware, schedule=schedule)


def slower(schedule: Schedule, factor: float) -> Schedule:
    """All of its constants so many times as large."""
    return schedule.replace(**{name: factor * value for name, value in schedule.values().items()})


@functools.lru_cache(maxsize=256)
def solved(program: Program, measured_us: float, die: str, known: bool) -> tuple[float, float]:
    """Core time of ``program`` and a factor on the scheduler's constants that give the measured time.

    The work is solved for; where it is ``known``, or where the scheduler alone takes longer, the factor.
    """
    from ..hardware import preset

    hardware, schedule = preset(die), a2a3_schedule()

    def with_work(work_us: float) -> float:
        return with_factor(1.0, work_us)

    def with_factor(factor: float, work_us: float) -> float:
        changed = replace(program, work_us=work_us)
        return changed.time_us(hardware, slower(schedule, factor))

    if known or with_work(0.0) >= measured_us:
        work = program.work_us if known else 0.0
        return work, root(lambda factor: with_factor(factor, work), measured_us, 0.0, MOST_FACTOR)
    cores = program.blocks * program.tasks
    return root(with_work, measured_us, 0.0, measured_us * cores), 1.0


def root(function: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a rising function meets ``target``, to 1e-4 of it, between two bounds (Illinois' false position).

    >>> round(root(lambda x: x * x, 2.0, 0.0, 2.0), 3)
    1.414
    """
    below, above = function(low) - target, function(high) - target
    if below >= 0 or above <= 0:
        return low if below >= 0 else high
    side, place = 0, low
    for _ in range(60):
        place = (low * above - high * below) / (above - below)
        value = function(place) - target
        if abs(value) <= 1e-4 * target:
            return place
        if value < 0:
            low, below, above = place, value, above / 2 if side < 0 else above
            side = -1
        else:
            high, above, below = place, value, below / 2 if side > 0 else below
            side = 1
    return place
