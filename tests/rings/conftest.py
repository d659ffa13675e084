"""Random tasks in random scopes, and an event loop with real buffers: block by block what the product computes from
positions that count up."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from pyptox.program import Scope
from pyptox.rings import Limits, Submissions


def _random(seed: int, count: int | None = None) -> Submissions:
    """Tasks whose outputs have many sizes, none among them, in scopes up to five deep."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60)) if count is None else count
    scopes, ends = [Scope(0, "auto", 0, "p.py:1", 0, count)], [(0, count)]
    depth_of = {0: 0}

    def split(begin: int, end: int, depth: int) -> None:
        while begin < end and depth < 6:
            width = int(rng.integers(1, end - begin + 1))
            if rng.random() < 0.6:
                number = len(scopes)
                scopes.append(Scope(number, "auto", depth, f"p.py:{depth}", begin, begin + width))
                depth_of[number] = depth
                ends.append((begin, begin + width))
                split(begin, begin + width, depth + 1)
            begin += width

    split(0, count, 1)
    top = rng.choice([3, 40])
    size = rng.integers(0, top, count) * 1024 - rng.integers(0, 2, count)
    waits = [sorted({int(p) for p in rng.integers(0, n, rng.integers(0, 4))}) if n else [] for n in range(count)]
    return Submissions.of(
        np.maximum(size, 0).tolist(), scopes=scopes, waits=waits, entries=rng.integers(0, 3, count).tolist()
    )


@pytest.fixture(scope="session")
def random_submissions() -> Callable[..., Submissions]:
    return _random


@dataclass
class Heap:
    capacity: int
    top: int = 0
    bottom: int = 0
    wrapped: bool = False
    blocks: deque = field(default_factory=deque)

    def place(self, size: int) -> int | None:
        """Where a block of this size would begin."""
        if size == 0:
            return self.top
        if not self.wrapped:
            if self.top + size <= self.capacity:
                return self.top
            return 0 if size <= (self.bottom if self.blocks or size <= self.bottom else self.capacity) else None
        return self.top if self.top + size <= self.bottom else None

    def take(self, task: int, size: int) -> None:
        begin = self.place(size)
        assert begin is not None
        if begin < self.top:
            self.wrapped = size <= self.bottom
            if not self.wrapped:  # an empty heap starts over
                self.bottom = 0
        for _, first, last in self.blocks:
            assert last <= begin or begin + size <= first or first == last or size == 0, "two blocks share bytes"
        self.blocks.append((task, begin, begin + size))
        self.top = begin + size
        assert self.top <= self.capacity

    def release(self) -> None:
        _, begin, end = self.blocks.popleft()
        if begin < self.bottom:
            self.wrapped = False
        self.bottom = end


@dataclass
class Outcome:
    submitted: list[float]
    finish: list[float]
    stuck: int | None
    lacking: set[str]
    slots: list[int]
    late: list[tuple[int, int]]


def _simulate(work: Submissions, service: list[float], cost: list[float], limits: Limits) -> Outcome:
    heaps = [Heap(capacity) for capacity in limits.heap]
    live: list[deque[int]] = [deque() for _ in range(4)]
    finish: dict[int, float] = {}
    keepers: dict[int, set[int]] = {}
    done: set[int] = set()
    gone: set[int] = set()
    events: list[tuple[float, int]] = []
    submitted: list[float] = []
    slots, late, now = [0] * 4, [], 0.0
    ring, closes = work.ring.tolist(), work.closes.tolist()

    def consumed(task: int, count: int) -> bool:
        return task in done and closes[task] <= count and not keepers[task]

    def settle(count: int) -> None:
        while events and events[0][0] <= now:
            _, task = heapq.heappop(events)
            done.add(task)
            for producer in work.holds[task]:
                keepers[producer].discard(task)
        for number in range(4):
            while live[number] and consumed(live[number][0], count):
                gone.add(live[number].popleft())
                heaps[number].release()

    for task in range(work.count):
        number = ring[task]
        while True:
            settle(task)
            lacking = set()
            if sum(int(work.entries[t]) for q in live for t in q) + work.entries[task] > limits.tensormap:
                lacking.add("tensormap")
            if len(live[number]) + 1 > limits.task_window[number] - 1:
                lacking.add("task_window")
            if sum(int(work.fanin[t]) for t in live[number]) + work.fanin[task] > limits.dep_pool[number]:
                lacking.add("dep_pool")
            if heaps[number].place(int(work.bytes[task])) is None:
                lacking.add("heap")
            if not lacking:
                break
            if not events:
                return Outcome(submitted, list(finish.values()), task, lacking, slots, late)
            now = events[0][0]
        heaps[number].take(task, int(work.bytes[task]))
        live[number].append(task)
        slots[number] = max(slots[number], len(live[number]))
        now += cost[task]
        submitted.append(now)
        for producer in work.holds[task]:
            # events up to now count for the state at the moment of wiring, before any is reclaimed
            open_yet = closes[producer] > task
            running = finish[producer] > now or any(finish[k] > now for k in keepers[producer])
            if producer in gone or not (open_yet or running):
                if work.bytes[producer]:
                    late.append((producer, task))
            else:
                keepers[producer].add(task)
        finish[task] = max([now, *(finish[p] for p in work.waits[task])]) + service[task]
        keepers[task] = set()
        heapq.heappush(events, (finish[task], task))
    return Outcome(submitted, list(finish.values()), None, set(), slots, late)


@pytest.fixture(scope="session")
def event_loop() -> Callable[..., Outcome]:
    return _simulate
