"""Simulated makespans of a program's configurations, warms among them."""

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
from ._prefetch import Search
from ._prefetch_candidates import Candidates, candidates, simulated
from ._space import Space

Build = Callable[[Mapping[str, Any]], Graph]

WARMS, NONE = "prefetch", "none"
"""The parameter that says what is warmed, and its value where nothing more than the program warms itself."""


def tiles_of(config: Config) -> Config:
    """The configuration without its warms."""
    return Config({name: value for name, value in config.items() if name != WARMS})


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
            if self.spent or tiles_of(config) not in self.space:
                return np.inf
            self.known[config] = self._simulated(config)
            self.order.append(self.known[config])
            self.progress(len(self.order), min(self.order))
        return self.known[config]

    def _simulated(self, config: Config) -> float:
        try:
            graph = self.build(tiles_of(config))
        except PyptoxError as error:
            self.refused[config] = str(error)
            return np.inf
        wall = self._wall(graph)
        if wall:
            self.refused[config] = wall
            return np.inf
        try:
            timeline = self._timeline(graph, config)
        except PyptoxError as error:  # a deadlock of its rings, or warms that these tiles have no use for
            self.refused[config] = str(error)
            return np.inf
        return timeline.makespan_us

    def parts(self, config: Config) -> dict[str, float]:
        """What a legal configuration's makespan is made of, µs."""
        return self._timeline(self.build(tiles_of(config)), config).attribution()

    def _timeline(self, graph: Graph, config: Config) -> chip.Timeline:
        text = str(config.get(WARMS, NONE))
        if text == NONE:
            return chip.simulate(self._workload(graph), hardware=self.hardware)
        found = self._candidates(graph)
        return simulated(found, found.parse(text), self.hardware, None)[0]

    def _candidates(self, graph: Graph) -> Candidates:
        work = chip.without_warms(self._workload(graph))[0]
        return candidates(chip.simulate(work, hardware=self.hardware), graph)

    def _workload(self, graph: Graph) -> chip.Workload:
        """Kernels that another configuration has as well are not priced again."""
        return chip.workload(graph, self.hardware, known=self.costs)

    def search_warms(self, config: Config, budget: int) -> None:
        """Price warms for a configuration; what was priced is known from then on."""
        tiles = tiles_of(config)
        search = Search(self._candidates(self.build(tiles)), self.hardware, None, budget)
        search.run()
        for choice, priced in search.known.items():
            named = Config({**tiles, WARMS: str(priced)})
            if choice and named not in self.known:
                self.known[named] = priced.time_us
                self.order.append(priced.time_us)
                self.progress(len(self.order), min(self.order))

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
