"""Warms put into a workload, and taken out of it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ._constants import on_grid
from ._memory import COLUMNS, Memory
from ._warm import Sdma, Warms
from ._workload import AIV, Workload


@dataclass(frozen=True)
class Warm:
    """One warm.

    Attributes:
        anchor: the task whose finish it waits for; it is submitted behind it. None: first of all.
        regions: in order, each with the fraction that is warmed.
        context: which SDMA context streams it.
        segments: regions of the program that these make up; as many as there are where left out.
        name: for people.
    """

    anchor: int | None
    regions: tuple[tuple[int, float], ...]
    context: int = 0
    segments: int | None = None
    name: str = "warm"


def with_warms(
    work: Workload, warms: Sequence[Warm], *, hbm_byte_us: float, sdma: Sdma | None = None
) -> tuple[Workload, list[int]]:
    """A workload with warms beside those that it has, and the place of each of its own tasks in it.

    Args:
        work: must have a memory.
        warms: what to add.
        hbm_byte_us: ``hardware.times.hbm_us``.
        sdma: what warms cost.

    >>> from pyptox import chip
    >>> memory = chip.Memory.of([9.0, 4.0], [0.0, 9.0], [0.0, 0.0], regions=[2**20], uses=[[], [(0, 1.0)]])
    >>> work = chip.Workload.of(["AIV", "AIC"], [1, 24], [9.0, 9.0], [[], [0]], memory=memory)
    >>> more, places = chip.with_warms(work, [chip.Warm(None, ((0, 1.0),))], hbm_byte_us=5e-7)
    >>> more.names, places, chip.simulate(work).makespan_us - chip.simulate(more).makespan_us > 4.0
    (('warm', 't0', 't1'), [1, 2], True)
    """
    memory = work.memory
    if memory is None:
        raise PyptoxError("`work` must state what its blocks move (`memory`), or nothing can be warmed")
    for warm in warms:
        if warm.anchor is not None and not 0 <= warm.anchor < work.tasks:
            raise PyptoxError(f"`anchor` must be a task, 0 to {work.tasks - 1}; got {warm.anchor}")
    behind = [0 if warm.anchor is None else warm.anchor + 1 for warm in warms]
    chosen = sorted(range(len(warms)), key=behind.__getitem__)
    at, added = [behind[n] for n in chosen], [warms[n] for n in chosen]
    sdma = sdma or (Sdma() if memory.warms is None else memory.warms.sdma)
    places = (np.arange(work.tasks) + np.searchsorted(at, np.arange(work.tasks), side="right")).tolist()
    issue = [float(on_grid(sdma.issue_us)) * (w.segments or len(w.regions)) for w in added]
    anchors = [() if w.anchor is None else (places[w.anchor],) for w in added]

    def column(was: Any, new: Any) -> Any:
        if isinstance(was, np.ndarray):
            return np.insert(was, at, np.asarray(new, was.dtype))
        result = list(was)
        for offset, (place, value) in enumerate(zip(at, new, strict=True)):
            result.insert(place + offset, value)
        return tuple(result)

    none: list[Any] = [()] * len(added)
    zeros, ones = [0] * len(added), [1] * len(added)
    old = Warms.of([()] * work.tasks) if memory.warms is None else memory.warms
    listed = Warms.of([w.regions for w in added], context=[w.context for w in added]) if added else None
    brought = dataclasses.replace(
        old,
        targets=column(old.targets, [] if listed is None else listed.targets),
        context=column(old.context, [] if listed is None else listed.context),
        hbm_byte_us=float(hbm_byte_us),
        sdma=sdma,
    )
    moved = dict(zip(COLUMNS, (issue, zeros, zeros), strict=True)) | {"together": ones, "uses": none, "passes": none}
    columns = {name: column(getattr(memory, name), new) for name, new in moved.items()}
    values = {"names": [w.name for w in added], "shapes": [AIV] * len(added), "blocks": ones, "duration_us": issue}
    values |= {"edges": [len(a) for a in anchors]} | dict.fromkeys(("early", "sync_start", "predicated"), zeros)
    changed = {name: column(getattr(work, name), new) for name, new in values.items()}
    kept = [tuple(places[p] for p in of) for of in work.waits]
    if work.submitted_us is not None:
        before = [0.0 if w.anchor is None else work.submitted_us[w.anchor] for w in added]
        changed["submitted_us"] = column(work.submitted_us, before)
    memory = dataclasses.replace(memory, warms=brought if brought.contexts else None, **columns)
    if work.storage is not None:
        new = [place + offset for offset, place in enumerate(at)]
        rows = column(range(work.tasks), [max(0, place - 1) for place in at])
        waits = column(kept, anchors)
        stored = work.storage.work.copies(rows, waits, changed["edges"], names=changed["names"], fresh=new)
        changed["storage"] = dataclasses.replace(work.storage, work=stored)
    changed |= {"memory": memory, "lapsed": None, "gate": None}
    return dataclasses.replace(work, waits=column(kept, anchors), **changed), places


def without_warms(work: Workload) -> tuple[Workload, list[int]]:
    """The tasks that are no warms, and which they were; what waited for a warm waits for its anchor."""
    memory = work.memory
    if memory is None or memory.warms is None:
        return work, list(range(work.tasks))
    warm = memory.warms.context >= 0
    kept = np.flatnonzero(~warm)
    place = {int(n): at for at, n in enumerate(kept)}
    anchors: dict[int, set[int]] = {}  # of warms, the tasks behind them
    for task in np.flatnonzero(warm).tolist():
        anchors[task] = {n for p in work.waits[task] for n in anchors.get(p, {p})}
    waits = []
    for task in kept.tolist():
        waits.append(tuple(sorted({place[n] for p in work.waits[task] for n in anchors.get(p, {p})})))
    columns: dict[str, Any] = {"gate": None}
    for field in dataclasses.fields(Workload):
        was = getattr(work, field.name)
        if field.name == "gate":
            continue
        if isinstance(was, np.ndarray):
            columns[field.name] = was[kept]
        elif field.name == "names":
            columns[field.name] = tuple(was[n] for n in kept)
    if work.storage is not None:
        stored = work.storage.work.copies(kept.tolist(), waits, columns["edges"], names=columns["names"])
        columns["storage"] = dataclasses.replace(work.storage, work=stored)
    rest: dict[str, Any] = {name: getattr(memory, name)[kept] for name in (*COLUMNS, "together")}
    rest |= {name: tuple(getattr(memory, name)[n] for n in kept) for name in ("uses", "passes")} | {"warms": None}
    left: Memory = dataclasses.replace(memory, **rest)
    return dataclasses.replace(work, waits=tuple(waits), memory=left, **columns), kept.tolist()
