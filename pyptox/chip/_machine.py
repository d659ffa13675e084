"""The jitted state machine: the rules of :mod:`._oracle` with a constant number of steps a task.

Events come in strict time order, four a task: submission, dispatch, end and finish. Ready queues are therefore plain
arrays, and no step looks at more than the cores and the tasks in flight. The blocks of a task are placed in closed
form: the moments at which a core can be given blocks are a first one and then an arithmetic progression whose step is
the same for all cores, so the earliest ``b`` of them follow from whole rounds and a remainder by rank.

Small state (cores, threads, tasks in flight) goes through the ``switch``; arrays over tasks are read before it and
written after it, since one that goes through it would be copied at every step. Each event records what bound it, for
the walk back in :mod:`._path`.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._constants import CONSTANTS, Schedule
from ._oracle import Times, clusters_of
from ._workload import AIC, AIV, ALLOC, DUMMY, MIX, Workload

# how a thread's last piece of work is named: task x 16 + thread x 4 + one of these
DISPATCHED, RETIRED, DUMMIED = 1, 2, 3
# what bound a dispatch, and the start of a core's first block
READY, THREAD, SLOT = 0, 1, 2
SERVED, OPENED, SWITCHED = 0, 1, 2

HEAD = 6
"""Columns of a dispatch's record before those of cores: what bound it, two numbers for that, sources of 3 threads."""

_FAR = 2.0**50
_OPTIONS: Any = {"xla_cpu_copy_insertion_use_region_analysis": True}


class Record(NamedTuple):
    """What bound every event. Rows are tasks.

    ``dispatched``: :data:`HEAD` columns, then for each core of the kind (a cluster for MIX) the task that it was given
    before (-1 for none), then ``blocks | rank << 20 | which core of the cluster << 26 | cause << 28``.
    ``retired``: for each thread the source that it was busy with, cores looked at, core of the last end; then the
    thread that finished last. ``woken``: the producer whose finish made the task ready, -1 for its submission.
    """

    dispatched: np.ndarray
    retired: np.ndarray
    woken: np.ndarray


class _Small(NamedTuple):
    opens: jax.Array  # [clusters, 3]
    ends: jax.Array
    given: jax.Array  # task of the last block
    clock: jax.Array  # [threads]
    source: jax.Array
    heads: jax.Array  # [4]
    following: jax.Array
    left: jax.Array
    full: jax.Array
    time: jax.Array  # tasks in flight
    phase: jax.Array
    task: jax.Array
    last: jax.Array  # [in flight, threads]
    count: jax.Array
    core: jax.Array


class _Event(NamedTuple):
    task: jax.Array
    shape: jax.Array
    blocks: jax.Array
    duration: jax.Array
    time: jax.Array
    ready: jax.Array
    slot: jax.Array


def _int(value: Any) -> jax.Array:
    return jnp.asarray(value, jnp.int32)


