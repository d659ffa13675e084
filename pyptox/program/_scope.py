"""Runtime scopes: what is submitted inside one is freed together, and its depth says which ring holds it."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ._tensor import ProgramError

MAX_DEPTH = 64
"""Deepest nesting of scopes that the runtime takes."""

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Scope:
    """One scope of a program.

    Attributes:
        number: its place in the order of opening; 0 is the root, which closes when the program ends.
        mode: ``auto`` or ``manual``.
        depth: scopes around it; 0 for the root.
        site: ``file:line`` of the statement that opened it.
        begin: tasks that had been submitted when it opened.
        end: tasks that had been submitted when it closed; None when it never was closed.
    """

    number: int
    mode: str
    depth: int
    site: str
    begin: int
    end: int | None = None

    @property
    def label(self) -> str:
        """Number and site.

        >>> Scope(2, "auto", 1, "layer.py:14", 0).label
        's2 layer.py:14'
        """
        return f"s{self.number} {self.site}"


class Scopes:
    """Scopes as a program opens and closes them."""

    def __init__(self, site: str):
        self.opened = [Scope(0, "auto", 0, site, 0)]
        self.stack = [0]

    @property
    def current(self) -> Scope:
        """The innermost one that is open."""
        return self.opened[self.stack[-1]]

    def open(self, mode: str, site: str, submitted: int) -> int:
        """Open a scope; its number.

        Raises:
            ProgramError: an unknown mode, an ``auto`` scope inside a ``manual`` one, or more than 64 scopes deep.
        """
        if mode not in ("auto", "manual"):
            raise ProgramError(f"`mode` of a scope must be 'auto' or 'manual'; got {mode!r}")
        if mode == "auto" and self.current.mode == "manual":
            raise ProgramError(
                "an `auto` scope inside a `manual` one is refused by the runtime; make it manual as well"
            )
        if len(self.stack) > MAX_DEPTH:
            raise ProgramError(f"scopes nest {MAX_DEPTH} deep at most")
        number = len(self.opened)
        self.opened.append(Scope(number, mode, len(self.stack), site, submitted))
        self.stack.append(number)
        return number

    def close(self, number: int, submitted: int) -> None:
        """Close a scope that is open."""
        self.stack.remove(number)
        self.opened[number] = replace(self.opened[number], end=submitted)

    def finished(self, submitted: int) -> tuple[Scope, ...]:
        """Every scope at the end of the program, which closes the root and no other."""
        return (replace(self.opened[0], end=submitted), *self.opened[1:])


def scope(mode: str = "auto") -> contextlib.AbstractContextManager[None]:
    """Tasks submitted inside are freed together. In a ``manual`` scope only declared dependencies count.

    Raises:
        ProgramError: an unknown mode, an ``auto`` scope inside a ``manual`` one, or more than 64 scopes deep.
    """
    return _within(mode, _caller())


def loop(items: Iterable[_Item], mode: str = "auto") -> Iterator[_Item]:
    """Each item in a scope of its own, as the compiler opens one for every turn of a loop.

    >>> import pyptox as px
    >>> from pyptox import program as pp
    >>> @pp.program(sizes=lambda: {"x": px.spec((16, 64), "bf16"), "w": px.spec((64, 64), "bf16")})
    ... def layers(x, w):
    ...     for _ in pp.loop(range(2)):
    ...         pp.submit(px.kernels.matmul, x, w, out=x)
    ...     return x
    >>> [(s.depth, s.begin, s.end) for s in pp.graph(layers).scopes]
    [(0, 0, 2), (1, 0, 1), (1, 1, 2)]
    """
    return _looped(items, mode, _caller())


def _looped(items: Iterable[_Item], mode: str, site: str) -> Iterator[_Item]:
    for item in items:
        with _within(mode, site):
            yield item


@contextlib.contextmanager
def _within(mode: str, site: str) -> Iterator[None]:
    from ._submit import current

    recording = current()
    number = recording.scopes.open(mode, site, len(recording.tasks))
    try:
        yield
    finally:
        recording.scopes.close(number, len(recording.tasks))


def _caller() -> str:
    frame = sys._getframe(2)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
