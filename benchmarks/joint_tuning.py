"""Does joint tuning of a decode layer beat random search at ten times its simulations?

Both search the same space around the best step of the ladder; a refused configuration counts as a simulation for both.
"""

import argparse
import json
import time

import numpy as np

from autotune import Config
from models.qwen3_14b import best_step, space_of, tune, values_of, variant_of
from models.qwen3_14b._space import graph_of
from pyptox import PyptoxError, chip
from pyptox.cost import verify
from pyptox.hardware import a2a3


def random_best(evaluations: int, seed: int) -> tuple[float, int]:
    """The best makespan of random points, and how many of them were legal."""
    start = best_step()
    space, rng, machine = space_of(start), np.random.default_rng(seed), a2a3()
    points = space.sample(rng, evaluations)
    best, legal = np.inf, 0
    for number in range(evaluations):
        values = Config({name: column[number] for name, column in points.items()})
        try:
            graph = graph_of(variant_of(values, start))
        except PyptoxError:
            continue
        kernels = {(t.kernel, tuple(t.specs().items()), tuple(t.values.items())): t for t in graph.tasks if t.kernel}
        if any(verify(t.kernel, t.specs(), t.values, machine).errors for t in kernels.values() if t.kernel):
            continue
        legal += 1
        best = min(best, chip.simulate(graph, hardware=machine).makespan_us)
    return best, legal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begin = time.perf_counter()
    found = tune(best_step(), evaluations=given.evaluations, seed=given.seed, check=False)
    middle = time.perf_counter()
    best, legal = random_best(10 * given.evaluations, given.seed)
    print(
        json.dumps(
            {
                "start_us": found.start.time_us,
                "tuned_us": found.best.time_us,
                "random_us": best,
                "simulations": found.evaluations,
                "random_simulations": 10 * given.evaluations,
                "random_legal": legal,
                "tuning_s": middle - begin,
                "random_s": time.perf_counter() - middle,
                "values": values_of(variant_of(found.best.config, best_step())),
            },
            default=str,
        )
    )


if __name__ == "__main__":
    main()
