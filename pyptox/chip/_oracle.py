"""The simulator's rules in plain Python, block by block: the specification that the jitted machine must equal.

What is simulated:

* The orchestrator submits tasks one after another; a submission costs ``submit_us + submit_edge_us x producers``, or
  ends when it was measured to. An allocation is complete when it is submitted.
* A submission begins when the one before it has ended and all tasks are finished that it waits for, for a ring to
  reclaim (:mod:`pyptox.rings._gates`).
* A task is ready when it is submitted and its last producer is finished. Ready queues, one for each shape, are first
  in, first out. At the same time, a finish comes before an end, then a submission, then dispatches of MIX, AIC, AIV
  and dummy tasks; two finishes, or two ends, in the order of the tasks.
* Scheduler threads own equal shares of the clusters, in order; cluster ``i`` is AIC ``i`` and AIV ``2i`` and
  ``2i + 1``. A core is served by its own thread only. It runs one block and holds one pending; its slot is open once
  the last block that it was given has started.
* A task is dispatched when it heads its queue and some core, its thread free, has an open slot. A thread publishes its
  ``r``-th block after ``dispatch_us + r x dispatch_each_us x subtasks``, idle cores first, then by number, cores whose
  slot opens later when it opens. Each next block goes to the core that can be given it first, the lowest number on a
  tie. A core that has been given a block of the task is given another one round of its thread after that one's start;
  a round retires and publishes one block on every core of the kind that the thread owns.
* A block starts ``doorbell_us + receive_us`` after it is published, ``first_us`` later where a core of it has had no
  block before, and ``switch_us`` after the core's last block.
* When a task's last block has ended, every thread that served it retires its part: it sees the end ``fin_us`` later and
  after looking at half of its busy cores (``poll_us`` each), the mean of a round over them, then pays
  ``complete_us + complete_each_us x subtasks``. The task is finished when the last thread is done.
* ``sync_start``: a task so marked is dispatched when as many cores, their threads free, have an open slot as it has
  blocks; tasks of its kind behind it wait. Where it has more blocks than a thread has cores, tasks of the other kinds
  wait too, but for dummies; of several such tasks the one that was ready first goes first. Each thread publishes its
  blocks one after another, one to a core, and none starts before ``doorbell_us + receive_us`` after the last of all is
  published.
* Early dispatch: a task is eligible once it is submitted and each of its producers is finished, or is flagged and has
  published all its blocks, unless it is predicated or has more blocks than the chip has cores of its kind. Eligible
  tasks queue like ready ones. While no task of any kind but a dummy is ready, the head of such a queue is staged when
  as many cores, their threads free, have an open slot as it has blocks: published like a dispatched task, one block to
  a core, but held there. The last producer's finish releases it: its blocks start ``doorbell_us`` later, or when they
  could have started without being held, whichever is later. A task that turns ready before it is staged is dispatched
  as usual. At the same time releases come first, then moments of full publication, then finishes; stagings come last.
* A dummy is retired by the thread that is free first, in ``dummy_us``; so is a predicated task that does not run.
* What a block takes, where a workload has a :class:`._memory.Memory`: regions that a task uses are in L2 as far as they
  fit it beside what was used more recently; a task uses its regions when it is taken up or staged. What it finds there
  makes its blocks shorter, and they ask less of HBM. Blocks are longer where all cores together ask more than
  HBM, or L2, can supply: the cores that are busy in the middle of its first block count, each with what its last task
  asks there alone, and those on which the task itself has started by then.
* Warms (:mod:`._warm`): when one is taken up, its regions become the most recently used, in order, and join the stream
  of its context. A task finds of a region what has landed half a block after it is taken up, or staged; the rest it
  reads cold, and a stream that comes to it later finds it. A stream that is in flight in the middle of a task's first
  block asks for its share of HBM like the busy cores.

What is simplified:

* All blocks of a task are given to cores when its first one is; no other task slips in between, and the thread pays
  for the first block of each core at once. Later blocks of a core cost the thread nothing else: their costs are in the
  round. The same holds for retiring.
* A core is busy, for the looking, until the last block that it was given ends.
* The three cores of a MIX block are free at the same time.
* A task with ``sync_start`` has at most as many blocks as there are cores of its kind, and takes no account of the
  mark when it is staged.
* A block's time is set when its task starts: what starts later does not change it, and all blocks of a task are alike.
* A stream is not slowed down by the blocks; a warm sets the place of a whole region aside in L2, whatever its fraction.
* A task is staged whole or not at all. A core that holds a block back is given nothing else, and is looked at as a
  busy one.

What is left out: the time that releasing and reclaiming storage take.
"""

