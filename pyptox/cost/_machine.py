"""The in-core machine: when each instruction of a recorded nest starts and ends.

An instruction starts when its pipe is free, its operands are ready, and the buffer slot that it overwrites has
been read; a buffer made inside a loop of ``stages`` s has s slots. That recurrence is linear over (max, +), so a
loop settles into a period after a few iterations. :func:`closed_form` simulates ``warm`` iterations of every loop,
advances the state by the period, and simulates the last iteration for real (on plain numbers it goes on, up to twice
as far, until the period is seen: iterations of two lengths may alternate); its cost does not depend on trip counts,
and it works on plain numbers, arrays and traced scalars alike. :func:`simulate` unrolls the same machine in full, on
plain numbers, and yields every instruction: the trace, and the judge of the closed form.

The rates of the extrapolation (each pipe at ``min(max(own slope, own busy), max(completion slope, largest
busy))``) are those of a trial whose closed form agreed with the full simulation within 7e-6 at ``warm=4``.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .._scalar import Scalar, is_number, is_zero, later, maximum, minimum, where
from ..lang._record import Instruction, Loop, over_iterations
from ..lang._types import Buffer

Key = tuple[str, Any]  # ("pipe", name), ("ready", buffer number) or ("released", buffer number)


@dataclass
class _Frame:
    """One running instance of a loop: what its buffers waited for, and when they were released."""

    stages: Scalar
    base: dict[int, tuple[Scalar, Scalar]]  # released before this instance, and slope of the last one
    released: dict[int, list[Scalar]] = field(default_factory=dict)  # after each warm iteration
    waits: dict[int, list[Scalar]] = field(default_factory=dict)
    iteration: int = 0
    count: Scalar | None = None  # set for the last iteration
    slopes: dict[int, Scalar] = field(default_factory=dict)
    loop_count: Scalar = 0


_SLOTS = 8
"""Releases that are remembered of each buffer: more slots than that are not told apart."""


class _State:
    """Times of pipes and buffers. ``owner`` names the pipe that a buffer's time moves with."""

    def __init__(self) -> None:
        self.times: dict[Key, Scalar] = {}
        self.owner: dict[Key, str] = {}
        self.slopes: dict[int, Scalar] = {}
        self.rings: dict[int, tuple[float, ...]] = {}  # plain numbers only: the last releases of each buffer

    def copy(self) -> "_State":
        other = _State()
        other.times, other.owner, other.slopes = dict(self.times), dict(self.owner), dict(self.slopes)
        other.rings = dict(self.rings)
        return other

    def get(self, kind: str, what: Any) -> Scalar:
        return self.times.get((kind, what), 0.0)

    def put(self, kind: str, what: Any, time: Scalar, pipe: str) -> None:
        self.times[kind, what] = time
        self.owner[kind, what] = pipe

    def release(self, buffer: Buffer, time: Scalar, pipe: str) -> None:
        key = ("released", buffer.number)
        if self.owner.get(key) != pipe:
            time = later(self.times.get(key, 0.0), time)
        self.put(*key, time, pipe)


def _slot_wait(buffer: Buffer, state: _State, frames: dict[int, _Frame]) -> Scalar:
    """When the slot that a new tile takes has been read."""
    frame = frames.get(buffer.loop.key) if buffer.loop is not None else None
    if frame is None:
        return 0.0
    number, stages = buffer.number, frame.stages
    released = state.get("released", number)
    if is_number(stages, released, frame.loop_count):
        # plain numbers: the slots themselves, across instances of the loop
        ring = state.rings.get(number, ())
        if ("released", number) in state.times:
            ring = (*ring, released)[-_SLOTS:]
            state.rings[number] = ring
        return ring[-int(stages)] if len(ring) >= stages else 0.0
    base = frame.base.get(number)

    def before(iteration: int) -> Scalar:
        """Release of the slot by the previous instance of the loop, seen from a warm iteration."""
        if base is None:
            return 0.0
        ahead = stages - (1 + iteration)
        if is_number(ahead):
            return base[0] - base[1] * ahead if ahead > 0 else base[0]
        return base[0] - base[1] * ahead

    if frame.count is None:
        history = frame.released.get(number, [])
        wait = before(frame.iteration)
        for q in range(len(history), 0, -1):
            if is_number(stages):
                if stages == q:
                    wait = history[-q]
            else:
                wait = where(stages == q, history[-q], wait)
        frame.waits.setdefault(number, []).append(wait)
        return wait
    wait = state.get("released", number)
    if not is_zero(stages - 1):
        wait = wait - (stages - 1) * frame.slopes.get(number, 0.0)
    for iteration, seen in enumerate(frame.waits.get(number, [])):
        wait = where(frame.count == iteration + 1, seen, wait)
    return wait


