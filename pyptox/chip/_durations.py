"""The cost model's times of one block of every task, as JAX functions of the chip."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..cost._evaluate import predict
from ..cost._nest import Options, options_for
from ..hardware import Hardware, a2a3
from ..program._graph import Graph
from ..program._task import Task
from ._costs import block_cost, filled, same_work, streaming_us, waves_of
from ._warm import Sdma


def durations(graph: Graph) -> Callable[[Hardware], tuple[Any, Any]]:
    """A function of a chip that gives µs of one block of each task, as a workload and its memory have them.

    Returns:
        ``(duration_us, memory_us)`` with [tasks] and [3, tasks] (``resident_us``, ``hbm_us``, ``l2_us``), which
        :func:`makespan` takes: a program's time as a function of the chip. The function may be jitted, vmapped over the
        chip's numbers and differentiated in them. Tasks without a kernel take 0.

    >>> import pyptox as px
    >>> from pyptox import chip, program as pp
    >>> @pp.program(sizes=lambda m=16, k=64: {"x": px.spec((m, k), "bf16"), "w": px.spec((k, k), "bf16")})
    ... def twice(x, w):
    ...     return pp.submit(px.kernels.matmul, pp.submit(px.kernels.matmul, x, w), w)
    >>> graph = pp.graph(twice)
    >>> duration_us, memory_us = chip.durations(graph)(px.hardware.a2a3())
    >>> bool(abs(duration_us[0] - chip.workload(graph, px.hardware.a2a3()).duration_us[0]) < 1e-3), memory_us.shape
    (True, (3, 2))
    """
    distinct: dict[Any, tuple[int, Task, tuple, bool]] = {}
    place, full = np.zeros(len(graph.tasks), np.int32), filled(graph, a2a3())
    for task in graph.tasks:
        if task.kernel is not None:
            key = same_work(task), bool(full[task.number])
            if key not in distinct:
                inputs = tuple((name, 1.0) for name in block_cost(task, a2a3()).shares)
                distinct[key] = len(distinct) + 1, task, inputs, key[1]
            place[task.number] = distinct[key][0]

    warms = np.array([Sdma().issue_us * len(task.warms) for task in graph.tasks])

    def of(hardware: Hardware) -> tuple[Any, Any]:
        columns = [_block_us(task, inputs, whole, hardware) for _, task, inputs, whole in distinct.values()]
        issue = jnp.zeros((4, len(place))).at[:2].set(jnp.asarray(warms))
        if not columns:
            return issue[0], issue[1:]
        table = jnp.stack([jnp.zeros_like(columns[0]), *columns], 1)[:, place] + issue
        return table[0], table[1:]

    return of


def _block_us(task: Task, inputs: tuple, whole: bool, hardware: Hardware) -> Any:
    """Cold, resident, HBM and L2, as :func:`._costs.block_cost` has them, of numbers that JAX may trace."""
    assert task.kernel is not None
    specs = task.specs()
    options = options_for(task.kernel, Options(warm=4, full=whole), task.values)
    shapes = {name: tuple(map(float, spec.shape)) for name, spec in specs.items()}
    control = {name: np.asarray(s.values, float) for name, s in specs.items() if s.values is not None}
    cold, warm = (
        predict(task.kernel, specs, shapes, task.values, hardware, replace(options, resident=resident), control)
        for resident in ((), inputs)
    )
    launch = hardware.times.launch_us
    full = (cold.time_us - launch) / cold.waves
    hbm = streaming_us(cold, hardware, whole)
    l2 = (cold.moved["read"] + cold.moved["write"]) * hardware.times.l2_us / waves_of(cold, whole)
    return jnp.stack([full, *(jnp.minimum(x, full) for x in ((warm.time_us - launch) / cold.waves, hbm, l2))])
