"""Changes to a program or a capture, as values."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ..rings import Limits, Storage, submissions
from ._constants import CONSTANTS, on_grid
from ._memory import COLUMNS
from ._rows import averaged, divided, scaled
from ._scenario import AbstractEdit, Scenario
from ._simulate import under
from ._workload import MOST_BLOCKS, SHAPES


@dataclass(frozen=True)
class RemoveEdge(AbstractEdit):
    """``succ`` no longer waits for ``pred``. Whether it may is another question (:mod:`pyptox.program`)."""

    pred: str
    succ: str

    def apply(self, scenario: Scenario) -> Scenario:
        work = scenario.workload
        preds, succs = set(scenario.select(self.pred)), set(scenario.select(self.succ))
        waits = [[p for p in of if n not in succs or p not in preds] for n, of in enumerate(work.waits)]
        if all(len(a) == len(b) for a, b in zip(waits, work.waits, strict=True)):
            raise PyptoxError(f"`pred` must be what `succ` waits for; {self.succ} does not wait for {self.pred}")
        return scenario.with_tasks(range(work.tasks), waits, {})


@dataclass(frozen=True)
class AddEdge(AbstractEdit):
    """``succ`` waits for ``pred`` too."""

    pred: str
    succ: str

    def apply(self, scenario: Scenario) -> Scenario:
        work = scenario.workload
        preds, succs = scenario.select(self.pred), set(scenario.select(self.succ))
        made = [work.names[n] for n in succs if SHAPES[work.shapes[n]] == "ALLOC"]
        if made:
            raise PyptoxError(f"`succ` must be a task that can wait; {made[0]} is an allocation")
        waits = [sorted({*of, *preds} - {n}) if n in succs else list(of) for n, of in enumerate(work.waits)]
        if all(len(a) == len(b) for a, b in zip(waits, work.waits, strict=True)):
            why = "is the same task" if set(preds) == succs else "waits for it already"
            raise PyptoxError(f"`succ` must be a task that does not wait for {self.pred} yet; {self.succ} {why}")
        return scenario.with_tasks(range(work.tasks), waits, {})


@dataclass(frozen=True)
class FlagProducer(AbstractEdit):
    """The task is submitted with ``allow_early_resolve``: its consumers may be staged before it is finished."""

    task: str
    flag: bool = True

    def apply(self, scenario: Scenario) -> Scenario:
        early = scenario.workload.early.copy()
        early[scenario.kernels(self.task)] = self.flag
        return dataclasses.replace(scenario, workload=dataclasses.replace(scenario.workload, early=early))


@dataclass(frozen=True)
class AddDummy(AbstractEdit):
    """A dummy between the task and all that it waits for: one hop, and the task is not staged any more."""

    task: str

    def apply(self, scenario: Scenario) -> Scenario:
        work, chosen = scenario.workload, set(scenario.select(self.task))
        rows: list[int] = []
        waits: list[list[int]] = []
        names: list[str] = []
        dummies: list[int] = []
        places: dict[int, int] = {}
        for number, of in enumerate(work.waits):
            mine = [places[p] for p in of]
            if number in chosen:
                if not of:
                    raise PyptoxError(f"`task` must wait for something; {work.names[number]} does not")
                dummies.append(len(rows))
                rows.append(number)
                waits.append(mine)
                names.append(f"{work.names[number].partition(' ')[0]}* dummy")
                mine = [dummies[-1]]
            places[number] = len(rows)
            rows.append(number)
            waits.append(mine)
            names.append(work.names[number])
        return scenario.with_tasks(rows, waits, {"names": names}, dummies)


@dataclass(frozen=True)
class Split(AbstractEdit):
    """The task becomes ``parts`` tasks that share its blocks, and what these share out of its tensors.

    Its consumers wait for all of them.
    """

    task: str
    parts: int = 2

    def apply(self, scenario: Scenario) -> Scenario:
        work, chosen = scenario.workload, set(scenario.kernels(self.task))
        if self.parts < 2:
            raise PyptoxError(f"`parts` must be 2 or more; got {self.parts}")
        rows: list[int] = []
        blocks: list[int] = []
        names: list[str] = []
        places: list[list[int]] = []
        for number in range(work.tasks):
            count, amount = (self.parts if number in chosen else 1), int(work.blocks[number])
            if count > 1 and amount < count:
                raise PyptoxError(f"`parts` must not exceed the blocks of a task; {work.names[number]} has {amount}")
            places.append(list(range(len(rows), len(rows) + count)))
            rows += [number] * count
            blocks += [amount // count + (part < amount % count) for part in range(count)]
            names += [work.names[number] + (f"[{part}]" if count > 1 else "") for part in range(count)]
        waits = [[place for pred in work.waits[row] for place in places[pred]] for row in rows]
        made = scenario.with_tasks(rows, waits, {"blocks": blocks, "names": names})
        if made.workload.memory is None:
            return made
        part_of = {names[place]: part for n in chosen for part, place in enumerate(places[n])}
        members = {n: part_of[name] for n, name in enumerate(made.workload.names) if name in part_of}
        memory = divided(made.workload.memory, members, self.parts)
        return dataclasses.replace(made, workload=dataclasses.replace(made.workload, memory=memory))


@dataclass(frozen=True)
class Merge(AbstractEdit):
    """Tasks of one kind of core become one, with all their blocks, whose length is the mean.

    It waits for what any of them waited for, and whoever waited for one of them waits for it.
    """

    tasks: tuple[str, ...]

    def apply(self, scenario: Scenario) -> Scenario:
        work = scenario.workload
        members = sorted({n for name in self.tasks for n in scenario.kernels(name)})
        if len(members) < 2:
            raise PyptoxError(f"`tasks` must name two tasks or more; got {', '.join(self.tasks)}")
        shapes = {SHAPES[work.shapes[n]] for n in members}
        if len(shapes) > 1:
            raise PyptoxError(f"`tasks` must run on one kind of core; got {', '.join(sorted(shapes))}")
        first, gone = members[0], set(members[1:])
        rows = [n for n in range(work.tasks) if n not in gone]
        places = {n: at for at, n in enumerate(rows)} | dict.fromkeys(members, rows.index(first))
        merged = places[first]
        waits = [sorted({places[p] for p in work.waits[n]}) for n in rows]
        waits[merged] = sorted({places[p] for n in members for p in work.waits[n]} - {merged})
        blocks, duration = work.blocks[rows].copy(), work.duration_us[rows].copy()
        names, early = [work.names[n] for n in rows], work.early[rows].copy()
        weights = work.blocks[members] / work.blocks[members].sum()
        blocks[merged] = work.blocks[members].sum()
        duration[merged] = float(weights @ work.duration_us[members])
        names[merged] = f"{work.names[first].partition(' ')[0]} {'+'.join(dict.fromkeys(map(work.kind, members)))}"
        early[merged] = work.early[members].all()
        columns = {"blocks": blocks, "duration_us": duration, "names": names, "early": early}
        made = scenario.with_tasks(rows, waits, columns)
        origin = list(made.origin)
        place = made.workload.names.index(names[merged])
        origin[place] = tuple(o for n in members for o in scenario.origin[n])
        changed = made.workload
        if work.memory is not None and changed.memory is not None:
            memory = averaged(work.memory, members, weights, changed.memory, place)
            changed = dataclasses.replace(changed, memory=memory)
        if work.storage is not None and changed.storage is not None:  # it makes what all of them made
            stored = changed.storage.work
            size, entries = stored.bytes.copy(), stored.entries.copy()
            size[place] = work.storage.work.bytes[members].sum()
            entries[place] = work.storage.work.entries[members].sum()
            stored = dataclasses.replace(stored, bytes=size, entries=entries)
            changed = dataclasses.replace(changed, storage=dataclasses.replace(changed.storage, work=stored))
        return dataclasses.replace(made, workload=changed, origin=tuple(origin))


@dataclass(frozen=True)
class SetBlocks(AbstractEdit):
    """The task's work is cut into ``blocks`` blocks: each takes as much less as there are more."""

    task: str
    blocks: int

    def apply(self, scenario: Scenario) -> Scenario:
        if not 1 <= self.blocks <= MOST_BLOCKS:
            raise PyptoxError(f"`blocks` must be 1 to {MOST_BLOCKS:,}; got {self.blocks}")
        work, chosen = scenario.workload, scenario.kernels(self.task)
        blocks, factor = work.blocks.copy(), np.ones(work.tasks)
        factor[chosen] = blocks[chosen] / self.blocks
        blocks[chosen] = self.blocks
        return dataclasses.replace(scenario, workload=scaled(dataclasses.replace(work, blocks=blocks), factor))


