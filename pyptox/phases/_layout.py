"""Which of a core's eight words holds what."""

from dataclasses import dataclass
from typing import Any

import numpy as np

WORDS = 8
"""Words of 64 bits in one core's row: a cache line, so that no two cores write to the same one."""

STAMPS = ("entry", "produced", "arrival", "release", "done")
"""Boundaries that a core passes, in order: it starts; what it produces is written; it arrives at the collective; the
collective lets it go; its body is done."""

UNUSED = "-"

_DEFAULT = (*STAMPS, UNUSED, "epoch", "generation")


@dataclass(frozen=True)
class Layout:
    """Names of the eight words, ``-`` for one that is not used. All of :data:`STAMPS` must be among them.

    ``generation`` says which run wrote the row. It comes last by default because a core writes its words in order: a
    row that is half written then still has the old one. ``epoch`` names the clock that the stamps were read from. A
    layout may do without either; what rests on it is then not checked. A stamp of 0 means never written.

    >>> Layout().words.index("release")
    3
    >>> Layout.parse("generation,entry,produced,arrival,release,done,-,-").words[0]
    'generation'
    """

    words: tuple[str, ...] = _DEFAULT

    def __post_init__(self) -> None:
        named = [word for word in self.words if word != UNUSED]
        known = {*STAMPS, "epoch", "generation"}
        wrong = [word for word in named if word not in known or named.count(word) > 1]
        missing = [stamp for stamp in STAMPS if stamp not in named]
        if len(self.words) != WORDS or wrong or missing:
            raise ValueError(
                f"`words` must name {WORDS} words, each of {', '.join(STAMPS)} once, epoch and generation at most once "
                f"and - for the others; got {','.join(self.words)!r}. Try {','.join(_DEFAULT)}"
            )

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """A layout from comma-separated names; the default where ``text`` is empty."""
        return cls(tuple(part.strip() for part in text.split(","))) if text else cls()

    def rows(self, matrix: np.ndarray) -> list[dict[str, int]]:
        """Each row by name, as Python integers: differences of ``uint64`` would wrap."""
        pairs = [(word, column) for column, word in enumerate(self.words) if word != UNUSED]
        return [{word: row[column] for word, column in pairs} for row in matrix.tolist()]


def stamps_of(matrix: Any) -> np.ndarray:
    """``matrix`` as ``uint64 [slots, 8]``.

    >>> stamps_of([[1, 2, 3, 4, 5, 0, 0, 1]]).shape
    (1, 8)
    """
    # numpy would make float64 of a list in which some numbers need 64 bits
    array = np.array(matrix, object) if isinstance(matrix, list | tuple) else np.asarray(matrix)
    wrong: Any = array.dtype if array.dtype.kind not in "iu" else None
    if array.dtype == object:
        wrong = next((word for word in array.flat if not isinstance(word, int) or abs(word) >= 2**64), None)
        if wrong is None:
            array = array.astype(np.int64 if any(word < 0 for word in array.flat) else np.uint64)
    if wrong is not None:
        raise ValueError(
            f"`matrix` must hold integers of 64 bits (a float cannot hold a cycle count beyond 2**53); got {wrong}. "
            "Try dtype uint64"
        )
    if array.ndim != 2 or array.shape[1] != WORDS or not array.shape[0]:
        raise ValueError(
            f"`matrix` must be core slots x {WORDS} words; got shape {array.shape}. Try one round of it at a time"
        )
    if array.dtype.kind == "i" and (array < 0).any():
        raise ValueError(f"`matrix` must hold cycles since an epoch; got {int(array.min())}. Try dtype uint64")
    return array.astype(np.uint64)