def _execute(node: Instruction, state: _State, frames: dict[int, _Frame]) -> None:
    out = node.writes
    wait = _slot_wait(out, state, frames) if node.fresh and out is not None else 0.0
    if not node.costs:
        if out is not None and node.fresh:
            state.put("ready", out.number, wait, "")
        return
    inputs = node.reads
    end: Scalar = 0.0
    for position, (pipe, cycles) in enumerate(node.costs):
        start = state.get("pipe", pipe)
        if position == 0:
            for buffer in inputs:
                if state.owner.get(("ready", buffer.number)) != pipe:
                    start = later(start, state.get("ready", buffer.number))
            start = later(start, wait)
            if not is_zero(node.stall):
                start = start + node.stall
        else:
            start = later(start, end)
        end = start + cycles
        state.put("pipe", pipe, end, pipe)
        if position == 0:
            for buffer in inputs:
                state.release(buffer, end, pipe)
    pipe = node.costs[-1][0]
    if out is not None:
        state.put("ready", out.number, end, pipe)
        if node.fresh:
            state.times.pop(("released", out.number), None)
            state.put("released", out.number, end, pipe)


def busy(nodes: list, stalls: bool = False) -> dict[str, Scalar]:
    """Cycles that each pipe works in one pass over ``nodes``; with ``stalls``, its waits at barriers too."""
    total: dict[str, Scalar] = {}
    for node in nodes:
        if isinstance(node, Loop):
            first, last = busy(node.first, stalls), busy(node.last, stalls)
            for pipe in first:
                amount = over_iterations(node, first[pipe], last[pipe])
                total[pipe] = total.get(pipe, 0.0) + amount
        else:
            for position, (pipe, cycles) in enumerate(node.costs):
                held = stalls and position == 0 and not is_zero(node.stall)
                amount = cycles + node.stall if held else cycles
                total[pipe] = total.get(pipe, 0.0) + amount
    return total


def _made_in(nodes: list) -> set[int]:
    """Buffers that are made directly in a loop's body."""
    return {n.writes.number for n in nodes if isinstance(n, Instruction) and n.fresh and n.writes is not None}


def _largest(values: list[Scalar]) -> Scalar:
    """The latest of some times."""
    return functools.reduce(later, values)


def _run(nodes: list, state: _State, frames: dict[int, _Frame], warm: Callable[[Loop], int]) -> None:
    for node in nodes:
        if isinstance(node, Loop):
            _run_loop(node, state, frames, warm)
        else:
            _execute(node, state, frames)


def _run_loop(loop: Loop, state: _State, frames: dict[int, _Frame], warm: Callable[[Loop], int]) -> None:
    count, steps = loop.count, 0 if loop.once else warm(loop)
    if is_number(count) and count < 1:
        return
    made = _made_in(loop.first)
    base = {
        number: (state.times["released", number], state.slopes.get(number, 0.0))
        for number in made
        if ("released", number) in state.times
    }
    frame = _Frame(loop.stages, base, loop_count=count)
    inner = {**frames, loop.key: frame}
    snapshots = [state.copy()]
    if is_number(count):
        steps = max(0, min(steps, int(count) - 1))
    iteration = 0
    while iteration < steps:
        frame.iteration = iteration
        _run(loop.first, state, inner, warm)
        _hand_on(loop, state)
        for number in made:
            frame.released.setdefault(number, []).append(state.get("released", number))
        snapshots.append(state.copy())
        iteration += 1
        if is_number(count) and iteration == steps >= 4 and steps < min(_LONGEST * warm(loop), int(count) - 1):
            # go on until a period is seen, and whole periods are left
            period = _period_of(_ends(loop, snapshots), _largest(list(busy(loop.first, stalls=True).values())))
            steps += period == 0 or (int(count) - 1 - steps) % period != 0
    if loop.once or (is_number(count) and count - 1 <= steps):
        frame.iteration = steps  # the last iteration follows directly: its waits are those of a warm one
    else:
        _advance(loop, state, snapshots, frame, made)
        if not is_number(count):
            # the only iteration of a loop finds what was ready before the loop, whichever pipe made it
            for key in [k for k, pipe in state.owner.items() if k[0] == "ready" and snapshots[0].owner.get(k) != pipe]:
                if key in snapshots[0].times:
                    state.owner[key] = ""
        frame.count = count
    earlier = {number: state.times.get(("released", number)) for number in made}
    _run(loop.last, state, inner, warm)
    for number in made:
        if earlier[number] is not None:
            state.slopes[number] = state.get("released", number) - earlier[number]
    if loop.may_be_empty and not is_number(count):
        _select_before(count < 1, snapshots[0], state)


