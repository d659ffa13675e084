"""How close do the searches come to the optimum? ``python -m benchmarks.tuning_quality [--json]``.

Random GEMMs (M from 1 to 8192, N and K from 64 to 32768, log-uniform, multiples of nothing; bf16 and int8 in turn)
are tuned on the default space of ``matmul`` by ``exhaustive``, ``gradient``, ``local`` and ``random``. The last three
have one budget of scored candidates; gradients at relaxed points are counted beside it. A gap is the predicted time
of a method's answer over that of ``exhaustive``, minus one, both by the scoring that ends every run: negative where
that scoring prefers a candidate that the search of all of them had ranked lower.
"""

import argparse
import json
from collections import Counter
from typing import Any

import numpy as np

import autotune
import pyptox as px

METHODS = ("exhaustive", "gradient", "local", "random")
LOWEST, HIGHEST = (1, 64, 64), (8192, 32768, 32768)
BUDGET = autotune.EVALUATIONS


def shapes(count: int, seed: int) -> list[tuple[tuple[int, int, int], str]]:
    """``count`` sizes (M, N, K) and their types."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(np.log(LOWEST), np.log(HIGHEST), (count, 3))).astype(int).tolist()
    return [((m, n, k), ("bf16", "int8")[number % 2]) for number, (m, n, k) in enumerate(sizes)]


def tuned(size: tuple[int, int, int], dtype: str, budget: int, seed: int) -> dict[str, autotune.Result]:
    """The answer of every method for one product."""
    m, n, k = size
    a, b = px.spec((m, k), dtype), px.spec((k, n), dtype)
    return {
        method: autotune.tune(px.kernels.matmul, a, b, method=method, evaluations=budget, seed=seed, check=False)
        for method in METHODS
    }


def measure(count: int, seed: int, budget: int) -> dict[str, Any]:
    """All figures of this benchmark."""
    tuned((100, 1000, 1000), "bf16", budget, 0)  # compile first: the seconds below are of the searches
    rows, answers = [], []
    for number, (size, dtype) in enumerate(shapes(count, seed)):
        results = tuned(size, dtype, budget, seed + number)
        best = results["exhaustive"].best.time_us
        gaps = {method: result.best.time_us / best - 1 for method, result in results.items()}
        auto = "exhaustive" if results["exhaustive"].space_size <= autotune.EXHAUSTIVE_LIMIT else "gradient"
        rows.append({"shape": size, "dtype": dtype, "optimum_us": best, "gaps": gaps, "auto": auto})
        answers.append(results)

    def spread(of: Any, method: str) -> dict[str, float]:
        values = [of(results[method]) for results in answers]
        return {"mean": float(np.mean(values)), "max": float(np.max(values))}

    close = {method: sum(row["gaps"][method] <= 0.02 for row in rows) for method in METHODS}
    return {
        "shapes": count,
        "seed": seed,
        "budget": budget,
        "within_2_percent": close["gradient"],
        "within_2_percent_local": close["local"],
        "within_2_percent_random": close["random"],
        "gap": {
            method: {
                name: float(reduce([row["gaps"][method] for row in rows]))
                for name, reduce in (("mean", np.mean), ("max", np.max))
            }
            for method in METHODS[1:]
        },
        "evaluations": {method: spread(lambda result: result.evaluations, method) for method in METHODS},
        "gradient_evaluations": spread(lambda result: result.relaxed_evaluations, "gradient"),
        "seconds": {method: spread(lambda result: result.seconds, method) for method in METHODS},
        "auto_method": dict(Counter(row["auto"] for row in rows)),
        "rows": rows,
    }


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    close = {
        "exhaustive": figures["shapes"],
        "gradient": figures["within_2_percent"],
        "local": figures["within_2_percent_local"],
        "random": figures["within_2_percent_random"],
    }
    lines = [f"{figures['shapes']} shapes, seed {figures['seed']}, at most {figures['budget']} candidates a search"]
    lines.append(f"{'method':12}{'within 2 %':>12}{'mean gap':>10}{'max gap':>10}{'scored':>10}{'seconds':>10}")
    for method in METHODS:
        gap = figures["gap"].get(method, {"mean": 0.0, "max": 0.0})
        scored, seconds = figures["evaluations"][method]["mean"], figures["seconds"][method]["mean"]
        cells = f"{100 * gap['mean']:>8.2f} %{100 * gap['max']:>8.2f} %{scored:>10,.0f}{seconds:>10.2f}"
        lines.append(f"{method:12}{close[method]:>12}{cells}")
    lines.append(f"gradient also took {figures['gradient_evaluations']['mean']:,.0f} gradients at relaxed points")
    chosen = ", ".join(f"{method} for {count}" for method, count in figures["auto_method"].items())
    lines.append(f"auto takes {chosen}: it searches up to {autotune.EXHAUSTIVE_LIMIT:,} candidates exhaustively")
    return "\n".join(lines)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--shapes", type=int, default=100, help="how many products")
    parser.add_argument("--seed", type=int, default=0, help="of the shapes and the searches")
    parser.add_argument("--evaluations", type=int, default=BUDGET, help="budget of a search that is not exhaustive")
    arguments = parser.parse_args()
    figures = measure(arguments.shapes, arguments.seed, arguments.evaluations)
    print(json.dumps(figures) if arguments.json else table(figures))


if __name__ == "__main__":
    main()
