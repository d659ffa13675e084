"""The recording reading: a kernel as a nest of instructions and loops, read once.

Every loop body is read twice, at its first and at its last iteration, since only the last one is ragged; the
block is read at the first block and at the last block of a core's walk. The nest holds numbers (traced scalars in
the cost reading, plain ones in the simulation), so occupancy, traffic, timing and regions all work on it.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from .._errors import KernelError
from .._scalar import Scalar, cdiv, maximum, minimum, where
from ..hardware import Hardware, Sizes
from ._kernel import Kernel
from ._reading import AbstractReading, Operation, Order, call_site, new_axes
from ._types import Axis, Buffer, DataTerm, Index, LookupTerm, Spec, Tensor, Tile


@dataclass(eq=False)
class Instruction:
    """One recorded operation. ``key`` is its place in the text; both readings of a body share it."""

    operation: Operation
    tiles: tuple[Tile, ...]
    out: Tile | None
    attributes: dict[str, Any]
    site: tuple[str, int]
    key: int
    fresh: bool  # the result has a buffer of its own, not an operand's
    values: dict[Any, Scalar]  # where loop and grid axes stood
    costs: list = field(default_factory=list)  # (pipe, cycles) in turn; filled in by the cost reading
    stall: Scalar = 0.0  # cycles its pipe waits at a barrier first; not work

    @property
    def by_row(self) -> bool:
        """A load or store whose rows are where an int32 tile says: one transfer a row."""
        return self.attributes.get("by_row", False)

    @property
    def by_lookup(self) -> bool:
        """A load or store whose place is read from a tensor: what it touches is not known before."""
        offsets = self.attributes.get("offsets", ())
        return self.by_row or any(isinstance(at, Index) and at.looked_up for at in offsets)

    @property
    def reads(self) -> list[Buffer]:
        return [tile.payload for tile in self.tiles]

    @property
    def writes(self) -> Buffer | None:
        return self.out.payload if self.out is not None else None


@dataclass(eq=False)
class Loop:
    """A recorded loop: ``first`` and ``last`` are the same body at its first and last iteration.

    ``key`` is its place in the text, shared by every reading of it.
    """

    key: int
    axis: Axis
    count: Scalar
    stages: Scalar
    first: list = field(default_factory=list)
    last: list = field(default_factory=list)
    may_be_empty: bool = False  # the trip count comes from data
    once: bool = False  # there is one iteration at most
    carried: tuple[tuple[Buffer, Buffer], ...] = ()  # what an iteration is handed, and what it hands on in its place


def over_iterations(loop: Loop, first: Scalar, last: Scalar) -> Scalar:
    """The sum over a loop of what an iteration amounts to, ``first`` for all but the last."""
    if not loop.may_be_empty:
        return (loop.count - 1) * first + last
    return maximum(loop.count - 1, 0) * first + minimum(loop.count, 1) * last


@dataclass(frozen=True)
class Level:
    """One level of the walk over blocks, outermost first: a grid axis, or a strip of one."""

    axis: Axis
    extent: Scalar


@dataclass
class Access:
    """One load or store: which tensor, where, how large; ``mode`` is read, write or add.

    ``axes`` are the grid and loop axes that the address depends on.
    """

    tensor: Tensor
    offsets: tuple
    shape: tuple
    mode: str
    loops: tuple[Loop, ...]
    instruction: Instruction
    axes: frozenset


def grid_levels(axes: Sequence[Axis], extents: Sequence[Scalar], order: Order) -> list[Level]:
    """The loops, outermost first, that visit the blocks of a grid in ``order``."""
    levels = [Level(axis, extent) for axis, extent in zip(axes, extents, strict=True)]
    if order.group is None or len(levels) < 2:
        return levels
    *outer, rows, columns = levels
    group = minimum(order.group, columns.extent)
    strips = cdiv(columns.extent, group)
    # strips of equal width on average: their product is the number of columns
    return [*outer, Level(columns.axis, strips), rows, Level(columns.axis, columns.extent / strips)]


def _is_tile(value: Any) -> bool:
    return isinstance(value, Tile)


def _tiles(carry: Any) -> list[Tile]:
    return [leaf for leaf in jax.tree_util.tree_leaves(carry, is_leaf=_is_tile) if isinstance(leaf, Tile)]


def _variables(attributes: Mapping[str, Any]) -> frozenset:
    """The grid and loop axes that an operation's attributes depend on."""
    found: frozenset = frozenset()
    for value in attributes.values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Index):
                found |= part.variables
    return found


