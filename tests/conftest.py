"""Settings and fixtures that every test shares."""

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from pyptox import artifacts

# Set at import, so that they also hold while test modules build their parameters.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the checkout (captures, measured rows, notes); skips where absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"the folder `shared` is not beside the checkout (looked for {folder})")
    return folder


@pytest.fixture
def standard_promotion() -> Iterator[None]:
    """Standard dtype promotion for one test: optax's Adam family raises a float to an integer step count."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session")
def random_run() -> Callable[..., tuple[artifacts.Records, artifacts.Deps]]:
    """Makes a run of random tasks that keeps every rule: records of level 4, and the whole graph."""
    return _random_run


def _random_run(seed: int, tasks: int = 12, blocks: int = 3, aic: int = 2) -> tuple[artifacts.Records, artifacts.Deps]:
    rng = np.random.default_rng(seed)
    types = ("aic",) * aic + ("aiv",) * 2 * aic
    free, sent = np.full(len(types), 1000), np.zeros(len(types), int)
    graph, edges, ready, rows, submits = [], [], {}, [], []
    for n in range(tasks):
        ids = [(7, -1, -1), (-1, 8, -1), (9, 10, -1), (11, 12, 12), (-1, -1, -1)][rng.integers(5 if n else 4)]
        name = int(rng.integers(4)) << 32 | n
        task = artifacts.Task(name, ids, int(rng.integers(1, blocks + 1)), early_dispatch=bool(rng.integers(2)))
        preds = rng.choice(n, size=min(n, int(rng.integers(4))), replace=False)
        edges += [artifacts.Edge(graph[pred].task_id, name) for pred in preds]
        graph.append(task)
        submits.append((name, 900 + 2 * n, 901 + 2 * n))
        opens = done = max((ready[graph[pred].task_id] for pred in preds), default=1000)
        for _ in range(task.block_num):
            for kernel, kind in zip(ids, ("aic", "aiv", "aiv"), strict=True):
                if kernel >= 0:
                    core = min((c for c, t in enumerate(types) if t == kind), key=lambda c: free[c])
                    dispatch = opens + int(rng.integers(-20, 20))
                    receive = max(dispatch, opens, free[core]) + int(rng.integers(1, 10))
                    start = receive + int(rng.integers(1, 10))
                    end = start + int(rng.integers(5, 100))
                    finish = end + int(rng.integers(0, 40))
                    sent[core] += 1
                    rows.append((name, core, sent[core], receive, start, end, dispatch, finish))
                    free[core], done = end + 1, max(done, finish)
        ready[name] = done
    order = rng.permutation(len(rows))
    columns = np.array(rows, np.int64)[order].T
    table = artifacts.Blocks(columns[0].astype(np.uint64), *columns[1:])
    count = int(rng.integers(1, 20))
    start = np.sort(rng.integers(1000, 2000, count))
    some = np.sort(rng.integers(0, 3, count))
    start = start[np.lexsort((start, some))]
    depths = rng.integers(-1, 5, (count, 1)).repeat(3, axis=1)
    phases = artifacts.Phases(
        thread=some,
        kind=rng.choice(["complete", "dispatch", "dummy_task"], count),
        start=np.sort(start),
        end=np.sort(start) + 5,
        loop_iter=np.arange(count),
        tasks_processed=rng.integers(0, 5, count),
        pop_hit=rng.integers(-1, 3, count),
        pop_miss=rng.integers(-1, 3, count),
        task_id=np.where(rng.integers(2, size=count), artifacts.NO_TASK, np.uint64(3)),
        shared_at_start=depths,
        shared_at_end=depths[::-1],
    )
    names, *stamps = np.array(submits, np.int64).T
    zeros = np.zeros(tasks, np.int64)
    records = artifacts.Records(
        level=4,
        clock_hz=50_000_000,
        core_types=types,
        blocks=table,
        phases=phases,
        submits=artifacts.Submits(zeros, np.arange(tasks), names.astype(np.uint64), *stamps),
        core_to_thread=tuple(core % 3 for core in range(len(types))),
        threads=3,
        orchestrators=1,
    )
    return records, artifacts.Deps(tuple(graph), (), tuple(edges))
