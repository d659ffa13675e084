"""The derivative of a makespan by the fraction of each region that a warm brings.

A fraction changes what later blocks find, directly and by how long the stream takes, and with it their times; where a
block begins while its region is landing, what it finds depends on when it and the warm were taken up. Forward, a replay
of the stream gives what each task finds as a linear form in fractions and those two moments. Backward, the walk along
what bound each event carries weights: a block's weight goes to the fractions, and to the moments, which are walked
further. Which tasks run side by side, and what L2 has put out, is taken as it was.
"""

import heapq
from typing import TYPE_CHECKING

import numpy as np

from ._blocks import _Forward
from ._path import DURATION
from ._record import FOUND, HBM_SHARE, L2_SHARE
from ._workload import DUMMY, MIX

if TYPE_CHECKING:
    from ._timeline import Timeline

Key = tuple[str, int]
"""``("fraction", place)``, or ``("taken", task)`` for the moment at which a task was taken up."""


class _Form:
    """A number with its derivatives by keys."""

    __slots__ = ("by", "value")

    def __init__(self, value: float, by: dict[Key, float] | None = None):
        self.value, self.by = value, by or {}

    def plus(self, other: "_Form", factor: float = 1.0) -> "_Form":
        by = dict(self.by)
        for key, slope in other.by.items():
            by[key] = by.get(key, 0.0) + factor * slope
        return _Form(self.value + factor * other.value, {key: s for key, s in by.items() if abs(s) > 1e-15})

    def times(self, factor: float) -> "_Form":
        return _Form(self.value * factor, {key: factor * slope for key, slope in self.by.items()})


class _Stream:
    """The engine of :mod:`._oracle` with derivatives."""

    def __init__(self, constants: tuple[float, ...], contexts: int):
        _, _, self.startup, self.worse, _, _ = constants
        self.now = _Form(0.0)
        self.left, self.done, self.wakes = ([_Form(0.0) for _ in range(contexts)] for _ in range(3))

    def copied(self) -> "_Stream":
        other = object.__new__(_Stream)
        other.startup, other.worse, other.now = self.startup, self.worse, self.now
        other.left, other.done, other.wakes = list(self.left), list(self.done), list(self.wakes)
        return other

    def advance(self, time: _Form) -> None:
        while self.now.value < time.value:
            awake = [n for n, x in enumerate(self.left) if x.value > 0 and self.wakes[n].value <= self.now.value]
            stretch = len(awake) * self.worse if len(awake) > 1 else 1.0
            ends = {n: self.now.plus(self.left[n], stretch) for n in awake}
            waking = [w for w, x in zip(self.wakes, self.left, strict=True) if x.value > 0 and w.value > self.now.value]
            knot = min([time, *ends.values(), *waking], key=lambda form: form.value)
            moved = knot.plus(self.now, -1.0).times(1 / stretch)
            for n in awake:
                if ends[n].value <= knot.value or moved.value >= self.left[n].value:
                    self.done[n], self.left[n] = self.done[n].plus(self.left[n]), _Form(0.0)
                else:
                    self.done[n], self.left[n] = self.done[n].plus(moved), self.left[n].plus(moved, -1.0)
            self.now = knot
        self.now = time

    def asked(self, context: int, length: _Form) -> None:
        if self.left[context].value == 0 and length.value > 0:
            others = [n for n, left in enumerate(self.left) if left.value > 0]
            for n in [context, *others]:
                if self.wakes[n].value <= self.now.value:
                    self.wakes[n] = self.now.plus(_Form(self.startup)) if others else self.now
        self.left[context] = self.left[context].plus(length)


def fraction_slopes(timeline: "Timeline") -> np.ndarray:
    """Derivative of the makespan, µs, by every fraction of :meth:`Warms.fractions`, in its order."""
    work, memory = timeline.workload, timeline.workload.memory
    if memory is None or memory.warms is None:
        return np.zeros(0)
    forms = _found(timeline)
    slopes = np.zeros(len(memory.warms.fractions()))
    walk = _Forward(work, timeline.schedule, timeline.clusters, timeline.times, timeline.record)
    walk.known = {}
    weights: dict[tuple, float] = {}
    heap: list[tuple[float, tuple]] = []

    def add(event: tuple | None, weight: float) -> None:
        if event is None or abs(weight) < 1e-12:
            return
        if event not in weights:
            weights[event] = 0.0
            heapq.heappush(heap, (-walk.time(event), event))
        weights[event] += weight

    if work.tasks:
        add(walk._finish(int(np.argmax(timeline.times.finish))), 1.0)
    while heap:
        when, event = heapq.heappop(heap)
        weight = weights.pop(event)
        if abs(weight) < 1e-12:
            continue
        walk.now = -when
        _, task, counts, before = walk._before(*event)
        for other, slope in _by_found(timeline, task).items() if DURATION in counts else ():
            if other not in forms:
                continue
            for (name, number), by in forms[other].by.items():
                amount = weight * counts[DURATION] * slope * by
                if name == "fraction":
                    slopes[number] += amount
                else:
                    add(("taken", number), amount)
        add(before, weight)
    return slopes


