"""``tile_sweeps.csv``: tile variants, and what the verifier rejects."""

import re

from .._dtypes import dtype_of
from ..cost import Options
from ..hardware import PRESETS, Hardware
from ..kernels import matmul, matmul_nt
from ._problem import NotCovered, Problem, Row, count, number, product, text


def rejected(row: Row, hardware: Hardware) -> bool | None:
    """Whether a double-buffered weight tile overflows L0B; None where its sizes are not stated."""
    try:
        width = dtype_of(text(row, "dtype_b") or text(row, "dtype_a")).bytes
        k = count(row, "l0_tile_k" if text(row, "l0_tile_k") else "tile_k")
        n = count(row, "tile_n" if text(row, "tile_n") else "N")
    except (NotCovered, ValueError, KeyError):
        return None
    if text(row, "outcome").startswith("ok"):
        return None  # its Mat tile may be cut further on the way to L0
    return bool(2 * k * n * width > hardware.sizes.right)


def failed_tile(row: Row, hardware: Hardware) -> bool:
    """The prediction for a failed row, from sizes in its limit (``32*512*4``) or its columns.

    Raises:
        NotCovered: neither determines the bytes of an on-chip space.
    """
    detail = text(row, "limit_detail")
    stated = re.search(r"(\d+)\*(\d+)\*(\d+).*double-buffered L0([AB])", detail)
    if stated:
        rows, columns, width = (int(stated.group(i)) for i in (1, 2, 3))
        return 2 * rows * columns * width > (hardware.sizes.left if stated.group(4) == "A" else hardware.sizes.right)
    predicted = rejected(row, hardware) if "L0" in detail else None
    if predicted is None:
        raise NotCovered("failed for a reason that the columns do not determine")
    return predicted


def problem(row: Row) -> Problem:
    """The plain product of a row with M, K, N, all three tile sizes and a dtype."""
    if text(row, "unit") != "us":
        raise NotCovered("not a time in us")
    if not all(text(row, c) for c in ("M", "K", "N")):
        raise NotCovered("the columns do not determine a matmul: M, K or N is empty")
    if not all(text(row, c) for c in ("tile_m", "tile_k", "tile_n")):
        raise NotCovered("the columns do not determine a matmul: a tile size is empty")
    if text(row, "other_changes"):
        raise NotCovered("changes more than its tile")
    layout = text(row, "b_layout")
    transposed = layout.startswith(("[N,K]", "ColumnMajor"))
    kernel = matmul_nt if transposed else matmul
    values: dict = {name: count(row, f"tile_{name}") for name in "mkn"}
    if text(row, "pipeline_stage"):
        values["stages"] = count(row, "pipeline_stage")
    cores = count(row, "cores") if text(row, "cores") else None
    m, n, k = count(row, "M"), count(row, "N"), count(row, "K")
    platform = text(row, "platform")
    return Problem(
        kernel,
        product(
            kernel,
            m,
            n,
            k,
            text(row, "dtype_a") or text(row, "dtype_b"),
            transposed,
            ("rows", "zN" if layout == "zN" else "rows"),
        ),
        kernel.configuration(values),
        number(row, "value"),
        options=Options(warm=4, sync="manual" if "CATLASS" in text(row, "op") else "auto", cores=cores),
        die=platform if platform in PRESETS else None,
    )
