"""``pmu.csv``: one line for each execution on a core; counters of one event group."""

import csv
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .._files import write_whole

CORES = ("AIC", "AIV")
"""Names of the values of the column ``core_type``."""

_BEFORE = ("thread_id", "core_id", "task_id", "func_id", "core_type", "pmu_total_cycles")
_LAST = "event_type"
_BITS = {"pmu_total_cycles": 64, "task_id": 64}


@dataclass(frozen=True)
class Row:
    """One execution of a kernel on one core.

    Attributes:
        thread_id, core_id: scheduler thread and core; None in a prediction, which has neither.
        task_id: ``ring << 32 | number``.
        func_id: which kernel.
        core: ``AIC`` or ``AIV``.
        total_cycles: from start to end, cycles of the core's clock.
        counters: value by name; None where empty.
    """

    thread_id: int | None
    core_id: int | None
    task_id: int
    func_id: int
    core: str
    total_cycles: int
    counters: Mapping[str, int | None]


@dataclass(frozen=True)
class Capture:
    """A file's rows, the counters of its columns in order, and its event type."""

    event_type: int
    counters: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def functions(self) -> tuple[int, ...]:
        """Every ``func_id``, ascending."""
        return tuple(sorted({row.func_id for row in self.rows}))


def read(path: str | Path) -> Capture:
    """Read a ``pmu.csv``. Every column beside the known ones is a counter, whatever its name.

    Raises:
        ValueError: a missing column, a cell that is no unsigned integer, or more than one event type.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            header = [name.strip() for name in next(reader, [])]
            _check_header(header)
            lines = [(reader.line_num, _cells(reader.line_num, header, line)) for line in reader if line]
        counters = tuple(name for name in header if name not in (*_BEFORE, _LAST))
        return _capture(counters, lines)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}: {error}") from None


def _check_header(header: list[str]) -> None:
    missing = [name for name in (*_BEFORE, _LAST) if name not in header]
    if missing:
        raise ValueError(f"a pmu.csv must have the columns {', '.join((*_BEFORE, _LAST))}; missing: {missing[0]}")
    twice = [name for name, times in Counter(header).items() if times > 1]
    if twice:
        raise ValueError(f"a pmu.csv must have each column once; got {twice[0]} twice")


def _cells(number: int, header: list[str], line: list[str]) -> dict[str, str]:
    if len(line) != len(header):
        raise ValueError(f"line {number} must have {len(header)} cells, one a column; got {len(line)}")
    return dict(zip(header, line, strict=True))


def _capture(counters: tuple[str, ...], lines: list[tuple[int, dict[str, str]]]) -> Capture:
    rows, types = [], set()
    for number, cells in lines:
        core = _whole(number, cells, "core_type", required=True)
        if core not in (0, 1):
            raise ValueError(f"line {number}: `core_type` must be 0 (AIC) or 1 (AIV); got {core}")
        required = {name: _whole(number, cells, name, True) for name in ("task_id", "func_id", "pmu_total_cycles")}
        types.add(_whole(number, cells, _LAST, required=True))
        rows.append(
            Row(
                thread_id=_whole(number, cells, "thread_id"),
                core_id=_whole(number, cells, "core_id"),
                task_id=required["task_id"] or 0,
                func_id=required["func_id"] or 0,
                core=CORES[core],
                total_cycles=required["pmu_total_cycles"] or 0,
                counters={name: _whole(number, cells, name) for name in counters},
            )
        )
    if len(types) != 1:
        found = " and ".join(str(t) for t in sorted(t for t in types if t is not None)) or "no rows"
        raise ValueError(f"a pmu.csv must hold rows of one `event_type`: a run records one group; got {found}")
    return Capture(types.pop() or 0, counters, tuple(rows))


def _whole(line: int, cells: dict[str, str], name: str, required: bool = False) -> int | None:
    text = cells[name].strip()
    if not text and not required:
        return None
    bits = _BITS.get(name, 32)
    try:
        value = int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        value = -1
    if not 0 <= value < 2**bits:
        raise ValueError(f"line {line}: `{name}` must be an integer of {bits} bits, at least 0; got {text!r}")
    return value


def write(path: str | Path, capture: Capture) -> None:
    """Write a ``pmu.csv``, all or nothing; what is None stays empty."""
    for row in capture.rows:
        beyond = [name for name, value in row.counters.items() if value is not None and not 0 <= value < 2**32]
        if beyond:
            raise ValueError(f"`{beyond[0]}` must fit a counter of 32 bits; got {row.counters[beyond[0]]:,}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_BEFORE, *capture.counters, _LAST])
    for row in capture.rows:
        first = [row.thread_id, row.core_id, f"0x{row.task_id:016x}", row.func_id, CORES.index(row.core)]
        counters = [row.counters.get(name) for name in capture.counters]
        writer.writerow([*first, row.total_cycles, *counters, capture.event_type])
    write_whole(path, text.getvalue())
