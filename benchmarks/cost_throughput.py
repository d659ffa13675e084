"""How many candidates a second the cost model scores: ``python -m benchmarks.cost_throughput [--json]``.

Prints, from one run: ``candidates_per_second`` and ``gradients_per_second`` after compilation, ``compile_s`` and
``gradient_compile_s`` without a cache on disk, ``second_process_compile_s`` and
``second_process_gradient_compile_s`` in a process that finds the entries of an earlier one, ``exhaustive_million_s``
(a search of about a million points in a fresh process, import included, with an empty cache) and
``warm_new_shape_ms`` (scoring 100,000 candidates of a shape not seen before, without a new trace).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import pyptox as px

from ._timing import seconds

_MILLION = """
import autotune, pyptox as px
from autotune import Integer, Multiple, PowerOfTwo, Space
space = Space(m=Multiple(16, 512, 16), n=Multiple(16, 512, 16), k=Multiple(16, 1024, 16),
              stages=Integer(1, 4), group=PowerOfTwo(1, 8))
autotune.tune(px.kernels.matmul, px.spec((1024, 4096), "bf16"), px.spec((4096, 4096), "bf16"),
              space=space, method="exhaustive", check=False)
"""


_COMPILE = """
import json, time
import pyptox as px
kernel, chip = px.kernels.matmul, px.hardware.a2a3()
specs = kernel.specs(px.spec((1024, 4096), "bf16"), px.spec((4096, 4096), "bf16"))
points = {name: [size] * 4096 for name, size in {"m": 16, "n": 128, "k": 128, "stages": 2, "group": 4}.items()}
start = time.perf_counter()
px.cost.evaluate(kernel, specs, points, chip)
middle = time.perf_counter()
px.cost.value_and_grad(kernel, specs, points, chip, ("m", "n", "k"))
print(json.dumps([middle - start, time.perf_counter() - middle]))
"""


def _points(count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = {name: rng.integers(1, 17, count).astype(np.float32) * 16 for name in ("m", "n", "k")}
    return sizes | {
        "stages": rng.integers(1, 5, count).astype(np.float32),
        "group": rng.integers(1, 9, count).astype(np.float32),
    }


_ROUNDS = 24
"""Measurements of a rate; the best counts."""


def _run(program: str, cache: str) -> str:
    """Output of a Python program in a process of its own, whose compiled functions are kept in ``cache``."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = cache
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout


def _compile_times(cache: str) -> tuple[float, float]:
    """Seconds of the first call of a new process, and of its first gradient."""
    value, gradient = json.loads(_run(_COMPILE, cache))
    return value, gradient


def measure() -> dict[str, float]:
    """All figures of this benchmark."""
    kernel, chip = px.kernels.matmul, px.hardware.a2a3()

    def specs(m: int, k: int, n: int):
        return kernel.specs(px.spec((m, k), "bf16"), px.spec((k, n), "bf16"))

    problem, count = specs(1024, 4096, 4096), 1 << 20
    points = _points(count, 0)
    with tempfile.TemporaryDirectory() as folder:
        compile_s, gradient_compile_s = _compile_times(folder)
        second, second_gradient = _compile_times(folder)
    names = ("m", "n", "k")
    part = {name: column[: 1 << 18] for name, column in points.items()}
    value_s, slope_s = np.inf, np.inf
    for _ in range(_ROUNDS):  # in turns, so that a busy moment of the machine does not meet all rounds of one
        value_s = min(value_s, seconds(lambda: px.cost.evaluate(kernel, problem, points, chip)))
        slope_s = min(slope_s, seconds(lambda: px.cost.value_and_grad(kernel, problem, part, chip, names)))
    rate, gradients = count / value_s, (1 << 18) / slope_s
    traces = px.cost.trace_count("evaluate")
    hundred = _points(100_000, 1)
    warm = min(
        seconds(lambda n=n: px.cost.evaluate(kernel, specs(16, 5120 + 128 * n, 17408), hundred, chip)) for n in range(5)
    )
    if px.cost.trace_count("evaluate") != traces:
        raise RuntimeError("a new shape was traced again")
    with tempfile.TemporaryDirectory() as folder:
        million_s = seconds(lambda: _run(_MILLION, folder))
    return {
        "candidates_per_second": rate,
        "compile_s": compile_s,
        "gradients_per_second": gradients,
        "gradient_compile_s": gradient_compile_s,
        "second_process_compile_s": second,
        "second_process_gradient_compile_s": second_gradient,
        "exhaustive_million_s": million_s,
        "warm_new_shape_ms": 1000 * warm,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    figures = measure()
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:34s} {value:,.3f}")


if __name__ == "__main__":
    main()
