"""Workloads made of another's rows."""

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ._workload import ALLOC, DUMMY, Workload


def rebuilt(
    work: Workload, rows: Sequence[int], waits: Sequence[Sequence[int]], columns: Mapping[str, Sequence[Any]]
) -> tuple[Workload, list[int]]:
    """A workload of copies of tasks, in an order in which each comes after what it waits for.

    Args:
        work: where the copies are from.
        rows: the task that each is a copy of.
        waits: what each waits for, as places in ``rows``.
        columns: what is not copied, by name, an entry for each of ``rows``.

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
    source = np.array([rows[n] for n in order], np.int64)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(work):
        column = columns.get(field.name, getattr(work, field.name))
        at = order if field.name in columns else source.tolist()
        if isinstance(column, np.ndarray):
            values[field.name] = column[np.asarray(at, np.int64)]
        elif column is not None:
            picked = [column[n] for n in at]
            kind = getattr(work, field.name)
            values[field.name] = np.array(picked, kind.dtype) if isinstance(kind, np.ndarray) else tuple(picked)
    shapes = values["shapes"]
    kept = [[p for p in dict.fromkeys(waits[n]) if shapes[place[p]] != ALLOC] for n in order]
    values["waits"] = tuple(tuple(sorted(place[p] for p in of)) for of in kept)
    # allocations are wired too, and are not among what is waited for
    others = np.array([work.edges[n] - len(work.waits[n]) for n in source], np.int64)
    new = (shapes == DUMMY) & (work.shapes[source] != DUMMY)
    values["edges"] = (np.where(new, 0, others) + [len(of) for of in kept]).astype(np.int32)
    if values.get("submitted_us") is not None:
        values["submitted_us"] = np.maximum.accumulate(values["submitted_us"])
    return Workload(**values), order


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