import copy
import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from ._constants import GRID_US, Schedule, on_grid
from ._memory import Memory
from ._warm import Warms
from ._workload import AIC, AIV, ALLOC, DUMMY, MIX, Workload

_NEVER, _LATER = float("-inf"), float("inf")


@dataclass
class Times:
    """Times of every task, µs: submitted, ready, taken up, first start, last end, finished; and what a block takes."""

    submitted: np.ndarray
    ready: np.ndarray
    dispatch: np.ndarray
    start: np.ndarray
    end: np.ndarray
    finish: np.ndarray
    block: np.ndarray


class _Core:
    def __init__(self) -> None:
        self.opens = 0.0  # start of the last block that it was given
        self.ends = _NEVER  # end of that block
        self.fresh = True  # it has had none
        self.asks = (0.0, 0.0)  # shares of HBM and L2


class _Engine:
    """What the contexts of the SDMA engine have left to stream, in µs that it takes one alone."""

    def __init__(self, warms: Warms) -> None:
        _, _, self.startup, self.worse, self.one, self.several = warms.constants()
        self.now = 0.0
        self.left, self.done, self.wakes = ([0.0] * warms.contexts for _ in range(3))
        self.knots = [(0.0, list(self.done))]  # when rates changed, and what was done by then

    def awake(self) -> list[int]:
        return [n for n, left in enumerate(self.left) if left > 0 and self.wakes[n] <= self.now]

    def advance(self, time: float) -> None:
        while self.now < time:
            awake = self.awake()
            stretch = len(awake) * self.worse if len(awake) > 1 else 1.0
            ends = {n: self.now + float(on_grid(self.left[n] * stretch)) for n in awake}
            waking = [wake for wake, left in zip(self.wakes, self.left, strict=True) if left > 0 and wake > self.now]
            knot = min([time, *ends.values(), *waking])
            moved = float(on_grid((knot - self.now) / stretch))
            for n in awake:
                amount = self.left[n] if ends[n] <= knot else min(moved, self.left[n])
                self.left[n], self.done[n] = self.left[n] - amount, self.done[n] + amount
            self.now = knot
            self.knots.append((knot, list(self.done)))

    def asked(self, context: int, length: float) -> None:
        """``length`` more, now."""
        if self.left[context] == 0 and length > 0:
            others = [n for n, left in enumerate(self.left) if left > 0]
            for n in [context, *others]:
                if self.wakes[n] <= self.now:
                    self.wakes[n] = self.now + self.startup if others else self.now
        self.left[context] += length

    def at(self, time: float) -> "_Engine":
        later = copy.copy(self)
        later.left, later.done, later.knots = list(self.left), list(self.done), []
        later.advance(time)
        return later

    def asks(self, time: float) -> float:
        """The share of HBM that it will ask for."""
        return (0.0, self.one, self.several)[min(len(self.at(time).awake()), 2)]


