"""Cores as the machine sees them: of a task's kind, by number, each with its scheduler thread.

A unit is what one block occupies: an AIC, an AIV, or a whole cluster for MIX. Values of cores are ``[clusters, 3]``
arrays, the AIC first; values of units are ``[2 x clusters]``, of which AIC and MIX use the first half.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._oracle import clusters_of
from ._record import Small, int32
from ._workload import AIC, AIV, MIX


class Seen(NamedTuple):
    """The units of one kind: thread, whether there is such a unit, slot and last end with the cores that set them."""

    thread: jax.Array
    active: jax.Array
    opens: jax.Array
    ends: jax.Array
    opens3: jax.Array
    given3: jax.Array
    which_open: jax.Array
    which_end: jax.Array
    fresh: jax.Array  # one of its cores has had no block


@dataclass(frozen=True)
class Units:
    """``clusters`` shared by ``threads``."""

    clusters: int
    threads: int

    @cached_property
    def each(self) -> int:
        """Clusters of a thread."""
        return clusters_of(self.clusters, self.threads)

    @property
    def wide(self) -> int:
        """Units of the kind that has most."""
        return 2 * self.clusters

    @cached_property
    def numbers(self) -> np.ndarray:
        return np.arange(self.wide, dtype=np.int32)

    @cached_property
    def of_cluster(self) -> np.ndarray:
        """The thread of every cluster."""
        return np.arange(self.clusters) // self.each

    def owners(self, shape: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The thread of every unit of ``shape``, and whether there is such a unit."""
        own = {kind: self.numbers // (2 * self.each if kind == AIV else self.each) for kind in (AIC, AIV)}
        thread = jnp.where(shape == AIV, int32(own[AIV]), int32(own[AIC]))
        return jnp.minimum(thread, self.threads - 1), (int32(self.numbers) < self.clusters) | (shape == AIV)

    def lower(self) -> jax.Array:
        """``[unit, other]``: the other has the lower number."""
        return int32(self.numbers)[None, :] < int32(self.numbers)[:, None]

    def views(self, shape: jax.Array, state: jax.Array, fill: float | int) -> jax.Array:
        """[units, 3] values of the cores of every unit of ``shape``; ``fill`` where it has fewer."""
        nothing = jnp.full((self.clusters, 3), fill, state.dtype)
        mixed = jnp.concatenate([state, nothing])
        single = jnp.full((self.wide, 2), fill, state.dtype)
        cube = jnp.concatenate([jnp.concatenate([state[:, :1], nothing[:, :1]]), single], 1)
        vector = jnp.concatenate([state[:, 1:].reshape(self.wide, 1), single], 1)
        return jnp.where(shape == MIX, mixed, jnp.where(shape == AIC, cube, vector))

    def seen(self, shape: jax.Array, s: Small) -> Seen:
        """The units of ``shape``."""
        thread, active = self.owners(shape)
        opens3, ends3 = self.views(shape, s.opens, -jnp.inf), self.views(shape, s.ends, -jnp.inf)
        given3 = self.views(shape, s.given, -1)
        fresh = jnp.any(self.views(shape, s.given < 0, False), 1)
        which_open, which_end = jnp.argmax(opens3, 1).astype(jnp.int32), jnp.argmax(ends3, 1).astype(jnp.int32)
        return Seen(thread, active, opens3.max(1), ends3.max(1), opens3, given3, which_open, which_end, fresh)

    def by_unit(self, shape: jax.Array, units: jax.Array, old: jax.Array) -> jax.Array:
        """Values of units put into the cores that they occupy."""
        cube, vector = units[: self.clusters, None], units.reshape(self.clusters, 2)
        return jnp.where(
            shape == AIV,
            jnp.concatenate([old[:, :1], vector], 1),
            jnp.concatenate([cube, jnp.where(shape == MIX, jnp.concatenate([cube, cube], 1), old[:, 1:])], 1),
        )

    def by_core(self, shape: jax.Array, used: jax.Array, units: jax.Array, old: jax.Array) -> jax.Array:
        """``old`` with the values of the units in use."""
        occupied = self.by_unit(shape, used, jnp.zeros((self.clusters, 3), bool))
        return jnp.where(occupied, self.by_unit(shape, units, old), old)

    def by_thread(self, shape: jax.Array, used: jax.Array, end: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Of the units in use of every thread: the last end, how many, and which ends last."""
        own = (self.owners(shape)[0][None, :] == int32(np.arange(self.threads))[:, None]) & used[None, :]
        lasts = jnp.where(own, end[None, :], -jnp.inf)
        return lasts.max(1), jnp.sum(own, 1, dtype=jnp.int32), jnp.argmax(lasts, 1).astype(jnp.int32)

    def labels(self, task: jax.Array, kind: int) -> jax.Array:
        """The work of every thread on ``task``, by name."""
        return task * 16 + int32(np.arange(self.threads) * 4) + kind

    def earliest(self, s: Small) -> jax.Array:
        """When a MIX, an AIC and an AIV block, and a dummy, first find a slot and a free thread."""
        clock = s.clock[int32(self.of_cluster)]
        cube = jnp.min(jnp.maximum(s.opens[:, 0], clock))
        vector = jnp.min(jnp.maximum(jnp.minimum(s.opens[:, 1], s.opens[:, 2]), clock))
        mixed = jnp.min(jnp.maximum(jnp.max(s.opens, 1), clock))
        return jnp.stack([mixed, cube, vector, jnp.min(s.clock)])

    def whole(self, s: Small, blocks: jax.Array, wanted: jax.Array) -> tuple[jax.Array, jax.Array]:
        """For a MIX, an AIC and an AIV task the moment when all its blocks find a slot, and in which core last."""

        def of(shape: int):
            thread, active = self.owners(int32(shape))
            slots = jnp.maximum(self.views(int32(shape), s.opens, -jnp.inf).max(1), s.clock[thread])
            slots = jnp.where(active, slots, jnp.inf)
            sooner = slots[None, :] < slots[:, None]
            same = slots[None, :] == slots[:, None]
            place = jnp.sum(sooner | (same & self.lower()), 1, dtype=jnp.int32)
            unit = jnp.argmax(place == blocks[shape] - 1).astype(jnp.int32)
            return slots[unit], unit

        def all_three(_):
            slots, units = zip(*map(of, (MIX, AIC, AIV)), strict=True)
            return jnp.stack(slots), jnp.stack(units)

        none = (jnp.full(3, jnp.inf), jnp.zeros(3, jnp.int32))
        return jax.lax.cond(wanted, all_three, lambda _: none, None)
