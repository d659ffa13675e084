"""The values that a kernel handles: tensors in GM, tiles on chip, loop indices."""

import enum
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from .._dtypes import dtype_of
from .._errors import KernelError
from .._scalar import Scalar, is_zero


class Space(enum.Enum):
    """Where a tile lives, in the words of the toolchain."""

    GM = "GM"
    MAT = "Mat"
    LEFT = "Left"
    RIGHT = "Right"
    ACC = "Acc"
    VEC = "Vec"

    @property
    def size_name(self) -> str:
        """The field of :class:`pyptox.hardware.Sizes` that holds this space's capacity."""
        return self.value.lower()


GM, Mat, Left, Right, Acc, Vec = Space.GM, Space.MAT, Space.LEFT, Space.RIGHT, Space.ACC, Space.VEC


MOST_BYTES = 2**50
"""No tensor is as large: 1 PiB."""

LAYOUTS = ("rows", "zN")
"""How a tensor may lie in GM."""


@dataclass(frozen=True)
class Spec:
    """The shape and element type of one tensor; ``values`` holds the data of a control input.

    ``layout`` says how it lies in GM, which no value depends on: ``"rows"``, or ``"zN"``, columns of 32 bytes whose
    fractals follow each other, so that a tile is read in a few long pieces.

    >>> str(Spec((16, 5120), "bf16"))
    'bf16[16,5120]'
    """

    shape: tuple[int, ...]
    dtype: str
    values: tuple[int, ...] | None = None
    layout: str = "rows"

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)}; got {self.layout!r}")
        object.__setattr__(self, "dtype", dtype_of(self.dtype).name)
        shape = tuple(self.shape)
        for axis, size in enumerate(shape):
            if not isinstance(size, int | np.integer) or isinstance(size, bool) or size <= 0:
                raise ValueError(
                    f"`shape` of a tensor must hold positive integers; axis {axis} is {size!r}. "
                    "Drop an empty tensor from the problem."
                )
        object.__setattr__(self, "shape", tuple(int(size) for size in shape))
        if self.bytes >= MOST_BYTES:
            raise ValueError(f"`shape` of a tensor must hold less than 1 PiB; got {self}")

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * dtype_of(self.dtype).bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" + ("" if self.layout == "rows" else f" {self.layout}")


def spec(shape: tuple[int, ...], dtype: str, *, layout: str = "rows") -> Spec:
    """The shape and type of a tensor that a kernel is asked about, and how it lies in GM (see :class:`Spec`)."""
    return Spec(tuple(shape), dtype, layout=layout)


def control(values: Any) -> Spec:
    """A control input: a short int32 vector (rows of each expert, say) whose values decide how much is done.

    >>> control([3, 5]).shape
    (2,)
    """
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer) or array.size == 0 or (array < 0).any():
        raise ValueError(f"`control` expects a vector of non-negative integers; got {values!r}")
    return Spec(array.shape, "int32", tuple(int(value) for value in array))


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of a grid or one loop; a variable of the affine expressions that address tensors."""

    name: str
    kind: str  # "grid" or "loop"


@dataclass(frozen=True)
class DataTerm:
    """A number read from a control input at a grid index: the element there, or the sum of those before it."""

    tensor: str
    axis: Axis
    kind: str  # "element" or "prefix"


@dataclass(frozen=True, eq=False)
class LookupTerm:
    """A number read from an int32 tensor at run time. No other reading knows it: it stands for any."""

    tensor: str
    offsets: tuple["Index | Scalar", ...]


@dataclass(frozen=True, eq=False)
class Index:
    """An affine expression of loop and grid axes, such as ``i * tile.m + 16``.

    It has no truth value and no order: a kernel is read once for all iterations, so it cannot branch on one.
    """

    terms: tuple[tuple[Axis | DataTerm | LookupTerm, Scalar], ...] = ()
    constant: Scalar = 0

    def __add__(self, other: "Index | Scalar") -> "Index":
        if not isinstance(other, Index):
            return Index(self.terms, self.constant + other)
        merged = dict(self.terms)
        for variable, factor in other.terms:
            merged[variable] = merged[variable] + factor if variable in merged else factor
        return Index(tuple(merged.items()), self.constant + other.constant)

    def __mul__(self, factor: Scalar) -> "Index":
        if isinstance(factor, Index):
            raise KernelError("an index times an index is not affine; split the axis in the grid instead")
        # zero stays a plain zero when the factor is traced: what starts at the origin can be told
        constant = 0 if is_zero(self.constant) else self.constant * factor
        return Index(tuple((variable, value * factor) for variable, value in self.terms), constant)

    def __sub__(self, other: "Index | Scalar") -> "Index":
        return self + (other * -1 if isinstance(other, Index) else -other)

    def __rsub__(self, other: Scalar) -> "Index":
        return self * -1 + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __bool__(self) -> bool:
        raise KernelError("a loop index has no truth value: a kernel body is read once for every iteration")

    def _no_order(self, other: object) -> bool:
        raise KernelError(
            "a loop index cannot be compared: a kernel body is read once for every iteration. Ragged edges need "
            "no test, loads and stores are clipped to the tensor"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _no_order
    __eq__ = __ne__ = _no_order  # type: ignore[assignment]
    __hash__ = object.__hash__

    @property
    def variables(self) -> frozenset:
        """The axes that the expression depends on; what is read from data counts with the axes it is read at."""
        axes: set = set()
        for variable, _ in self.terms:
            if isinstance(variable, LookupTerm):
                axes.update(*(at.variables for at in variable.offsets if isinstance(at, Index)))
            else:
                axes.add(variable.axis if isinstance(variable, DataTerm) else variable)
        return frozenset(axes)

    @property
    def looked_up(self) -> bool:
        """True when part of the expression is read from a tensor."""
        return any(isinstance(variable, LookupTerm) for variable, _ in self.terms)

    def at(self, values: dict) -> Scalar:
        """The value of the expression, given a value for each variable."""
        total = self.constant
        for variable, factor in self.terms:
            total = total + values[variable] * factor
        return total


def at(index: "Index | Scalar", values: dict) -> Scalar:
    """``index.at(values)``, for an index or a plain number."""
    return index.at(values) if isinstance(index, Index) else index


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor in GM as a kernel sees it. ``shape`` holds ints, or traced scalars in the cost reading."""

    name: str
    shape: tuple[Scalar, ...]
    dtype: str
    is_output: bool = False
    is_control: bool = False
    layout: str = "rows"

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Tile:
    """A two-dimensional tile on chip.

    ``shape`` is what is allocated, ``valid`` what is there (loads clip at the tensor's edge, zero-filled).
    ``payload`` is an array in the run reading, a :class:`Buffer` in the cost reading; kernels never touch it.
    """

    shape: tuple[Scalar, Scalar]
    valid: tuple[Scalar, Scalar]
    dtype: str
    space: Space
    payload: Any

    @property
    def bytes(self) -> Scalar:
        """Bytes of the allocated shape, without padding."""
        return self.shape[0] * self.shape[1] * dtype_of(self.dtype).bytes


jax.tree_util.register_dataclass(Tile, data_fields=["valid", "payload"], meta_fields=["shape", "dtype", "space"])


@dataclass(eq=False)
class Buffer:
    """Storage of a tile in the recorded nest; identity is what counts."""

    number: int
    tile: Any = None  # the Tile that it was made for
    site: tuple[str, int] = ("", 0)
    loop: Any = None  # innermost recorded loop around the allocation
    label: str = field(default="")
    axes: frozenset = frozenset()  # grid and loop axes that its values depend on
