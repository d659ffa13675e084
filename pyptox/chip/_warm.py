"""Warms: an SDMA engine pulls regions of GM into L2 while other work runs; what it costs, and which tasks ask for it.

A warm is a task of one block on a vector core. When it is taken up, its regions join the queue of its context and are
streamed one after another, while its block occupies the core for
``issue_us`` a region, whatever their size. A context that
streams alone takes ``byte_us`` for a byte that L2 lacks and ``hit_byte_us`` for one that it holds. Contexts that have
work at the same time first start up in parallel, ``startup_us``, and then share ``1 / shared_byte_us``.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ..program._warm import MOST_CONTEXTS
from ._constants import on_grid

_DOC = "hw-native-sys/pypto-lib:docs/debug-and-tune/l2-prefetch.md@33a17741"
_SOURCES = {
    "byte_us": f"{_DOC}: 285 GB/s of one stream, alone",
    "hit_byte_us": f"{_DOC}: 2.9 TB/s where a benchmark loop finds what it left",
    "shared_byte_us": f"{_DOC}: 100.7 MB by two contexts in 660.2 µs, 250 of them their start-up",
    "startup_us": f"{_DOC}: about 250 µs for each of several parallel streams",
    "issue_us": "hw-native-sys/pypto-lib PR #963 (d1bf5399): about 20 µs a warm in its segment, whatever its size",
}


@dataclass(frozen=True, kw_only=True)
class Sdma:
    """What a warm costs.

    Attributes:
        byte_us: one context that streams alone from HBM, µs a byte.
        hit_byte_us: the same for bytes that L2 holds already.
        shared_byte_us: several contexts together.
        startup_us: of each of several contexts that stream at the same time.
        issue_us: of the block that asks for it, a region.
        sources: where each number is from.

    >>> round(1e-3 / Sdma().byte_us)
    285
    """

    byte_us: float = 1 / 285e3
    hit_byte_us: float = 1 / 2.9e6
    shared_byte_us: float = (660.2 - 250.0) / 100.7e6
    startup_us: float = 250.0
    issue_us: float = 20.0
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(_SOURCES), hash=False)

    def __post_init__(self) -> None:
        for name in COSTS:
            value = getattr(self, name)
            if not 0 <= value < float("inf") or (name == "byte_us" and value == 0):
                raise PyptoxError(f"`{name}` must be finite µs, not negative; got {value!r}")
        if self.shared_byte_us < self.byte_us:
            raise PyptoxError(
                f"`shared_byte_us` must not be below `byte_us`: contexts gain nothing together; got "
                f"{self.shared_byte_us!r} and {self.byte_us!r}"
            )

    @property
    def worse(self) -> float:
        """How much slower several contexts are together than one alone."""
        return self.shared_byte_us / self.byte_us


COSTS = ("byte_us", "hit_byte_us", "shared_byte_us", "startup_us", "issue_us")
"""Names of the constants of :class:`Sdma`."""


@dataclass(frozen=True, eq=False)
class Warms:
    """Which tasks are warms.

    Attributes:
        targets: of each task the regions that it warms, in order, each with the fraction of it, 0 to 1; empty for
            others.
        context: of each task, 0 on; -1 for a task that is none.
        hbm_byte_us: what HBM takes for a byte: a stream asks for ``hbm_byte_us / byte_us`` of it.
        sdma: what they cost.
    """

    targets: tuple[tuple[tuple[int, float], ...], ...]
    context: np.ndarray
    hbm_byte_us: float
    sdma: Sdma = Sdma()

    @classmethod
    def of(
        cls,
        targets: Sequence[Sequence[tuple[int, float]]],
        *,
        context: Sequence[int] | None = None,
        hbm_byte_us: float = 0.0,
        sdma: Sdma | None = None,
    ) -> "Warms":
        """From plain lists; ``context`` is 0 where left out.

        Raises:
            PyptoxError: fractions outside 0 to 1, or an unknown context.
        """
        kept = []
        for task, each in enumerate(targets):
            if not all(0 <= fraction <= 1 for _, fraction in each):
                raise PyptoxError(f"fractions that task {task} warms must be 0 to 1; got {list(each)}")
            kept.append(tuple((int(region), _rounded(fraction)) for region, fraction in each))
        given = [0] * len(kept) if context is None else list(context)
        if not all(0 <= number < MOST_CONTEXTS for number, each in zip(given, kept, strict=True) if each):
            raise PyptoxError(f"`context` must be 0 to {MOST_CONTEXTS - 1}; got {sorted(set(given))}")
        numbers = np.array([n if each else -1 for n, each in zip(given, kept, strict=True)], np.int32)
        return cls(tuple(kept), numbers, float(hbm_byte_us), sdma or Sdma())

    @property
    def contexts(self) -> int:
        """How many are used."""
        return int(self.context.max(initial=-1)) + 1

    @property
    def asks(self) -> tuple[float, float]:
        """Shares of HBM that one stream asks for, and several together."""
        return _rounded(self.hbm_byte_us / self.sdma.byte_us), _rounded(self.hbm_byte_us / self.sdma.shared_byte_us)

    def constants(self) -> tuple[float, ...]:
        """µs a byte from HBM and from L2, the start-up, how much slower contexts are together, and :attr:`asks`."""
        s = self.sdma
        return (s.byte_us, s.hit_byte_us, float(on_grid(s.startup_us)), s.worse, *self.asks)

    def taken(self, rows: Sequence[int]) -> "Warms":
        """Of copies of tasks."""
        targets = tuple(self.targets[row] for row in rows)
        return dataclasses.replace(self, targets=targets, context=self.context[np.asarray(rows, np.int64)])

    def with_fractions(self, fractions: Any) -> "Warms":
        """The same warms with other fractions, in the order of :meth:`fractions`.

        Raises:
            PyptoxError: another number of them, or some outside 0 to 1.
        """
        given, count = np.asarray(fractions, np.float64), sum(map(len, self.targets))
        if given.shape != (count,) or not ((given >= 0) & (given <= 1)).all():
            raise PyptoxError(f"`fractions` must be {count} numbers from 0 to 1; got {fractions!r}")
        flat = iter(given.tolist())
        targets = tuple(tuple((region, _rounded(next(flat))) for region, _ in each) for each in self.targets)
        return dataclasses.replace(self, targets=targets)

    def fractions(self) -> np.ndarray:
        """Every warmed fraction, task after task."""
        return np.array([fraction for each in self.targets for _, fraction in each], np.float64)


def _rounded(share: float) -> float:
    return float(np.round(share * 2.0**30) * 2.0**-30)
