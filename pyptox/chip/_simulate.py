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
from ._constants import CONSTANTS, Schedule, a2a3_schedule
from ._costs import workload
from ._run import run
from ._timeline import Timeline
from ._workload import Workload


def simulate(
    what: Graph | Workload,
    *,
    hardware: Hardware | None = None,
    schedule: Schedule | None = None,
    repeated: bool = False,
) -> Timeline:
    """Simulate a program's graph, or tasks given as arrays.

    Args:
        what: a graph, whose blocks then take what the cost model says, or a workload.
        hardware: the chip; a2a3 by default.
        schedule: the scheduler's constants; those of a2a3 by default.
        repeated: L2 holds what a round of the same tasks left, as in a benchmark of one step; by default nothing that
            the tasks use, as for a step inside a network whose other steps have put it out.

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
    work = workload(what, hardware) if isinstance(what, Graph) else what
    times, record = run(work, schedule, clusters, repeated)
    return Timeline(work, schedule, clusters, times, record, hardware, graph)


def clusters_on(hardware: Hardware) -> int:
    """Clusters of a chip with two vector cores for each cube core.

    Raises:
        PyptoxError: a chip with another ratio.
    """
    clusters, vector = int(hardware.counts.aic), int(hardware.counts.aiv)
    if vector != 2 * clusters:
        raise PyptoxError(f"`hardware` must have two AIVs for each AIC; {hardware.name} has {clusters} and {vector}")
    return clusters


def makespan(work: Workload, *, hardware: Hardware | None = None) -> Any:
    """A function of a schedule and of the tasks' durations (µs) that gives the makespan (µs), for JAX.

    It may be jitted, vmapped over constants and durations, and differentiated once: the simulation runs on the host,
    one candidate after another. Its derivative is :meth:`Timeline.gradient`; what the durations depend on follows by
    the chain rule.

    >>> import jax
    >>> from pyptox import chip
    >>> work = chip.Workload.of(["AIC", "AIC"], [24, 24], [10.0, 5.0], [[], [0]])
    >>> function = chip.makespan(work)
    >>> jax.grad(function, argnums=1)(chip.a2a3_schedule(), work.duration_us.astype("float32")).tolist()
    [1.0, 1.0]
    """
    machine = hardware or a2a3()
    clusters, tasks = clusters_on(machine), work.tasks

    def on_host(threads: int, constants: Any, duration_us: Any) -> tuple[np.ndarray, np.ndarray]:
        """The makespan, and its derivatives by constant and then by task."""
        numbers = dict(zip(CONSTANTS, np.asarray(constants, np.float64).tolist(), strict=True))
        schedule = Schedule(**numbers, threads=threads)
        changed = work.with_durations(np.asarray(duration_us))
        times, record = run(changed, schedule, clusters)
        timeline = Timeline(changed, schedule, clusters, times, record, machine)
        counts = timeline.gradient()[0]
        by_duration = timeline.slopes().along(changed.duration_us, changed.memory)
        slopes = np.concatenate([np.array(list(counts.values()), np.int64), by_duration])
        return np.asarray(timeline.makespan_us, _widest()), slopes.astype(_widest())

    def computed(schedule: Schedule, duration_us: Any) -> tuple[Any, Any]:
        wide = _widest()
        constants = jnp.stack([jnp.asarray(getattr(schedule, name), wide) for name in CONSTANTS])
        shapes = jax.ShapeDtypeStruct((), wide), jax.ShapeDtypeStruct((len(CONSTANTS) + tasks,), wide)
        call = functools.partial(on_host, schedule.threads)
        durations = jnp.asarray(duration_us, wide)
        return jax.pure_callback(call, shapes, constants, durations, vmap_method="sequential")

    @jax.custom_vjp
    def value(schedule: Schedule, duration_us: Any) -> Any:
        return computed(schedule, duration_us)[0].astype(_type(duration_us))

    def forward(schedule: Schedule, duration_us: Any):
        result, slopes = computed(schedule, duration_us)
        return result.astype(_type(duration_us)), (slopes, schedule, duration_us)

    def backward(kept: tuple[Any, Schedule, Any], cotangent: Any):
        slopes, schedule, duration_us = kept
        by_constant = {
            name: (cotangent * slopes[n]).astype(_type(getattr(schedule, name))) for n, name in enumerate(CONSTANTS)
        }
        durations = (cotangent * slopes[len(CONSTANTS) :]).astype(_type(duration_us))
        return dataclasses.replace(schedule, **by_constant), durations

    value.defvjp(forward, backward)
    return value


def _widest() -> Any:
    """float64 where JAX has it enabled."""
    return jnp.float64 if jax.config.read("jax_enable_x64") else jnp.float32


def _type(value: Any) -> Any:
    return jnp.result_type(value)
