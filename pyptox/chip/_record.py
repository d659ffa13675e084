"""What the machine keeps: the small state that every step may change, the event of a step, and the record of causes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._stream import Stream

# how a thread's last piece of work is named: task x 16 + thread x 4 + one of these
DISPATCHED, RETIRED, DUMMIED = 1, 2, 3
# what bound a dispatch or a staging
READY, THREAD, SLOT, ELIGIBLE, EMPTIED = range(5)

HEAD = 10
"""Columns of a dispatch's record before those of cores: what bound it and two numbers for that, sources of 4 threads;
of the last publication the core, the task that had it before where its slot opened last (-1 otherwise), and which core
of the cluster that was."""

FOUND, HBM_SHARE, L2_SHARE, BLOCK = range(4)
"""Columns of a task's memory: the share of its traffic that L2 held; what all cores together asked of HBM and of L2, as
shares of their rates; and what a block took, µs."""


class Record(NamedTuple):
    """What bound every event. Rows are tasks.

    ``dispatched``: :data:`HEAD` columns, then for each core of the kind (a cluster for MIX) the task that it was given
    before (-1 for none), then ``blocks | rank << 20 | which core of the cluster << 26 | opened << 28 |
    switched << 29 | together << 30 | fresh << 31``: whether the slot opened last, whether the core's last block ended
    last, whether all blocks start together, and whether a core had no block before.
    ``retired``: for each thread the source that it was busy with, cores looked at, core of the last end; then the
    thread that finished last. ``woken``: the producer whose finish made the task ready, -1 for its submission.
    ``eligible``: the same for eligible tasks, as ``2 x producer``, 1 more where it was its full publication.
    ``memory``: columns :data:`FOUND` and on; no columns where the workload states nothing of memory. ``beside``: for
    each core the task that it ran in the middle of this one's first block, -1 for none; then how many of this one's.
    """

    dispatched: np.ndarray
    retired: np.ndarray
    woken: np.ndarray
    eligible: np.ndarray
    memory: np.ndarray
    beside: np.ndarray


class Small(NamedTuple):
    """Cores, threads and tasks in flight."""

    opens: jax.Array  # [clusters, 3], start of the last block
    ends: jax.Array
    given: jax.Array  # task of the last block
    asks: jax.Array  # [clusters, 3, 2], shares of the rates of HBM and L2 that it asks for
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


class Event(NamedTuple):
    """One step: the task, when, and what is known of it. ``hbm`` and ``l2`` are µs of ``together`` of its blocks."""

    task: jax.Array
    shape: jax.Array
    blocks: jax.Array
    duration: jax.Array
    time: jax.Array
    ready: jax.Array
    slot: jax.Array
    unit: jax.Array  # of a staging: the core whose slot it waited for
    flagged: jax.Array
    hbm: jax.Array
    l2: jax.Array
    resident: jax.Array
    together: jax.Array
    stream: Stream | None  # what warms have in flight


def int32(value: Any) -> jax.Array:
    """An index."""
    return jnp.asarray(value, jnp.int32)


def at_start(clusters: int, threads: int, queues: int, flight: int, work: jax.Array) -> Small:
    """Everything idle; ``work`` tasks to finish."""
    return Small(
        opens=jnp.zeros((clusters, 3)),
        ends=jnp.full((clusters, 3), -jnp.inf),
        given=jnp.full((clusters, 3), -1, jnp.int32),
        asks=jnp.zeros((clusters, 3, 2)),
        clock=jnp.zeros(threads),
        source=jnp.full(threads, -1, jnp.int32),
        held=jnp.zeros((clusters, 3)),
        emptied=jnp.asarray(0.0, jnp.float64),
        emptier=int32(-1),
        heads=jnp.zeros(queues, jnp.int32),
        following=int32(0),
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
