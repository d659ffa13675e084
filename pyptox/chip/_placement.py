"""The blocks of one task over cores, in closed form.

The moments at which a core can be given blocks are a first one and then an arithmetic progression, whose step is the
same for all cores. Giving each next block to the core that can have it first takes the earliest ``total`` of all these
moments: how many of them are each core's follows from whole rounds and a remainder by rank, without going block by
block.
"""

import jax
import jax.numpy as jnp

FAR = 2.0**50
"""Later than any time, for cores that take no part."""


def shared_out(
    total: jax.Array, first: jax.Array, again: jax.Array, step: jax.Array, active: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """How many blocks each core is given.

    Args:
        total: blocks, as a float.
        first: [cores], the first moment, µs; at least :data:`FAR` where a core takes no part.
        again: [cores], the second one, not before the first; further ones are ``step`` apart.
        step: µs, more than 0.
        active: [cores], whether it takes part.

    Returns:
        Whether the first moment is among the earliest, and how many of the others; of equal moments that of the lower
        core counts as earlier.
    """
    number = jnp.arange(len(first), dtype=jnp.int32)
    lower = number[None, :] < number[:, None]
    # which first blocks are among the earliest
    before = (first[None, :] < first[:, None]) | ((first[None, :] == first[:, None]) & lower)
    rounds = jnp.floor((first[:, None] - again[None, :]) / step)
    rest = first[:, None] - again[None, :] - rounds * step
    rounds, rest = _corrected(rounds, rest, step)
    earlier = jnp.where(rest == 0, jnp.where(lower, rounds + 1, rounds), rounds + 1)
    earlier = jnp.where(active[None, :], jnp.maximum(earlier, 0.0), 0.0)
    place = jnp.sum(before, 1).astype(jnp.float64) + jnp.sum(earlier, 1)
    has_first = active & (place < total)
    remaining = total - jnp.sum(has_first, dtype=jnp.float64)
    # whole rounds of later blocks, then the rest of one round by rank
    base = jnp.min(again)
    row = jnp.floor((again - base) / step)
    offset = again - base - row * step
    row, offset = _corrected(row, offset, step)
    row = jnp.where(active, row, FAR)
    below = jnp.sum(jnp.maximum(row[:, None] - row[None, :], 0.0), 1)
    level = jnp.max(jnp.where(active & (below <= remaining), row, 0.0))
    running = row <= level
    spent = jnp.sum(jnp.maximum(level - row, 0.0))
    level = level + jnp.floor((remaining - spent) / jnp.sum(running, dtype=jnp.float64))
    more = jnp.maximum(level - row, 0.0)
    nearer = (offset[None, :] < offset[:, None]) | ((offset[None, :] == offset[:, None]) & lower)
    turn = jnp.sum(nearer & (row <= level)[None, :], 1, dtype=jnp.float64)
    more = more + ((row <= level) & (turn < remaining - jnp.sum(more))).astype(jnp.float64)
    return has_first, more


def _corrected(rounds: jax.Array, rest: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A quotient and its remainder where the division was rounded across a whole number."""
    under, over = rest < 0, rest >= step
    rounds = jnp.where(under, rounds - 1, jnp.where(over, rounds + 1, rounds))
    return rounds, jnp.where(under, rest + step, jnp.where(over, rest - step, rest))