@functools.lru_cache(maxsize=32)
def _compiled(clusters: int, threads: int, tasks: int, edges: int, flight: int):
    """The machine for sizes up to these. ``threads`` and ``clusters`` are exact."""
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

    def simulate(constants, submitted, shapes, blocks, durations, waiting, pointers, successors, work):
        c = dict(zip(CONSTANTS, constants, strict=True))
        flight_us = c["doorbell_us"] + c["receive_us"]

        def dispatch(s: _Small, e: _Event):
            shape, now = e.shape, e.time
            weight = jnp.where(shape == MIX, 3.0, 1.0)
            owned = jnp.where(shape == AIV, 2.0 * each, 1.0 * each)
            one = c["dispatch_each_us"] * weight
            lag = c["dispatch_us"] + c["complete_us"] + (c["dispatch_each_us"] + c["complete_each_us"]) * weight * owned
            step = jnp.maximum(jnp.maximum(e.duration + c["switch_us"], lag + flight_us), 2.0**-20)
            active = (_int(numbers) < clusters) | (shape == AIV)
            thread = jnp.where(shape == AIV, _int(thread_wide[AIV]), _int(thread_wide[AIC]))
            thread = jnp.minimum(thread, threads - 1)
            opens3, ends3, given3 = (
                views(shape, x, fill) for x, fill in ((s.opens, -jnp.inf), (s.ends, -jnp.inf), (s.given, -1))
            )
            opens, ends = opens3.max(1), ends3.max(1)
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
            start = jnp.maximum(served, switched)
            first = jnp.where(active, first, _FAR)
            again = jnp.where(active, start + lag, _FAR)
            # which first blocks are among the earliest
            before = (first[None, :] < first[:, None]) | ((first[None, :] == first[:, None]) & lower)
            rounds = jnp.floor((first[:, None] - again[None, :]) / step)
            rest = first[:, None] - again[None, :] - rounds * step
            rounds, rest = _corrected(rounds, rest, step)
            earlier = jnp.where(rest == 0, jnp.where(lower, rounds + 1, rounds), rounds + 1)
            earlier = jnp.where(active[None, :], jnp.maximum(earlier, 0.0), 0.0)
            place = jnp.sum(before, 1).astype(jnp.float64) + jnp.sum(earlier, 1)
            total = e.blocks.astype(jnp.float64)
            has_first = active & (place < total)
            remaining = total - jnp.sum(has_first, dtype=jnp.float64)
            # whole rounds of later blocks, then the rest of one round by rank
            base = jnp.min(again)
            row = jnp.floor((again - base) / step)
            offset = again - base - row * step
            row, offset = _corrected(row, offset, step)
            row = jnp.where(active, row, _FAR)
            below = jnp.sum(jnp.maximum(row[:, None] - row[None, :], 0.0), 1)
            level = jnp.max(jnp.where(active & (below <= remaining), row, 0.0))
            running = row <= level
            spent = jnp.sum(jnp.maximum(level - row, 0.0))
            level = level + jnp.floor((remaining - spent) / jnp.sum(running, dtype=jnp.float64))
            more = jnp.maximum(level - row, 0.0)
            nearer = (offset[None, :] < offset[:, None]) | ((offset[None, :] == offset[:, None]) & lower)
            turn = jnp.sum(nearer & (row <= level)[None, :], 1, dtype=jnp.float64)
            more = more + ((row <= level) & (turn < remaining - jnp.sum(more))).astype(jnp.float64)
            amount = has_first.astype(jnp.float64) + more
            used = amount > 0
            final = start + (amount - 1) * step
            end = final + e.duration
            occupied = by_unit(shape, used, jnp.zeros((clusters, 3), bool))
            own = (thread[None, :] == _int(np.arange(threads))[:, None]) & used[None, :]
            counts = jnp.sum(own, 1, dtype=jnp.int32)
            lasts = jnp.where(own, end[None, :], -jnp.inf)
            clock = jnp.where(counts > 0, begins + c["dispatch_us"] + one * counts.astype(jnp.float64), s.clock)
            label = e.task * 16 + _int(np.arange(threads) * 4)
            # the record
            by_open, by_switch = by_slot > by_rank, switched > served
            which = jnp.where(by_switch, jnp.argmax(ends3, 1), jnp.argmax(opens3, 1)).astype(jnp.int32)
            previous = given3[_int(numbers), which]
            cause = jnp.where(by_switch, SWITCHED, jnp.where(by_open, OPENED, SERVED)).astype(jnp.int32)
            packed = amount.astype(jnp.int32) | rank << 20 | which << 26 | cause << 28
            slots = jnp.maximum(opens, s.clock[thread])
            unit = jnp.argmin(jnp.where(active, slots, jnp.inf)).astype(jnp.int32)
            by_thread = s.clock[thread[unit]] >= opens[unit]
            held = jnp.argmax(opens3[unit]).astype(jnp.int32)
            bound = jnp.where(e.ready >= e.slot, READY, jnp.where(by_thread, THREAD, SLOT)).astype(jnp.int32)
            why = jnp.where(bound == THREAD, s.source[thread[unit]], given3[unit, held])
            sources = jnp.full(3, -1, jnp.int32).at[:threads].set(jnp.where(s.clock > now, s.source, -1))
            record = jnp.concatenate([jnp.stack([bound, why, unit * 4 + held]), sources, previous, packed])
            free = jnp.argmax(s.task < 0).astype(jnp.int32)
            finished = jnp.max(lasts)
            after = s._replace(
                opens=jnp.where(occupied, by_unit(shape, final, s.opens), s.opens),
                ends=jnp.where(occupied, by_unit(shape, end, s.ends), s.ends),
                given=jnp.where(occupied, e.task, s.given),
                clock=clock,
                source=jnp.where(counts > 0, label + DISPATCHED, s.source),
                full=s.full | (s.task[free] >= 0),
                time=s.time.at[free].set(finished),
                phase=s.phase.at[free].set(1),
                task=s.task.at[free].set(e.task),
                last=s.last.at[free].set(lasts.max(1)),
                count=s.count.at[free].set(counts),
                core=s.core.at[free].set(jnp.argmax(lasts, 1).astype(jnp.int32)),
            )
            return after, record, jnp.stack([now, jnp.min(jnp.where(used, start, jnp.inf)), finished])

        def dummy(s: _Small, e: _Event):
            thread = jnp.argmin(s.clock).astype(jnp.int32)
            finished = e.time + c["dummy_us"]
            bound = jnp.where(e.ready >= e.slot, READY, THREAD).astype(jnp.int32)
            record = jnp.zeros(columns, jnp.int32).at[0].set(bound).at[1].set(s.source[thread])
            free = jnp.argmax(s.task < 0).astype(jnp.int32)
            after = s._replace(
                clock=s.clock.at[thread].set(finished),
                source=s.source.at[thread].set(e.task * 16 + thread * 4 + DUMMIED),
                full=s.full | (s.task[free] >= 0),
                time=s.time.at[free].set(finished),
                phase=s.phase.at[free].set(0),
                task=s.task.at[free].set(e.task),
            )
            return after, record, jnp.stack([e.time, e.time, finished])

        def ended(s: _Small, e: _Event, at: jax.Array):
            weight = jnp.where(e.shape == MIX, 3.0, 1.0)
            last, count = s.last[at], s.count[at]
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
            label = e.task * 16 + _int(np.arange(threads) * 4) + RETIRED
            record = jnp.concatenate([sources, looked, s.core[at], slowest[None]])
            after = s._replace(
                clock=jnp.where(served, done, s.clock),
                source=jnp.where(served, label, s.source),
                time=s.time.at[at].set(finished),
                phase=s.phase.at[at].set(0),
            )
            return after, record

        no_dispatch = (jnp.zeros(columns, jnp.int32), jnp.zeros(3))
        no_retire = jnp.zeros(3 * threads + 1, jnp.int32)

        def wake(task: jax.Array, count: jax.Array, ready, woken, queue, tails, waiting, now, by):
            left = waiting[task] - 1
            waiting = waiting.at[task].set(left)
            shape = jnp.minimum(shapes[task], DUMMY)
            is_ready = left == 0
            # a task that is not ready goes to the spare places at the ends
            queue = queue.at[jnp.where(is_ready, shape * (tasks + 1) + tails[shape], 4 * (tasks + 1))].set(task)
            row = jnp.where(is_ready, task, tasks)
            ready = ready.at[row].set(now)
            woken = woken.at[row].set(by)
            return ready, woken, queue, tails.at[shape].add(is_ready.astype(jnp.int32)), waiting

        def body(carry):
            s, tails, waiting, queue, ready, woken, times, dispatched, retired = carry
            # the next event
            soonest = jnp.min(s.time)
            order = jnp.where((s.time == soonest) & (s.task >= 0), s.phase * 2**29 + s.task, 2**30 + 2**29)
            at = jnp.argmin(order).astype(jnp.int32)
            waits = s.heads < tails
            fronts = queue[_int(np.arange(4)) * (tasks + 1) + s.heads]
            since = jnp.where(waits, ready[jnp.where(waits, fronts, tasks)], jnp.inf)
            clock = s.clock[_int(thread_of_cluster)]
            cube = jnp.min(jnp.maximum(s.opens[:, 0], clock))
            vector = jnp.min(jnp.maximum(jnp.minimum(s.opens[:, 1], s.opens[:, 2]), clock))
            mixed = jnp.min(jnp.maximum(jnp.max(s.opens, 1), clock))
            slots = jnp.stack([mixed, cube, vector, jnp.min(s.clock)])
            moments = jnp.concatenate([soonest[None], submitted[s.following][None], jnp.maximum(since, slots)])
            choice = jnp.argmin(moments).astype(jnp.int32)
            now = moments[choice]
            line = jnp.maximum(choice - 2, 0)
            task = jnp.where(choice == 0, s.task[at], jnp.where(choice == 1, s.following, fronts[line]))
            event = _Event(task, shapes[task], blocks[task], durations[task], now, since[line], slots[line])
            kind = jnp.where(choice == 0, s.phase[at], jnp.where(choice == 1, 2, jnp.where(choice == 5, 4, 3)))
            moved = s._replace(heads=s.heads.at[line].add((choice >= 2).astype(jnp.int32)))

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

            small, record, stamps, retire = jax.lax.switch(
                kind, [on_finish, on_end, on_submission, on_dispatch, on_dummy], None
            )
            taken = kind >= 3
            row = jnp.where(taken, task, tasks)
            dispatched = dispatched.at[row].set(record)
            times = times.at[row, :3].set(stamps)
            times = times.at[jnp.where(kind == 0, task, tasks), 3].set(now)
            retired = retired.at[jnp.where(kind == 1, task, tasks)].set(retire)
            # whom it wakes: itself at its submission, its successors at its finish
            low = jnp.where(kind == 0, pointers[task], 0)
            itself = (kind == 2) & (event.shape != ALLOC)
            high = jnp.where(kind == 0, pointers[task + 1], itself.astype(jnp.int32))
            by = jnp.where(kind == 0, task, -1)

            def each_woken(state):
                position, *arrays = state
                other = jnp.where(kind == 0, successors[position], task)
                ready, woken, queue, tails, waiting = arrays
                return position + 1, *wake(other, position, ready, woken, queue, tails, waiting, now, by)

            _, ready, woken, queue, tails, waiting = jax.lax.while_loop(
                lambda state: state[0] < high, each_woken, (low, ready, woken, queue, tails, waiting)
            )
            return small, tails, waiting, queue, ready, woken, times, dispatched, retired

        small = _Small(
            opens=jnp.zeros((clusters, 3)),
            ends=jnp.full((clusters, 3), -jnp.inf),
            given=jnp.full((clusters, 3), -1, jnp.int32),
            clock=jnp.zeros(threads),
            source=jnp.full(threads, -1, jnp.int32),
            heads=jnp.zeros(4, jnp.int32),
            following=_int(0),
            left=work,
            full=jnp.asarray(False),
            time=jnp.full(flight, jnp.inf),
            phase=jnp.zeros(flight, jnp.int32),
            task=jnp.full(flight, -1, jnp.int32),
            last=jnp.full((flight, threads), -jnp.inf),
            count=jnp.zeros((flight, threads), jnp.int32),
            core=jnp.zeros((flight, threads), jnp.int32),
        )
        carry = (
            small,
            jnp.zeros(4, jnp.int32),
            waiting,
            jnp.zeros(4 * (tasks + 1) + 1, jnp.int32),
            jnp.zeros(tasks + 1),
            jnp.full(tasks + 1, -1, jnp.int32),
            jnp.zeros((tasks + 1, 4)),
            jnp.zeros((tasks + 1, columns), jnp.int32),
            jnp.zeros((tasks + 1, 3 * threads + 1), jnp.int32),
        )
        carry = jax.lax.while_loop(lambda carry: (carry[0].left > 0) & ~carry[0].full, body, carry)
        small, _, _, _, ready, woken, times, dispatched, retired = carry
        return small.full, ready, times, dispatched, retired, woken

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
                ((tasks + 1,), i),
                ((tasks + 2,), i),
                ((edges,), i),
                ((), i),
            )
        ]
        return jax.jit(simulate).lower(*arguments).compile(compiler_options=_OPTIONS)


