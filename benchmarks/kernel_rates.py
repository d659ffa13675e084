"""How fast every kernel of the library is costed: ``python -m benchmarks.kernel_rates [--json] [KERNEL ...]``.

For each kernel ``compile_s`` (without a cache on disk) and ``candidates_per_second`` after it, and the same of the
value with its slopes by every tile size.
"""

import argparse
import json
from collections.abc import Iterator

import jax
import numpy as np

import pyptox as px
from pyptox import lang as pl
from pyptox.cost import value_and_grad
from pyptox.cost._batch import EXACT, RELAXED, evaluate
from pyptox.cost._nest import options_for

from ._timing import seconds
from .problems import problems

COUNT = 1 << 17


def _timed(function, repeats: int = 3) -> tuple[float, float]:
    """Seconds of the first call beyond a later one, and candidates a second in the best later one."""
    first, best = seconds(function), seconds(function, repeats)
    return first - best, COUNT / best


def measure(names: list[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Each kernel's name and figures."""
    jax.config.update("jax_enable_compilation_cache", False)
    for kernel, specs in problems():
        if not names or kernel.name in names:
            yield kernel.name, _rates(kernel, specs)


def _rates(kernel: pl.Kernel, specs: dict[str, pl.Spec]) -> dict[str, float]:
    chip, values = px.hardware.a2a3(), kernel.configuration({})
    rng = np.random.default_rng(0)
    points = {
        p.name: rng.integers(1, 17, COUNT) * 16.0
        if p.kind == "tile"
        else rng.integers(p.low, min(p.high, 8) + 1, COUNT)
        for p in kernel.parameters
        if p.name in kernel.numeric
    }
    tiles = tuple(p.name for p in kernel.parameters if p.kind == "tile")
    exact, relaxed = options_for(kernel, EXACT, values), options_for(kernel, RELAXED, values)
    compile_s, rate = _timed(lambda: evaluate(kernel, specs, points, chip, exact))
    figures = {"compile_s": compile_s, "candidates_per_second": rate}
    if not tiles:
        return figures
    gradient_s, gradients = _timed(lambda: value_and_grad(kernel, specs, points, chip, tiles, relaxed))
    return figures | {"gradient_compile_s": gradient_s, "gradients_per_second": gradients}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="kernels; all of them by default")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    figures = {}
    for name, by in measure(arguments.names):
        figures[name] = by
        if not arguments.json:
            print(f"{name:26s}", "  ".join(f"{figure} {value:,.2f}" for figure, value in by.items()), flush=True)
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
