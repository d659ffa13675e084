"""Tensors of a program: views of buffers in GM, addressed by elements."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._errors import PyptoxError
from ..lang._types import Spec


class ProgramError(PyptoxError):
    """A program asks for what no runtime could do."""


@dataclass(eq=False)
class Buffer:
    """Storage in GM.

    Attributes:
        number: its place among the buffers of the program.
        name: of the argument, or of the kernel's output that it was made for.
        shape, dtype: as allocated.
        creator: number of the task that made it, None for an argument of the program.
        manual_dep: the tensor map does not track it.
        values: of a control input, what it was recorded with; it runs with others as well.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    creator: int | None = None
    manual_dep: bool = False
    values: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Tensor:
    """A view of a buffer: ``shape`` elements at ``offset``, ``strides`` elements apart along each axis.

    Slicing gives a view of the same buffer; so does :meth:`reshape` of a view without gaps.

    >>> whole = Tensor(Buffer(0, "x", (8, 6), "bf16"), (8, 6), (6, 1), 0)
    >>> part = whole[2:4, 3:]
    >>> part.shape, part.offset, part.strides
    ((2, 3), 15, (6, 1))
    """

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    task: int | None = field(default=None)  # the task that this handle came from

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    @property
    def spec(self) -> Spec:
        """Shape and element type, as a kernel takes them; of a control input its values too."""
        if self.buffer.values is None:
            return Spec(self.shape, self.dtype)
        return Spec(self.shape, self.dtype, tuple(self.buffer.values[n] for n in self.elements().reshape(-1)))

    def __getitem__(self, index: Any) -> "Tensor":
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) > len(self.shape):
            raise ProgramError(f"`index` has {len(parts)} parts; `{self.buffer.name}` has {len(self.shape)} axes")
        shape, strides, offset = [], [], self.offset
        for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            part = parts[axis] if axis < len(parts) else slice(None)
            if isinstance(part, slice):
                ends = (None if end is None else self._place(end) for end in (part.start, part.stop, part.step))
                start, stop, step = slice(*ends).indices(size)
                if step != 1 or stop <= start:
                    raise ProgramError(
                        f"`index` of `{self.buffer.name}` must be slices of step 1 with elements; got {part}"
                    )
                shape.append(stop - start)
                strides.append(stride)
                offset += start * stride
            else:
                number = self._place(part)
                if not -size <= number < size:
                    raise ProgramError(f"`index` of `{self.buffer.name}` must be below {size}; got {number}")
                offset += (number % size) * stride
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def _place(self, part: Any) -> int:
        try:
            return operator.index(part)
        except TypeError:
            pass
        name = self.buffer.name
        if isinstance(part, Tensor):
            raise ProgramError(
                f"`index` of `{name}` must be known when the program is built; got `{part.buffer.name}`, a tensor, "
                "whose values are known only on the device. What is chosen by data cannot be a view, and cannot be "
                f"warmed: give a kernel all of `{name}`, and the index as another input"
            )
        raise ProgramError(
            f"`index` of `{name}` must be integers and slices, known when the program is built; got "
            f"{type(part).__name__}"
        )

    def reshape(self, *shape: int) -> "Tensor":
        """The same elements in another shape, one size of which may be -1; the view must be without gaps."""
        if shape.count(-1) == 1:
            rest = math.prod(self.shape) // math.prod(size for size in shape if size != -1)
            shape = tuple(rest if size == -1 else size for size in shape)
        if math.prod(shape) != math.prod(self.shape):
            raise ProgramError(f"`shape` {shape} must hold the {math.prod(self.shape)} elements of {self.shape}")
        if self.strides != dense_strides(self.shape):
            raise ProgramError(f"`{self.buffer.name}` is a view with gaps; reshape it before slicing")
        return replace(self, shape=tuple(shape), strides=dense_strides(shape))

    def read(self, array: Any) -> Any:
        """The elements of this view in ``array``, the buffer's contents."""
        whole = _box(self)
        if whole is not None:
            starts, sizes = whole
            if sizes == self.buffer.shape:
                return array.reshape(self.shape)
            return array[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))].reshape(self.shape)
        return array.reshape(-1)[self.elements()].reshape(self.shape)

    def write(self, array: Any, values: Any) -> Any:
        """``array`` with this view's elements replaced."""
        whole = _box(self)
        if whole is not None:
            starts, sizes = whole
            if sizes == self.buffer.shape:
                return values.reshape(sizes)
            at = tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))
            return array.at[at].set(values.reshape(sizes))
        return array.reshape(-1).at[self.elements().reshape(-1)].set(values.reshape(-1)).reshape(array.shape)

    def elements(self) -> np.ndarray:
        """The linear position of every element, in the view's shape."""
        grids = [np.arange(size) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        total = np.asarray(self.offset)
        for axis, grid in enumerate(grids):
            total = total + grid.reshape([-1 if a == axis else 1 for a in range(len(grids))])
        return np.asarray(total)

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        return f"{self.buffer.name} {self.dtype}[{sizes}]" + (f" at {self.offset}" if self.offset else "")


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a row-major array without gaps.

    >>> dense_strides((4, 3, 2))
    (6, 2, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def indices(offset: int, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Where a view starts along each axis; None when it does not lie in whole steps inside them."""
    starts = []
    for axis, stride in enumerate(strides):
        start, offset = divmod(offset, stride)
        if axis and start + shape[axis] > strides[axis - 1] // stride:
            return None
        starts.append(start)
    return tuple(starts) if offset == 0 else None


def _box(view: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Starts and sizes of the view along the buffer's own axes, where it is such a box."""
    shape = view.buffer.shape
    strides = dense_strides(shape)
    if view.strides == dense_strides(view.shape) and math.prod(view.shape) == math.prod(shape):
        return (0,) * len(shape), shape
    sizes, axis = [], 0
    for stride in strides:  # axes that an integer index took away have one element
        if axis < len(view.strides) and view.strides[axis] == stride:
            sizes.append(view.shape[axis])
            axis += 1
        else:
            sizes.append(1)
    if axis < len(view.shape):
        return None
    starts = indices(view.offset, sizes, strides)
    return None if starts is None else (starts, tuple(sizes))
