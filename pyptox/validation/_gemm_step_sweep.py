"""``gemm_step_sweep.csv``: matrix products with every tile size stated."""

import re

from ..cost import Options
from ..kernels import matmul_staged
from ._problem import NotCovered, Problem, Row, count, number, pair, product, text


def problem(row: Row) -> Problem:
    """The hand-placed product of a row; its TFLOPS become a time, 2 m n k / (TFLOPS 1e6) µs."""
    if not text(row, "l1_a_tile"):
        raise NotCovered("tiling unknown")
    m, n, k = (count(row, name) for name in "mnk")
    (tile_m, ka), (tile_n, kb), (_, k0) = (pair(row, c) for c in ("l1_a_tile", "l1_b_tile", "l0a_tile"))
    group = -(-n // tile_n)  # as wide as the grid: row-major
    if text(row, "swizzle") not in ("", "0"):
        stated = re.search(r"swizzle count (\d+)", text(row, "note"))
        if stated is None:
            raise NotCovered("swizzled, but no swizzle count is stated")
        group = int(stated.group(1))
    sync = text(row, "sync")
    if sync not in ("auto", "manual"):
        raise NotCovered("column `sync` is neither auto nor manual")
    values = {
        "m": tile_m,
        "n": tile_n,
        "ka": ka,
        "kb": kb,
        "k0": k0,
        "group": group,
        "stages": count(row, "buffers"),
    }
    return Problem(
        matmul_staged,
        product(matmul_staged, m, n, k, text(row, "dtype"), True),
        matmul_staged.configuration(values),
        2.0 * m * n * k / (number(row, "tflops") * 1e6),
        options=Options(warm=4, sync=sync, cores=count(row, "cores_aic")),
    )