@dataclass(frozen=True)
class SetDuration(AbstractEdit):
    """One block of the task takes ``duration_us``, whatever is in L2 and whoever runs beside it."""

    task: str
    duration_us: float

    def apply(self, scenario: Scenario) -> Scenario:
        if not 0 <= self.duration_us < float("inf"):
            raise PyptoxError(f"`duration_us` must be a finite number, not negative; got {self.duration_us}")
        work, chosen = scenario.workload, scenario.kernels(self.task)
        duration, memory = work.duration_us.copy(), work.memory
        duration[chosen] = self.duration_us
        if memory is not None:
            resident, hbm, l2 = (getattr(memory, name).copy() for name in COLUMNS)
            resident[chosen], hbm[chosen], l2[chosen] = on_grid(self.duration_us), 0.0, 0.0
            memory = dataclasses.replace(memory, resident_us=resident, hbm_us=hbm, l2_us=l2)
        changed = dataclasses.replace(work.with_durations(duration), memory=memory)
        return dataclasses.replace(scenario, workload=changed)


@dataclass(frozen=True)
class SetCores(AbstractEdit):
    """The chip has ``aic`` cube cores, and two vector cores for each."""

    aic: int

    def apply(self, scenario: Scenario) -> Scenario:
        if self.aic < 1:
            raise PyptoxError(f"`aic` must be at least 1; got {self.aic}")
        return scenario.on(scenario.hardware.replace(aic=self.aic, aiv=2 * self.aic))


