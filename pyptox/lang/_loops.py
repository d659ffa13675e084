"""Loops and the grid. They are functional, ``body(index, carry) -> carry``, as in ``jax.lax.fori_loop``."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from .._errors import KernelError
from .._scalar import Scalar
from ._reading import ROW_MAJOR, Order, current
from ._types import Axis, DataTerm, Index, LookupTerm, Tensor

Carry = TypeVar("Carry")


def range(count: Scalar, body: Callable[[Index, Carry], Carry], carry: Carry) -> Carry:
    """``count`` iterations one after another: each buffer has one slot."""
    return current().loop(count, body, carry, 1)


def pipeline(count: Scalar, body: Callable[[Index, Carry], Carry], carry: Carry, *, stages: Scalar = 2) -> Carry:
    """``count`` iterations whose tiles have ``stages`` slots, so that loads run ahead of their use."""
    return current().loop(count, body, carry, stages)


def when(count: Scalar, body: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """``body(carry)`` where ``count`` is positive, ``carry`` elsewhere: a step that a short loop leaves out."""
    reading = current()
    return reading.when(reading.minimum(reading.maximum(count, 0), 1), body, carry)


def grid(
    extents: Sequence[Scalar], body: Callable[..., None], *, order: Order = ROW_MAJOR, uneven: bool = False
) -> None:
    """Run ``body(i, j, ...)`` once per block.

    Args:
        extents: blocks along each axis.
        body: what a block does.
        order: the order in which blocks are handed to cores.
        uneven: trip counts depend on the first index, and the first block is the longest. The cost then reads blocks
            along that axis one by one, and hands them to the cores in turn.
    """
    if not extents:
        raise KernelError("`extents` of a grid needs at least one axis")
    if uneven and order.group is not None:
        raise KernelError("`uneven` blocks are handed out row by row; leave out `order`")
    current().grid(tuple(extents), body, order, uneven)


def row_slices(count: Scalar) -> None:
    """From here on the vector cores go through the rows of a tile in ``count`` slices, one after the other.

    Only a slice is in Vec at a time (what a loop hands on stays whole), and every instruction starts ``count`` times.
    """
    current().row_slices(count)


def cdiv(a: Scalar | Index, b: Scalar) -> Scalar:
    """``ceil(a / b)``: how many tiles of ``b`` cover ``a``."""
    reading = current()
    return reading.cdiv(reading.value(a) if isinstance(a, Index) else a, b)


def minimum(a: Scalar | Index, b: Scalar | Index) -> Scalar:
    """The smaller of two sizes, in every reading."""
    reading = current()
    return reading.minimum(
        reading.value(a) if isinstance(a, Index) else a, reading.value(b) if isinstance(b, Index) else b
    )


def maximum(a: Scalar | Index, b: Scalar | Index) -> Scalar:
    """The larger of two sizes, in every reading."""
    reading = current()
    return reading.maximum(
        reading.value(a) if isinstance(a, Index) else a, reading.value(b) if isinstance(b, Index) else b
    )


def _data(tensor: Tensor, index: Index, kind: str) -> Index:
    axes = [v for v, factor in index.terms if isinstance(v, Axis)]
    if not tensor.is_control or len(index.terms) != 1 or len(axes) != 1 or axes[0].kind != "grid":
        raise KernelError(
            f"`{kind}` reads a control input at a grid index; `{tensor.name}` is "
            f"{'a control input' if tensor.is_control else 'a tensor: pass px.control(values) for it'}"
        )
    return Index(((DataTerm(tensor.name, axes[0], kind), 1),), 0)


def element(tensor: Tensor, index: Index) -> Index:
    """The number in a control input at a grid index, such as the rows of expert ``g``."""
    return _data(tensor, index, "element")


def prefix(tensor: Tensor, index: Index) -> Index:
    """The sum of the numbers before a grid index in a control input: where expert ``g`` starts."""
    return _data(tensor, index, "prefix")


def lookup(tensor: Tensor, offsets: Sequence[Index | Scalar]) -> Index:
    """The number in an int32 tensor at ``offsets``, as an offset of a load: the page that a block table names.

    Only the values of a kernel depend on it. The cost takes it that different places hold different numbers, and
    that the scalar unit reads them ahead of the load; a region spans the whole axis.

    Args:
        tensor: an int32 argument of the kernel, not a control input.
        offsets: one offset per axis, inside the tensor.
    """
    if not isinstance(tensor, Tensor) or tensor.is_control or tensor.dtype != "int32":
        raise KernelError(f"`lookup` reads an int32 tensor argument of the kernel; got {tensor}")
    if len(offsets) != tensor.rank:
        raise KernelError(f"`lookup` in `{tensor.name}` needs {tensor.rank} offsets, one per axis; got {len(offsets)}")
    return Index(((LookupTerm(tensor.name, tuple(offsets)), 1),), 0)