def _hand_on(loop: Loop, state: _State) -> None:
    """What the next iteration is handed is ready when this one made it."""
    made = [(old, ("ready", new.number)) for old, new in loop.carried if ("ready", new.number) in state.times]
    times = [(old, state.times[key], state.owner[key]) for old, key in made]
    for old, time, pipe in times:
        state.put("ready", old.number, time, pipe)


def _advance(loop: Loop, state: _State, snapshots: list[_State], frame: _Frame, made: set[int]) -> None:
    """Move the state from after the warm iterations to before the last one."""
    steps = len(snapshots) - 1
    work = busy(loop.first, stalls=True)
    pipes = [pipe for pipe in work if ("pipe", pipe) in state.times]
    ends = _ends(loop, snapshots)
    span = _period_of(ends) or 1
    after, before = snapshots[-1], snapshots[-1 - span]
    own = {pipe: (after.get("pipe", pipe) - before.get("pipe", pipe)) / span for pipe in pipes}
    completion = (ends[-1] - ends[-1 - span]) / span
    limit = maximum(completion, _largest([work[p] for p in pipes]))
    rate = {pipe: minimum(maximum(own[pipe], work[pipe]), limit) for pipe in pipes}
    skip = loop.count - (1 + steps)
    for key, time in list(state.times.items()):
        pipe = state.owner.get(key, "")
        moved = time
        if pipe in rate and snapshots[0].times.get(key) is not time:
            moved = time + skip * rate[pipe]
        if not is_number(loop.count):
            for n in range(steps, 0, -1):
                earlier = snapshots[n - 1].times.get(key, 0.0)
                if earlier is not moved:
                    moved = where(loop.count == n, earlier, moved)
        state.times[key] = moved
    for number, ring in state.rings.items():
        if ring != snapshots[0].rings.get(number) and is_number(skip):
            pipe = state.owner.get(("released", number), "")
            state.rings[number] = tuple(time + skip * rate.get(pipe, 0.0) for time in ring)
    for number in made:
        slope = rate.get(state.owner.get(("released", number), ""), 0.0)
        frame.slopes[number] = slope


def _ends(loop: Loop, snapshots: list[_State]) -> list[Scalar]:
    """When the loop's pipes were done with each warm iteration."""
    pipes = [pipe for pipe in busy(loop.first) if ("pipe", pipe) in snapshots[-1].times]
    return [_largest([0.0, *(snapshot.get("pipe", p) for p in pipes)]) for snapshot in snapshots]


_LONGEST = 4
"""Warm iterations of plain numbers at most, times those asked for, until a period is seen."""


def _period_of(ends: list[Scalar], work: Scalar = 0.0) -> int:
    """1 when iterations take equally long, 2 when two lengths alternate, 0 when neither is seen yet.

    Traced numbers cannot tell, nor can fewer than three iterations after the first. Iterations that take less than
    ``work``, what the busiest pipe does in one, are those of pipes that catch up.
    """
    if len(ends) < 5 or not is_number(*ends):
        return 1
    third, second, last = (b - a for a, b in itertools.pairwise(ends[-4:]))
    if second + last < 1.998 * work:
        return 0
    if abs(last - second) <= 1e-3 * last:
        return 1
    return 2 if abs(last - third) < 0.1 * abs(last - second) else 0


def _select_before(condition: Scalar, before: _State, state: _State) -> None:
    for key, time in state.times.items():
        state.times[key] = where(condition, before.times.get(key, 0.0), time)


