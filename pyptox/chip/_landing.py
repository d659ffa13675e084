"""When what warms bring has landed, against when it is needed; and what warms save and cost each task."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._oracle import _Sharing
from ._workload import DUMMY

if TYPE_CHECKING:
    from ._timeline import Timeline


@dataclass(frozen=True)
class Landing:
    """One region of one warm.

    Attributes:
        warm: its task.
        region: its number.
        bytes: size of the region.
        issued_us: the warm was taken up.
        lands_us: all of it is in L2; infinite where that is after the last task.
        user: the first task that uses it afterwards; None where there is none.
        needed_us: that task is taken up; infinite without one.
        found: the part of it that is there half a block later.
        before: the part that L2 held when the warm was taken up.
    """

    warm: int
    region: int
    bytes: float
    issued_us: float
    lands_us: float
    user: int | None
    needed_us: float
    found: float
    before: float

    @property
    def margin_us(self) -> float:
        """How long before its use it has landed; negative where it is late, infinite where nobody uses it."""
        return self.needed_us - self.lands_us if self.user is not None else float("inf")


@dataclass(frozen=True)
class Effect:
    """What warms did to a task: what its blocks would take without them less what they take.

    Attributes:
        task: its number.
        saved_us, spent_us: of one block, one of them 0; a warm spends its own.
    """

    task: int
    saved_us: float
    spent_us: float


def landings(timeline: "Timeline") -> tuple[Landing, ...]:
    """Replay the engine and L2 along the times of a simulation, in the order in which tasks were taken up."""
    work, memory, times = timeline.workload, timeline.workload.memory, timeline.times
    if memory is None or memory.warms is None:
        return ()
    sharing = _Sharing(work, memory, timeline.repeated)
    engine = sharing.engine
    assert engine is not None
    kernels = np.flatnonzero(work.shapes < DUMMY)
    order = kernels[np.lexsort((kernels, work.shapes[kernels], times.dispatch[kernels]))].tolist()
    issued: dict[int, tuple[int, float, float]] = {}  # by region: warm, when, what was there before
    landed: dict[int, float] = {}
    found: list[Landing] = []

    def note() -> None:
        """Landings since the last time."""
        for region in [r for r in issued if r not in landed and r in sharing.warmed]:
            _, _, place, length, context = sharing.warmed[region]
            if engine.done[context] >= place + length:
                moments = [time for time, done in engine.knots if done[context] >= place + length]
                landed[region] = _crossed(engine.knots, context, place + length, moments[0] if moments else engine.now)
        del engine.knots[:-1]

    def close(region: int, user: int | None, part: float, needed: float) -> None:
        warm, when, before = issued.pop(region)
        lands = landed.pop(region, float("inf"))
        size = float(memory.regions[region])
        found.append(Landing(warm, region, size, when, lands, user, needed, part, before))

    for task in order:
        time = float(times.dispatch[task])
        engine.advance(time)
        note()
        by_then = engine.at(time + float(work.duration_us[task]) / 2)
        for region, _ in memory.uses[task]:
            if region in issued:
                part = sharing.here(region, by_then)
                if region not in landed:
                    _, _, place, length, context = sharing.warmed[region]
                    landed[region] = _estimate(engine, place + length, context)
                close(region, task, part, time)
        before = [sharing.here(region, engine) for region, _ in memory.warms.targets[task]]
        sharing.use(task, time)
        for (region, _), part in zip(memory.warms.targets[task], before, strict=True):
            if region in issued:
                close(region, None, 0.0, float("inf"))
            issued[region] = task, time, part
    engine.advance(timeline.makespan_us)
    note()
    for region in list(issued):
        close(region, None, 0.0, float("inf"))
    return tuple(sorted(found, key=lambda one: (one.issued_us, one.warm)))


def effects(timeline: "Timeline") -> Iterator[Effect]:
    """By task, warms among them; tasks that take as long with warms as without are left out."""
    without = timeline.without_warms
    if without is None:
        return
    before, kept = without
    for task in np.flatnonzero(timeline.workload.memory.warms.context >= 0).tolist():  # type: ignore[union-attr]
        yield Effect(task, 0.0, float(timeline.times.block[task]))
    gains = before.times.block - timeline.times.block[kept]
    for row in np.flatnonzero(np.abs(gains) > 1e-3).tolist():
        yield Effect(kept[row], max(float(gains[row]), 0.0), max(-float(gains[row]), 0.0))


def _crossed(knots: list, context: int, goal: float, otherwise: float) -> float:
    """When a context had done ``goal``: between two knots it goes on evenly."""
    for (before, was), (after, now) in itertools.pairwise(knots):
        if was[context] < goal <= now[context]:
            return before + (after - before) * (goal - was[context]) / (now[context] - was[context])
    return otherwise


def _estimate(engine, goal: float, context: int) -> float:
    """When it will have, if no task reads what is in flight."""
    later = engine.at(engine.now)
    while later.done[context] < goal and later.left[context] > 0:
        later.advance(later.now + max(goal - later.done[context], 1e-3))
    return later.now
