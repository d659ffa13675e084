"""The SDMA engine in the jitted machine: contexts that stream, and how much of each region has landed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._constants import GRID_US


class Sdma(NamedTuple):
    """Constants of :meth:`._warm.Warms.constants`."""

    byte_us: Any
    hit_byte_us: Any
    startup_us: Any
    worse: Any
    one: Any
    several: Any


class Stream(NamedTuple):
    """What each context has left, and has done, in µs that it takes one alone; [contexts]."""

    now: jax.Array
    left: jax.Array
    done: jax.Array
    wakes: jax.Array


class Warmed(NamedTuple):
    """What warms bring of each region, [regions]: from ``base`` to ``top``, at ``place`` in its context's stream."""

    base: jax.Array
    top: jax.Array
    place: jax.Array
    length: jax.Array
    context: jax.Array


def idle(contexts: int, regions: int) -> tuple[Stream, Warmed]:
    """Nothing asked for."""
    stream = Stream(jnp.zeros(()), *(jnp.zeros(contexts) for _ in range(3)))
    whole, none = jnp.ones(regions), jnp.zeros(regions)
    return stream, Warmed(whole, whole, none, none, jnp.zeros(regions, jnp.int32))


def advance(s: Stream, sdma: Sdma, time: jax.Array) -> Stream:
    """The stream at ``time``; as it is where that is past."""

    def knot(s: Stream) -> Stream:
        awake = _awake(s)
        stretch = _stretch(awake, sdma)
        ends = jnp.where(awake, s.now + on_grid(s.left * stretch), jnp.inf)
        waking = jnp.where((s.left > 0) & (s.wakes > s.now), s.wakes, jnp.inf)
        now = jnp.minimum(time, jnp.minimum(jnp.min(ends), jnp.min(waking)))
        moved = jnp.where(ends <= now, s.left, jnp.minimum(on_grid((now - s.now) / stretch), s.left))
        moved = jnp.where(awake, moved, 0.0)
        return Stream(now, s.left - moved, s.done + moved, s.wakes)

    return jax.lax.while_loop(lambda s: s.now < time, knot, s)


def asked(s: Stream, sdma: Sdma, context: jax.Array, length: jax.Array) -> Stream:
    """``length`` more for a context, now."""
    itself = jnp.arange(len(s.left), dtype=jnp.int32) == context
    begins = jnp.any(itself & (s.left == 0)) & (length > 0)
    others = (s.left > 0) & ~itself
    wakes = s.now + jnp.where(jnp.any(others), sdma.startup_us, 0.0)
    changed = begins & (itself | others) & (s.wakes <= s.now)
    return s._replace(wakes=jnp.where(changed, wakes, s.wakes), left=s.left + jnp.where(itself, length, 0.0))


def asks(s: Stream, sdma: Sdma, time: jax.Array) -> jax.Array:
    """The share of HBM that the contexts will ask for at ``time``."""
    streams = jnp.sum(_awake(advance(s, sdma, time)), dtype=jnp.int32)
    return jnp.where(streams == 0, 0.0, jnp.where(streams == 1, sdma.one, sdma.several))


def landed(w: Warmed, s: Stream, region: jax.Array) -> jax.Array:
    """The part of a region that is there as far as warms go: 1 where none brings it."""
    base, top, length = w.base[region], w.top[region], w.length[region]
    part = jnp.clip((s.done[w.context[region]] - w.place[region]) / jnp.where(length > 0, length, 1.0), 0.0, 1.0)
    return base + rounded((top - base) * rounded(jnp.where(length > 0, part, 1.0)))


def read(s: Stream, w: Warmed, sdma: Sdma, region: jax.Array, reads: jax.Array) -> tuple[Stream, Warmed]:
    """What a stream has left of a region that a task reads is in L2 now, and shorter."""
    context, place, length = w.context[region], w.place[region], w.length[region]
    rest = jnp.clip(place + length - s.done[context], 0.0, length)
    saved = jnp.maximum(rest - on_grid(rest * (sdma.hit_byte_us / sdma.byte_us)), 0.0)
    saved = jnp.where(reads, saved, 0.0)
    moved = jnp.where((w.context == context) & (w.place > place), w.place - saved, w.place)
    return s._replace(left=s.left.at[context].add(-saved)), w._replace(place=moved)


def length(size: jax.Array, before: jax.Array, fraction: jax.Array, sdma: Sdma) -> jax.Array:
    """What a context takes for ``fraction`` of a region of which L2 holds ``before``."""
    cold = on_grid(size * jnp.maximum(fraction - before, 0.0) * sdma.byte_us)
    return cold + on_grid(size * jnp.minimum(fraction, before) * sdma.hit_byte_us)


def _awake(s: Stream) -> jax.Array:
    return (s.left > 0) & (s.wakes <= s.now)


def _stretch(awake: jax.Array, sdma: Sdma) -> jax.Array:
    count = jnp.sum(awake, dtype=jnp.int32)
    return jnp.where(count > 1, count.astype(jnp.float64) * sdma.worse, 1.0)


def on_grid(time_us: jax.Array) -> jax.Array:
    """The nearest multiple of the grid of times."""
    return jnp.round(time_us / GRID_US) * GRID_US


def rounded(share: jax.Array) -> jax.Array:
    """A share as a multiple of 2⁻³⁰, so that sums of shares are exact."""
    return jnp.round(share * 2.0**30) * 2.0**-30
