"""The observed critical path: what the last finish waited for, block by block, back to the beginning."""

from dataclasses import dataclass

import numpy as np

from ._deps import Deps
from ._gaps import CAUSES, previous_blocks, split, submitted
from ._graph import NEVER, stamps, waits
from ._tables import Records


@dataclass(frozen=True)
class Piece:
    """A stretch of the path.

    Attributes:
        cause: ``kernel``, or one of :data:`CAUSES`.
        block: row of the block that ran, or that waited; for ``fin``, the block whose end was not seen yet where the
            path went through data or is at its end.
        task_id: its task.
        start, end: cycles from the earliest stamp of the capture.
    """

    cause: str
    block: int
    task_id: int
    start: int
    end: int


@dataclass(frozen=True)
class Path:
    """Pieces in order of time. They tile the makespan: each starts where the one before it ends."""

    pieces: tuple[Piece, ...]
    clock_hz: int

    @property
    def cycles(self) -> int:
        """Sum of the pieces: the makespan, exactly."""
        return sum(piece.end - piece.start for piece in self.pieces)

    @property
    def us(self) -> float:
        """The same in µs."""
        return self.cycles * (1e6 / self.clock_hz)

    def by_cause(self) -> dict[str, float]:
        """µs by cause; largest first."""
        totals: dict[str, int] = {}
        for piece in self.pieces:
            totals[piece.cause] = totals.get(piece.cause, 0) + piece.end - piece.start
        us = 1e6 / self.clock_hz
        return {cause: cycles * us for cause, cycles in sorted(totals.items(), key=lambda item: -item[1])}


def observed_path(records: Records, deps: Deps | None = None) -> Path:
    """Back from the last finish, to whichever came later: the last predecessor's finish or the block ahead on the core.

    Without a graph only the blocks ahead are known.
    """
    if not len(records.blocks):
        return Path((), records.clock_hz)
    at, found, previous = stamps(records), waits(records, deps), previous_blocks(records)
    submit, ids = submitted(records, found), records.blocks.task_id
    begin, cursor = at.first, at.last
    block = int(np.argmax(np.maximum(at.finish, at.end)))
    pieces: list[Piece] = []
    visited: set[int] = set()

    def add(cause: str, of: int, start: int) -> None:
        nonlocal cursor
        start = max(min(start, cursor), begin)
        if start < cursor:
            pieces.append(Piece(cause, of, int(ids[of]), start, cursor))
            cursor = start

    add("fin", block, int(at.end[block]))
    while True:
        visited.add(block)
        add("kernel", block, int(at.start[block]))
        task, ahead = int(found.task[block]), int(previous[block])
        data, busy = int(found.finish[task]), int(at.end[ahead]) if ahead >= 0 else NEVER
        after = int(found.block[task]) if data >= busy else ahead
        last = after < 0 or after in visited
        since = begin if last else min(int(at.end[after]), cursor)
        parts = split(np.array([since]), np.array([cursor]), np.array([block]), at, found, submit)
        for cause in reversed(CAUSES):
            waited = after if cause == "fin" and not last and data >= busy else block
            add(cause, waited, cursor - int(parts[cause][0]))
        if last:
            return Path(tuple(reversed(pieces)), records.clock_hz)
        block = after
