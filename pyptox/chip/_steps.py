"""What each kind of event does to the small state, and the rows of the record that it leaves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._constants import GRID_US
from ._placement import FAR, shared_out
from ._record import (
    DISPATCHED,
    DUMMIED,
    ELIGIBLE,
    EMPTIED,
    HEAD,
    READY,
    RETIRED,
    SLOT,
    THREAD,
    Event,
    Small,
    int32,
)
from ._stream import Sdma, asks, on_grid, rounded
from ._units import Seen, Units
from ._workload import AIV, MIX


class Outcome(NamedTuple):
    """The state after an event, and its rows."""

    small: Small
    dispatched: jax.Array  # what bound it
    stamps: jax.Array  # [3], taken up, first start, last end
    retired: jax.Array
    memory: jax.Array  # what was asked of HBM and of L2, µs of a block
    beside: jax.Array


class _Blocks(NamedTuple):
    """What a block of a task takes, what it asks on each of its cores, and the rows of memory."""

    time: jax.Array
    asks: jax.Array
    row: jax.Array
    beside: jax.Array


@dataclass(frozen=True)
class Steps:
    """The rules with their constants (µs); ``memory``: blocks are slower while others stream, warms by ``sdma`` too."""

    units: Units
    constants: Mapping[str, jax.Array]
    memory: bool
    sdma: Sdma | None = None

    def nothing(self, small: Small) -> Outcome:
        """No rows."""
        threads = self.units.threads
        rows = jnp.zeros(HEAD + 2 * self.units.wide, jnp.int32), jnp.zeros(3), jnp.zeros(3 * threads + 1, jnp.int32)
        beside = jnp.zeros(3 * self.units.clusters + 1 if self.memory else 0, jnp.int32)
        return Outcome(small, *rows, jnp.zeros(3 if self.memory else 0), beside)

    @property
    def flight_us(self) -> jax.Array:
        """From publishing to the start on an idle core."""
        return self.constants["doorbell_us"] + self.constants["receive_us"]

    def arrives(self, published: jax.Array, seen: Seen) -> jax.Array:
        """When the cores have received what is published."""
        return published + self.flight_us + jnp.where(seen.fresh, self.constants["first_us"], 0.0)

    def blocks(self, s: Small, e: Event, could: jax.Array, most: jax.Array) -> _Blocks:
        """What a block takes where ``could`` says when each unit could start one, at most ``most`` in all.

        The cores that are busy in the middle of the first block slow it down, those that have started one by then too.
        """
        if not self.memory:
            return _Blocks(e.duration, jnp.zeros(2), jnp.zeros(0), jnp.zeros(0, jnp.int32))
        middle = jnp.min(could) + e.duration / 2
        beside = (s.ends > middle) & (s.ends < jnp.inf)
        own = jnp.minimum(jnp.sum(could <= middle, dtype=jnp.int32), most)
        cores = jnp.where(e.shape == MIX, 3, 1).astype(jnp.int32)
        together_us = jnp.maximum(e.duration, GRID_US) * e.together * cores.astype(jnp.float64)
        wanted = rounded(jnp.stack([e.hbm, e.l2]) / together_us)
        others = jnp.sum(jnp.where(beside[..., None], s.asks, 0.0), (0, 1))
        shares = others + wanted * (own * cores).astype(jnp.float64)
        if self.sdma is not None and e.stream is not None:
            shares = shares.at[0].add(asks(e.stream, self.sdma, middle))
        slowed = e.resident + on_grid((e.duration - e.resident) * shares[0])
        shared = jnp.maximum(on_grid(e.hbm * shares[0]), on_grid(e.l2 * shares[1]))
        block = jnp.maximum(e.duration, jnp.maximum(slowed, shared))
        tasks = jnp.where(beside, s.given, -1).reshape(-1)
        return _Blocks(block, wanted, jnp.stack([*shares, block]), jnp.concatenate([tasks, own[None]]))

    def dispatch(self, s: Small, e: Event) -> Outcome:
        """All blocks of a task, in waves over the cores of its kind."""
        c, shape, now = self.constants, e.shape, e.time
        weight = jnp.where(shape == MIX, 3.0, 1.0)
        owned = jnp.where(shape == AIV, 2.0 * self.units.each, 1.0 * self.units.each)
        one = c["dispatch_each_us"] * weight
        lag = c["dispatch_us"] + c["complete_us"] + (c["dispatch_each_us"] + c["complete_each_us"]) * weight * owned
        seen = self.units.seen(shape, s)
        thread, active = seen.thread, seen.active & (seen.opens < jnp.inf)
        begins = jnp.maximum(s.clock, now)
        begin = begins[thread]
        at = jnp.maximum(seen.opens, begin)
        rank = self._rank(thread, active, at, seen.ends > at)
        by_rank = begin + c["dispatch_us"] + one * (rank + 1).astype(jnp.float64)
        by_slot = at + c["dispatch_us"] + one
        first = jnp.maximum(by_rank, by_slot)
        served = self.arrives(first, seen)
        switched = seen.ends + c["switch_us"]
        start = jnp.where(active, jnp.maximum(served, switched), FAR)
        block = self.blocks(s, e, start, e.blocks)
        step = jnp.maximum(jnp.maximum(block.time + c["switch_us"], lag + self.flight_us), GRID_US)
        first, again = jnp.where(active, first, FAR), jnp.where(active, start + lag, FAR)
        has_first, more = shared_out(e.blocks.astype(jnp.float64), first, again, step, active)
        amount = has_first.astype(jnp.float64) + more
        used = amount > 0
        final = start + (amount - 1) * step
        published = jnp.where(used, jnp.where(more > 0, again + (more - 1) * step, first), -jnp.inf)
        after, stamps = self._running(s, e, seen, used, start, final, final + block.time, begins, published, block)
        # the record
        by_open, by_switch = by_slot > by_rank, switched > served
        which = jnp.where(by_switch, seen.which_end, seen.which_open)
        packed = self._packed(amount.astype(jnp.int32), rank, which, by_switch, seen)
        packed = packed | by_open.astype(jnp.int32) << 28
        slots = jnp.maximum(seen.opens, s.clock[thread])
        bound = self._bound(s, e, seen, jnp.argmin(jnp.where(active, slots, jnp.inf)).astype(jnp.int32), READY)
        threads = self.units.threads
        sources = jnp.full(4, -1, jnp.int32).at[:threads].set(jnp.where(s.clock > now, s.source, -1))
        last = jnp.argmax(published).astype(jnp.int32)
        opened_by = jnp.where(by_open[last], seen.given3[last, seen.which_open[last]], -1)
        head = jnp.stack([*bound, *sources, last, opened_by, seen.which_open[last]])
        after = after._replace(emptied=now, emptier=e.task)
        return self._outcome(after, seen, head, which, packed, stamps, block)

    def one_each(self, s: Small, e: Event, hold: bool) -> Outcome:
        """One block to each of the first open cores: held back until they are released, or started together."""
        c, shape, now = self.constants, e.shape, e.time
        one = c["dispatch_each_us"] * jnp.where(shape == MIX, 3.0, 1.0)
        seen = self.units.seen(shape, s)
        active = seen.active & (jnp.maximum(seen.opens, s.clock[seen.thread]) <= now)
        rank = self._rank(seen.thread, active, jnp.full(self.units.wide, now), seen.ends > now)
        first = jnp.where(active, now + c["dispatch_us"] + one * (rank + 1).astype(jnp.float64), FAR)
        before = (first[None, :] < first[:, None]) | ((first[None, :] == first[:, None]) & self.units.lower())
        used = active & (jnp.sum(before, 1, dtype=jnp.int32) < e.blocks)
        published = jnp.where(used, first, -jnp.inf)
        served = self.arrives(first if hold else jnp.full(self.units.wide, jnp.max(published)), seen)
        switched = seen.ends + c["switch_us"]
        could = jnp.maximum(served, switched)
        block = self.blocks(s, e, jnp.where(used, could, jnp.inf), e.blocks)
        start = jnp.full(self.units.wide, jnp.inf) if hold else could
        begins = jnp.full(self.units.threads, now)
        after, stamps = self._running(s, e, seen, used, start, start, start + block.time, begins, published, block)
        by_switch = switched > served
        packed = self._packed(used.astype(jnp.int32), rank, seen.which_end, by_switch, seen)
        packed = packed | (0 if hold else 1 << 30)
        bound, why, where = self._bound(s, e, seen, e.unit, ELIGIBLE if hold else READY)
        last, none = jnp.argmax(published).astype(jnp.int32), int32(-1)
        head = jnp.stack([bound, why, where, none, none, none, none, last, none, int32(0)])
        if hold:
            after = after._replace(held=self.units.by_core(shape, used, could, s.held))
        else:
            after = after._replace(emptied=now, emptier=e.task)
        return self._outcome(after, seen, head, seen.which_end, packed, stamps, block)

    def release(self, s: Small, e: Event) -> Outcome:
        """The blocks of a staged task start."""
        mine = (s.given == e.task) & (s.opens == jnp.inf)
        start = jnp.where(mine, jnp.maximum(s.held, e.time + self.constants["doorbell_us"]), s.opens)
        used = jnp.any(self.units.views(e.shape, mine, False), 1)
        could = jnp.where(used, self.units.views(e.shape, start, -jnp.inf).max(1), jnp.inf)
        first = jnp.min(could)
        block = self.blocks(s, e, could, e.blocks)
        end = jnp.where(mine, start + block.time, s.ends)
        lasts, _, cores = self.units.by_thread(e.shape, used, self.units.views(e.shape, end, -jnp.inf).max(1))
        at = jnp.argmax(s.task == e.task).astype(jnp.int32)
        finished = jnp.max(lasts)
        after = s._replace(
            opens=start,
            ends=end,
            time=s.time.at[at].set(finished),
            last=s.last.at[at].set(lasts),
            core=s.core.at[at].set(cores),
        )
        return (
            self.nothing(after)
            ._replace(stamps=jnp.stack([e.time, first, finished]))
            ._replace(memory=block.row, beside=block.beside)
        )

    def dummy(self, s: Small, e: Event) -> Outcome:
        """The thread that is free first retires it."""
        thread = jnp.argmin(s.clock).astype(jnp.int32)
        finished = e.time + self.constants["dummy_us"]
        nothing, threads = self.nothing(s), self.units.threads
        bound = jnp.where(e.ready >= e.slot, READY, THREAD).astype(jnp.int32)
        nobody = jnp.zeros(threads, jnp.int32)
        after = self._in_flight(s, e, finished, 1, jnp.inf, jnp.zeros(threads), nobody, nobody)._replace(
            clock=s.clock.at[thread].set(finished),
            source=s.source.at[thread].set(e.task * 16 + thread * 4 + DUMMIED),
        )
        record = nothing.dispatched.at[0].set(bound).at[1].set(s.source[thread])
        return nothing._replace(small=after, dispatched=record, stamps=jnp.stack([e.time, e.time, finished]))

    def ended(self, s: Small, e: Event, at: jax.Array) -> Outcome:
        """Every thread that served the task sees its last end, and retires its part."""
        c, threads = self.constants, self.units.threads
        weight = jnp.where(e.shape == MIX, 3.0, 1.0)
        last, count = s.last[at], s.served[at]
        owner = int32(np.repeat(self.units.of_cluster, 3))
        mine = owner[None, :] == int32(np.arange(threads))[:, None]
        busy = jnp.sum(mine & (s.ends.reshape(-1)[None, :] >= last[:, None]), 1, dtype=jnp.int32)
        looked = (busy + 1) // 2
        sees = last + c["fin_us"] + c["poll_us"] * looked.astype(jnp.float64)
        seen = jnp.maximum(s.clock, sees)
        served = count > 0
        done = seen + c["complete_us"] + c["complete_each_us"] * weight * count.astype(jnp.float64)
        finished = jnp.max(jnp.where(served, done, -jnp.inf))
        slowest = jnp.argmax(jnp.where(served, done, -jnp.inf)).astype(jnp.int32)
        sources = jnp.where(s.clock >= sees, s.source, -1)
        after = s._replace(
            clock=jnp.where(served, done, s.clock),
            source=jnp.where(served, self.units.labels(e.task, RETIRED), s.source),
            time=s.time.at[at].set(finished),
            phase=s.phase.at[at].set(1),
        )
        record = jnp.concatenate([sources, looked, s.core[at], slowest[None]])
        return self.nothing(after)._replace(retired=record)

    def _rank(self, thread: jax.Array, active: jax.Array, at: jax.Array, late: jax.Array) -> jax.Array:
        """Place among the cores of a thread: by the moment ``at``, idle before busy, then by number."""
        mine = (thread[:, None] == thread[None, :]) & active[None, :]
        sooner, tie = at[None, :] < at[:, None], at[None, :] == at[:, None]
        idle = (~late)[None, :] & late[:, None]
        same = late[None, :] == late[:, None]
        return jnp.sum(mine & (sooner | (tie & (idle | (same & self.units.lower())))), 1, dtype=jnp.int32)

    def _running(self, s, e: Event, seen: Seen, used, start, final, end, begins, published, block: _Blocks):
        """The task is on its cores; and its stamps."""
        c, units, shape = self.constants, self.units, e.shape
        one = c["dispatch_each_us"] * jnp.where(shape == MIX, 3.0, 1.0)
        lasts, counts, cores = units.by_thread(shape, used, end)
        clock = begins + c["dispatch_us"] + one * counts.astype(jnp.float64)
        finished = jnp.max(lasts)
        after = self._in_flight(s, e, finished, 2, jnp.max(published), lasts, counts, cores)._replace(
            opens=units.by_core(shape, used, final, s.opens),
            ends=units.by_core(shape, used, end, s.ends),
            given=units.by_core(shape, used, jnp.full(units.wide, e.task), s.given),
            asks=self._asking(s, shape, used, block) if self.memory else s.asks,
            clock=jnp.where(counts > 0, clock, s.clock),
            source=jnp.where(counts > 0, units.labels(e.task, DISPATCHED), s.source),
        )
        return after, jnp.stack([e.time, jnp.min(jnp.where(used, start, jnp.inf)), finished])

    def _asking(self, s: Small, shape: jax.Array, used: jax.Array, block: _Blocks) -> jax.Array:
        wide = self.units.wide
        ways = [self.units.by_core(shape, used, jnp.full(wide, block.asks[n]), s.asks[..., n]) for n in (0, 1)]
        return jnp.stack(ways, 2)

    def _in_flight(self, s, e: Event, time, phase: int, published, lasts, counts, cores) -> Small:
        free = jnp.argmax(s.task < 0).astype(jnp.int32)
        return s._replace(
            full=s.full | (s.task[free] >= 0),
            time=s.time.at[free].set(time),
            published=s.published.at[free].set(jnp.where(e.flagged, published, jnp.inf)),
            phase=s.phase.at[free].set(phase),
            task=s.task.at[free].set(e.task),
            last=s.last.at[free].set(lasts),
            served=s.served.at[free].set(counts),
            core=s.core.at[free].set(cores),
        )

    def _bound(self, s: Small, e: Event, seen: Seen, unit: jax.Array, otherwise: int):
        """What bound a dispatch: that it was ready or eligible, a thread, a slot, or that others went first."""
        opens, given = seen.opens3[unit], seen.given3[unit]
        held = jnp.argmax(opens).astype(jnp.int32)
        thread = seen.thread[unit]
        busy = s.clock[thread] >= opens[held]
        bound = jnp.where(e.ready >= e.slot, otherwise, jnp.where(busy, THREAD, SLOT)).astype(jnp.int32)
        why = jnp.where(bound == THREAD, s.source[thread], given[held])
        soonest = jnp.maximum(e.ready, e.slot)
        late = (s.emptied >= soonest) if otherwise == ELIGIBLE else (s.emptied > soonest)
        bound, why = jnp.where(late, EMPTIED, bound).astype(jnp.int32), jnp.where(late, s.emptier, why)
        return bound, why, unit * 4 + held

    def _packed(self, amount, rank, which, by_switch, seen: Seen) -> jax.Array:
        fresh = jnp.where(seen.fresh, int32(-(2**31)), 0)
        return amount | rank << 20 | which << 26 | by_switch.astype(jnp.int32) << 29 | fresh

    def _outcome(self, after, seen: Seen, head, which, packed, stamps, block: _Blocks) -> Outcome:
        previous = seen.given3[int32(self.units.numbers), which]
        record = jnp.concatenate([head, previous, packed])
        return self.nothing(after)._replace(dispatched=record, stamps=stamps, memory=block.row, beside=block.beside)
