"""The score that ``tune`` hands to a search: predicted time, with the walls that reject candidates counted."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from pyptox.cost import Cost, Options, evaluate
from pyptox.cost._occupancy import HARD
from pyptox.hardware import Hardware
from pyptox.lang import Kernel, Spec

from ._by_choice import by_choice

FINALISTS = 12
KEPT = 4 * FINALISTS
"""Candidates remembered of each batch: the finalists are distinct in time, and many candidates are equal."""

WALLS = (*(space.value for space in HARD), "row")


@final
class Scorer:
    """Predicted µs of candidates, ``inf`` for illegal ones; counts what each wall rejects and keeps the best seen.

    ``fixed`` holds the value of every parameter that the candidates leave out.
    """

    def __init__(
        self,
        kernel: Kernel,
        specs: Mapping[str, Spec],
        hardware: Hardware,
        options: Options,
        fixed: Mapping[str, Any],
    ):
        self.kernel, self.specs, self.hardware, self.options, self.fixed = kernel, specs, hardware, options, fixed
        self.rejected: dict[str, int] = dict.fromkeys(WALLS, 0)
        self.count = 0
        self.best_us = np.inf
        self._columns: list[dict[str, np.ndarray]] = []
        self._times: list[np.ndarray] = []

    def __call__(self, points: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """The time of each candidate, and for each the number of the wall that it hits (-1 for none)."""
        columns = self._complete(points)
        size = len(next(iter(columns.values())))
        times, wall = np.empty(size), np.empty(size, np.int64)
        for at, part, options in by_choice(self.kernel, columns, self.options):
            cost = evaluate(self.kernel, self.specs, part, self.hardware, options)
            wall[at] = hits = self._wall(cost)
            times[at] = np.where(hits < 0, cost.time_us, np.inf)
        hit = Counter(wall[wall >= 0].tolist())
        self.take(points, times, len(times), {WALLS[number]: count for number, count in hit.items()})
        return times, wall

    def take(self, points: Mapping[str, Any], times: np.ndarray, count: int, rejected: Mapping[str, int]) -> None:
        """Count a batch of ``count`` candidates and keep the best of those given."""
        columns = self._complete(points)
        keep = best_of(times)
        self._columns.append({name: column[keep] for name, column in columns.items()})
        self._times.append(times[keep])
        self.count += count
        self.best_us = min(self.best_us, float(times.min(initial=np.inf)))
        for name, number in rejected.items():
            self.rejected[name] = self.rejected.get(name, 0) + number

    def finalists(self) -> list[dict[str, Any]]:
        """The best candidates seen, best first; of those with equal predictions the first in the space."""
        if not self._times:
            return []
        times = np.concatenate(self._times)
        columns = {n: np.concatenate([c[n] for c in self._columns]) for n in self._columns[0]}
        order = [n for n in np.argsort(times, kind="stable") if np.isfinite(times[n])]
        seen: dict[float, dict[str, Any]] = {}
        for n in order:
            config = {name: column[n].item() for name, column in columns.items()}
            config |= {name: int(config[name]) for name in self.kernel.numeric}
            seen.setdefault(float(f"{times[n]:.6g}"), config)
            if len(seen) >= FINALISTS:
                break
        return list(seen.values())

    def _complete(self, points: Mapping[str, Any]) -> dict[str, np.ndarray]:
        size = len(next(iter(points.values())))
        return {n: np.asarray(points[n]) if n in points else np.full(size, v) for n, v in self.fixed.items()}

    def _wall(self, cost: Cost) -> np.ndarray:
        """The first wall that each candidate hits."""
        sizes = self.hardware.sizes
        beyond = [cost.occupancy[s.value] > float(getattr(sizes, s.size_name)) for s in HARD]
        beyond.append(cost.row < float(sizes.min_row))
        return np.where(np.any(beyond, axis=0), np.argmax(beyond, axis=0), -1)


def best_of(times: np.ndarray) -> np.ndarray:
    """Positions of the best ``KEPT`` of a batch, best first."""
    return np.argsort(times, kind="stable")[:KEPT] if len(times) > KEPT else np.arange(len(times))
