"""Exact simulated makespans of a program's configurations, each computed once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyptox import chip
from pyptox._errors import PyptoxError
from pyptox.cost import Options
from pyptox.cost._verify import misfits
from pyptox.hardware import Hardware
from pyptox.program import Graph

from ._config import Config
from ._space import Space

Build = Callable[[Mapping[str, Any]], Graph]
"""From values by name to a program's graph; what it refuses with a ``PyptoxError`` is illegal."""


@dataclass(eq=False)
class Scores:
    """Makespans by configuration, µs; infinite where it is refused, off the space, or the budget is spent."""

    build: Build
    space: Space
    hardware: Hardware
    budget: int | None = None
    progress: Callable[[int, float], None] = lambda done, best_us: None
    known: dict[Config, float] = field(default_factory=dict)
    costs: dict[Any, Any] = field(default_factory=dict)
    refused: dict[Config, str] = field(default_factory=dict)
    order: list[float] = field(default_factory=list)
    legal: dict[Any, str] = field(default_factory=dict)

    @property
    def spent(self) -> bool:
        return self.budget is not None and len(self.order) >= self.budget

    def curve(self) -> np.ndarray:
        """The best time after each simulation."""
        return np.minimum.accumulate(np.array(self.order))

    def __call__(self, config: Config) -> float:
        if config not in self.known:
            if self.spent or config not in self.space:
                return np.inf
            self.known[config] = self._simulated(config)
            self.order.append(self.known[config])
            self.progress(len(self.order), min(self.order))
        return self.known[config]

    def _simulated(self, config: Config) -> float:
        try:
            graph = self.build(config)
        except PyptoxError as error:
            self.refused[config] = str(error)
            return np.inf
        wall = self._wall(graph)
        if wall:
            self.refused[config] = wall
            return np.inf
        return self._timeline(graph).makespan_us

    def parts(self, config: Config) -> dict[str, float]:
        """What a legal configuration's makespan is made of, µs."""
        return self._timeline(self.build(config)).attribution()

    def _timeline(self, graph: Graph) -> chip.Timeline:
        """Kernels that another configuration has as well are not priced again."""
        work = chip.workload(graph, self.hardware, known=self.costs)
        return chip.simulate(work, hardware=self.hardware)

    def _wall(self, graph: Graph) -> str:
        """The first error of the verifier, or nothing."""
        for task in graph.tasks:
            if task.kernel is None:
                continue
            key = task.kernel, tuple(task.specs().items()), tuple(sorted(task.values.items()))
            if key not in self.legal:
                found = misfits(task.kernel, task.specs(), task.values, self.hardware, Options(warm=4))
                self.legal[key] = "; ".join(found)
            if self.legal[key]:
                return f"{task.name}: {self.legal[key]}"
        return ""
