"""The cost model's time of one block of every task, as a JAX function of the chip."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..cost._batch import options_for
from ..cost._evaluate import Options, predict
from ..hardware import Hardware
from ..program._graph import Graph
from ..program._task import Task
from ._costs import same_work


def durations(graph: Graph) -> Callable[[Hardware], Any]:
    """A function of a chip that gives µs of one block of each task that finds nothing in L2, as a workload has them.

    It may be jitted, vmapped over the chip's numbers and differentiated in them; with :func:`makespan` it makes a whole
    program's time a function of the chip. Tasks without a kernel take 0.

    >>> import pyptox as px
    >>> from pyptox import chip, program as pp
    >>> @pp.program(sizes=lambda m=16, k=64: {"x": px.spec((m, k), "bf16"), "w": px.spec((k, k), "bf16")})
    ... def twice(x, w):
    ...     return pp.submit(px.kernels.matmul, pp.submit(px.kernels.matmul, x, w), w)
    >>> graph = pp.graph(twice)
    >>> found = chip.durations(graph)(px.hardware.a2a3())
    >>> bool(abs(found[0] - chip.workload(graph, px.hardware.a2a3()).duration_us[0]) < 1e-3)
    True
    """
    distinct: dict[Any, tuple[int, Task]] = {}
    place = np.zeros(len(graph.tasks), np.int32)
    for task in graph.tasks:
        if task.kernel is not None:
            place[task.number], _ = distinct.setdefault(same_work(task), (len(distinct) + 1, task))
    kernels = [task for _, task in distinct.values()]

    def of(hardware: Hardware) -> Any:
        times = [jnp.asarray(_block_us(task, hardware)) for task in kernels]
        return jnp.stack([jnp.zeros_like(times[0]), *times])[place] if times else jnp.zeros(len(place))

    return of


def _block_us(task: Task, hardware: Hardware) -> Any:
    """``(time - launch) / waves`` with an empty L2, of numbers that JAX may trace."""
    assert task.kernel is not None
    specs = task.specs()
    options = options_for(task.kernel, Options(warm=4), task.values)
    shapes = {name: tuple(map(float, spec.shape)) for name, spec in specs.items()}
    control = {name: np.asarray(s.values, float) for name, s in specs.items() if s.values is not None}
    cost = predict(task.kernel, specs, shapes, task.values, hardware, options, control)
    return (cost.time_us - hardware.times.launch_us) / cost.waves
