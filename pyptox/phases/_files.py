"""Matrices of timestamps in files: ``.npy`` and ``.csv``, one round or several."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._files import write_whole
from ._layout import UNUSED, WORDS, Layout, stamps_of

ROUND = "round"


def read_rounds(path: str | Path, layout: Layout | None = None) -> tuple[list[np.ndarray], Layout]:
    """Every round of a file, and the layout of its words.

    An ``.npy`` file holds integers, ``[slots, 8]`` or ``[rounds, slots, 8]``. A ``.csv`` file has one line a slot,
    eight integers each; a first line of names gives the layout, and a column ``round`` before them tells rounds apart.

    Args:
        path: the file.
        layout: which word is what; by default the names of a CSV file, or :class:`Layout`.

    Raises:
        ValueError: another suffix, or contents that are no such matrix.
    """
    path = Path(path)
    if path.suffix not in (".npy", ".csv"):
        raise ValueError(f"`FILE` must end in .npy or .csv; got {path}")
    try:
        if path.suffix == ".csv":
            return _read_csv(path, layout)
        array = np.load(path, allow_pickle=False)
        matrices = list(array) if array.ndim == 3 else [array]
        if not matrices:
            raise ValueError("`FILE` must hold at least one round; got none")
        return [stamps_of(matrix) for matrix in matrices], layout or Layout()
    except (ValueError, EOFError, csv.Error) as error:
        raise ValueError(f"{path}: {error}") from None


def _read_csv(path: Path, layout: Layout | None) -> tuple[list[np.ndarray], Layout]:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream)
        lines = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if any(map(str.strip, line))]
    if not lines:
        raise ValueError("`FILE` must hold at least one row; got none")
    names = lines[0][1] if not lines[0][1][0].isdecimal() else []
    by_round = names[:1] == [ROUND]
    if names:
        layout = layout or Layout(tuple(name or UNUSED for name in names[by_round:]))
        lines = lines[1:]
    rounds: dict[int, list[list[int]]] = {}
    for number, cells in lines:
        if len(cells) != WORDS + by_round or not all(cell.isascii() and cell.isdecimal() for cell in cells):
            raise ValueError(
                f"line {number} must hold {WORDS} words{' after the round' * by_round}, each a cycle count of decimal "
                f"digits; got {','.join(cells)!r}"
            )
        values = [int(cell) for cell in cells]
        if max(values) >= 2**64:
            raise ValueError(f"line {number} must hold 64-bit words; got {max(values)}")
        rounds.setdefault(values[0] if by_round else 0, []).append(values[by_round:])
    if not rounds:
        raise ValueError("`FILE` must hold at least one row; got names only")
    return [np.array(rounds[key], np.uint64) for key in sorted(rounds)], layout or Layout()


def write_rounds(path: str | Path, rounds: Sequence[Any], layout: Layout = Layout()) -> None:  # noqa: B008  (frozen)
    """Write rounds of stamps to ``.npy`` or ``.csv``, all or nothing. A CSV file gets the layout's names."""
    path = Path(path)
    matrices = [stamps_of(matrix) for matrix in rounds]
    if path.suffix not in (".npy", ".csv") or not matrices or len({m.shape for m in matrices}) != 1:
        raise ValueError(
            f"`path` must end in .npy or .csv and `rounds` be at least one matrix, all of one shape; got {path} and "
            f"shapes {sorted({m.shape for m in matrices})}"
        )
    if path.suffix == ".npy":
        data = io.BytesIO()
        np.save(data, np.stack(matrices), allow_pickle=False)
        write_whole(path, data.getvalue())
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([ROUND, *layout.words])
    for number, matrix in enumerate(matrices):
        writer.writerows([number, *row] for row in matrix.tolist())
    write_whole(path, text.getvalue())
