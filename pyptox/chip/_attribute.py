"""Which constants of the chip the blocks on a critical path are made of."""

from typing import Any

import numpy as np

from ..cost._attribute import attribute
from ..cost._batch import options_for
from ..cost._evaluate import Options, predict
from ..hardware import Hardware
from ..program._graph import Graph
from ._workload import plain, same_work


def hardware_shares(graph: Graph, hardware: Hardware, counts: np.ndarray) -> dict[str, float]:
    """Microseconds of ``counts`` blocks of each task by constant of ``hardware.times``, the launch left out.

    The time of a block is homogeneous of degree one in these constants, so the shares add up to ``counts`` times the
    blocks' durations.
    """
    chip = plain(hardware)
    known: dict[Any, dict[str, float]] = {}
    shares: dict[str, float] = {}
    for number in np.flatnonzero(counts):
        task = graph.tasks[number]
        assert task.kernel is not None
        key = same_work(task)
        if key not in known:
            specs = task.specs()
            options = options_for(task.kernel, Options(warm=4), task.values)
            shapes = {name: tuple(map(float, spec.shape)) for name, spec in specs.items()}
            control = {name: np.asarray(s.values, float) for name, s in specs.items() if s.values is not None}
            waves = float(predict(task.kernel, specs, shapes, task.values, chip, options, control).waves)
            parts = attribute(task.kernel, specs, task.values, chip, options)
            known[key] = {name: part / waves for name, part in parts.items() if name != "launch_us" and part}
        for name, part in known[key].items():
            shares[name] = shares.get(name, 0.0) + float(counts[number]) * part
    return shares