class _Sharing:
    """L2 as a list of regions, most recent first, and what the running tasks and warms ask of HBM and L2."""

    def __init__(self, work: Workload, memory: Memory, repeated: bool) -> None:
        self.work, self.memory = work, memory
        self.recent: list[int] = []
        self.found: dict[int, float] = {}
        self.asks: dict[int, tuple[float, float]] = {}  # of tasks that have started
        self.engine = None if memory.warms is None else _Engine(memory.warms)
        self.warmed: dict[int, tuple[float, float, float, float, int]] = {}  # see `landed`
        if repeated:
            for task in range(work.tasks):
                if work.shapes[task] < DUMMY:
                    for region, _ in memory.uses[task]:
                        self.touch(region)

    def touch(self, region: int) -> None:
        if region in self.recent:
            self.recent.remove(region)
        self.recent.insert(0, region)

    def here(self, region: int, engine: _Engine | None) -> float:
        """The part of a region that L2 holds."""
        if region not in self.recent:
            return 0.0
        before = self.recent[: self.recent.index(region)]
        room = self.memory.capacity - sum(float(self.memory.regions[r]) for r in before)
        return min(max(room / float(self.memory.regions[region]), 0.0), 1.0, self.landed(region, engine))

    def landed(self, region: int, engine: _Engine | None) -> float:
        """1 but for a region that a warm brings from ``base`` to ``top``, at ``place`` in its context's stream."""
        if region not in self.warmed or engine is None:
            return 1.0
        base, top, place, length, context = self.warmed[region]
        part = min(max((engine.done[context] - place) / length, 0.0), 1.0) if length > 0 else 1.0
        return base + _share((top - base) * _share(part))

    def use(self, task: int, time: float) -> None:
        if self.engine is not None:
            self.engine.advance(time)
        total, by_then = 0.0, None
        if self.engine is not None:
            by_then = self.engine.at(time + float(self.work.duration_us[task]) / 2)
        for region, share in self.memory.uses[task]:
            total += _share(share * self.here(region, by_then))
            self.touch(region)
            self.read(region)
        self.found[task] = min(total, 1.0)
        if self.memory.warms is not None and self.engine is not None:
            self.warm(self.memory.warms, self.engine, task)

    def read(self, region: int) -> None:
        """What a stream has left of a region that is now in L2 is shorter."""
        if region not in self.warmed or self.engine is None or self.memory.warms is None:
            return
        cold_us, hit_us, *_ = self.memory.warms.constants()
        _, _, place, length, context = self.warmed.pop(region)
        rest = min(max(place + length - self.engine.done[context], 0.0), length)
        saved = max(rest - float(on_grid(rest * (hit_us / cold_us))), 0.0)
        self.engine.left[context] -= saved
        for other, (base, top, begin, extent, of) in self.warmed.items():
            if of == context and begin > place:
                self.warmed[other] = base, top, begin - saved, extent, of

    def warm(self, warms: Warms, engine: _Engine, task: int) -> None:
        cold_us, hit_us, *_ = warms.constants()
        context, total = int(warms.context[task]), 0.0
        for region, fraction in warms.targets[task]:
            size, before = float(self.memory.regions[region]), _share(self.here(region, engine))
            length = float(on_grid(size * max(fraction - before, 0.0) * cold_us))
            length += float(on_grid(size * min(fraction, before) * hit_us))
            place = engine.done[context] + engine.left[context] + total
            self.warmed[region] = before, max(fraction, before), place, length, context
            self.touch(region)
            total += length
        if warms.targets[task]:
            engine.asked(context, total)

    def alone(self, task: int) -> float:
        duration, resident = float(self.work.duration_us[task]), float(self.memory.resident_us[task])
        return duration - float(on_grid((duration - resident) * self.found[task]))

    def block(self, task: int, starts: list[float], cores: list["_Core"]) -> float:
        """What a block takes where units could start one at ``starts``."""
        memory, alone, blocks = self.memory, self.alone(task), int(self.work.blocks[task])
        resident = float(memory.resident_us[task])
        moved = float(memory.hbm_us[task]) * (1.0 - self.found[task]), float(memory.l2_us[task])
        middle = min(starts) + alone / 2
        each = 3 if self.work.shapes[task] == MIX else 1
        own = min(sum(start <= middle for start in starts), blocks) * each
        together_us = max(alone, GRID_US) * float(memory.together[task]) * each
        self.asks[task] = _share(moved[0] / together_us), _share(moved[1] / together_us)
        busy = [core.asks for core in cores if middle < core.ends < _LATER]
        shares = [sum(asks[way] for asks in busy) + own * self.asks[task][way] for way in (0, 1)]
        if self.engine is not None:
            shares[0] += self.engine.asks(middle)
        slowed = resident + float(on_grid((alone - resident) * shares[0]))
        return max(alone, slowed, *(float(on_grid(m * share)) for m, share in zip(moved, shares, strict=True)))