def _by_found(timeline: "Timeline", task: int) -> dict[int, float]:
    """Derivative of what a task's block takes by what it, and those beside it, find in L2 (:mod:`._memory`)."""
    work, memory, record = timeline.workload, timeline.workload.memory, timeline.record
    if memory is None or work.shapes[task] >= DUMMY:
        return {}

    def of(n: int) -> tuple[float, float, float, float]:
        """What one block takes alone, what it lacks then, what it moves, and 1 over what its cores take together."""
        found = float(record.memory[n, FOUND])
        missing = float(work.duration_us[n] - memory.resident_us[n])
        alone = float(work.duration_us[n]) - missing * found
        full = alone * float(memory.together[n]) * (3 if work.shapes[n] == MIX else 1)
        return alone, missing, float(memory.hbm_us[n]) * (1 - found), 1 / full if full > 0 else 0.0

    alone, _, moved, _ = of(task)
    resident, l2 = float(memory.resident_us[task]), float(memory.l2_us[task])
    hbm_share, l2_share = (float(record.memory[task, column]) for column in (HBM_SHARE, L2_SHARE))
    sides = [alone, resident + (alone - resident) * hbm_share, moved * hbm_share, l2 * l2_share]
    bound = int(np.argmax(sides))
    by_alone = (1.0, hbm_share, 0.0, 0.0)[bound]
    by_moved = (0.0, 0.0, hbm_share, 0.0)[bound]
    by_hbm, by_l2 = (0.0, alone - resident, moved, 0.0)[bound], (0.0, 0.0, 0.0, l2)[bound]
    beside, amounts = np.unique(record.beside[task, :-1], return_counts=True)
    cores = {int(n): float(m) for n, m in zip(beside, amounts, strict=True) if n >= 0}
    cores[task] = cores.get(task, 0.0) + float(record.beside[task, -1]) * (3 if work.shapes[task] == MIX else 1)
    result = {}
    for n, count in cores.items():
        own_alone, missing, traffic, rate = of(n)
        each = rate / own_alone if own_alone > 0 else 0.0
        by_time = -count * each * (by_hbm * traffic + by_l2 * float(memory.l2_us[n])) + (by_alone if n == task else 0)
        by_traffic = count * by_hbm * rate + (by_moved if n == task else 0.0)
        result[n] = -missing * by_time - float(memory.hbm_us[n]) * by_traffic
    return result


def _found(timeline: "Timeline") -> dict[int, _Form]:
    """What tasks find that a warm has to do with."""
    from ._oracle import _Sharing

    work, times, memory = timeline.workload, timeline.times, timeline.workload.memory
    assert memory is not None
    assert memory.warms is not None
    warms = memory.warms
    cold_us, hit_us, *_ = warms.constants()
    sharing = _Sharing(work, memory, timeline.repeated)
    stream = _Stream(warms.constants(), warms.contexts)
    regions: dict[int, tuple[_Form, _Form, _Form, _Form, int]] = {}  # base, top, place, length, context
    first = np.cumsum([0, *(len(each) for each in warms.targets)]).tolist()
    kernels = np.flatnonzero(work.shapes < DUMMY)
    order = kernels[np.lexsort((kernels, work.shapes[kernels], times.dispatch[kernels]))].tolist()
    forms: dict[int, _Form] = {}
    for task in order:
        time = float(times.dispatch[task])
        taken = _Form(time, {("taken", task): 1.0})
        if any(left.value > 0 for left in stream.left) or warms.targets[task]:
            stream.advance(taken)
        stream.now = taken
        assert sharing.engine is not None
        sharing.engine.advance(time)
        half = _Form(time + float(work.duration_us[task]) / 2, taken.by)
        touched = [n for n, _ in memory.uses[task] if n in regions]
        if touched:
            later, engine = stream.copied(), sharing.engine.at(half.value)
            later.advance(half)
            total = _Form(0.0)
            for region, share in memory.uses[task]:
                if region in regions and sharing.here(region, engine) >= sharing.landed(region, engine) - 2.0**-29:
                    total = total.plus(_here(regions[region], later), share)
                rest = regions.pop(region, None)
                if rest is not None:
                    _, _, place, length, context = rest
                    remains = place.plus(length).plus(stream.done[context], -1.0)
                    if remains.value >= length.value:
                        remains = length
                    saved = remains.times(1 - hit_us / cold_us) if remains.value > 0 else _Form(0.0)
                    stream.left[context] = stream.left[context].plus(saved, -1.0)
                    for other, (base, top, begin, extent, of) in regions.items():
                        if of == context and begin.value > place.value:
                            regions[other] = base, top, begin.plus(saved, -1.0), extent, of
            forms[task] = total
        context, total = int(warms.context[task]), _Form(0.0)
        for at, (region, fraction) in enumerate(warms.targets[task]):
            size = float(memory.regions[region])
            before = sharing.here(region, sharing.engine)
            base = _Form(before, _here(regions[region], stream).by if region in regions else None)
            goal = _Form(fraction, {("fraction", first[task] + at): 1.0})
            more = goal.plus(base, -1.0) if fraction > before else _Form(0.0)
            hit = base if fraction > before else goal
            length = more.times(size * cold_us).plus(hit, size * hit_us)
            place = stream.done[context].plus(stream.left[context]).plus(total)
            regions[region] = base, base.plus(more), place, length, context
            total = total.plus(length)
        if warms.targets[task]:
            stream.asked(context, total)
        sharing.use(task, time)
    return forms


def _here(region: tuple[_Form, _Form, _Form, _Form, int], stream: _Stream) -> _Form:
    """The part of a region that has landed."""
    base, top, place, length, context = region
    ahead = stream.done[context].plus(place, -1.0)
    if length.value <= 0 or ahead.value >= length.value:
        return top
    if ahead.value <= 0:
        return base
    gain = top.plus(base, -1.0)
    part = ahead.value / length.value
    # d (gain ahead / length)
    changed = ahead.times(gain.value / length.value).plus(gain, part).plus(length, -gain.value * part / length.value)
    return base.plus(_Form(gain.value * part, changed.by))