def _corrected(rounds: jax.Array, rest: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A quotient and its remainder where the division was rounded across a whole number."""
    under, over = rest < 0, rest >= step
    rounds = jnp.where(under, rounds - 1, jnp.where(over, rounds + 1, rounds))
    return rounds, jnp.where(under, rest + step, jnp.where(over, rest - step, rest))


def bucket(count: int) -> int:
    """The size that arrays are padded to: a power of two, or three quarters of one; 64 at least.

    >>> bucket(2400), bucket(3500)
    (3072, 4096)
    """
    size = 64
    while size < count:
        size *= 2
    return size * 3 // 4 if size > 64 and size * 3 // 4 >= count else size


def run(work: Workload, schedule: Schedule, clusters: int, flight: int | None = None) -> tuple[Times, Record]:
    """Simulate ``work``: times equal to those of :func:`._oracle.oracle`, and what bound each."""
    count, threads = work.tasks, schedule.threads
    constants = schedule.values()
    producers = work.edges.astype(np.float64)
    ordinal = np.arange(1, count + 1, dtype=np.float64)
    submitted = constants["submit_us"] * ordinal + constants["submit_edge_us"] * np.cumsum(producers)
    lengths = np.array([len(p) for p in work.waits], np.int32)
    preds = np.array([p for each in work.waits for p in each], np.int32)
    succs = np.repeat(np.arange(count, dtype=np.int32), lengths)
    order = np.argsort(preds, kind="stable")
    tasks, edges = bucket(count), bucket(len(preds))
    pointers = np.zeros(tasks + 2, np.int32)
    pointers[1 : count + 1] = np.cumsum(np.bincount(preds, minlength=count))[:count] if count else 0
    pointers[count + 1 :] = len(preds)

    def padded(values: np.ndarray, size: int, fill: float, dtype: Any) -> np.ndarray:
        result = np.full(size, fill, dtype)
        result[: len(values)] = values
        return result

    flight = flight or 6 * clusters + 16
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        full, ready, times, dispatched, retired, woken = _compiled(clusters, threads, tasks, edges, flight)(
            np.array([constants[name] for name in CONSTANTS]),
            padded(submitted, tasks + 1, np.inf, np.float64),
            padded(work.shapes, tasks + 1, ALLOC, np.int32),
            padded(work.blocks, tasks + 1, 0, np.int32),
            padded(work.duration_us, tasks + 1, 0.0, np.float64),
            padded(lengths + 1, tasks + 1, 1, np.int32),
            pointers,
            padded(succs[order], edges, 0, np.int32),
            np.int32((work.shapes != ALLOC).sum()),
        )
    if full:
        return run(work, schedule, clusters, 2 * flight)
    ready, stamps = np.asarray(ready)[:count], np.asarray(times)[:count]
    alloc = work.shapes == ALLOC
    columns = [np.where(alloc, submitted, x) for x in (ready, *stamps.T)]
    record = Record(np.asarray(dispatched)[:count], np.asarray(retired)[:count], np.asarray(woken)[:count])
    return Times(submitted, *columns), record
