"""What a reading of a kernel is, and the operations that readings interpret.

A kernel calls operations and loops; each call goes to the reading that is current. A new operation is one
:class:`Operation` (a value with three rules), a new reading one subclass of :class:`AbstractReading`.
"""

import abc
import contextlib
import contextvars
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _scalar
from .._errors import KernelError
from .._scalar import Scalar
from ._types import Axis, Index, Tensor, Tile


@dataclass(frozen=True)
class TileType:
    """What an operation makes: allocated shape, valid part, element type, space."""

    shape: tuple[Scalar, Scalar]
    valid: tuple[Scalar, Scalar]
    dtype: str
    space: Any


@dataclass(frozen=True, eq=False)
class Operation:
    """A tile operation as data.

    Attributes:
        name: shown in traces and used to override the cost rule.
        infer: ``infer(*tiles, **attributes) -> TileType | None``; checks its operands and raises
            :class:`pyptox.KernelError`. None means that the operation makes no tile.
        run: ``run(context, *tiles, **attributes) -> array``: the values, from ``tile.payload`` arrays. The context
            has ``float64`` (True in the reference reading) and ``dtype(name)``.
        cost: ``cost(context, instruction) -> [(pipe, cycles), ...]``, one entry per pipe it occupies in turn,
            linear in the time constants ``context.times``.
        alias: position of the operand whose buffer the result reuses (an accumulator), or None.
        exact: every element of the result is an element of an operand, or follows from comparing them: nothing is
            rounded.
    """

    name: str
    infer: Callable[..., TileType | None]
    run: Callable[..., Any]
    cost: Callable[..., list]
    alias: int | None = None
    exact: bool = False

    def __call__(self, *tiles: Tile, **attributes: Any) -> Any:
        for position, tile in enumerate(tiles):
            if not isinstance(tile, Tile):
                raise KernelError(
                    f"`{self.name}` expects tiles; operand {position} is {type(tile).__name__}. "
                    "Load it first, or make one with pl.full"
                )
        return current().apply(self, tiles, attributes)


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order in which blocks of a grid are handed to cores.

    ``group`` is None for row-major (the last axis runs fastest). With a group g the last axis is cut into strips
    of g blocks; a strip is finished over the whole axis before last, before the next strip starts, so that
    concurrent blocks share both operands (a swizzle).
    """

    group: Scalar | None = None


def swizzled(group: Scalar) -> Order:
    """Blocks in strips of ``group`` along the last grid axis."""
    return Order(group=group)


ROW_MAJOR = Order()


class AbstractReading(abc.ABC):
    """Interprets a kernel: what an operation, a loop and the grid mean.

    ``sizes`` are those of the chip: implicit staging picks its tile by them.
    """

    sizes: Any

    @abc.abstractmethod
    def apply(self, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any]) -> Any:
        """Interpret one operation."""

    @abc.abstractmethod
    def loop(self, count: Scalar, body: Callable, carry: Any, stages: Scalar) -> Any:
        """Interpret ``count`` iterations of ``body(index, carry) -> carry``."""

    def when(self, count: Scalar, body: Callable, carry: Any) -> Any:
        """Interpret ``body(carry)`` if ``count``, 0 or 1, is 1."""
        return self.loop(count, lambda _, carry: body(carry), carry, 1)

    @abc.abstractmethod
    def grid(self, extents: Sequence[Scalar], body: Callable, order: Order, uneven: bool) -> None:
        """Interpret ``body(*indices)`` for each block; arguments as in ``pl.grid``."""

    @abc.abstractmethod
    def value(self, index: Index) -> Scalar:
        """The number that an index stands for in this reading."""

    def holds(self, tensor: Tensor, axis: int) -> bool:
        """True when every slice that the kernel takes of this axis is known to lie inside the tensor."""
        return False

    def row_slices(self, count: Scalar) -> None:  # noqa: B027  (values do not depend on it)
        """Vector work goes through its rows in ``count`` slices."""

    def cdiv(self, a: Scalar, b: Scalar) -> Scalar:
        return _scalar.cdiv(a, b)

    def minimum(self, a: Scalar, b: Scalar) -> Scalar:
        return _scalar.minimum(a, b)

    def maximum(self, a: Scalar, b: Scalar) -> Scalar:
        return _scalar.maximum(a, b)


_CURRENT: contextvars.ContextVar[AbstractReading | None] = contextvars.ContextVar("pyptox_reading", default=None)


def current() -> AbstractReading:
    """The reading in progress."""
    reading = _CURRENT.get()
    if reading is None:
        raise KernelError("a tile operation was called outside a kernel; decorate the function with @pyptox.kernel")
    return reading


@contextlib.contextmanager
def reading_as(reading: AbstractReading):
    """Make ``reading`` the one that operations dispatch to."""
    token = _CURRENT.set(reading)
    try:
        yield reading
    finally:
        _CURRENT.reset(token)


_LANG_FILES = __file__.rsplit("/", 1)[0]


def call_site() -> tuple[str, int]:
    """File and line of the innermost frame that is not part of the language itself."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LANG_FILES):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def new_axes(count: int) -> list[Axis]:
    return [Axis(f"{'ijpqr'[n] if n < 5 else n}", "grid") for n in range(count)]
