"""What a tuning run leaves in a store, and how a rerun goes on from there.

A search that learns from its trials writes every trial, a batch at a time, and a rerun is told them: it repeats its
steps without scoring anything twice. Exhaustive search writes one note for each chunk: the grid position to go on
from, how many candidates were scored, what rejected them, and the best few.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pyptox.lang import Spec

from ._scorer import WALLS, Scorer, best_of
from ._search._run import Run
from ._space import Index, Space
from ._store import Store
from ._trial import Trial


def keyed(store: Store | str | Path, described: Mapping[str, Any], specs: Mapping[str, Spec]) -> Store:
    """The store under the key of one problem: kernel, specs, control values, hardware, options, space, search."""
    store = store if isinstance(store, Store) else Store(Path(store))
    problem = {**described, "specs": {name: str(spec) for name, spec in specs.items()}}
    whole = {**problem, "values": {name: spec.values for name, spec in specs.items()}, "outer": store.key}
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return Store(store.path, f"{described['kernel']} {digest}")


def write_trials(store: Store, space: Space, index: Index, times: np.ndarray, wall: np.ndarray, seed: int) -> None:
    """One trial for each candidate of a batch; an illegal one names its wall."""
    store.extend(
        Trial(config, value=float(time), seed=seed)
        if np.isfinite(time)
        else Trial(config, "invalid", error=WALLS[number], seed=seed)
        for config, time, number in zip(space.configs(space.at(index)), times, wall, strict=True)
    )


def tell_trials(store: Store, space: Space, run: Run, scorer: Scorer) -> None:
    """Let a run and a scorer know the trials of an earlier run."""
    trials = [trial for trial in store.load() if trial.config in space]
    if trials:
        points = space.points([trial.config for trial in trials])
        times = np.array([trial.value for trial in trials])
        errors = [trial.error for trial in trials if trial.status != "ok"]
        run.tell(points, times)
        scorer.take(points, times, len(trials), {name: errors.count(name) for name in WALLS})


def write_chunk(store: Store, space: Space, index: Index, times: np.ndarray, wall: np.ndarray) -> None:
    """A note of one chunk of an exhaustive search."""
    best = best_of(times)
    best = best[np.isfinite(times[best])]
    rejected = np.bincount(wall[wall >= 0], minlength=len(WALLS)).tolist()
    note = {
        "next": int(index[-1]) + 1,
        "scored": len(index),
        "rejected": dict(zip(WALLS, rejected, strict=True)),
        "index": index[best].tolist(),
        "times": [float(time) for time in times[best]],
    }
    store.note(note)


def take_chunks(store: Store, space: Space, scorer: Scorer) -> int:
    """Let a scorer know the chunks of an earlier run; the grid position to go on from."""
    position = 0
    for note in store.notes():
        if note["next"] <= position:  # two runs that wrote side by side
            continue
        position = note["next"]
        index = np.array(note["index"], np.int64)
        scorer.take(space.at(index), np.array(note["times"], np.float64), note["scored"], note["rejected"])
    return position
