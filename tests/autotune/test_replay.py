"""Search methods on recorded spaces: convolution kernels, every valid configuration measured on two GPUs.

A recorded time stands for a measurement, with one per cent of noise; failures count as evaluations. Budgets
are those of a device: 32 and 128. The thresholds are a few per cent under what was seen with 60 seeds.
"""

import functools
import gzip
import json
import pathlib

import numpy as np
import pytest

from autotune import AbstractSearch, Funnel, Integer, Local, Multiple, PowerOfTwo, Random, Space, minimise

SEEDS = 16


@functools.cache
def recorded(path: pathlib.Path) -> tuple[Space, np.ndarray]:
    """The space of what was recorded and the time of every grid position; failures are infinite."""
    with gzip.open(path) as file:
        results = json.load(file)["results"]
    free = Space(
        block_size_x=Multiple(16, 256, 16),
        block_size_y=PowerOfTwo(1, 16),
        tile_size_x=Integer(1, 4),
        tile_size_y=Integer(1, 4),
        read_only=Integer(0, 1),
        use_padding=Integer(0, 1),
        use_shmem=Integer(0, 1),
    )
    columns = {name: np.array([row["configuration"][name] for row in results]) for name in free.parameters}
    index = free.point_index(columns)
    assert index.min() >= 0
    times = np.full(free.size, np.nan)
    times[index] = [np.mean(row["times"]["runtimes"]) if row["invalidity"] == "correct" else np.inf for row in results]
    return free.where("recorded", lambda at: ~np.isnan(times[free.point_index(at)])), times


def efficiency(path: pathlib.Path, search: AbstractSearch, evaluations: int) -> float:
    """Best possible over best found, mean over seeds."""
    space, times = recorded(path)
    found = []
    for seed in range(SEEDS):
        noise = np.random.default_rng(10**6 + seed).normal(1, 0.01, times.shape)
        best = minimise(
            lambda at, noise=noise: (times * noise)[space.point_index(at)],
            space,
            search,
            seed=seed,
            evaluations=evaluations,
        )
        found.append(times[space.point_index(space.points([best.config]))[0]])
    return float(np.mean(np.nanmin(times) / found))


@pytest.mark.parametrize(("device", "local", "chance"), [("A100", 0.83, 0.78), ("A4000", 0.92, 0.89)])
def test_local_beats_random_at_128_measurements(shared: pathlib.Path, device: str, local: float, chance: float) -> None:
    path = shared / "replay" / f"convolution_{device}.T4.json.gz"
    if not path.exists():
        pytest.skip(f"the recorded space is not there (looked for {path})")
    assert efficiency(path, Local(), 128) > local
    assert efficiency(path, Random(), 128) < chance
    assert efficiency(path, Local(), 32) > efficiency(path, Random(), 32)


def test_every_recorded_configuration_is_in_the_space(shared: pathlib.Path) -> None:
    path = shared / "replay" / "convolution_A100.T4.json.gz"
    if not path.exists():
        pytest.skip(f"the recorded space is not there (looked for {path})")
    assert recorded(path)[0].census().legal == 4362
    assert efficiency(path, Funnel(), 128) > 0.6
