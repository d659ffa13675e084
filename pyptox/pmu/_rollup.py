"""From the lines of a capture to one figure for each kernel and kind of core."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from ._file import Capture, Row
from ._groups import READ_HITS, READ_MISSES


@dataclass(frozen=True)
class Measured:
    """A kernel on one kind of core: the busiest core of each task, then the median over tasks.

    Attributes:
        func_id, core: which kernel, on what.
        tasks: how many tasks ran it.
        cores: the most cores that one of them used.
        total_cycles, counters: medians; None where a counter is empty in some task.
    """

    func_id: int
    core: str
    tasks: int
    cores: int
    total_cycles: float
    counters: dict[str, float | None]


def roll_up(capture: Capture) -> tuple[Measured, ...]:
    """Roll a capture up. A core that executes several blocks of one task has a line for each: they are added.

    >>> rows = [Row(0, core, 7, 1, "AIC", 10 * core + 5, {"cube_busy_cycles": core}) for core in (1, 2, 2)]
    >>> roll_up(Capture(2, ("cube_busy_cycles",), tuple(rows)))[0].total_cycles
    50.0
    """
    kernels: dict[tuple[int, str], dict[int, dict[int | None, list[Row]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in capture.rows:
        kernels[row.func_id, row.core][row.task_id][row.core_id].append(row)
    found = []
    for (func_id, core), tasks in sorted(kernels.items()):
        busiest = [max(cores.values(), key=_total) for cores in tasks.values()]
        counters = {name: _median([_sum(rows, name) for rows in busiest]) for name in capture.counters}
        total = float(median(_total(rows) for rows in busiest))
        found.append(Measured(func_id, core, len(tasks), max(map(len, tasks.values())), total, counters))
    return tuple(found)


def _total(rows: list[Row]) -> int:
    return sum(row.total_cycles for row in rows)


def _sum(rows: list[Row], name: str) -> int | None:
    values = [row.counters[name] for row in rows]
    return None if None in values else sum(value for value in values if value is not None)


def _median(values: list[int | None]) -> float | None:
    return None if None in values else float(median(value for value in values if value is not None))


def read_hit_share(capture: Capture, func_id: int) -> float | None:
    """Share of a kernel's L2 reads that hit, over all its cores and both ports; None where they are not counted."""
    rows = [row for row in capture.rows if row.func_id == func_id]
    hits = [row.counters.get(name) for row in rows for name in READ_HITS]
    misses = [row.counters.get(name) for row in rows for name in READ_MISSES]
    if None in (*hits, *misses):
        return None
    hit, miss = sum(n for n in hits if n is not None), sum(n for n in misses if n is not None)
    return hit / (hit + miss) if hit + miss else None
