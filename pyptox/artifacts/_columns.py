"""Columns of rows and of objects as NumPy arrays; the first value that is not what it should be is named."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from ._json import Where, field


def table(
    content: Mapping[str, Any],
    name: str,
    where: Where,
    layouts: tuple[tuple[str, ...], ...],
    unsigned: int | None = None,
) -> tuple[np.ndarray, int]:
    """Rows of unsigned integers as an array; all of the width of one of ``layouts``.

    The column ``unsigned`` may use all 64 bits, the others 63: the array is uint64 if there is such a column.
    """
    rows = field(content, name, list, where)
    place = where.under(name)
    widths = [len(columns) for columns in layouts]
    try:
        width = len(rows[0]) if rows else widths[-1]
        flat = list(chain.from_iterable(rows))
        good = width in widths and set(map(len, rows)) <= {width} and set(map(type, flat)) <= {int}
        array = np.array(flat if good else [], np.int64 if unsigned is None else np.uint64)
        if good and int(np.max(array, initial=0)) < 2**63 and int(np.min(array, initial=0)) >= 0:
            return array.reshape(-1, width), width
        if good and unsigned is not None:
            others = np.delete(array.reshape(-1, width), unsigned, axis=1)
            if int(others.max()) < 2**63:
                return array.reshape(-1, width), width
    except (TypeError, OverflowError):
        pass
    raise _damaged_row(rows, layouts, unsigned, place)


def _damaged_row(
    rows: list[Any], layouts: tuple[tuple[str, ...], ...], unsigned: int | None, where: Where
) -> Exception:
    widths = [len(columns) for columns in layouts]
    usual = len(rows[0]) if isinstance(rows[0], list) and len(rows[0]) in widths else widths[-1]
    columns = next(layout for layout in layouts if len(layout) == usual)
    for number, row in enumerate(rows):
        place = Where(where.file, f"{where.key}[]", number)
        if not isinstance(row, list) or len(row) != usual:
            got = f"{len(row)} columns" if isinstance(row, list) else type(row).__name__
            wanted = " or ".join(map(str, widths))
            same = f" ({usual} as the first)" if number else ""
            return place.error(
                "columns", f"a row must have {wanted} columns{same}: {', '.join(columns)}; got {got}. A newer layout?"
            )
        for column, value in enumerate(row):
            bits = 64 if column == unsigned else 63
            if type(value) is not int or not 0 <= value < 2**bits:
                return place.error(
                    "stamp", f"`{columns[column]}` must be an integer of {bits} bits, at least 0; got {value!r}"
                )
    raise AssertionError("every row is as it should be")


def column(items: list[tuple[Where, dict]], name: str, default: Any = None) -> np.ndarray:
    """One column of unsigned integers; ``default`` where absent or null, an error where there is no default."""
    values = [item.get(name) for _, item in items]
    try:
        if set(map(type, values)) <= {int}:
            array = np.array(values, np.uint64)
            if name == "task_id" or int(array.max(initial=0)) < 2**63:
                return array if name == "task_id" else array.astype(np.int64)
    except OverflowError:
        pass
    for number, (place, item) in enumerate(items):
        if values[number] is None and default is not None:
            values[number] = int(default)
            continue
        value = field(item, name, int, place)
        if not 0 <= value < 2 ** (64 if name == "task_id" else 63):
            raise place.under(name).error("stamp", f"`{name}` must be an unsigned integer; got {value}")
    return np.array(values, np.uint64 if name == "task_id" else np.int64)


def depths(items: list[tuple[Where, dict]], name: str) -> np.ndarray:
    rows = [item.get(name, (-1, -1, -1)) for _, item in items]
    for (place, _), row in zip(items, rows, strict=True):
        whole = isinstance(row, list | tuple) and all(type(d) is int and -(2**63) <= d < 2**63 for d in row)
        if not whole or len(row) != 3:
            raise place.under(name).error("type", f"`{name}` must be three depths, aic, aiv, mix; got {row!r}")
    return np.array(rows, np.int64).reshape(-1, 3)
