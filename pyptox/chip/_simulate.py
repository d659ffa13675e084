"""Simulate a program or a workload, and differentiate its makespan."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import PyptoxError
from ..hardware import Hardware, a2a3
from ..program._graph import Graph
from ..rings import Limits, Storage
from ._constants import CONSTANTS, MOST_US, Schedule, a2a3_schedule, on_grid
from ._costs import workload
from ._memory import COLUMNS
from ._retired import settled
from ._timeline import Timeline
from ._workload import Workload


def simulate(
    what: Graph | Workload,
    *,
    hardware: Hardware | None = None,
    schedule: Schedule | None = None,
    repeated: bool = False,
    rings: Limits | None = None,
) -> Timeline:
    """Simulate a program's graph, or tasks given as arrays.

    Args:
        what: a graph, whose blocks then take what the cost model says, or a workload.
        hardware: the chip; a2a3 by default.
        schedule: the scheduler's constants; those of a2a3 by default.
        rings: capacities of the rings: where one is full the orchestrator waits until tasks are consumed. Where left
            out, those of the runtime for a program with scopes of its own (`pp.scope`, `pp.loop`), and none for one
            that leaves its scopes to the compiler, or for tasks without a storage; ``rings.unlimited()`` for none.
        repeated: L2 holds what a round of the same tasks left, as in a benchmark of one step; by default nothing that
            the tasks use, as for a step inside a network whose other steps have put it out.

    Raises:
        DeadlockError: a submission waits for its ring for ever.
        PyptoxError: ``rings`` of tasks whose storage is not stated.

    The rules, and what is left out, are in :mod:`pyptox.chip._oracle`.

    >>> from pyptox import chip
    >>> work = chip.Workload.of(["AIC", "AIV"], [24, 48], [10.0, 5.0], [[], [0]])
    >>> timeline = chip.simulate(work)
    >>> timeline.static_path().time_us
    15.0
    >>> sum(timeline.attribution().values()) == timeline.makespan_us
    True
    """
    hardware = hardware or a2a3()
    clusters = clusters_on(hardware)
    schedule = schedule or a2a3_schedule()
    graph = what if isinstance(what, Graph) else None
    work = workload(what, hardware, rings=rings) if isinstance(what, Graph) else under(what, rings)
    work, times, record = settled(work, schedule, clusters, repeated)
    return Timeline(work, schedule, clusters, times, record, hardware, graph, repeated)


def under(work: Workload, rings: Limits | None) -> Workload:
    """The tasks with other capacities; as they are where left out.

    Raises:
        PyptoxError: what they take of the rings is not stated.
    """
    if rings is None:
        return work
    if work.storage is None:
        raise PyptoxError(
            "`rings` needs tasks that state what they take of them: a program, or a workload with `storage`"
        )
    return dataclasses.replace(work, storage=Storage(work.storage.work, rings))


def clusters_on(hardware: Hardware) -> int:
    """Clusters of a chip with two vector cores for each cube core.

    Raises:
        PyptoxError: a chip with another ratio.
    """
    clusters, vector = int(hardware.counts.aic), int(hardware.counts.aiv)
    if vector != 2 * clusters:
        raise PyptoxError(f"`hardware` must have two AIVs for each AIC; {hardware.name} has {clusters} and {vector}")
    return clusters


def makespan(work: Workload, *, hardware: Hardware | None = None, repeated: bool = False) -> Any:
    """A function of a schedule and of the tasks' times (µs) that gives the makespan (µs), for JAX.

    It may be jitted, vmapped over constants and times, and differentiated once: the simulation runs on the host, one
    candidate after another. Its derivatives are those of :meth:`Timeline.gradient` and :meth:`Timeline.slopes`; what
    the times depend on follows by the chain rule.

    Returns:
        ``function(schedule, duration_us, memory_us)``: [tasks], and [3, tasks] of ``resident_us``, ``hbm_us`` and
        ``l2_us``; where left out they are the workload's own and go along with ``duration_us``, as in
        :meth:`Workload.with_durations`; :func:`durations` gives both for a chip. Times that are no times (NaN,
        infinite, negative) give NaN.

    >>> import jax
    >>> from pyptox import chip
    >>> work = chip.Workload.of(["AIC", "AIC"], [24, 24], [10.0, 5.0], [[], [0]])
    >>> function = chip.makespan(work)
    >>> jax.grad(function, argnums=1)(chip.a2a3_schedule(), work.duration_us.astype("float32")).tolist()
    [1.0, 1.0]
    """
    machine = hardware or a2a3()
    clusters, tasks = clusters_on(machine), work.tasks
    own = np.zeros((3, tasks)) if work.memory is None else np.stack([getattr(work.memory, name) for name in COLUMNS])

    def on_host(threads: int, constants: Any, duration_us: Any, memory_us: Any) -> tuple[np.ndarray, np.ndarray]:
        """The makespan, and its derivatives by constant and then by each time of each task."""
        given = np.concatenate([np.ravel(x) for x in (constants, duration_us, memory_us)])
        if not ((given >= 0) & (given <= MOST_US)).all():
            return np.full((), np.nan, _widest()), np.full(len(CONSTANTS) + 4 * tasks, np.nan, _widest())
        numbers = dict(zip(CONSTANTS, np.asarray(constants, np.float64).tolist(), strict=True))
        schedule, changed = Schedule(**numbers, threads=threads), work.with_durations(np.asarray(duration_us))
        if work.memory is not None:
            columns = dict(zip(COLUMNS, on_grid(memory_us), strict=True))
            changed = dataclasses.replace(changed, memory=dataclasses.replace(work.memory, **columns))
        changed, times, record = settled(changed, schedule, clusters, repeated)
        timeline = Timeline(changed, schedule, clusters, times, record, machine)
        counts, s = timeline.gradient()[0], timeline.slopes()
        slopes = np.concatenate([list(counts.values()), s.duration_us, s.resident_us, s.hbm_us, s.l2_us])
        return np.asarray(timeline.makespan_us, _widest()), slopes.astype(_widest())

    def computed(schedule: Schedule, duration_us: Any, memory_us: Any) -> tuple[Any, Any]:
        wide = _widest()
        constants = jnp.stack([jnp.asarray(getattr(schedule, name), wide) for name in CONSTANTS])
        shapes = jax.ShapeDtypeStruct((), wide), jax.ShapeDtypeStruct((len(CONSTANTS) + 4 * tasks,), wide)
        call = functools.partial(on_host, schedule.threads)
        given = (jnp.asarray(x, wide) for x in (duration_us, memory_us))
        return jax.pure_callback(call, shapes, constants, *given, vmap_method="sequential")

    @jax.custom_vjp
    def value(schedule: Schedule, duration_us: Any, memory_us: Any) -> Any:
        return computed(schedule, duration_us, memory_us)[0].astype(_type(duration_us))

    def forward(schedule: Schedule, duration_us: Any, memory_us: Any):
        result, slopes = computed(schedule, duration_us, memory_us)
        return result.astype(_type(duration_us)), (slopes, schedule, duration_us, memory_us)

    def backward(kept: tuple[Any, Schedule, Any, Any], cotangent: Any):
        slopes, schedule, duration_us, memory_us = kept
        by_constant = {
            name: (cotangent * slopes[n]).astype(_type(getattr(schedule, name))) for n, name in enumerate(CONSTANTS)
        }
        by_time = (cotangent * slopes[len(CONSTANTS) :]).reshape(4, tasks)
        by_memory = by_time[1:].astype(_type(memory_us))
        return dataclasses.replace(schedule, **by_constant), by_time[0].astype(_type(duration_us)), by_memory

    value.defvjp(forward, backward)

    def function(schedule: Schedule, duration_us: Any, memory_us: Any = None) -> Any:
        if jnp.shape(duration_us) != (tasks,):
            raise PyptoxError(f"`duration_us` must be an array of {tasks} times; got shape {jnp.shape(duration_us)}")
        if memory_us is None:
            factor = jnp.where(
                work.duration_us > 0, duration_us / np.where(work.duration_us > 0, work.duration_us, 1), 1
            )
            memory_us = jnp.asarray(own, _widest()) * factor[None]
        return value(schedule, duration_us, memory_us)

    return function


def _widest() -> Any:
    """float64 where JAX has it enabled."""
    return jnp.float64 if jax.config.read("jax_enable_x64") else jnp.float32


def _type(value: Any) -> Any:
    return jnp.result_type(value)
