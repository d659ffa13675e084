"""Simulate a program or a workload, and differentiate its makespan."""

from collections.abc import Mapping
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
    """A function of a schedule and of the tasks' durations (µs) that gives the makespan (µs), for ``jax.grad``.

    Its derivative is :meth:`Timeline.gradient`; further derivatives through the durations follow by the chain rule. It
    is for use outside ``jit``.

    >>> import jax
    >>> from pyptox import chip
    >>> work = chip.Workload.of(["AIC", "AIC"], [24, 24], [10.0, 5.0], [[], [0]])
    >>> function = chip.makespan(work)
    >>> jax.grad(function, argnums=1)(chip.a2a3_schedule(), work.duration_us.astype("float32")).tolist()
    [1.0, 1.0]
    """
    clusters = clusters_on(hardware or a2a3())

    def simulated(schedule: Schedule, duration_us: Any) -> Timeline:
        plain = schedule.replace(**{name: float(getattr(schedule, name)) for name in CONSTANTS})
        changed = work.with_durations(np.asarray(duration_us))
        times, record = run(changed, plain, clusters)
        return Timeline(changed, plain, clusters, times, record, hardware or a2a3())

    @jax.custom_vjp
    def value(schedule: Schedule, duration_us: Any) -> Any:
        return jnp.asarray(simulated(schedule, duration_us).makespan_us, _type(duration_us))

    def forward(schedule: Schedule, duration_us: Any):
        timeline = simulated(schedule, duration_us)
        constants, durations = timeline.gradient()[0], timeline.slopes().duration_us
        return jnp.asarray(timeline.makespan_us, _type(duration_us)), (constants, durations, schedule, duration_us)

    def backward(kept: tuple[Mapping[str, int], np.ndarray, Schedule, Any], cotangent: Any):
        constants, durations, schedule, duration_us = kept
        slopes = {name: cotangent.astype(_type(getattr(schedule, name))) * float(n) for name, n in constants.items()}
        return schedule.replace(**slopes), cotangent * jnp.asarray(durations, _type(duration_us))

    value.defvjp(forward, backward)
    return value


def _type(value: Any) -> Any:
    return jnp.result_type(value)
