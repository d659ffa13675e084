"""What a simulation runs, and changes to it: each takes a scenario and gives another.

Tasks are named by the kernel's name (``up``: every task of that name), by number (``t3``) or by both (``t3 up``).
"""

import abc
import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import text
from .._errors import PyptoxError
from ..hardware import Hardware
from ..program._graph import Graph
from ._constants import Schedule, on_grid
from ._costs import workload
from ._memory import COLUMNS as TIMES
from ._memory import ratios
from ._rows import Columns, rebuilt
from ._timeline import Timeline
from ._workload import DUMMY, Workload


@dataclass(frozen=True, eq=False)
class Scenario:
    """What a simulation runs, on what.

    Attributes:
        workload, schedule, hardware: as for :func:`pyptox.chip.simulate`.
        origin: for each task the numbers of the tasks that it was before any change; empty for a new one.
        graph: the program's, before any change; None for a workload or a capture, whose durations are given.
    """

    workload: Workload
    schedule: Schedule
    hardware: Hardware
    origin: tuple[tuple[int, ...], ...]
    graph: Graph | None = None

    @classmethod
    def of(cls, timeline: Timeline) -> "Scenario":
        """What a timeline is of, unchanged."""
        work = timeline.workload
        alone = tuple((n,) for n in range(work.tasks))
        return cls(work, timeline.schedule, timeline.hardware, alone, timeline.graph)

    def select(self, name: str) -> list[int]:
        """Numbers of the tasks called ``name``.

        Raises:
            PyptoxError: there is none.
        """
        work, name = self.workload, text("task", name, "up")
        found = [n for n in range(work.tasks) if name in _titles(work, n)]
        if not found:
            known = sorted({title for n in range(work.tasks) for title in _titles(work, n)[1:]})
            near = difflib.get_close_matches(name, known, 3, 0.5) or known[:8]
            raise PyptoxError(f"`task` must name a task; got {name!r}. Try {', '.join(near) or 'a program with tasks'}")
        return found

    def kernels(self, name: str) -> list[int]:
        """Those of them that have a kernel; there must be one."""
        found = [n for n in self.select(name) if self.workload.shapes[n] < DUMMY]
        if not found:
            raise PyptoxError(f"`task` must name a task with a kernel; {name!r} has none")
        return found

    def with_tasks(
        self, rows: Sequence[int], waits: Sequence[Sequence[int]], columns: Columns, dummies: Sequence[int] = ()
    ) -> "Scenario":
        """Other tasks, made of copies of these; the arguments are those of :func:`._rows.rebuilt`."""
        work, order = rebuilt(self.workload, rows, waits, columns, dummies)
        new = set(dummies)
        origin = tuple(() if n in new else self.origin[rows[n]] for n in order)
        return dataclasses.replace(self, workload=work, origin=origin)

    def on(self, hardware: Hardware) -> "Scenario":
        """On another chip: durations follow the cost model where there is a program."""
        if self.graph is None:
            return dataclasses.replace(self, hardware=hardware)
        before, after = (workload(self.graph, chip) for chip in (self.hardware, hardware))
        work = dataclasses.replace(self.workload, duration_us=self._followed(self.workload, before, after))
        if work.memory is not None and before.memory is not None and after.memory is not None:
            old, new, memory = before.memory, after.memory, work.memory
            times = {name: self._followed(memory, old, new, name) for name in TIMES}
            changed = dataclasses.replace(memory, **times, capacity=new.capacity)
            work = dataclasses.replace(work, memory=changed)
        return dataclasses.replace(self, workload=work, hardware=hardware)

    def _followed(self, ours: Any, before: Any, after: Any, name: str = "duration_us") -> np.ndarray:
        """A column that changes as it does from one chip's program to another's, by where each task comes from."""
        ratio = ratios(getattr(after, name), getattr(before, name))
        scale = np.array([ratio[list(of)].mean() if of else 1.0 for of in self.origin])
        return on_grid(getattr(ours, name) * scale)


def _titles(work: Workload, number: int) -> tuple[str, ...]:
    """The names that a task goes by; those for people last."""
    name, kind = work.names[number], work.kind(number)
    return name, name.partition(" ")[0], kind, kind.partition("[")[0]


class AbstractEdit(abc.ABC):
    """One change."""

    @abc.abstractmethod
    def apply(self, scenario: Scenario) -> Scenario:
        """The scenario with the change made.

        Raises:
            PyptoxError: it cannot be made there.
        """
