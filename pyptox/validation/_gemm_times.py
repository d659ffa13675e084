"""``gemm_times.csv``: matrix products on a whole die."""

from ..cost import Options
from ..kernels import matmul_staged
from ._problem import NotCovered, Problem, Row, count, number, product, text


def problem(row: Row) -> Problem:
    """The double-buffered product of a row whose base tile is stated.

    A convolution is its implicit product on fractal (zN) tensors; that its window is read once is left out.
    """
    kernel = text(row, "kernel").lower()
    if "a5" in text(row, "platform").lower():
        raise NotCovered("fp8/fp4 product of the A5, which the cube model does not have")
    if text(row, "ranks") not in ("", "0", "1") and "compute-only" not in kernel:
        raise NotCovered("fused with communication over several ranks")
    if not text(row, "base_m"):
        raise NotCovered("tiling unknown")
    m, n, k, base_m, base_n, base_k = (count(row, c) for c in ("m", "n", "k", "base_m", "base_n", "base_k"))
    step_a = count(row, "step_ka") if text(row, "step_ka") else 1
    step_b = count(row, "step_kb") if text(row, "step_kb") else 1
    values = {
        "m": base_m,
        "n": base_n,
        "ka": base_k * step_a,
        "kb": base_k * step_b,
        "k0": base_k,
        "stages": 2,
    }
    values["group"] = count(row, "swizzle_count_n") if text(row, "swizzle_count_n") else -(-n // base_n)
    # the TFLOPS column, where there is one, has more digits than the time
    measured = (
        2e-6 * m * n * k / number(row, "tflops_published") if text(row, "tflops_published") else number(row, "time_us")
    )
    layouts = ("zN", "zN") if "conv" in kernel else ("rows", "rows")
    cores = count(row, "cores_aic") if text(row, "cores_aic") else None
    return Problem(
        matmul_staged,
        product(matmul_staged, m, n, k, text(row, "dtype_in"), True, layouts),
        matmul_staged.configuration(values),
        measured,
        options=Options(warm=4, cores=cores),
    )
