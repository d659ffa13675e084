"""How long does the simulation of rings take? ``python -m benchmarks.rings [--json] [--tasks N]``.

Layers of 1,000 tasks in a scope each, ten scopes inside, outputs of up to 200 KB, each task waiting for two of the
hundred before it: the smallest capacities, then a run under them, with its derivatives; and the same tasks, of 30
blocks each, on the simulated chip, without rings and with these.
"""

import argparse
import dataclasses
import json
from typing import Any

import numpy as np

from pyptox import chip, rings
from pyptox.program import Scope

from ._timing import seconds

LAYER, STAGES, NEAR = 1000, 10, 100


def layered(tasks: int, seed: int = 0) -> rings.Submissions:
    """``tasks`` tasks in whole layers."""
    rng = np.random.default_rng(seed)
    scopes = [Scope(0, "auto", 0, "model", 0, tasks)]
    for first in range(0, tasks, LAYER):
        scopes.append(Scope(len(scopes), "auto", 1, "layer", first, first + LAYER))
        for stage in range(first, first + LAYER, LAYER // STAGES):
            scopes.append(Scope(len(scopes), "auto", 2, "stage", stage, stage + LAYER // STAGES))
    waits = [rng.integers(n // NEAR * NEAR, n, 2).tolist() if n % NEAR else [] for n in range(tasks)]
    return rings.Submissions.of(rng.integers(0, 200_000, tasks).tolist(), scopes=scopes, waits=waits)


def on_chip(work: rings.Submissions, limits: rings.Limits) -> dict[str, float]:
    """Seconds of a simulation of the chip without rings, and with them."""
    rng = np.random.default_rng(2)
    shapes, times = rng.choice(["AIC", "AIV"], work.count).tolist(), rng.uniform(5, 40, work.count).tolist()
    storage = rings.Storage(work, limits)
    gated = chip.Workload.of(shapes, [30] * work.count, times, work.waits, storage=storage)
    plain = dataclasses.replace(gated, storage=None)
    timeline = chip.simulate(gated)  # compiled
    chip.simulate(plain)
    return {
        "chip_s": seconds(lambda: chip.simulate(plain), 1),
        "chip_with_rings_s": seconds(lambda: chip.simulate(gated), 1),
        "chip_back_pressure_us": float(timeline.stalls.sum()),
    }


def measure(tasks: int, repeats: int) -> dict[str, Any]:
    """All figures of this benchmark."""
    work, rng = layered(tasks), np.random.default_rng(1)
    service, cost = rng.exponential(5.0, tasks), np.full(tasks, 0.63)
    found = rings.smallest(work)
    run = rings.orchestrate(work, service, cost, found.limits)
    return {
        "tasks": tasks,
        "smallest_s": seconds(lambda: rings.smallest(work), repeats),
        "deadlock_s": seconds(lambda: rings.deadlock(work, found.limits), repeats),
        "run_s": seconds(lambda: rings.orchestrate(work, service, cost, found.limits), repeats),
        "gradient_s": seconds(run.gradient, repeats),
        "back_pressure_us": run.stall_us,
        "time_us": run.time_us,
        **on_chip(work, found.limits),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--tasks", type=int, default=100_000, help="a multiple of 1,000")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.tasks < LAYER or arguments.tasks % LAYER:
        parser.error(f"`--tasks` must be a multiple of {LAYER:,}; got {arguments.tasks:,}")
    result = measure(arguments.tasks, arguments.repeats)
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['tasks']:,} tasks: smallest capacities {result['smallest_s']:.2f} s, ", end="")
    print(f"a deadlock found or excluded {result['deadlock_s']:.2f} s")
    print(f"a run under them {result['run_s']:.2f} s, its derivatives {result['gradient_s']:.2f} s; ", end="")
    print(f"{result['back_pressure_us']:,.0f} of {result['time_us']:,.0f} µs are back-pressure")
    print(
        f"on the chip {result['chip_s']:.1f} s without rings, {result['chip_with_rings_s']:.1f} s with them, ", end=""
    )
    print(f"{result['chip_back_pressure_us']:,.0f} µs of back-pressure")


if __name__ == "__main__":
    main()
