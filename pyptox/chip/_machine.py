"""The jitted state machine: the rules of :mod:`._oracle` with a constant number of steps a task.

Events come in strict time order, four a task: submission, dispatch, end and finish; two more where early dispatch is
used, full publication and release. Ready queues are therefore plain arrays, and no step looks at more than the cores
and the tasks in flight. The blocks of a task are placed in closed form (:mod:`._placement`).

Small state (:class:`._record.Small`: cores, threads, tasks in flight) goes through the ``switch`` of :mod:`._steps`;
arrays over tasks are read before it and written after it, since one that goes through it would be copied at every
step. Each event records what bound it, for the walk back in :mod:`._path`.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._constants import CONSTANTS
from ._record import DISPATCHED as DISPATCHED
from ._record import ELIGIBLE as ELIGIBLE
from ._record import EMPTIED as EMPTIED
from ._record import HEAD as HEAD
from ._record import READY as READY
from ._record import RETIRED as RETIRED
from ._record import SLOT as SLOT
from ._record import THREAD as THREAD
from ._record import Event, Small, at_start, int32
from ._record import Record as Record
from ._steps import Outcome, Steps
from ._stream import Sdma, Stream, Warmed, advance, asked, idle, landed, length, on_grid, read, rounded
from ._units import Units
from ._workload import ALLOC, DUMMY

PUBLISHED, FINISHED, ENDED, SUBMITTED, DISPATCH, DUMMIES, RELEASE, STAGING, STALE, TOGETHER = range(10)
"""Kinds of events."""

_STAGED = 1 << 20
_RELEASES, _EARLY = 4, 5  # rows of the queues after those of the shapes: of staged tasks to release, and eligible tasks

_OPTIONS: Any = {"xla_cpu_copy_insertion_use_region_analysis": True}


Column = Any
"""An array, on the host or traced."""


class Sizes(NamedTuple):
    """What a machine is compiled for: ``clusters`` and ``threads`` are exact, the others upper limits.

    ``early``: with early dispatch and ``sync_start``; ``regions`` and ``uses`` are 0 without memory,
    ``contexts`` without warms; ``gated``: submissions wait for rings.
    """

    clusters: int
    threads: int
    tasks: int
    edges: int
    flight: int
    early: bool
    regions: int
    uses: int
    contexts: int
    gated: bool = False


class Tasks(NamedTuple):
    """The workload, a row a task and one spare."""

    submitted: Column  # when each submission ends; where they wait for rings, what each costs
    shapes: Column
    blocks: Column
    durations: Column
    flags: Column
    sync: Column
    stageable: Column
    waiting: Column  # producers to finish, and the submission
    pointers: Column  # [tasks + 2] into successors
    successors: Column
    work: Column  # tasks to finish
    gate: Column  # the first submission that waits for each task's finish; empty where none does
    gating: Column  # how many finishes each submission waits for


class Memory(NamedTuple):
    """What blocks move, and where it may lie. Empty without memory."""

    resident: Column  # [tasks + 1], µs of a block that finds everything in L2
    hbm: Column  # µs of the blocks that run together
    l2: Column
    together: Column  # how many these are
    pointers: Column  # [tasks + 2] into uses
    region: Column  # [uses]
    share: Column
    size: Column  # [regions], bytes
    distance: Column  # bytes used since the region was
    capacity: Column
    context: Column  # [tasks + 1], of a warm, -1 for what is none; its shares are the fractions that it brings
    sdma: Column  # constants of the engine


class _Queues(NamedTuple):
    """Arrays over tasks that a wake changes."""

    waiting: jax.Array
    unpublished: jax.Array
    queue: jax.Array
    ready: jax.Array
    woken: jax.Array
    eligible: jax.Array
    admitted: jax.Array
    tails: jax.Array


class _Gates(NamedTuple):
    """The orchestrator; empty where no submission waits."""

    gating: jax.Array  # finishes that each submission still waits for
    begins: jax.Array  # when the next one could begin, if for none
    submitted: jax.Array


class _Carry(NamedTuple):
    small: Small
    queues: _Queues
    gates: _Gates
    times: jax.Array
    dispatched: jax.Array
    retired: jax.Array
    found: jax.Array
    memory: jax.Array
    beside: jax.Array
    distance: jax.Array
    stream: Stream
    warmed: Warmed


class _Next(NamedTuple):
    """Which event comes next."""

    kind: jax.Array
    at: jax.Array  # its row among the tasks in flight
    line: jax.Array  # its queue
    task: jax.Array
    time: jax.Array
    ready: jax.Array
    slot: jax.Array
    unit: jax.Array


class _Machine:
    """One simulation while it is traced."""

    def __init__(self, sizes: Sizes, constants: jax.Array, tasks: Tasks, memory: Memory):
        self.sizes, self.tasks, self.memory = sizes, tasks, memory
        self.units = Units(sizes.clusters, sizes.threads)
        named = dict(zip(CONSTANTS, constants, strict=True))
        self.sdma = Sdma(*memory.sdma) if sizes.contexts else None
        self.steps = Steps(self.units, named, bool(sizes.uses), self.sdma)
        self.rows = sizes.tasks + 1
        self.lines = 8 if sizes.early else 4

    def run(self) -> _Carry:
        """From nothing submitted to everything finished, or too much in flight."""
        s, early, memory = self.sizes, self.sizes.early, bool(self.sizes.uses)
        spare = self.rows if early else 1
        queues = _Queues(
            self.tasks.waiting,
            self.tasks.waiting if early else jnp.zeros(1, jnp.int32),
            jnp.zeros(self.lines * self.rows + 1, jnp.int32),
            jnp.zeros(self.rows),
            jnp.full(self.rows, -1, jnp.int32),
            jnp.zeros(spare),
            jnp.full(spare, -2, jnp.int32),
            jnp.zeros(self.lines, jnp.int32),
        )
        nothing = self.steps.nothing(at_start(s.clusters, s.threads, self.lines, s.flight, self.tasks.work))
        gates = _Gates(self.tasks.gating, jnp.zeros(()), jnp.full(self.rows if s.gated else 0, -1.0))
        carry = _Carry(
            nothing.small,
            queues,
            gates,
            jnp.zeros((self.rows, 4)),
            jnp.zeros((self.rows, len(nothing.dispatched)), jnp.int32),
            jnp.zeros((self.rows, len(nothing.retired)), jnp.int32),
            jnp.zeros(self.rows if memory else 1),
            jnp.zeros((self.rows if memory else 1, len(nothing.memory))),
            jnp.zeros((self.rows if memory else 1, len(nothing.beside)), jnp.int32),
            self.memory.distance,
            *idle(s.contexts, s.regions if s.contexts else 0),
        )
        return jax.lax.while_loop(lambda c: (c.small.left > 0) & ~c.small.full, self.step, carry)

    def step(self, carry: _Carry) -> _Carry:
        """One event."""
        upcoming = self.upcoming(carry)
        kind, task = upcoming.kind, upcoming.task
        begins = (kind == DISPATCH) | (kind == STAGING) | (kind == TOGETHER)
        found, distance, stream, warmed = self.looked_up(carry, task, begins, upcoming.time)
        event = self.event(upcoming, found, stream)
        s = carry.small
        moved = s._replace(heads=s.heads.at[upcoming.line].add((kind >= DISPATCH).astype(jnp.int32)))
        out = self.outcome(moved, event, kind, upcoming.at)
        row = jnp.where(begins | (kind == DUMMIES), task, self.sizes.tasks)
        started = jnp.where(begins | (kind == DUMMIES) | (kind == RELEASE), task, self.sizes.tasks)
        times = carry.times.at[row, 0].set(event.time).at[started, 1:3].set(out.stamps[1:])
        queues = self.wakes(carry.queues, event, kind)
        if self.sizes.early:
            staged = jnp.where(kind == STAGING, _STAGED, 0)
            queues = queues._replace(waiting=queues.waiting.at[task].add(staged))
        memory, beside = carry.memory, carry.beside
        if self.sizes.uses:
            memory, beside = memory.at[started].set(out.memory), beside.at[started].set(out.beside)
        return _Carry(
            out.small,
            queues,
            self.submits(carry.gates, s.following, task, event.time, kind),
            times.at[jnp.where(kind == FINISHED, task, self.sizes.tasks), 3].set(event.time),
            carry.dispatched.at[row].set(out.dispatched),
            carry.retired.at[jnp.where(kind == ENDED, task, self.sizes.tasks)].set(out.retired),
            carry.found.at[task].set(found) if self.sizes.uses else carry.found,
            memory,
            beside,
            distance,
            stream,
            warmed,
        )

    def event(self, upcoming: _Next, found: jax.Array, stream: Stream) -> Event:
        """What the steps need to know of the task; ``found`` is the share of its traffic that L2 holds."""
        t, task = self.tasks, upcoming.task
        duration, m, moves = t.durations[task], self.memory, (jnp.zeros(()),) * 4
        if self.sizes.uses:
            duration = duration - on_grid((duration - m.resident[task]) * found)
            moves = m.hbm[task] * (1.0 - found), m.l2[task], m.resident[task], m.together[task]
        given = upcoming.time, upcoming.ready, upcoming.slot, upcoming.unit, t.flags[task]
        return Event(
            task, t.shapes[task], t.blocks[task], duration, *given, *moves, stream=stream if self.sdma else None
        )

    def looked_up(
        self, carry: _Carry, task: jax.Array, begins: jax.Array, time: jax.Array
    ) -> tuple[jax.Array, jax.Array, Stream, Warmed]:
        """The share of a task's traffic that it finds in L2; and L2 after it has used, or warmed, its regions."""
        stream, warmed = carry.stream, carry.warmed
        if not self.sizes.uses:
            return jnp.zeros(()), carry.distance, stream, warmed
        m = self.memory
        if self.sdma is not None:
            stream = advance(stream, self.sdma, jnp.where(begins, time, stream.now))
        half = jnp.where(begins & (m.context[task] < 0), self.tasks.durations[task] / 2, 0.0) if self.sdma else 0.0
        by_then = advance(stream, self.sdma, stream.now + half) if self.sdma else stream

        def one(state):
            position, found, distance, stream, warmed, total = state
            region, share = m.region[position], m.share[position]
            since, size = distance[region], m.size[region]
            here = jnp.clip((m.capacity - since) / size, 0.0, 1.0)
            if self.sdma is not None:
                here = jnp.minimum(here, landed(warmed, by_then, region))
                context = m.context[task]
                stream, warmed = read(stream, warmed, self.sdma, region, context < 0)
                warmed, more = self._joined(warmed, stream, region, rounded(here), share, total, context)
                total, share = total + more, jnp.where(context < 0, share, 0.0)
            found = found + rounded(share * here)
            distance = jnp.where(distance < since, distance + size, distance).at[region].set(0.0)
            return position + 1, found, distance, stream, warmed, total

        low = m.pointers[task]
        high = jnp.where(begins, m.pointers[task + 1], low)
        first = low, jnp.zeros(()), carry.distance, stream, warmed, jnp.zeros(())
        _, found, distance, stream, warmed, total = jax.lax.while_loop(lambda state: state[0] < high, one, first)
        if self.sdma is not None:
            stream = asked(stream, self.sdma, m.context[task], total)
        return jnp.where(begins, jnp.minimum(found, 1.0), carry.found[task]), distance, stream, warmed

    def _joined(self, w: Warmed, stream: Stream, region, before, fraction, total, context) -> tuple[Warmed, jax.Array]:
        """A region is warmed after ``total`` others of its task, or used; and what that adds to the stream."""
        assert self.sdma is not None
        uses = context < 0
        more = jnp.where(uses, 0.0, length(self.memory.size[region], before, fraction, self.sdma))
        place = stream.done[context] + stream.left[context] + total
        values = jnp.where(uses, 1.0, before), jnp.where(uses, 1.0, jnp.maximum(fraction, before)), place, more
        values = *values, jnp.maximum(context, 0)
        return Warmed(*(column.at[region].set(value) for column, value in zip(w, values, strict=True))), more

    def outcome(self, s: Small, event: Event, kind: jax.Array, at: jax.Array) -> Outcome:
        """The switch over kinds of events."""
        steps = self.steps
        published, time, task = s.published.at[at].set(jnp.inf), s.time.at[at].set(jnp.inf), s.task.at[at].set(-1)
        branches = [
            lambda _: steps.nothing(s._replace(published=published)),
            lambda _: steps.nothing(s._replace(left=s.left - 1, time=time, task=task)),
            lambda _: steps.ended(s, event, at),
            lambda _: steps.nothing(s._replace(following=s.following + 1)),
            lambda _: steps.dispatch(s, event),
            lambda _: steps.dummy(s, event),
            lambda _: steps.release(s, event),
            lambda _: steps.one_each(s, event, True),
            lambda _: steps.nothing(s),
            lambda _: steps.one_each(s, event, False),
        ]
        return jax.lax.switch(kind, branches if self.sizes.early else branches[: DUMMIES + 1], None)

    def submits(self, gates: _Gates, following: jax.Array, task: jax.Array, now: jax.Array, kind: jax.Array) -> _Gates:
        """The orchestrator after a submission, or after a finish that the next one may have waited for."""
        if not self.sizes.gated:
            return gates
        submits, finishes = kind == SUBMITTED, kind == FINISHED
        for_ = jnp.where(finishes, self.tasks.gate[task], self.sizes.tasks)
        gating = gates.gating.at[for_].add(-1)
        free = submits | (finishes & (for_ == following) & (gating[for_] == 0))
        place = jnp.where(submits, task, self.sizes.tasks)
        return _Gates(gating, jnp.where(free, now, gates.begins), gates.submitted.at[place].set(now))

    def submission(self, carry: _Carry) -> jax.Array:
        """When the next submission ends, as far as is known."""
        at, following = self.tasks.submitted, carry.small.following
        if not self.sizes.gated:
            return at[following]
        return jnp.where(carry.gates.gating[following] == 0, carry.gates.begins + at[following], jnp.inf)

    # which event comes next

    def upcoming(self, carry: _Carry) -> _Next:
        """The earliest event; at one time in the order of :mod:`._oracle`."""
        s, queues, t, early = carry.small, carry.queues, self.tasks, self.sizes.early
        soonest, phase, at = self._in_flight(s)
        waits = s.heads < queues.tails
        fronts = queues.queue[int32(range(self.lines)) * self.rows + s.heads]
        rows = jnp.where(waits, fronts, self.sizes.tasks)
        since = jnp.where(waits, queues.ready[rows], jnp.inf)
        slots, units = self.units.earliest(s), jnp.zeros(self.lines, jnp.int32)
        able = since[:3]
        if early:
            marked = waits[:3] & t.sync[fronts[:3]]
            whole, units3 = self.units.whole(s, t.blocks[fronts[:3]], jnp.any(marked))
            slots = slots.at[:3].set(jnp.where(marked, whole, slots[:3]))
            units = units.at[:3].set(units3)
            able = jnp.where(self._drained(marked, fronts, since), jnp.inf, able)
        able = jnp.maximum(jnp.maximum(able, slots[:3]), jnp.where(waits[:3], s.emptied, -jnp.inf))
        idle = jnp.maximum(since[3], slots[3])
        moments = jnp.concatenate([soonest[None], self.submission(carry)[None], able, idle[None]])
        if early:
            stale = waits[_EARLY:] & (queues.waiting[fronts[_EARLY:]] == 0)
            admitted = jnp.where(waits, queues.eligible[rows], jnp.inf)[_EARLY:]
            since = jnp.concatenate([since[:_EARLY], admitted])
            wanted = jnp.any(admitted < jnp.inf) & ~jnp.any(waits[:3])
            whole, early_units = self.units.whole(s, t.blocks[fronts[_EARLY:]], wanted)
            moment = jnp.maximum(jnp.maximum(admitted, whole), s.emptied)
            first = jnp.where(waits[_RELEASES], -jnp.inf, jnp.inf)
            moments = jnp.concatenate([moments, first[None], jnp.where(stale, -jnp.inf, moment)])
            slots = jnp.concatenate([slots, jnp.zeros(1), whole])
            units = units.at[_EARLY:].set(early_units)
        choice = jnp.argmin(moments).astype(jnp.int32)
        line = jnp.maximum(choice - 2, 0)
        time = jnp.where(choice == 2 + _RELEASES, since[line], moments[choice])
        task = jnp.where(choice == 0, s.task[at], jnp.where(choice == 1, s.following, fronts[line]))
        taken = jnp.where(choice == 5, DUMMIES, DISPATCH)
        kind = jnp.where(choice == 0, phase, jnp.where(choice == 1, SUBMITTED, taken))
        if early:
            kind = jnp.where((kind == DISPATCH) & t.sync[task], TOGETHER, kind)
            later = jnp.where(time == -jnp.inf, STALE, STAGING)
            kind = jnp.where(choice == 2 + _RELEASES, RELEASE, jnp.where(choice > 2 + _RELEASES, later, kind))
        return _Next(kind, at, line, task, time, since[line], slots[line], units[line])

    def _in_flight(self, s: Small) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The earliest publication, end or finish, which of these it is, and its row."""
        soon, phases, names = s.time, s.phase, s.task
        if self.sizes.early:
            soon = jnp.concatenate([s.published, s.time])
            phases = jnp.concatenate([jnp.zeros(self.sizes.flight, jnp.int32), s.phase])
            names = jnp.concatenate([s.task, s.task])
        soonest = jnp.min(soon)
        order = jnp.where((soon == soonest) & (names >= 0), phases * 2**28 + names, 2**30)
        found = jnp.argmin(order).astype(jnp.int32)
        return soonest, phases[found], found % self.sizes.flight

    def _drained(self, marked: jax.Array, fronts: jax.Array, since: jax.Array) -> jax.Array:
        """Which kinds wait while a cohort that no thread can place alone gathers its slots."""
        owned = self.units.each * int32([1, 1, 2])
        drains = marked & (self.tasks.blocks[fronts[:3]] > owned)
        first = jnp.argmin(jnp.where(drains, since[:3], jnp.inf)).astype(jnp.int32)
        return jnp.any(drains) & (int32(range(3)) != first)

    # whom it wakes

    def wakes(self, queues: _Queues, event: Event, kind: jax.Array) -> _Queues:
        """A task at its submission, its successors at its publication and its finish."""
        t, task = self.tasks, event.task
        others = kind <= FINISHED
        low = jnp.where(others, t.pointers[task], 0)
        some = others & ((kind == FINISHED) | event.flagged)
        itself = (kind == SUBMITTED) & (event.shape != ALLOC)
        high = jnp.where(some, t.pointers[task + 1], jnp.where(others, low, itself.astype(jnp.int32)))
        by = jnp.where(others, task, -1)
        finished = jnp.where(kind == PUBLISHED, 0, 1)
        published = jnp.where((kind == FINISHED) & event.flagged, 0, 1)

        def one(state):
            position, queues = state
            other = jnp.where(others, t.successors[position], task)
            return position + 1, self._wake(queues, other, finished, published, event.time, by)

        return jax.lax.while_loop(lambda state: state[0] < high, one, (low, queues))[1]

    def _wake(self, q: _Queues, task, finished, published, now, by) -> _Queues:
        """A producer is finished, or all its blocks are published: the task may be ready, released or eligible."""
        tasks, shapes = self.sizes.tasks, self.tasks.shapes
        left = q.waiting[task] - finished
        shape = jnp.minimum(shapes[task], DUMMY)
        line, is_ready = shape, (left == 0) & (finished > 0)
        pushed, unpublished, eligible, admitted = is_ready, q.unpublished, q.eligible, q.admitted
        if self.sizes.early:
            rest = unpublished[task] - published
            unpublished = unpublished.at[task].set(rest)
            releases = (left == _STAGED) & (finished > 0)
            is_ready = is_ready | releases
            admits = (rest == 0) & (published > 0) & (left > 0) & (left < _STAGED) & self.tasks.stageable[task]
            line = jnp.where(releases, _RELEASES, jnp.where(admits, _EARLY + shape, shape))
            pushed = is_ready | admits
            place = jnp.where(admits, task, tasks)
            eligible = eligible.at[place].set(now)
            admitted = admitted.at[place].set(2 * by + 1 - finished)
        # a task that is not ready goes to the spare places at the ends
        place = jnp.where(pushed, line * self.rows + q.tails[line], self.lines * self.rows)
        row = jnp.where(is_ready, task, tasks)
        return _Queues(
            q.waiting.at[task].set(left),
            unpublished,
            q.queue.at[place].set(task),
            q.ready.at[row].set(now),
            q.woken.at[row].set(by),
            eligible,
            admitted,
            q.tails.at[line].add(pushed.astype(jnp.int32)),
        )


@functools.lru_cache(maxsize=32)
def compiled(sizes: Sizes):
    """The machine for sizes up to these: ``(constants, tasks, memory)`` to full, times and records."""

    def simulate(constants: jax.Array, tasks: Tasks, memory: Memory):
        end = _Machine(sizes, constants, tasks, memory).run()
        q = end.queues
        records = end.dispatched, end.retired, q.woken, q.admitted, end.found, end.memory, end.beside
        return end.small.full, q.ready, end.times, end.gates.submitted, records

    with jax.enable_x64(True):
        shaped = jax.ShapeDtypeStruct
        rows, f, i, b = (sizes.tasks + 1,), jnp.float64, jnp.int32, jnp.bool_
        columns = [(rows, d) for d in (f, i, i, f, b, b, b, i)]
        columns += [((sizes.tasks + 2,), i), ((sizes.edges,), i), ((), i)]
        columns += [(rows if sizes.gated else (0,), i)] * 2
        some = rows if sizes.uses else (0,)
        kept = [(some, f)] * 4 + [((sizes.tasks + 2 if sizes.uses else 0,), i)]
        kept += [((sizes.uses,), i), ((sizes.uses,), f), ((sizes.regions,), f), ((sizes.regions,), f), ((), f)]
        kept += [(rows, i), ((6,), f)] if sizes.contexts else [((0,), i), ((0,), f)]
        arguments = (
            shaped((len(CONSTANTS),), f),
            Tasks(*(shaped(*x) for x in columns)),
            Memory(*(shaped(*x) for x in kept)),
        )
        return jax.jit(simulate).lower(*arguments).compile(compiler_options=_OPTIONS)