@dataclass(frozen=True)
class SetRings(AbstractEdit):
    """The rings have these capacities. A program's; of a workload only where it states its storage."""

    limits: Limits

    def apply(self, scenario: Scenario) -> Scenario:
        work, found = scenario.workload, scenario.graph
        if work.storage is None and found is not None and work.tasks == len(found.tasks):
            work = dataclasses.replace(work, storage=Storage(submissions(found), self.limits))
        return dataclasses.replace(scenario, workload=under(work, self.limits))

    def __str__(self) -> str:
        return f"rings: {self.limits}"


@dataclass(frozen=True)
class SetConstant(AbstractEdit):
    """A constant of the schedule, or of the chip, has another value."""

    name: str
    value: float

    def apply(self, scenario: Scenario) -> Scenario:
        if self.name in (*CONSTANTS, "threads"):
            if self.name.startswith("submit") and scenario.workload.submitted_us is not None:
                raise PyptoxError(f"`{self.name}` changes nothing where submissions are measured ones")
            value = int(self.value) if self.name == "threads" else self.value
            return dataclasses.replace(scenario, schedule=scenario.schedule.replace(**{self.name: value}))
        known: Mapping[str, Any] = scenario.hardware.flat()
        if self.name not in known:
            near = difflib.get_close_matches(self.name, [*CONSTANTS, *known], 3, 0.5) or CONSTANTS
            raise PyptoxError(f"`{self.name}` is no constant of the schedule or the chip. Try {', '.join(near)}")
        if self.name in ("aic", "aiv"):
            raise PyptoxError(f"`{self.name}` is changed with both kinds of core together: SetCores")
        if scenario.graph is None:
            raise PyptoxError(f"`{self.name}` changes nothing where durations are given; it needs a program")
        return scenario.on(scenario.hardware.replace(**{self.name: self.value}))
