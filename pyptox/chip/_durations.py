"""The cost model's time of one block of every task, as a JAX function of the chip."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..hardware import Hardware
from ..program._graph import Graph
from ..program._task import Task
from ._costs import block_time_us, same_work


def durations(graph: Graph) -> Callable[[Hardware], Any]:
    """A function of a chip that gives µs of one block of each task, as :func:`workload` takes them.

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
        times = [jnp.asarray(block_time_us(task, hardware)) for task in kernels]
        return jnp.stack([jnp.zeros_like(times[0]), *times])[place] if times else jnp.zeros(len(place))

    return of
