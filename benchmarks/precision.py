"""How fast values are cast, compared and attributed: ``python -m benchmarks.precision [--json] [--millions N]``.

``cast`` gives elements a second by source, target and mode (``numpy`` sources are read from the host; ``jax`` ones lie
on the device), the best of three calls after compiling. ``compare`` gives the seconds and the extra memory of comparing
N million float32 elements with float64 ones. ``attribute`` gives the seconds of attributing the error of the MLP of a
decode layer, 5120 wide and 17408 inside, to its lines: cold, with every kernel compiled, and again.
"""

import argparse
import functools
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pyptox as px
from pyptox import kernels as k
from pyptox import program as pp
from pyptox.precision import Rounding, attribute_program, cast, compare, draw

from ._timing import seconds

TARGETS = ("bf16", "fp16", "fp8_e4m3fn", "fp8_e5m2", "int8", "int32")
TOKENS, WIDTH, HIDDEN = 16, 5120, 17408


@pp.program
def mlp(x, norm, gate, up, down):
    """``x + (silu(h gate) * (h up)) down`` with ``h = rms_norm(x)``: seven tasks."""
    narrow = pp.submit(k.convert("bf16"), pp.submit(k.rms_norm, x, norm, m=8), m=16, n=512)
    gated, raised = (pp.submit(k.matmul, narrow, w, m=16, n=256, k=256) for w in (gate, up))
    lowered = pp.submit(k.matmul, pp.submit(k.swiglu, gated, raised, m=16, n=256), down, m=16, n=128, k=256)
    return pp.submit(k.residual_add, x, lowered, m=16, n=256)


def casts(millions: int) -> dict[str, float]:
    """Millions of elements a second, by source, target and mode."""
    count = millions * 1_000_000
    single = np.random.default_rng(0).standard_normal(count, np.float32)
    sources: dict[str, Any] = {"numpy float32": single, "numpy float64": single.astype(np.float64)}
    sources["jax float32"] = jnp.asarray(single)
    figures = {}
    for source, x in sources.items():
        for target in TARGETS:
            for mode in Rounding if target == "bf16" else (Rounding.NEAREST_EVEN, Rounding.STOCHASTIC):
                call = functools.partial(_cast, x, target, mode)
                call()
                figures[f"{source} to {target} {mode.value}"] = millions / seconds(call, 3)
    return figures


def _cast(x: Any, target: str, mode: Rounding) -> None:
    key = jax.random.key(0) if mode is Rounding.STOCHASTIC else None
    jax.block_until_ready(cast(x, target, mode, key=key))


def comparison(millions: int) -> dict[str, float]:
    """Seconds and extra GiB of one comparison."""
    reference = np.random.default_rng(1).standard_normal(millions * 1_000_000)
    candidate = reference.astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = seconds(lambda: compare(candidate, reference))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"million_elements": millions, "seconds": took, "extra_gib": (after - before) / 2**20}


def attribution(width: int = WIDTH, hidden: int = HIDDEN) -> dict[str, float]:
    """Seconds of attributing the MLP, wall and CPU, without a compilation cache and then compiled."""
    jax.config.update("jax_enable_compilation_cache", False)
    shapes = ((width, hidden), (width, hidden), (hidden, width))
    weights = [_scaled(draw("normal", s, "bf16", seed=n), s[0]) for n, s in enumerate(shapes)]
    arrays = draw("outliers", (TOKENS, width), "fp32"), np.ones(width, np.float32), *weights
    cold, cpu = _both(lambda: attribute_program(mlp, *arrays))
    warm, _ = _both(lambda: attribute_program(mlp, *arrays))
    report = attribute_program(mlp, *arrays)
    return {"cold_s": cold, "cold_cpu_s": cpu, "warm_s": warm, "sum_over_observed": report.ratio}


def _scaled(weight: np.ndarray, terms: int) -> np.ndarray:
    return (weight.astype(np.float32) * np.float32(terms**-0.5)).astype(weight.dtype)


def _both(call: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    begin = time.process_time()
    return seconds(call), time.process_time() - begin


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=100, help="elements that are compared; a third is cast")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    if arguments.millions < 1:
        parser.error(f"`--millions` must be at least 1; got {arguments.millions}")
    compared = comparison(arguments.millions)  # first: its peak of memory is its own
    figures = {
        "cast_million_per_second": casts(max(arguments.millions // 3, 1)),
        "compare": compared,
        "attribute": attribution(),
        "version": px.__version__,
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    for title, part in figures.items():
        print(title if isinstance(part, dict) else f"{title} {part}")
        for name, value in part.items() if isinstance(part, dict) else ():
            print(f"  {name:<40} {value:,.4g}")


if __name__ == "__main__":
    main()