class Recorder(AbstractReading):
    """Records a kernel.

    Args:
        sizes: chip sizes, which implicit staging consults.
        cores: cores that walk the grid; the walk's trip count is the number of waves.
        data: value of each ``(tensor, kind)`` of control inputs for the block that is read.
        position: of an uneven grid, where along its first axis the block is that is read.

    Attributes:
        uneven: trip counts depend on the first index of the grid.
    """

    def __init__(
        self,
        sizes: Sizes,
        cores: Scalar,
        data: Mapping[tuple[str, str], Scalar] | None = None,
        position: Scalar = 0,
    ):
        self.sizes, self.cores, self.data = sizes, cores, dict(data or {})
        self.position, self.uneven = position, False
        self.values: dict[Any, Scalar] = {}
        self.nodes: list = []
        self.walk: Loop | None = None
        self.axes: list[Axis] = []
        self.extents: list[Scalar] = []
        self.levels: list[Level] = []
        self.order = Order()
        self.buffers: dict[int, Buffer] = {}
        self.vector_slices: Scalar = 1  # slices in which they go through these rows
        self.vector_split = 1  # vector cores that share the rows of a tile; 2 in a mixed kernel
        self._next_buffer = 0
        self._next_key = 0
        self._loops: list[Loop] = []

    # -------------------------------------------------------------------------------------------- the reading
    def row_slices(self, count: Scalar) -> None:
        self.vector_slices = count

    def value(self, index: Index) -> Scalar:
        total = index.constant
        for variable, factor in index.terms:
            if isinstance(variable, LookupTerm):
                continue  # the first place stands for any
            if isinstance(variable, DataTerm):
                value = self.data[variable.tensor, variable.kind]
            else:
                value = self.values[variable]
            if isinstance(value, int | float) and value == 0:
                continue
            total = total + value * factor
        return total

    def apply(self, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any]) -> Any:
        made = operation.infer(*tiles, **attributes)
        out, fresh, site = None, False, call_site()
        if made is not None:
            if operation.alias is not None:
                buffer = tiles[operation.alias].payload
            else:
                buffer, fresh = self._buffer(), True
            out = Tile(tuple(made.shape), tuple(made.valid), made.dtype, made.space, buffer)  # type: ignore[arg-type]
            buffer.axes |= _variables(attributes).union(*(tile.payload.axes for tile in tiles))
            if buffer.tile is None:
                buffer.tile, buffer.site = out, site
                buffer.label = operation.name
                if "tensor" in attributes:
                    buffer.label = f"{operation.name} {attributes['tensor'].name}"
        instruction = Instruction(
            operation, tuple(tiles), out, attributes, site, self._next_key, fresh, dict(self.values)
        )
        self._next_key += 1
        self.nodes.append(instruction)
        return out

    def when(self, count: Scalar, body, carry: Any) -> Any:
        node = Loop(self._next_key, Axis("when", "loop"), count, 1, may_be_empty=True, once=True)
        self._next_key += 1
        node.first, made = self._body(node, 0, lambda: body(carry))
        node.last = node.first
        self.nodes.append(node)
        return made

    def loop(self, count: Scalar, body, carry: Any, stages: Scalar) -> Any:
        axis = Axis(f"loop{len(self._loops)}", "loop")
        index = Index(((axis, 1),), 0)
        node = Loop(self._next_key, axis, count, stages, may_be_empty=self.alone)
        self._next_key += 1
        marks = self._next_buffer, self._next_key
        node.first, made = self._body(node, 0, lambda: body(index, carry))
        given, handed_on = _tiles(carry), _tiles(made)
        node.carried = tuple(
            (old.payload, new.payload) for old, new in zip(given, handed_on, strict=True) if old.payload != new.payload
        )
        if isinstance(count, int) and count == 1:  # the first is the last
            node.last = node.first
            self.nodes.append(node)
            return made
        self._next_buffer, self._next_key = marks
        # the last iteration finds what was handed on where the first found what it was given
        places = iter(
            [dataclasses.replace(new, payload=old.payload) for old, new in zip(given, handed_on, strict=True)]
        )
        carry = jax.tree_util.tree_map(lambda leaf: next(places) if _is_tile(leaf) else leaf, made, is_leaf=_is_tile)
        node.last, carry = self._body(node, count - 1, lambda: body(index, carry))
        self.nodes.append(node)
        return carry

    def grid(self, extents, body, order: Order, uneven: bool) -> None:
        if self.walk is not None:
            raise KernelError("a kernel has one pl.grid; make the second one a kernel of its own")
        self.axes, self.extents, self.order = new_axes(len(extents)), list(extents), order
        self.levels = grid_levels(self.axes, self.extents, order)
        indices = [Index(((axis, 1),), 0) for axis in self.axes]
        blocks = self.blocks
        self.uneven = uneven
        waves = 1 if self.alone else cdiv(blocks, self.cores)
        self.walk = node = Loop(-1, Axis("walk", "loop"), waves, 1)
        for axis in self.axes:
            self.values[axis] = 0
        if uneven:
            self.values[self.axes[0]] = self.position
        node.first, _ = self._body(node, 0, lambda: body(*indices))
        self.nodes = [node]
        if self.alone:
            node.last = node.first
            return
        self._next_buffer, self._next_key = 0, 0
        for axis, position in zip(self.axes, self._last_block(order, blocks - (waves - 1) * self.cores), strict=True):
            self.values[axis] = position
        node.last, _ = self._body(node, waves - 1, lambda: body(*indices))

    # ------------------------------------------------------------------------------------------------ helpers
    @property
    def alone(self) -> bool:
        """True when blocks differ by more than their ragged ends: the nest holds one block of one kind."""
        return bool(self.data) or self.uneven

    @property
    def blocks(self) -> Scalar:
        """Number of blocks of the grid."""
        product: Scalar = 1
        for extent in self.extents:
            product = product * extent
        return product

    def _last_block(self, order: Order, rest: Scalar) -> list[Scalar]:
        """Grid coordinates of the costliest block in the last wave, whose ``rest`` blocks end the walk.

        An axis stands at its ragged end only when every block of that wave does.
        """
        run: Scalar = 1  # blocks at the end of the walk that all stand at the last index of the axis
        last = []
        swizzled = order.group is not None and len(self.extents) > 1
        for number, extent in reversed(list(enumerate(self.extents))):
            if swizzled and number == len(self.extents) - 2:
                columns = self.extents[-1]
                width = minimum(order.group, columns)
                run = columns - (cdiv(columns, width) - 1) * width
            last.append(where(rest <= run, extent - 1, 0))
            if swizzled and number == len(self.extents) - 2:
                run = self.extents[-1]
            run = run * extent
        return last[::-1]

    def _body(self, node: Loop, position: Scalar, read) -> tuple[list, Any]:
        outer, self.nodes = self.nodes, []
        self.values[node.axis] = position
        self._loops.append(node)
        carry = read()
        self._loops.pop()
        nodes, self.nodes = self.nodes, outer
        return nodes, carry

    def _buffer(self) -> Buffer:
        number = self._next_buffer
        self._next_buffer += 1
        loop = self._loops[-1] if self._loops else None
        return self.buffers.setdefault(number, Buffer(number, loop=loop))

    def accesses(self) -> Iterator[Access]:
        """Every load and store of the first block, with the loops around it."""

        def visit(nodes, loops) -> Iterator[Access]:
            for node in nodes:
                if isinstance(node, Loop):
                    yield from visit(node.first, (*loops, node))
                elif "tensor" in node.attributes:
                    tensor, offsets = node.attributes["tensor"], node.attributes["offsets"]
                    axes = _variables({"offsets": offsets})
                    if node.by_row:
                        shape, mode = node.attributes["shape"], "read" if node.out is not None else "write"
                        axes |= node.tiles[-1].payload.axes  # the tile that says which rows
                    elif node.tiles:
                        shape = tuple(node.tiles[0].shape)
                        shape = (shape[1],) if tensor.rank == 1 else (1,) * (tensor.rank - 2) + shape
                        mode = "add" if node.attributes["atomic"] else "write"
                    else:
                        shape, mode = node.attributes["shape"], "read"
                    yield Access(tensor, offsets, shape, mode, loops, node, axes)

        if self.walk is None:
            raise KernelError("a kernel must call pl.grid")
        yield from visit(self.walk.first, ())

    # ------------------------------------------------------------------------------------------- constructors
    @staticmethod
    def of_integers(
        kernel: Kernel,
        specs: Mapping[str, Spec],
        values: Mapping[str, Any],
        hardware: Hardware,
        group: int = 0,
    ) -> "Recorder":
        """The nest with plain numbers. ``group`` is the position in control inputs or an uneven grid that is read."""
        recorder = Recorder(plain_sizes(hardware.sizes), int(hardware.counts.aic), data_at(specs, group), group)
        kernel.read(recorder, tensors_with_shapes(kernel, specs, {n: s.shape for n, s in specs.items()}), values)
        if recorder.walk is None:
            raise KernelError(f"kernel `{kernel.name}` must call pl.grid")
        return recorder


def plain_sizes(sizes: Sizes) -> Sizes:
    """Sizes as Python numbers, whole ones as ints."""

    def plain(number: Any) -> int | float:
        value = float(number)
        return int(value) if value.is_integer() else value

    return Sizes(**{name: plain(getattr(sizes, name)) for name in Sizes.__dataclass_fields__})


def data_at(specs: Mapping[str, Spec], group: int) -> dict[tuple[str, str], int]:
    """What control inputs say about one position: the element there and the sum before it."""
    data = {}
    for name, spec in specs.items():
        if spec.values is not None:
            data[name, "element"] = spec.values[group]
            data[name, "prefix"] = sum(spec.values[:group])
    return data


def tensors_with_shapes(kernel: Kernel, specs: Mapping[str, Spec], shapes: Mapping[str, Sequence]) -> dict[str, Tensor]:
    """Tensor handles with the given (possibly traced) shapes."""
    return {
        name: Tensor(
            name, tuple(shapes[name]), spec.dtype, name in kernel.outputs, spec.values is not None, spec.layout
        )
        for name, spec in specs.items()
    }
