"""``l2_hit_pipe_profile.csv``: profiler ratios and link rates of the hand-placed product."""

import re

from ..cost import Cost, Options
from ..hardware import Hardware
from ..kernels import matmul_staged
from ._problem import NotCovered, Problem, Row, number, product, text

CUBE_ROWS, CUBE_COLUMNS = 16, 64
"""Rows of the left and columns of the right operand that the cube takes at a time; the other is read anew for each."""


def _traffic(problem: Problem, cost: Cost) -> dict[str, float]:
    """Bytes a core moves over each link while it runs. Operands of two bytes, four-byte sums, two-byte results."""
    v, k = problem.values, problem.specs["a"].shape[1]
    cores = float(problem.options.cores or 1)
    blocks = float(cost.blocks) / cores
    steps = blocks * k / v["k0"]
    left, right, sums = 2 * v["m"] * v["k0"], 2 * v["k0"] * v["n"], 4 * v["m"] * v["n"]
    read, result = float(cost.moved["read"]) / cores, blocks * 2 * v["m"] * v["n"]
    return {
        "l2_to_l1": read,
        "gm_to_l2": read * (1 - float(cost.l2_hit)),
        "l1_to_l0a": steps * left,
        "l1_to_l0b": steps * right,
        "l0a_to_cube": steps * left * v["n"] / CUBE_COLUMNS,
        "l0b_to_cube": steps * right * v["m"] / CUBE_ROWS,
        "cube_to_l0c": steps * sums,
        "l0c_to_cube": (steps - blocks) * sums,
        "l0c_to_l2": result,
    }


LINKS = (
    "l2_to_l1", "gm_to_l2", "l1_to_l0a", "l1_to_l0b", "l0a_to_cube", "l0b_to_cube", "cube_to_l0c", "l0c_to_cube",
    "l0c_to_l2",
)  # fmt: skip


def problem(row: Row) -> Problem:
    """L2 hit rate, cube share or the rate of a link, GB/s a core; the third dimension is assumed equal to the others.

    Tiles are those of the step sweep that the row's note refers to: 128 x 256, K 512 and 256, 64 a cube step.
    """
    quantity = text(row, "quantity")

    def answer(problem: Problem, cost: Cost, hardware: Hardware) -> float:
        if quantity == "l2_hit":
            return 100.0 * float(cost.l2_hit)
        if quantity == "cube_ratio":
            return 100.0 * float(cost.busy["CUBE"] / cost.cycles)
        seconds = float(cost.cycles) / float(hardware.clock_mhz) * 1e-6
        return _traffic(problem, cost)[quantity] / seconds * 1e-9

    if quantity not in ("l2_hit", "cube_ratio", *LINKS):
        raise NotCovered("when L2 writes results back is not modelled")
    sizes = re.match(r"(\d+)x(\d+)", text(row, "matrix"))
    if sizes is None:
        raise NotCovered("column `matrix` is not two sizes such as 4096x4096")
    n, k = int(sizes.group(1)), int(sizes.group(2))
    group, assumed = -(-n // 256), ["M equal to N"]
    if text(row, "swizzle") not in ("", "0"):
        stated = re.search(r"swizzle count (\d+)", text(row, "note"))
        group = int(stated.group(1)) if stated else 5
        assumed += [] if stated else ["swizzle count 5, as in the step sweep"]
    values = {"m": 128, "n": 256, "ka": 512, "kb": 256, "k0": 64, "stages": 2, "group": group}
    step = re.match(r"step(\d)", text(row, "implementation"))
    return Problem(
        matmul_staged,
        product(matmul_staged, n, n, k, "fp16", True),
        matmul_staged.configuration(values),
        number(row, "value"),
        unit="%" if quantity in ("l2_hit", "cube_ratio") else "GB/s",
        answer=answer,
        options=Options(warm=4, sync="manual" if step and int(step.group(1)) >= 4 else "auto", cores=24),
        assumed=tuple(assumed),
    )
