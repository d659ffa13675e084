"""Workloads made of another's rows."""

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ._constants import on_grid
from ._memory import COLUMNS, Memory, ratios
from ._workload import ALLOC, DUMMY, Workload

Columns = Mapping[str, Sequence[Any] | np.ndarray]

_FLAGS = dict.fromkeys(("early", "sync_start", "predicated"), False)
_DUMMY: dict[str, Any] = {"shapes": DUMMY, "blocks": 0, "duration_us": 0.0} | _FLAGS


def rebuilt(
    work: Workload,
    rows: Sequence[int],
    waits: Sequence[Sequence[int]],
    columns: Columns,
    dummies: Sequence[int] = (),
) -> tuple[Workload, list[int]]:
    """A workload of copies of tasks, in an order in which each comes after what it waits for.

    Args:
        work: where the copies are from.
        rows: the task that each is a copy of.
        waits: what each waits for, as places in ``rows``.
        columns: what is not copied, by name, an entry for each of ``rows``.
        dummies: places of copies that keep nothing but the place of their submission: dummies.

    Returns:
        The workload, and the places in the order of its tasks: as given wherever that is possible.

    Raises:
        PyptoxError: tasks would wait for each other.

    >>> chain = Workload.of(["AIC", "AIC"], [1, 2], [1.0, 2.0], [[], [0]])
    >>> more, order = rebuilt(chain, [0, 1, 1], [[], [0], [1]], {"blocks": [1, 2, 3]})
    >>> more.blocks.tolist(), more.waits, order
    ([1, 2, 3], ((), (0,), (1,)), [0, 1, 2])
    """
    order = _ordered(work, rows, waits)
    place = {n: at for at, n in enumerate(order)}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(work):
        was = getattr(work, field.name)
        if was is None or field.name in ("memory", "lapses", "lapsed", "storage", "gate"):
            continue
        column = [columns[field.name][n] for n in order] if field.name in columns else [was[rows[n]] for n in order]
        values[field.name] = np.array(column, was.dtype) if isinstance(was, np.ndarray) else tuple(column)
    new = [place[n] for n in dummies]
    for name, value in _DUMMY.items():
        values[name][new] = value
    kept = [sorted({place[p] for p in waits[n] if values["shapes"][place[p]] != ALLOC}) for n in order]
    values["waits"] = tuple(map(tuple, kept))
    # allocations are wired too, and are not among what is waited for
    others = np.array([work.edges[rows[n]] - len(work.waits[rows[n]]) for n in order], np.int64)
    others[new] = 0
    values["edges"] = (others + np.array([len(of) for of in kept], np.int64)).astype(np.int32)
    if work.memory is not None:
        copies = [rows[n] for n in order]
        values["memory"] = work.memory.taken(copies, ratios(values["duration_us"], work.duration_us[copies]))
    if "submitted_us" in values:
        values["submitted_us"] = np.maximum.accumulate(values["submitted_us"])
    if work.storage is not None:
        copies = [rows[n] for n in order]
        moved = work.storage.work.copies(copies, kept, values["edges"], names=values["names"], fresh=new)
        values["storage"] = dataclasses.replace(work.storage, work=moved)
    return Workload(**values, lapses=work.lapses), order


def averaged(of: Memory, members: Sequence[int], weights: np.ndarray, into: Memory, place: int) -> Memory:
    """``into`` with what tasks of another memory move on average in the row ``place``: a task made of them."""
    together, chosen = float(of.together[members[0]]), list(members)
    columns = {name: getattr(into, name).copy() for name in (*COLUMNS, "together")}
    columns["together"][place] = together
    columns["resident_us"][place] = on_grid(weights @ of.resident_us[chosen])
    for name in ("hbm_us", "l2_us"):  # what one core asks for is theirs over the blocks that it is for
        columns[name][place] = on_grid(weights @ (getattr(of, name)[chosen] * together / of.together[chosen]))
    shares: dict[int, float] = {}
    often: dict[int, float] = {}
    for task, weight in zip(members, weights.tolist(), strict=True):
        for (region, share), passes in zip(of.uses[task], of.passes[task], strict=True):
            shares[region] = shares.get(region, 0.0) + weight * share
            often[region] = often.get(region, 0.0) + passes
    uses, passes = list(into.uses), list(into.passes)
    uses[place], passes[place] = tuple(shares.items()), tuple(often.values())
    return dataclasses.replace(into, uses=tuple(uses), passes=tuple(passes), **columns)


def divided(of: Memory, members: Mapping[int, int], count: int) -> Memory:
    """Tasks that are parts of one, each with its own part of what that one's blocks share out among themselves.

    Args:
        of: the memory, where every part still uses all that the whole used.
        members: tasks that are parts, and which part each is.
        count: parts of each whole. A region that the whole passes over less often than this is divided.
    """
    cut = {
        region
        for task in members
        for (region, _), passes in zip(of.uses[task], of.passes[task], strict=True)
        if passes < count
    }
    if not cut:
        return of
    sizes, parts = of.regions.copy(), {}
    for region in sorted(cut):
        parts[region] = [region, *range(len(sizes), len(sizes) + count - 1)]
        sizes = np.append(sizes, np.full(count - 1, sizes[region] / count))
        sizes[region] /= count
    uses, often = [], []
    for task, (each, passes) in enumerate(zip(of.uses, of.passes, strict=True)):
        rows = []
        for (region, share), many in zip(each, passes, strict=True):
            if region not in cut:
                rows.append((region, share, many))
            elif task in members and many < count:
                rows.append((parts[region][members[task]], share, many))
            else:
                rows += [(part, share / count, many) for part in parts[region]]
        uses.append(tuple((region, share) for region, share, _ in rows))
        often.append(tuple(many for *_, many in rows))
    warms = of.warms
    if warms is not None:
        targets = [[(part, x) for region, x in each for part in parts.get(region, [region])] for each in warms.targets]
        warms = dataclasses.replace(warms, targets=tuple(map(tuple, targets)))
    return dataclasses.replace(of, regions=sizes, uses=tuple(uses), passes=tuple(often), warms=warms)


def scaled(work: Workload, factor: np.ndarray) -> Workload:
    """A workload whose blocks take and move ``factor`` times as much, by task."""
    changed = work.with_durations(work.duration_us * factor)
    if work.memory is None:
        return changed
    columns = {name: on_grid(getattr(work.memory, name) * factor) for name in COLUMNS}
    return dataclasses.replace(changed, memory=dataclasses.replace(work.memory, **columns))


def _ordered(work: Workload, rows: Sequence[int], waits: Sequence[Sequence[int]]) -> list[int]:
    left = [len(set(of)) for of in waits]
    after: list[list[int]] = [[] for _ in rows]
    for n, of in enumerate(waits):
        for pred in set(of):
            after[pred].append(n)
    ready = [n for n, count in enumerate(left) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for succ in after[n]:
            left[succ] -= 1
            if not left[succ]:
                heapq.heappush(ready, succ)
    if len(order) < len(rows):
        ring = ", ".join(work.names[rows[n]] for n, count in enumerate(left) if count)
        raise PyptoxError(f"the change must not make tasks wait for each other; these would: {ring}")
    return order
