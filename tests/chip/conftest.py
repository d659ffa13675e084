"""Random workloads."""

from collections.abc import Callable

import numpy as np
import pytest

from pyptox.chip import Memory, Schedule, Sdma, Warms, Workload, a2a3_schedule


def _memory(rng: np.random.Generator, durations: list[float], warm: list[bool] | None = None) -> Memory:
    """Regions that mostly fit together, and tasks that use some of them; those marked warm them instead."""
    count, regions = len(durations), int(rng.integers(1, 12))
    uses = []
    for _ in durations:
        picked = rng.choice(regions, int(rng.integers(0, min(regions, 4) + 1)), replace=False).tolist()
        shares = rng.dirichlet(np.ones(len(picked) + 1)).tolist()
        uses.append([(region, share * (rng.random() < 0.8)) for region, share in zip(picked, shares, strict=False)])
    columns = [[d * x for d, x in zip(durations, rng.uniform(0, 1, count), strict=True)] for _ in range(3)]
    sizes = rng.integers(1, 100, regions).tolist()
    together = rng.integers(1, 25, count).tolist()
    warms = None
    if warm is not None:
        targets = [[(n, float(rng.random())) for n, _ in each] if w else [] for each, w in zip(uses, warm, strict=True)]
        uses = [[] if w else each for each, w in zip(uses, warm, strict=True)]
        per = float(rng.exponential(max(durations, default=1.0) / 50))
        sdma = Sdma(byte_us=per + 1e-6, hit_byte_us=per / 9, shared_byte_us=1.3 * per + 1e-6, startup_us=per * 30)
        contexts = rng.integers(0, 2, count).tolist()
        warms = Warms.of(targets, context=contexts, hbm_byte_us=0.2 * per, sdma=sdma)
    return Memory.of(
        *columns, regions=sizes, uses=uses, together=together, capacity=float(rng.integers(20, 400)), warms=warms
    )


def _random(
    seed: int, *, tasks: int | None = None, ties: bool | None = None, memory: bool = False, warms: bool = False
) -> tuple[Workload, Schedule, int]:
    """Tasks, constants and clusters: layered, random and wide graphs in turn."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 64)) if tasks is None else tasks
    ties = bool(rng.integers(0, 3) == 0) if ties is None else ties
    shapes = rng.choice(["MIX", "AIC", "AIV", "DUMMY", "ALLOC"], count, p=[0.2, 0.3, 0.3, 0.1, 0.1]).tolist()
    kernel = [shape not in ("DUMMY", "ALLOC") for shape in shapes]
    most, scale = rng.choice([2, 30, 60, 250]), rng.choice([1, 10, 100])
    blocks = [int(rng.integers(1, most + 1)) if k else 0 for k in kernel]
    times = rng.integers(0, 4, count) if ties else rng.exponential(scale, count)
    waits: list[list[int]] = []
    for number, shape in enumerate(shapes):
        low, amount = [(max(0, number // 8 * 8 - 8), 3), (0, 4), (max(0, number - 40), 1)][seed % 3]
        high = number // 8 * 8 if seed % 3 == 0 else number
        free = shape == "ALLOC" or high <= low
        waits.append([] if free else rng.integers(low, high, rng.integers(0, amount + 1)).tolist())
    # cores, threads, and the share of tasks whose consumers may be staged
    clusters, threads, share = ((24, 3, 0.0), (24, 3, 0.5), (20, 3, 1.0), (3, 2, 0.8))[seed // 3 % 4]
    flags = (rng.random(count) < share).tolist()
    durations = [float(t) if k else 0.0 for t, k in zip(times, kernel, strict=True)]
    cores = [clusters * (2 if shape == "AIV" else 1) for shape in shapes]
    together = [share > 0.5 and n <= limit and rng.random() < 0.3 for n, limit in zip(blocks, cores, strict=True)]
    warm = [k and bool(rng.random() < 0.3) for k in kernel] if warms else None
    moves = _memory(rng, durations, warm) if memory else None
    some = (rng.random(count) < 0.1).tolist()
    work = Workload.of(
        shapes, blocks, durations, waits, early=flags, sync_start=together, predicated=some, memory=moves
    )
    schedule = a2a3_schedule()
    if ties:
        schedule = schedule.replace(**{name: float(rng.integers(0, 3)) for name in schedule.values()})
    elif rng.random() < 0.5:
        names = list(schedule.values())
        schedule = schedule.replace(**dict(zip(names, rng.exponential(1.0, len(names)).tolist(), strict=True)))
    return work, schedule.replace(threads=threads), clusters


@pytest.fixture(scope="session")
def random_workload() -> Callable[..., tuple[Workload, Schedule, int]]:
    return _random
