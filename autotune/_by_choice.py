"""Candidates that differ in a choice fixed at trace time, one compiled cost for each combination."""

from collections.abc import Iterator, Mapping

import numpy as np

from pyptox.cost import Options
from pyptox.cost._nest import options_for
from pyptox.lang import Kernel


def by_choice(
    kernel: Kernel, columns: Mapping[str, np.ndarray], options: Options
) -> Iterator[tuple[np.ndarray | slice, dict[str, np.ndarray], Options]]:
    """Positions, numeric columns and options of the candidates of each combination of choices in ``columns``.

    Columns are handed on as they are where all candidates have one combination.
    """
    numeric = {name: column for name, column in columns.items() if name in kernel.numeric}
    chosen = {p.name: p.options for p in kernel.parameters if p.kind == "choice" and p.name in columns}
    code = np.zeros(len(next(iter(columns.values()))), np.int64)
    for name, declared in chosen.items():
        digit = np.argmax([columns[name] == option for option in declared], axis=0)
        code = code * len(declared) + digit
    combinations = np.unique(code) if chosen else [0]
    for combination in combinations:
        at = slice(None) if len(combinations) == 1 else np.flatnonzero(code == combination)
        part = {name: column[at] for name, column in numeric.items()}
        values, rest = {}, int(combination)
        for name, declared in reversed(chosen.items()):
            rest, digit = divmod(rest, len(declared))
            values[name] = declared[digit]
        yield at, part, options_for(kernel, options, values)
