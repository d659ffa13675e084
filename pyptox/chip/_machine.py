"""The jitted state machine: the rules of :mod:`._oracle` with a constant number of steps a task.

Events come in strict time order, four a task: submission, dispatch, end and finish; two more where early dispatch is
used, full publication and release. Ready queues are therefore plain
arrays, and no step looks at more than the cores and the tasks in flight. The blocks of a task are placed in closed
form (:mod:`._placement`).

Small state (cores, threads, tasks in flight) goes through the ``switch``; arrays over tasks are read before it and
written after it, since one that goes through it would be copied at every step. Each event records what bound it, for
the walk back in :mod:`._path`.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._constants import CONSTANTS
from ._oracle import clusters_of
from ._placement import FAR, shared_out
from ._workload import AIC, AIV, ALLOC, DUMMY, MIX

# how a thread's last piece of work is named: task x 16 + thread x 4 + one of these
DISPATCHED, RETIRED, DUMMIED = 1, 2, 3
# what bound a dispatch or a staging
READY, THREAD, SLOT, ELIGIBLE, EMPTIED = range(5)

HEAD = 10
"""Columns of a dispatch's record before those of cores: what bound it and two numbers for that, sources of 4 threads;
of the last publication the core, the task that had it before where its slot opened last (-1 otherwise), and which core
of the cluster that was."""

_STAGED = 1 << 20
_RELEASES, _EARLY = 4, 5  # rows of the queues after those of the shapes: of staged tasks to release, and eligible tasks

_OPTIONS: Any = {"xla_cpu_copy_insertion_use_region_analysis": True}


class Record(NamedTuple):
    """What bound every event. Rows are tasks.

    ``dispatched``: :data:`HEAD` columns, then for each core of the kind (a cluster for MIX) the task that it was given
    before (-1 for none), then ``blocks | rank << 20 | which core of the cluster << 26 | opened << 28 |
    switched << 29 | together << 30``: whether the slot opened last, whether the core's last block ended last, and
    whether all blocks start together.
    ``retired``: for each thread the source that it was busy with, cores looked at, core of the last end; then the
    thread that finished last. ``woken``: the producer whose finish made the task ready, -1 for its submission.
    ``eligible``: the same for eligible tasks, as ``2 x producer``, 1 more where it was its full publication.
    """

    dispatched: np.ndarray
    retired: np.ndarray
    woken: np.ndarray
    eligible: np.ndarray


class _Small(NamedTuple):
    opens: jax.Array  # [clusters, 3]
    ends: jax.Array
    given: jax.Array  # task of the last block
    clock: jax.Array  # [threads]
    source: jax.Array
    held: jax.Array  # [clusters, 3], when a block that is held back could start
    emptied: jax.Array  # when the last ready task was taken up, and which it was
    emptier: jax.Array
    heads: jax.Array  # [queues]
    following: jax.Array
    left: jax.Array
    full: jax.Array
    time: jax.Array  # tasks in flight
    published: jax.Array
    phase: jax.Array
    task: jax.Array
    last: jax.Array  # [in flight, threads]
    served: jax.Array
    core: jax.Array


class _Event(NamedTuple):
    task: jax.Array
    shape: jax.Array
    blocks: jax.Array
    duration: jax.Array
    time: jax.Array
    ready: jax.Array
    slot: jax.Array
    unit: jax.Array  # of a staging: the core whose slot it waited for
    flagged: jax.Array


def _int(value: Any) -> jax.Array:
    return jnp.asarray(value, jnp.int32)


@functools.lru_cache(maxsize=32)
def compiled(clusters: int, threads: int, tasks: int, edges: int, flight: int, early: bool):
    """The machine for sizes up to these; ``threads`` and ``clusters`` are exact.

    ``early``: with early dispatch and ``sync_start``.
    """
    queues = 8 if early else 4
    each = clusters_of(clusters, threads)
    wide = 2 * clusters
    numbers = np.arange(wide, dtype=np.int32)
    thread_of_cluster = np.arange(clusters) // each
    thread_wide = {s: numbers // (2 * each if s == AIV else each) for s in (MIX, AIC, AIV)}
    columns = HEAD + 2 * wide

    def views(shape: jax.Array, state: jax.Array, fill: float | int) -> jax.Array:
        """[wide, 3] values of the cores of every unit of ``shape``; ``fill`` where it has fewer."""
        nothing = jnp.full((clusters, 3), fill, state.dtype)
        mixed = jnp.concatenate([state, nothing])
        single = jnp.full((wide, 2), fill, state.dtype)
        cube = jnp.concatenate([jnp.concatenate([state[:, :1], nothing[:, :1]]), single], 1)
        vector = jnp.concatenate([state[:, 1:].reshape(wide, 1), single], 1)
        return jnp.where(shape == MIX, mixed, jnp.where(shape == AIC, cube, vector))

    def by_unit(shape: jax.Array, units: jax.Array, old: jax.Array) -> jax.Array:
        """Values of units, [wide], put into the cores that they occupy, [clusters, 3]."""
        cube, vector = units[:clusters, None], units.reshape(clusters, 2)
        return jnp.where(
            shape == AIV,
            jnp.concatenate([old[:, :1], vector], 1),
            jnp.concatenate([cube, jnp.where(shape == MIX, jnp.concatenate([cube, cube], 1), old[:, 1:])], 1),
        )

    def simulate(constants, submitted, shapes, blocks, durations, flags, sync, waiting, pointers, successors, work):
        c = dict(zip(CONSTANTS, constants, strict=True))
        flight_us = c["doorbell_us"] + c["receive_us"]

        def dispatch(s: _Small, e: _Event):
            shape, now = e.shape, e.time
            weight = jnp.where(shape == MIX, 3.0, 1.0)
            owned = jnp.where(shape == AIV, 2.0 * each, 1.0 * each)
            one = c["dispatch_each_us"] * weight
            lag = c["dispatch_us"] + c["complete_us"] + (c["dispatch_each_us"] + c["complete_each_us"]) * weight * owned
            step = jnp.maximum(jnp.maximum(e.duration + c["switch_us"], lag + flight_us), 2.0**-20)
            thread, active = owners(shape)
            opens3, ends3, given3 = (
                views(shape, x, fill) for x, fill in ((s.opens, -jnp.inf), (s.ends, -jnp.inf), (s.given, -1))
            )
            opens, ends = opens3.max(1), ends3.max(1)
            active = active & (opens < jnp.inf)
            begins = jnp.maximum(s.clock, now)
            begin = begins[thread]
            at = jnp.maximum(opens, begin)
            late = ends > at
            # rank among the cores of the thread, by opening, idle before busy, then by number
            mine = (thread[:, None] == thread[None, :]) & active[None, :]
            sooner = at[None, :] < at[:, None]
            tie = at[None, :] == at[:, None]
            lower = _int(numbers)[None, :] < _int(numbers)[:, None]
            idle = (~late)[None, :] & late[:, None]
            same = late[None, :] == late[:, None]
            rank = jnp.sum(mine & (sooner | (tie & (idle | (same & lower)))), 1, dtype=jnp.int32)
            by_rank = begin + c["dispatch_us"] + one * (rank + 1).astype(jnp.float64)
            by_slot = at + c["dispatch_us"] + one
            first = jnp.maximum(by_rank, by_slot)
            served = first + flight_us
            switched = ends + c["switch_us"]
            start = jnp.where(active, jnp.maximum(served, switched), FAR)
            first, again = jnp.where(active, first, FAR), jnp.where(active, start + lag, FAR)
            has_first, more = shared_out(e.blocks.astype(jnp.float64), first, again, step, active)
            amount = has_first.astype(jnp.float64) + more
            used = amount > 0
            final = start + (amount - 1) * step
            end = final + e.duration
            lasts, counts, cores = by_thread(shape, used, end)
            clock = jnp.where(counts > 0, begins + c["dispatch_us"] + one * counts.astype(jnp.float64), s.clock)
            published = jnp.where(used, jnp.where(more > 0, again + (more - 1) * step, first), -jnp.inf)
            # the record
            by_open, by_switch = by_slot > by_rank, switched > served
            which_open, which_end = jnp.argmax(opens3, 1).astype(jnp.int32), jnp.argmax(ends3, 1).astype(jnp.int32)
            which = jnp.where(by_switch, which_end, which_open)
            previous = given3[_int(numbers), which]
            packed = amount.astype(jnp.int32) | rank << 20 | which << 26
            packed = packed | by_open.astype(jnp.int32) << 28 | by_switch.astype(jnp.int32) << 29
            slots = jnp.maximum(opens, s.clock[thread])
            unit = jnp.argmin(jnp.where(active, slots, jnp.inf)).astype(jnp.int32)
            bound, why, where = slot_bound(s, e, thread[unit], opens3[unit], given3[unit], unit, READY)
            sources = jnp.full(4, -1, jnp.int32).at[:threads].set(jnp.where(s.clock > now, s.source, -1))
            final_unit = jnp.argmax(published).astype(jnp.int32)
            final_which = which_open[final_unit]
            opened_by = jnp.where(by_open[final_unit], given3[final_unit, final_which], -1)
            head = jnp.stack([bound, why, where, *sources, final_unit, opened_by, final_which])
            finished = jnp.max(lasts)
            after = in_flight(s, e, finished, 2, jnp.max(published), lasts, counts, cores)._replace(
                opens=by_core(shape, used, final, s.opens),
                ends=by_core(shape, used, end, s.ends),
                given=by_core(shape, used, jnp.full(wide, e.task), s.given),
                clock=clock,
                source=jnp.where(counts > 0, labels(e.task, DISPATCHED), s.source),
                emptied=now,
                emptier=e.task,
            )
            stamps = jnp.stack([now, jnp.min(jnp.where(used, start, jnp.inf)), finished])
            return after, jnp.concatenate([head, previous, packed]), stamps

        def owners(shape: jax.Array):
            """The thread of every unit of ``shape``, and whether there is such a unit."""
            thread = jnp.where(shape == AIV, _int(thread_wide[AIV]), _int(thread_wide[AIC]))
            return jnp.minimum(thread, threads - 1), (_int(numbers) < clusters) | (shape == AIV)

        def by_core(shape: jax.Array, used: jax.Array, units: jax.Array, old: jax.Array) -> jax.Array:
            """``old`` with the values of the units in use."""
            occupied = by_unit(shape, used, jnp.zeros((clusters, 3), bool))
            return jnp.where(occupied, by_unit(shape, units, old), old)

        def by_thread(shape: jax.Array, used: jax.Array, end: jax.Array):
            """Of the units in use of every thread: the last end, how many, and which ends last."""
            own = (owners(shape)[0][None, :] == _int(np.arange(threads))[:, None]) & used[None, :]
            lasts = jnp.where(own, end[None, :], -jnp.inf)
            return lasts.max(1), jnp.sum(own, 1, dtype=jnp.int32), jnp.argmax(lasts, 1).astype(jnp.int32)

        def labels(task: jax.Array, kind: int) -> jax.Array:
            return task * 16 + _int(np.arange(threads) * 4) + kind

        def slot_bound(s: _Small, e: _Event, thread, opens, given, unit, otherwise: int):
            """What bound a dispatch: that it was ready or eligible, a thread, or a slot."""
            held = jnp.argmax(opens).astype(jnp.int32)
            busy = s.clock[thread] >= opens[held]
            bound = jnp.where(e.ready >= e.slot, otherwise, jnp.where(busy, THREAD, SLOT)).astype(jnp.int32)
            why = jnp.where(bound == THREAD, s.source[thread], given[held])
            return bound, why, unit * 4 + held

        def in_flight(s: _Small, e: _Event, time, phase: int, published, lasts, counts, cores) -> _Small:
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

        def one_each(s: _Small, e: _Event, hold: bool):
            """One block to each of the first open cores: held back until they are released, or started together."""
            shape, now = e.shape, e.time
            one = c["dispatch_each_us"] * jnp.where(shape == MIX, 3.0, 1.0)
            thread, active = owners(shape)
            opens3, ends3, given3 = (
                views(shape, x, fill) for x, fill in ((s.opens, -jnp.inf), (s.ends, -jnp.inf), (s.given, -1))
            )
            opens, ends = opens3.max(1), ends3.max(1)
            active = active & (jnp.maximum(opens, s.clock[thread]) <= now)
            late = ends > now
            lower = _int(numbers)[None, :] < _int(numbers)[:, None]
            mine = (thread[:, None] == thread[None, :]) & active[None, :]
            idle = (~late)[None, :] & late[:, None]
            same = late[None, :] == late[:, None]
            rank = jnp.sum(mine & (idle | (same & lower)), 1, dtype=jnp.int32)
            first = jnp.where(active, now + c["dispatch_us"] + one * (rank + 1).astype(jnp.float64), FAR)
            before = (first[None, :] < first[:, None]) | ((first[None, :] == first[:, None]) & lower)
            used = active & (jnp.sum(before, 1, dtype=jnp.int32) < e.blocks)
            served, switched = first + flight_us, ends + c["switch_us"]
            published = jnp.where(used, first, -jnp.inf)
            if not hold:
                served = jnp.broadcast_to(jnp.max(published) + flight_us, (wide,))
            could = jnp.maximum(served, switched)
            start = jnp.full(wide, jnp.inf) if hold else could
            end = start + e.duration
            lasts, counts, cores = by_thread(shape, used, end)
            clock = jnp.where(counts > 0, now + c["dispatch_us"] + one * counts.astype(jnp.float64), s.clock)
            by_switch = switched > served
            which = jnp.argmax(ends3, 1).astype(jnp.int32)
            previous = given3[_int(numbers), which]
            packed = used.astype(jnp.int32) | rank << 20 | which << 26 | by_switch.astype(jnp.int32) << 29
            packed = packed | (0 if hold else 1 << 30)
            unit, otherwise = e.unit, ELIGIBLE if hold else READY
            bound, why, where = slot_bound(s, e, thread[unit], opens3[unit], given3[unit], unit, otherwise)
            if hold:
                late = s.emptied >= jnp.maximum(e.ready, e.slot)
                bound, why = jnp.where(late, EMPTIED, bound).astype(jnp.int32), jnp.where(late, s.emptier, why)
            final_unit, none = jnp.argmax(published).astype(jnp.int32), _int(-1)
            head = jnp.stack([bound, why, where, none, none, none, none, final_unit, none, _int(0)])
            finished = jnp.max(lasts)
            after = in_flight(s, e, finished, 2, jnp.max(published), lasts, counts, cores)._replace(
                opens=by_core(shape, used, start, s.opens),
                ends=by_core(shape, used, end, s.ends),
                given=by_core(shape, used, jnp.full(wide, e.task), s.given),
                held=by_core(shape, used, could, s.held),
                emptied=s.emptied if hold else now,
                emptier=s.emptier if hold else e.task,
                clock=clock,
                source=jnp.where(counts > 0, labels(e.task, DISPATCHED), s.source),
            )
            first_start = jnp.min(jnp.where(used, start, jnp.inf))
            return after, jnp.concatenate([head, previous, packed]), jnp.stack([now, first_start, finished])

        def release(s: _Small, e: _Event):
            mine = (s.given == e.task) & (s.opens == jnp.inf)
            start = jnp.where(mine, jnp.maximum(s.held, e.time + c["doorbell_us"]), s.opens)
            end = jnp.where(mine, start + e.duration, s.ends)
            used = jnp.any(views(e.shape, mine, False), 1)
            lasts, _, cores = by_thread(e.shape, used, views(e.shape, end, -jnp.inf).max(1))
            at = jnp.argmax(s.task == e.task).astype(jnp.int32)
            finished = jnp.max(lasts)
            after = s._replace(
                opens=start,
                ends=end,
                time=s.time.at[at].set(finished),
                last=s.last.at[at].set(lasts),
                core=s.core.at[at].set(cores),
            )
            return after, jnp.stack([e.time, jnp.min(jnp.where(mine, start, jnp.inf)), finished])

        def dummy(s: _Small, e: _Event):
            thread = jnp.argmin(s.clock).astype(jnp.int32)
            finished = e.time + c["dummy_us"]
            bound = jnp.where(e.ready >= e.slot, READY, THREAD).astype(jnp.int32)
            record = jnp.zeros(columns, jnp.int32).at[0].set(bound).at[1].set(s.source[thread])
            nobody = jnp.zeros(threads, jnp.int32)
            after = in_flight(s, e, finished, 1, jnp.inf, jnp.zeros(threads), nobody, nobody)._replace(
                clock=s.clock.at[thread].set(finished),
                source=s.source.at[thread].set(e.task * 16 + thread * 4 + DUMMIED),
            )
            return after, record, jnp.stack([e.time, e.time, finished])

        def ended(s: _Small, e: _Event, at: jax.Array):
            weight = jnp.where(e.shape == MIX, 3.0, 1.0)
            last, count = s.last[at], s.served[at]
            owner = _int(np.repeat(thread_of_cluster, 3))
            mine = owner[None, :] == _int(np.arange(threads))[:, None]
            looked = jnp.sum(mine & (s.ends.reshape(-1)[None, :] >= last[:, None]), 1, dtype=jnp.int32)
            sees = last + c["poll_us"] * looked.astype(jnp.float64)
            seen = jnp.maximum(s.clock, sees)
            served = count > 0
            done = seen + c["complete_us"] + c["complete_each_us"] * weight * count.astype(jnp.float64)
            finished = jnp.max(jnp.where(served, done, -jnp.inf))
            slowest = jnp.argmax(jnp.where(served, done, -jnp.inf)).astype(jnp.int32)
            sources = jnp.where(s.clock >= sees, s.source, -1)
            record = jnp.concatenate([sources, looked, s.core[at], slowest[None]])
            after = s._replace(
                clock=jnp.where(served, done, s.clock),
                source=jnp.where(served, labels(e.task, RETIRED), s.source),
                time=s.time.at[at].set(finished),
                phase=s.phase.at[at].set(1),
            )
            return after, record

        no_dispatch = (jnp.zeros(columns, jnp.int32), jnp.zeros(3))
        no_retire = jnp.zeros(3 * threads + 1, jnp.int32)

        def fits(task: jax.Array) -> jax.Array:
            shape = shapes[task]
            return (shape < DUMMY) & (blocks[task] <= jnp.where(shape == AIV, wide, clusters))

        def wake(task: jax.Array, finished, published, tails, now, by, arrays):
            """A producer is finished, or all its blocks are published: the task may be ready, released or eligible."""
            waiting, unpublished, queue, ready, woken, eligible, admitted = arrays
            left = waiting[task] - finished
            waiting = waiting.at[task].set(left)
            shape = jnp.minimum(shapes[task], DUMMY)
            line, is_ready = shape, (left == 0) & (finished > 0)
            pushed = is_ready
            if early:
                rest = unpublished[task] - published
                unpublished = unpublished.at[task].set(rest)
                releases = (left == _STAGED) & (finished > 0)
                is_ready = is_ready | releases
                admits = (rest == 0) & (published > 0) & (left > 0) & (left < _STAGED) & fits(task)
                line = jnp.where(releases, _RELEASES, jnp.where(admits, _EARLY + shape, shape))
                pushed = is_ready | admits
                place = jnp.where(admits, task, tasks)
                eligible = eligible.at[place].set(now)
                admitted = admitted.at[place].set(2 * by + 1 - finished)
            # a task that is not ready goes to the spare places at the ends
            queue = queue.at[jnp.where(pushed, line * (tasks + 1) + tails[line], queues * (tasks + 1))].set(task)
            row = jnp.where(is_ready, task, tasks)
            ready = ready.at[row].set(now)
            woken = woken.at[row].set(by)
            tails = tails.at[line].add(pushed.astype(jnp.int32))
            return tails, (waiting, unpublished, queue, ready, woken, eligible, admitted)

        def early_fronts(s: _Small, fronts, since, some_ready):
            """When each head of the eligible tasks can be staged, its slot, and the core that it waits for."""
            wanted = jnp.any(since[_EARLY:] < jnp.inf) & ~some_ready
            slots, units = whole(s, fronts[_EARLY:], wanted)
            return jnp.maximum(jnp.maximum(since[_EARLY:], slots), s.emptied), slots, units

        def whole(s: _Small, fronts, wanted):
            """For a MIX, an AIC and an AIV task the moment when all its blocks find a slot, and in which core last."""

            def of(shape: int):
                thread, active = owners(_int(shape))
                slots = jnp.maximum(views(_int(shape), s.opens, -jnp.inf).max(1), s.clock[thread])
                slots = jnp.where(active, slots, jnp.inf)
                sooner = slots[None, :] < slots[:, None]
                lower = _int(numbers)[None, :] < _int(numbers)[:, None]
                place = jnp.sum(sooner | ((slots[None, :] == slots[:, None]) & lower), 1, dtype=jnp.int32)
                unit = jnp.argmax(place == blocks[fronts[shape]] - 1).astype(jnp.int32)
                return slots[unit], unit

            def all_three(_):
                slots, units = zip(*map(of, (MIX, AIC, AIV)), strict=True)
                return jnp.stack(slots), jnp.stack(units)

            none = (jnp.full(3, jnp.inf), jnp.zeros(3, jnp.int32))
            return jax.lax.cond(wanted, all_three, lambda _: none, None)

        def body(carry):
            s, tails, arrays, times, dispatched, retired = carry
            waiting, unpublished, queue, ready, woken, eligible, admitted = arrays
            # the next event
            if early:
                soon = jnp.concatenate([s.published, s.time])
                phases = jnp.concatenate([jnp.zeros(flight, jnp.int32), s.phase])
                names = jnp.concatenate([s.task, s.task])
            else:
                soon, phases, names = s.time, s.phase, s.task
            soonest = jnp.min(soon)
            order = jnp.where((soon == soonest) & (names >= 0), phases * 2**28 + names, 2**30)
            found = jnp.argmin(order).astype(jnp.int32)
            at = found % flight
            waits = s.heads < tails
            fronts = queue[_int(np.arange(queues)) * (tasks + 1) + s.heads]
            rows = jnp.where(waits, fronts, tasks)
            since = jnp.where(waits, ready[rows], jnp.inf)
            clock = s.clock[_int(thread_of_cluster)]
            cube = jnp.min(jnp.maximum(s.opens[:, 0], clock))
            vector = jnp.min(jnp.maximum(jnp.minimum(s.opens[:, 1], s.opens[:, 2]), clock))
            mixed = jnp.min(jnp.maximum(jnp.max(s.opens, 1), clock))
            slots = jnp.stack([mixed, cube, vector, jnp.min(s.clock)])
            units, all_units = jnp.zeros(queues, jnp.int32), jnp.zeros(3, jnp.int32)
            if early:
                marked = waits[:3] & sync[fronts[:3]]
                all_slots, all_units = whole(s, fronts[:3], jnp.any(marked))
                slots = slots.at[:3].set(jnp.where(marked, all_slots, slots[:3]))
            # in the order of ties: tasks in flight, the submission, the four queues, releases, the early queues
            moments = jnp.concatenate([soonest[None], submitted[s.following][None], jnp.maximum(since[:4], slots)])
            if early:
                stale = waits[_EARLY:] & (waiting[fronts[_EARLY:]] == 0)
                since = jnp.concatenate([since[:_EARLY], jnp.where(waits, eligible[rows], jnp.inf)[_EARLY:]])
                able, early_slots, early_units = early_fronts(s, fronts, since, jnp.any(waits[:3]))
                first = jnp.where(waits[_RELEASES], -jnp.inf, jnp.inf)
                moments = jnp.concatenate([moments, first[None], jnp.where(stale, -jnp.inf, able)])
                slots = jnp.concatenate([slots, jnp.zeros(1), early_slots])
                units = jnp.concatenate([all_units, jnp.zeros(2, jnp.int32), early_units])
            choice = jnp.argmin(moments).astype(jnp.int32)
            line = jnp.maximum(choice - 2, 0)
            now = jnp.where(choice == 2 + _RELEASES, since[line], moments[choice])
            task = jnp.where(choice == 0, s.task[at], jnp.where(choice == 1, s.following, fronts[line]))
            event = _Event(
                task,
                shapes[task],
                blocks[task],
                durations[task],
                now,
                since[line],
                slots[line],
                units[line],
                flags[task],
            )
            kind = jnp.where(choice == 0, phases[found], jnp.where(choice == 1, 3, jnp.where(choice == 5, 5, 4)))
            if early:
                kind = jnp.where((kind == 4) & sync[task], 9, kind)
                late = jnp.where(now == -jnp.inf, 8, 7)
                kind = jnp.where(choice == 2 + _RELEASES, 6, jnp.where(choice > 2 + _RELEASES, late, kind))
            moved = s._replace(heads=s.heads.at[line].add((choice >= 2).astype(jnp.int32)))

            def on_publication(_):
                return moved._replace(published=s.published.at[at].set(jnp.inf)), *no_dispatch, no_retire

            def on_finish(_):
                gone = moved._replace(left=s.left - 1, time=s.time.at[at].set(jnp.inf), task=s.task.at[at].set(-1))
                return gone, *no_dispatch, no_retire

            def on_end(_):
                after, record = ended(moved, event, at)
                return after, *no_dispatch, record

            def on_submission(_):
                return moved._replace(following=s.following + 1), *no_dispatch, no_retire

            def on_dispatch(_):
                return *dispatch(moved, event), no_retire

            def on_dummy(_):
                return *dummy(moved, event), no_retire

            def on_release(_):
                after, stamps = release(moved, event)
                return after, no_dispatch[0], stamps, no_retire

            def on_staging(_):
                return *one_each(moved, event, True), no_retire

            def on_together(_):
                return *one_each(moved, event, False), no_retire

            def on_stale(_):
                return moved, *no_dispatch, no_retire

            branches = [on_publication, on_finish, on_end, on_submission, on_dispatch, on_dummy]
            branches += [on_release, on_staging, on_stale, on_together] if early else []
            small, record, stamps, retire = jax.lax.switch(kind, branches, None)
            taken = (kind == 4) | (kind == 5) | (kind == 7) | (kind == 9)
            dispatched = dispatched.at[jnp.where(taken, task, tasks)].set(record)
            times = times.at[jnp.where(taken, task, tasks), 0].set(now)
            times = times.at[jnp.where(taken | (kind == 6), task, tasks), 1:3].set(stamps[1:])
            times = times.at[jnp.where(kind == 1, task, tasks), 3].set(now)
            retired = retired.at[jnp.where(kind == 2, task, tasks)].set(retire)
            if early:
                waiting = waiting.at[task].add(jnp.where(kind == 7, _STAGED, 0))
            # whom it wakes: itself at its submission, its successors at its publication and finish
            others = kind <= 1
            low = jnp.where(others, pointers[task], 0)
            wakes = others & ((kind == 1) | event.flagged)
            itself = (kind == 3) & (event.shape != ALLOC)
            high = jnp.where(wakes, pointers[task + 1], jnp.where(others, low, itself.astype(jnp.int32)))
            by = jnp.where(others, task, -1)
            finished = jnp.where(kind == 0, 0, 1)
            published = jnp.where((kind == 1) & event.flagged, 0, 1)

            def each_woken(state):
                position, tails, arrays = state
                other = jnp.where(others, successors[position], task)
                return position + 1, *wake(other, finished, published, tails, now, by, arrays)

            arrays = waiting, unpublished, queue, ready, woken, eligible, admitted
            _, tails, arrays = jax.lax.while_loop(lambda state: state[0] < high, each_woken, (low, tails, arrays))
            return small, tails, arrays, times, dispatched, retired

        small = _Small(
            opens=jnp.zeros((clusters, 3)),
            ends=jnp.full((clusters, 3), -jnp.inf),
            given=jnp.full((clusters, 3), -1, jnp.int32),
            clock=jnp.zeros(threads),
            source=jnp.full(threads, -1, jnp.int32),
            held=jnp.zeros((clusters, 3)),
            emptied=jnp.asarray(0.0, jnp.float64),
            emptier=_int(-1),
            heads=jnp.zeros(queues, jnp.int32),
            following=_int(0),
            left=work,
            full=jnp.asarray(False),
            time=jnp.full(flight, jnp.inf),
            published=jnp.full(flight, jnp.inf),
            phase=jnp.zeros(flight, jnp.int32),
            task=jnp.full(flight, -1, jnp.int32),
            last=jnp.full((flight, threads), -jnp.inf),
            served=jnp.zeros((flight, threads), jnp.int32),
            core=jnp.zeros((flight, threads), jnp.int32),
        )
        spare = tasks + 1 if early else 1
        arrays = (
            waiting,
            waiting if early else jnp.zeros(1, jnp.int32),
            jnp.zeros(queues * (tasks + 1) + 1, jnp.int32),
            jnp.zeros(tasks + 1),
            jnp.full(tasks + 1, -1, jnp.int32),
            jnp.zeros(spare),
            jnp.full(spare, -2, jnp.int32),
        )
        carry = (
            small,
            jnp.zeros(queues, jnp.int32),
            arrays,
            jnp.zeros((tasks + 1, 4)),
            jnp.zeros((tasks + 1, columns), jnp.int32),
            jnp.zeros((tasks + 1, 3 * threads + 1), jnp.int32),
        )
        carry = jax.lax.while_loop(lambda carry: (carry[0].left > 0) & ~carry[0].full, body, carry)
        small, _, arrays, times, dispatched, retired = carry
        _, _, _, ready, woken, _, admitted = arrays
        return small.full, ready, times, dispatched, retired, woken, admitted

    with jax.enable_x64(True):
        f, i = jnp.float64, jnp.int32
        arguments = [
            jax.ShapeDtypeStruct(shape, dtype)
            for shape, dtype in (
                ((len(CONSTANTS),), f),
                ((tasks + 1,), f),
                ((tasks + 1,), i),
                ((tasks + 1,), i),
                ((tasks + 1,), f),
                ((tasks + 1,), jnp.bool_),
                ((tasks + 1,), jnp.bool_),
                ((tasks + 1,), i),
                ((tasks + 2,), i),
                ((edges,), i),
                ((), i),
            )
        ]
        return jax.jit(simulate).lower(*arguments).compile(compiler_options=_OPTIONS)
