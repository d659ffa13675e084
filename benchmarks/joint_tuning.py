"""Does joint tuning of a decode layer beat random search at ten times its simulations?

Both search the same space around the best step of the ladder. A draw that the chip refuses costs random search nothing:
it has ten legal configurations for each simulation, legal or not, of the tuner.
"""

import argparse
import json
import time
from collections.abc import Iterator

import numpy as np

from autotune import Config, Space
from autotune._program_scores import Scores
from models.qwen3_14b import Variant, best_step, graph_of, space_of, tune, variant_of
from pyptox.hardware import a2a3

AT_ONCE = 256
"""Points drawn at once."""


def random_best(start: Variant, evaluations: int, seed: int, dtype: str) -> tuple[float, int]:
    """The best makespan of so many random legal points, and how many were drawn for them."""
    scores = Scores(lambda values: graph_of(variant_of(values, start), dtype=dtype), space_of(start, dtype), a2a3())
    drawn, legal = 0, 0
    for config in _points(scores.space, np.random.default_rng(seed)):
        drawn, legal = drawn + 1, legal + bool(np.isfinite(scores(config)))
        if legal == evaluations:
            break
    return min(scores.order), drawn


def _points(space: Space, rng: np.random.Generator) -> Iterator[Config]:
    while True:
        yield from space.configs(space.sample(rng, AT_ONCE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "a8w8"))
    given = parser.parse_args()
    start, begin = best_step(dtype=given.dtype), time.perf_counter()
    found = tune(start, dtype=given.dtype, evaluations=given.evaluations, seed=given.seed)
    middle = time.perf_counter()
    again = tune(start, dtype=given.dtype, evaluations=given.evaluations, seed=given.seed, check=False)
    after = time.perf_counter()
    best, drawn = random_best(start, 10 * found.evaluations, given.seed, given.dtype)
    result = {
        "start": start.name,
        "start_us": found.start.time_us,
        "tuned_us": found.best.time_us,
        "random_us": best,
        "simulations": found.evaluations,
        "refused": len(found.refused),
        "random_simulations": 10 * found.evaluations,
        "random_drawn": drawn,
        "tuning_s": middle - begin,
        "again_s": after - middle,
        "same_again": again.best.config == found.best.config,
        "random_s": time.perf_counter() - after,
        "config": found.best.config.to_dict(),
        "check": None if found.best.check is None else found.best.check.details,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
