"""``l2_hit_pipe_profile.csv``: profiler ratios of the hand-placed product."""

import re

from ..cost import Options
from ..kernels import matmul_staged
from ._problem import NotCovered, Problem, Row, number, product, text


def problem(row: Row) -> Problem:
    """L2 hit rate and cube share; the unstated third dimension (M) is taken equal to the other two.

    Tiles are those of the step sweep that the row's note refers to: 128 x 256, K 512 and 256, 64 a cube step.
    """
    quantity = text(row, "quantity")
    if quantity not in ("l2_hit", "cube_ratio"):
        raise NotCovered("link rate: it needs the profiled run time, and the third dimension is not stated")
    sizes = re.match(r"(\d+)x(\d+)", text(row, "matrix"))
    if sizes is None:
        raise NotCovered("column `matrix` is not two sizes such as 4096x4096")
    if text(row, "swizzle") != "0":
        raise NotCovered("swizzled, but no swizzle count is stated")
    n, k = int(sizes.group(1)), int(sizes.group(2))
    values = {"m": 128, "n": 256, "ka": 512, "kb": 256, "k0": 64, "stages": 2, "group": -(-n // 256)}
    return Problem(
        matmul_staged,
        product(matmul_staged, n, n, k, "fp16", True),
        matmul_staged.configuration(values),
        number(row, "value"),
        unit="%",
        quantity=quantity,
        options=Options(warm=4, sync="auto"),
    )
