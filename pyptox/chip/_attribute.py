"""Which constants of the chip the blocks on a critical path are made of."""

from typing import Any

import numpy as np

from ..cost._attribute import attribute
from ..cost._evaluate import cost_of
from ..cost._nest import Options
from ..hardware import Hardware
from ..program._graph import Graph
from ..program._task import Task
from ._costs import block_cost, filled, plain, same_work
from ._record import FOUND, HBM_SHARE


def hardware_shares(
    graph: Graph, hardware: Hardware, counts: np.ndarray, block_us: np.ndarray, memory: np.ndarray
) -> dict[str, float]:
    """Microseconds of ``counts`` blocks of each task by constant of ``hardware.times``, the launch left out.

    The time of a block is homogeneous of degree one in these constants, so the shares add up to ``counts`` times
    ``block_us``. What others slow down counts as ``hbm_us`` or ``l2_us``.
    """
    chip = plain(hardware)
    known: dict[Any, tuple[dict[str, float], dict[str, float]]] = {}
    shares: dict[str, float] = {}
    full = filled(graph, hardware)
    for number in np.flatnonzero(counts):
        task, found = graph.tasks[number], float(memory[number, FOUND])
        if task.kernel is None:  # a warm
            shares["issue_us"] = shares.get("issue_us", 0.0) + float(counts[number] * block_us[number])
            continue
        key = same_work(task), (whole := bool(full[number]))
        if key not in known:
            inputs = tuple((arg.name, 1.0) for arg in task.args if arg.reads)
            known[key] = _of_a_block(task, chip, (), whole), _of_a_block(task, chip, inputs, whole)
        parts = {name: (1 - found) * part + found * known[key][1][name] for name, part in known[key][0].items()}
        alone, block = sum(parts.values()), float(block_us[number])
        if block > alone + 1e-3:  # more than rounding to the grid of times
            cost = block_cost(task, chip, whole)
            share = memory[number, HBM_SHARE]
            if alone + (alone - cost.resident_us) * (share - 1) >= block - 1e-3:  # what is missing comes more slowly
                parts["hbm_us"] += block - alone
            else:
                slowed = (1 - found) * cost.hbm_us * share
                parts = {"hbm_us" if slowed >= block - 1e-3 else "l2_us": block}
            alone = block
        for name, part in parts.items():
            if part:
                shares[name] = shares.get(name, 0.0) + float(counts[number]) * part * (block / alone)
    return shares


def _of_a_block(task: Task, chip: Hardware, resident: tuple, full: bool) -> dict[str, float]:
    """Microseconds of one block by constant; ``resident`` names tensors that are in L2, each with a share of 1."""
    assert task.kernel is not None
    options, specs = Options(warm=4, resident=resident, full=full), task.specs()
    waves = float(cost_of(task.kernel, specs, task.values, chip, options).waves)
    parts = attribute(task.kernel, specs, task.values, chip, options)
    return {name: part / waves for name, part in parts.items() if name != "launch_us"}