def closed_form(walk: Loop, warm: int = 4, walk_warm: int | None = None) -> Scalar:
    """Cycles from the start of the walk over blocks to the end of its last store.

    Args:
        walk: the outermost loop of a recorded kernel, its instructions' costs filled in.
        warm: iterations of each loop that are simulated before the period is taken; 2 is fast, 4 is accurate.
        walk_warm: the same for the walk over blocks; ``warm`` by default.
    """
    state = _State()
    outer = warm if walk_warm is None else walk_warm
    _run_loop(walk, state, {}, lambda loop: outer if loop.key == walk.key else warm)
    # a nest whose loops are all empty has no time at all
    return _largest([0.0, *(time for (kind, _), time in state.times.items() if kind == "pipe")])


@dataclass(frozen=True, slots=True)
class Event:
    """One instruction of the full simulation on one pipe, times in cycles.

    Attributes:
        instruction: what runs.
        pipe, start, end: where and when.
        cause: ``"pipe"``, ``"operand"`` or ``"slot"``: what held the start back, a barrier aside.
        after: number of the event whose end that was, in program order; -1 for the start of the block.
        iteration: of every loop around it, outermost first.
    """

    instruction: Instruction
    pipe: str
    start: float
    end: float
    cause: str
    after: int
    iteration: tuple[int, ...]


_Moment = tuple[float, int]  # a time, and the number of the event that ended then
_START: _Moment = (0.0, -1)


def simulate(walk: Loop, limit: int | None = None) -> Iterator[Event]:
    """Every instruction of the unrolled nest, in program order; plain numbers only.

    Args:
        walk: the outermost loop, with plain numbers.
        limit: stop after so many instructions.
    """
    pipes: dict[str, _Moment] = {}
    ready: dict[int, _Moment] = {}
    released: dict[int, _Moment] = {}
    rings: dict[int, list[_Moment]] = {}
    stages_of: dict[int, int] = {}
    number = -1

    def retire(buffer: int) -> None:
        if buffer in released:
            ring = rings.setdefault(buffer, [])
            ring.append(released.pop(buffer))
            if len(ring) > _SLOTS:
                del ring[0]

    def slot(buffer: Buffer) -> _Moment:
        retire(buffer.number)
        stages = stages_of.get(buffer.loop.key, 1) if buffer.loop is not None else 1
        ring = rings.get(buffer.number, ())
        return ring[-stages] if len(ring) >= stages else _START

    def run(nodes: list, path: tuple[int, ...]) -> Iterator[Event]:
        nonlocal number
        for node in nodes:
            if isinstance(node, Loop):
                count = int(node.count)
                stages_of[node.key] = int(node.stages)
                for iteration in range(count):
                    yield from run(node.last if iteration == count - 1 else node.first, (*path, iteration))
                    if iteration < count - 1:
                        ready.update([(old.number, ready.get(new.number, _START)) for old, new in node.carried])
                continue
            out = node.out.payload if node.out is not None else None
            wait = slot(out) if node.fresh and out is not None else _START
            if not node.costs:
                if out is not None and node.fresh:
                    ready[out.number] = released[out.number] = wait
                continue
            end: _Moment = _START
            for position, (pipe, cycles) in enumerate(node.costs):
                (start, after), cause = pipes.get(pipe, _START), "pipe"
                if position == 0:
                    for tile in node.tiles:
                        moment = ready.get(tile.payload.number, _START)
                        if moment[0] > start:
                            (start, after), cause = moment, "operand"
                    if wait[0] > start:
                        (start, after), cause = wait, "slot"
                    start += node.stall
                elif end[0] > start:
                    (start, after), cause = end, "operand"
                number += 1
                end = (start + cycles, number)
                pipes[pipe] = end
                if position == 0:
                    for tile in node.tiles:
                        buffer = tile.payload.number
                        released[buffer] = max(released.get(buffer, _START), end)
                yield Event(node, pipe, start, end[0], cause, after, path)
            if out is not None:
                ready[out.number] = end
                released[out.number] = end if node.fresh else max(released.get(out.number, _START), end)

    yield from itertools.islice(run([walk], ()), limit)


def full_cycles(walk: Loop) -> float:
    """Cycles of the full simulation: the end of its last instruction."""
    return max((event.end for event in simulate(walk)), default=0.0)


def count_instructions(nodes: list) -> float:
    """Instructions that the full simulation would take."""
    total = 0.0
    for node in nodes:
        if isinstance(node, Loop):
            total += (float(node.count) - 1) * count_instructions(node.first) + count_instructions(node.last)
        else:
            total += len(node.costs)
    return total
