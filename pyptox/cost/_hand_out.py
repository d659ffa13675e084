"""When the last core is done if blocks that differ are handed out in turn: a free core takes the next one.

Blocks come in runs of equal ones. On plain numbers every block is handed out. On traced numbers a run goes to all
cores at once: its blocks start at the earliest of the times ``free + n cycles``, and a bisection finds the time up to
which there are as many of those as blocks.
"""

import heapq
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from .._scalar import Scalar

_HALVINGS = 14


def makespan(runs: Sequence[tuple[Scalar, Scalar]], cores: Scalar) -> Scalar:
    """The time at which the last of ``cores`` is done, plain numbers.

    Args:
        runs: ``(cycles, blocks)`` of each run of equal blocks, in the order in which they are handed out.
        cores: cores that take blocks.

    >>> makespan([(4.0, 3), (1.0, 2)], 2)
    8.0
    >>> makespan([(1.0, 2), (4.0, 3)], 2)
    9.0
    """
    free: list[Scalar] = [0.0] * max(int(cores), 1)
    for cycles, blocks in runs:
        left = round(float(blocks))
        while left:
            rounds = left // len(free)
            if rounds and max(free) - free[0] <= cycles:  # each core takes one block in every round
                free = [time + cycles * rounds for time in free]
                left -= rounds * len(free)
            else:
                heapq.heapreplace(free, free[0] + cycles)
                left -= 1
    return max(free)


def last_core(runs: Sequence[tuple[Scalar, Scalar]], cores: Scalar) -> list[int]:
    """Which runs the blocks of the core that is done last are of, in order. Arguments as in :func:`makespan`.

    >>> last_core([(4.0, 3), (1.0, 2)], 2)
    [0, 0]
    """
    free = [(0.0, core) for core in range(max(int(cores), 1))]
    taken: list[list[int]] = [[] for _ in free]
    for number, (cycles, blocks) in enumerate(runs):
        for _ in range(round(float(blocks))):
            time, core = free[0]
            taken[core].append(number)
            heapq.heapreplace(free, (time + float(cycles), core))
    return taken[max(free)[1]]


def traced_makespan(cycles: jax.Array, blocks: jax.Array, cores: Scalar, lanes: int) -> jax.Array:
    """:func:`makespan` of runs that are arrays along the runs, on at most ``lanes`` cores."""
    idle = jnp.arange(lanes, dtype=jnp.float32) >= cores
    start = jnp.where(idle, jnp.float32(3e38), jnp.float32(0.0))

    def run(free, one):
        cycles, blocks = one
        cycles = jnp.maximum(cycles, 1e-3)

        def started(until):
            return jnp.where(idle, 0.0, jnp.maximum(jnp.floor((until - free) / cycles) + 1.0, 0.0))

        def halve(_, span):
            low, high = span
            middle = 0.5 * (low + high)
            enough = jnp.sum(started(middle)) >= blocks
            return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

        # the earliest core could take them all, and so could all cores from when the latest of them is free
        low = jnp.min(free) - cycles
        latest = jnp.max(jnp.where(idle, 0.0, free))
        high = jnp.minimum(
            jnp.min(free) + jnp.ceil(blocks) * cycles, latest + jnp.ceil(blocks / jnp.minimum(cores, lanes)) * cycles
        )
        low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))
        sure = started(low)
        more = started(high) - sure
        # those that start between the two times start together: the first cores take what is left
        rest = blocks - jnp.sum(sure)
        taken = sure + jnp.clip(rest - (jnp.cumsum(more) - more), 0.0, more)
        return free + jnp.where(blocks > 0, jnp.ceil(taken), 0.0) * cycles, None

    free, _ = jax.lax.scan(run, start, (cycles, blocks))
    return jnp.max(jnp.where(idle, 0.0, free))
