"""``kernel_task_times.csv``: the mean time of a kernel's blocks inside a decode layer.

A projection whose tiles are stated is read from the library; the layer around it, whose launches share and evict its
weight, is the one of :mod:`._v200`.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..chip import simulate
from ..hardware import Hardware, preset
from ._problem import NotCovered, Row, count, number, on_die, text
from ._v200 import KERNELS, WIDE, layer


def fill(rows: Sequence[Row]) -> list[Row]:
    """Rows whose workload begins with ``same`` belong to the one before."""
    filled, workload = [], ""
    for row in rows:
        if not text(row, "workload").startswith("same"):
            workload = text(row, "workload")
        filled.append({**row, "workload": workload})
    return filled


@dataclass(frozen=True)
class InLayer:
    """The mean over all blocks of a kernel in the simulated layer."""

    kernel: str
    measured: float
    unit: str = "us"
    assumed: tuple[str, ...] = ("the layer's other kernels take their published means",)
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs of a block."""
        return _means(hardware.name.split("/")[-1])[self.kernel], True


@functools.lru_cache(maxsize=8)
def _means(die: str) -> dict[str, float]:
    hardware = on_die(preset(die), die)
    work = layer(WIDE, hardware)
    block = simulate(work, hardware=hardware).times.block
    names = np.array([name.split(" ")[1] for name in work.names])
    return {name: float(np.average(block[names == name], weights=work.blocks[names == name])) for name in KERNELS}


def problem(row: Row) -> InLayer:
    """A projection of the layer."""
    kernel = text(row, "kernel")
    if not re.search(r"Qwen3-14B decode 1 layer", text(row, "workload")):
        raise NotCovered("the program around the kernel is not stated")
    if kernel not in KERNELS or KERNELS[kernel].product is None:
        raise NotCovered("the kernel's tiles are not stated")
    stated = tuple(count(row, name) for name in ("K", "N", "tile_k", "n_per_block"))
    if stated != KERNELS[kernel].product or text(row, "M") not in ("", "16"):
        raise NotCovered("other tiles than those of the published layer")
    return InLayer(kernel, number(row, "mean_us"))