def _share(value: float) -> float:
    return float(np.round(value * 2.0**30) * 2.0**-30)


def clusters_of(clusters: int, threads: int) -> int:
    """Clusters that the first scheduler threads own; the last one may own fewer."""
    return -(-clusters // threads)


def oracle(work: Workload, schedule: Schedule, clusters: int, repeated: bool = False) -> Times:
    """Simulate ``work`` on ``clusters`` clusters (see the module); ``repeated``: with L2 as a round before left it."""
    c = schedule.values()
    each = clusters_of(clusters, schedule.threads)
    cores = {(i, j): _Core() for i in range(clusters) for j in range(3)}
    thread_of = [i // each for i in range(clusters)]
    units = {
        MIX: [[(i, 0), (i, 1), (i, 2)] for i in range(clusters)],
        AIC: [[(i, 0)] for i in range(clusters)],
        AIV: [[(i, 1 + j)] for i in range(clusters) for j in range(2)],
    }
    clock = [0.0] * schedule.threads
    sharing = None if work.memory is None else _Sharing(work, work.memory, repeated)
    block = work.duration_us.tolist()
    submitted = [] if work.submitted_us is None else work.submitted_us.tolist()
    now = 0.0
    costs = [c["submit_us"] + c["submit_edge_us"] * edges for edges in work.wired.tolist()]
    for cost in costs if work.submitted_us is None else ():
        now += cost
        submitted.append(now)
    gate = [work.tasks] * work.tasks if work.gate is None else work.gate.tolist()
    gating = np.bincount(gate, minlength=work.tasks + 1).tolist()
    successors: list[list[int]] = [[] for _ in range(work.tasks)]
    missing = [len(preds) + 1 for preds in work.waits]  # producers to finish, and the submission
    unpublished = list(missing)  # producers to finish, or to publish all blocks if they are flagged
    for task, preds in enumerate(work.waits):
        for pred in preds:
            successors[pred].append(task)
    ready, dispatch, start, end, finish = (list(submitted) for _ in range(5))
    queues: dict[int, deque[int]] = {MIX: deque(), AIC: deque(), AIV: deque(), DUMMY: deque()}
    early: dict[int, deque[int]] = {MIX: deque(), AIC: deque(), AIV: deque()}
    eligible = [0.0] * work.tasks
    emptied = 0.0  # when the last ready task was taken up
    retiring: list[tuple[float, int, int]] = []  # time; 0 when all is published, 1 for a finish, 2 for an end; task
    held: dict[int, dict[int, float]] = {}  # of staged tasks, by core: when the block could start
    parts: dict[int, dict[int, tuple[float, int]]] = {}  # by task and thread: last end, cores served

    def arrived(task: int, time: float, finished: bool, published: bool) -> None:
        shape = int(work.shapes[task])
        missing[task] -= finished
        unpublished[task] -= published
        if finished and missing[task] == 0:
            ready[task] = time
            if task in held:
                released(task, time)
            else:
                queues[shape].append(task)
        elif published and unpublished[task] == 0 and shape in units and stageable(task):
            eligible[task] = time
            early[shape].append(task)

    def stageable(task: int) -> bool:
        return bool(work.blocks[task] <= len(units[int(work.shapes[task])]) and not work.predicated[task])

    def used(task: int, time: float) -> None:
        if sharing is not None:
            sharing.use(task, time)

    def set_block(task: int, starts: list[float]) -> float:
        if sharing is not None:
            block[task] = sharing.block(task, starts, list(cores.values()))
        return block[task]

    def given(core: tuple[int, int], task: int, opens: float, ends: float) -> None:
        it = cores[core]
        it.opens, it.ends, it.fresh = opens, ends, False
        if sharing is not None and ends < _LATER:
            it.asks = sharing.asks[task]

    def flight(unit: list[tuple[int, int]]) -> float:
        first = c["first_us"] if any(cores[core].fresh for core in unit) else 0.0
        return c["doorbell_us"] + c["receive_us"] + first

    def available(unit: list[tuple[int, int]]) -> float:
        return max(opening(unit), clock[thread_of[unit[0][0]]])

    def opening(unit: list[tuple[int, int]]) -> float:
        return max(cores[core].opens for core in unit)

    def dispatched(task: int, shape: int, time: float) -> None:
        weight = 3 if shape == MIX else 1
        one = c["dispatch_each_us"] * weight
        owned = each * (2 if shape == AIV else 1)
        lag = c["dispatch_us"] + c["complete_us"] + (c["dispatch_each_us"] + c["complete_each_us"]) * weight * owned
        begin = [max(t, time) for t in clock]
        orders: dict[int, list[tuple[float, bool, int]]] = {}
        for number, unit in enumerate(units[shape]):
            thread = thread_of[unit[0][0]]
            at = max(opening(unit), begin[thread])
            if opening(unit) == _LATER:
                continue
            orders.setdefault(thread, []).append((at, max(cores[x].ends for x in unit) > at, number))
        published: list[tuple[float, int]] = []
        for thread, order in orders.items():
            for rank, (at, _, number) in enumerate(sorted(order)):
                by_rank = begin[thread] + c["dispatch_us"] + one * (rank + 1)
                published.append((max(at + c["dispatch_us"] + one, by_rank), number))
        heapq.heapify(published)
        duration = set_block(task, [could_start(shape, number, moment) for moment, number in published])
        first: dict[int, float] = {}
        last: dict[int, float] = {}
        moment = time
        for _ in range(int(work.blocks[task])):
            moment, number = heapq.heappop(published)
            unit = units[shape][number]
            begins = could_start(shape, number, moment)
            first.setdefault(number, begins)
            last[number] = begins
            for core in unit:
                given(core, task, begins, begins + duration)
            heapq.heappush(published, (begins + lag, number))
        dispatch[task] = time
        if work.early[task]:
            heapq.heappush(retiring, (moment, 0, task))
        running(task, first, last)
        for thread, (_, count) in parts[task].items():
            clock[thread] = begin[thread] + c["dispatch_us"] + one * count

    def running(task: int, first: dict[int, float], last: dict[int, float]) -> None:
        duration = block[task]
        start[task], end[task] = min(first.values()), max(last.values()) + duration
        parts[task] = {}
        for number, begins in last.items():
            thread = thread_of[units[int(work.shapes[task])][number][0][0]]
            before, count = parts[task].get(thread, (_NEVER, 0))
            parts[task][thread] = max(before, begins + duration), count + 1
        heapq.heappush(retiring, (end[task], 2, task))

    def one_each(task: int, shape: int, time: float) -> list[tuple[float, int]]:
        """Publish one block to each of the first open cores: the moments, and their numbers."""
        one = c["dispatch_each_us"] * (3 if shape == MIX else 1)
        orders: dict[int, list[tuple[bool, int]]] = {}
        for number, unit in enumerate(units[shape]):
            if available(unit) <= time:
                late = max(cores[x].ends for x in unit) > time
                orders.setdefault(thread_of[unit[0][0]], []).append((late, number))
        published = sorted(
            (time + c["dispatch_us"] + one * (rank + 1), number)
            for order in orders.values()
            for rank, (_, number) in enumerate(sorted(order))
        )[: int(work.blocks[task])]
        dispatch[task] = time
        for moment, number in published:
            clock[thread_of[units[shape][number][0][0]]] = moment
        if work.early[task]:
            heapq.heappush(retiring, (published[-1][0], 0, task))
        return published

    def could_start(shape: int, number: int, published: float) -> float:
        unit = units[shape][number]
        return max(published + flight(unit), max(cores[core].ends for core in unit) + c["switch_us"])

    def staged(task: int, shape: int, time: float) -> None:
        published = one_each(task, shape, time)
        held[task] = {number: could_start(shape, number, moment) for moment, number in published}
        for number in held[task]:
            for core in units[shape][number]:
                given(core, task, _LATER, _LATER)

    def together(task: int, shape: int, time: float) -> None:
        published = one_each(task, shape, time)
        begin(task, {number: could_start(shape, number, published[-1][0]) for _, number in published})

    def released(task: int, time: float) -> None:
        begin(task, {number: max(at, time + c["doorbell_us"]) for number, at in held[task].items()})

    def begin(task: int, starts: dict[int, float]) -> None:
        duration = set_block(task, list(starts.values()))
        for number, begins in starts.items():
            for core in units[int(work.shapes[task])][number]:
                given(core, task, begins, begins + duration)
        running(task, starts, starts)

    def ended(task: int) -> None:
        weight = 3 if work.shapes[task] == MIX else 1
        done = []
        for thread, (last, count) in parts[task].items():
            busy = sum(core.ends >= last for (i, _), core in cores.items() if thread_of[i] == thread)
            seen = max(clock[thread], last + c["fin_us"] + c["poll_us"] * ((busy + 1) // 2))
            clock[thread] = seen + c["complete_us"] + c["complete_each_us"] * weight * count
            done.append(clock[thread])
        finish[task] = max(done)
        heapq.heappush(retiring, (finish[task], 1, task))

    def drained(task: int, shape: int) -> bool:
        return bool(work.sync_start[task] and work.blocks[task] > each * (2 if shape == AIV else 1))

    following, left, begins = 0, int((work.shapes != ALLOC).sum()), 0.0

    def submission() -> float:
        """When the next submission ends, as far as is known."""
        if following == work.tasks or gating[following]:
            return _LATER
        return submitted[following] if work.gate is None else begins + costs[following]

    while left or (work.gate is not None and following < work.tasks):
        choices = [(retiring[0][0] if retiring else _LATER, 0)]
        choices.append((submission(), 1))
        drains = [(ready[queues[x][0]], x) for x in units if queues[x] and drained(queues[x][0], x)]
        for place, shape in enumerate((MIX, AIC, AIV)):
            if queues[shape] and (not drains or min(drains)[1] == shape):
                task = queues[shape][0]
                slot = sorted(map(available, units[shape]))[int(work.blocks[task]) - 1 if work.sync_start[task] else 0]
                choices.append((max(ready[task], slot, emptied), 2 + place))
            while early[shape] and missing[early[shape][0]] == 0:  # ready by now
                early[shape].popleft()
            if early[shape] and not any(queues[x] for x in units):
                task = early[shape][0]
                slot = sorted(map(available, units[shape]))[int(work.blocks[task]) - 1]
                choices.append((max(eligible[task], slot, emptied), 6 + place))
        if queues[DUMMY]:
            choices.append((max(ready[queues[DUMMY][0]], min(clock)), 5))
        time, kind = min(choices)
        if kind == 0:
            _, phase, task = heapq.heappop(retiring)
            if phase == 2:
                ended(task)
            else:
                left -= phase
                if phase == 1:
                    gating[gate[task]] -= 1
                    if gate[task] == following and not gating[following]:
                        begins = time
                for successor in successors[task]:
                    arrived(successor, time, phase == 1, phase == 0 or not work.early[task])
        elif kind == 1:
            submitted[following] = begins = time
            if work.shapes[following] != ALLOC:
                arrived(following, time, True, True)
            else:
                for column in (ready, dispatch, start, end, finish):
                    column[following] = time
            following += 1
        elif kind == 5:
            task = queues[DUMMY].popleft()
            thread = clock.index(min(clock))
            clock[thread] = time + c["dummy_us"]
            dispatch[task] = start[task] = time
            end[task] = finish[task] = clock[thread]
            heapq.heappush(retiring, (finish[task], 1, task))
        elif kind >= 6:
            shape = (MIX, AIC, AIV)[kind - 6]
            used(early[shape][0], time)
            staged(early[shape].popleft(), shape, time)
        else:
            shape = (MIX, AIC, AIV)[kind - 2]
            emptied = time
            task = queues[shape].popleft()
            used(task, time)
            (together if work.sync_start[task] else dispatched)(task, shape, time)
    return Times(*(np.array(x) for x in (submitted, ready, dispatch, start, end, finish, block)))
