"""The run and reference readings: a kernel's values, on JAX arrays.

``run`` keeps the stored dtypes and the order of tiles; ``reference`` is the same kernel in float64 with its casts
removed. Both are jitted once per kernel, shapes and configuration. Loops lower to ``lax.fori_loop``; outputs are
carried through them, so that ``store`` can stay a statement.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import instance, unmasked
from .._dtypes import dtype_of
from .._errors import KernelError, PyptoxError
from .._float64 import collected, float64_scope, widened
from ..hardware import Hardware, Sizes, a2a3
from ._apart import apart, jitted_apart
from ._bits import as_type, bits_of, narrow, sliced
from ._kernel import Kernel
from ._reading import AbstractReading, Operation, Order, new_axes
from ._record import Loop, Recorder, tensors_with_shapes
from ._types import Axis, DataTerm, Index, LookupTerm, Spec, Tensor, Tile, Vec


class _Run(AbstractReading):
    """Values of a kernel. ``arrays`` holds the padded tensors; outputs are replaced as they are written.

    ``inside`` says of each axis whether all slices are known to lie inside; ``bits`` has the element type of arrays
    that are held as :func:`._bits.bits_of`.
    """

    def __init__(self, arrays: dict[str, jax.Array], inside: Mapping[str, Sequence[bool]], sizes: Sizes, float64: bool):
        self.arrays, self.inside, self.sizes, self.float64 = arrays, inside, sizes, float64
        self.bits: dict[str, Any] = {}
        self.values: dict[Any, Any] = {}
        self.outputs: tuple[str, ...] = ()

    def dtype(self, name: str):
        """The array type that stores ``name``: float64 in the reference reading."""
        return jnp.dtype(jnp.float64) if self.float64 else dtype_of(name).jax

    def value(self, index: Index):
        values = dict(self.values)
        for variable, _ in index.terms:
            if isinstance(variable, DataTerm):
                table = self.arrays[variable.tensor].astype(jnp.int32)
                if variable.kind == "prefix":
                    table = jnp.cumsum(table) - table
                values[variable] = table[values[variable.axis]]
            elif isinstance(variable, LookupTerm):
                values[variable] = self.arrays[variable.tensor][tuple(self._starts(variable.offsets))].astype(jnp.int32)
        return index.at(values)

    def cdiv(self, a, b):
        return -(-a // b)

    def minimum(self, a, b):
        return min(a, b) if isinstance(a, int) and isinstance(b, int) else jnp.minimum(a, b)

    def apply(self, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any]) -> Any:
        made = operation.infer(*tiles, **attributes)
        payload = operation.run(self, *tiles, **attributes)
        if made is None:
            return None
        if not operation.exact and made.space is Vec:
            payload = apart(payload)
        valid = tuple(size if isinstance(size, int) else jnp.asarray(size, jnp.int32) for size in made.valid)
        return Tile(tuple(made.shape), valid, made.dtype, made.space, payload)  # type: ignore[arg-type]

    def holds(self, tensor: Tensor, axis: int) -> bool:
        return self.inside[tensor.name][axis]

    def _starts(self, offsets) -> list:
        return [jnp.asarray(self.value(o) if isinstance(o, Index) else o, jnp.int32) for o in offsets]

    def read(self, tensor: Tensor, offsets, shape, valid) -> jax.Array:
        from ._ops import _valid_part

        part = self._slice(tensor.name, self._starts(offsets), tuple(shape))
        part = part.reshape((1, shape[0]) if tensor.rank == 1 else tuple(shape[-2:]))
        rows, columns = _valid_part(tensor, offsets, shape, valid)
        if _whole(part.shape, rows, columns):
            return part
        return jnp.where(_inside(part.shape, rows, columns), part, jnp.zeros((), part.dtype))

    def write(self, tensor: Tensor, offsets, tile: Tile, atomic: str | None) -> None:
        target, starts = self.arrays[tensor.name], self._starts(offsets)
        kind = self.bits.get(tensor.name, target.dtype)
        shape = (tile.shape[1],) if tensor.rank == 1 else (1,) * (tensor.rank - 2) + tuple(tile.shape)
        old = as_type(jax.lax.dynamic_slice(target, starts, shape), kind)
        new = tile.payload.reshape(shape).astype(kind)
        new = old + new if atomic else new
        if not _whole(tile.shape, *tile.valid):
            new = jnp.where(_inside(tile.shape, *tile.valid).reshape(shape), new, old)
        self.arrays[tensor.name] = jax.lax.dynamic_update_slice(target, as_type(new, target.dtype), starts)

    def _slice(self, name: str, starts: Sequence, shape: tuple[int, ...]) -> jax.Array:
        array = self.arrays[name]
        return (
            as_type(jax.lax.dynamic_slice(array, starts, shape), self.bits[name])
            if name in self.bits
            else sliced(array, starts, shape)
        )

    def read_rows(self, tensor: Tensor, rows: jax.Array, column: jax.Array, width: int) -> jax.Array:
        """``width`` columns from ``column`` on of each of ``rows``; zero where there is no such element."""
        (count, columns), number = self.arrays[tensor.name].shape, jnp.arange(width, dtype=jnp.int32)
        taken = min(width, columns)
        start = jnp.clip(column, 0, columns - taken)  # the slice lies inside; its columns are shifted back
        at = number + column - start
        one = functools.partial(self._slice, tensor.name, shape=(1, taken))
        parts = jax.lax.map(lambda row: one(starts=(row, start))[0], jnp.clip(rows, 0, count - 1))
        known = (rows >= 0) & (rows < tensor.shape[0])
        inside = known[:, None] & (column + number < tensor.shape[1])[None, :]
        return jnp.where(inside, parts[:, jnp.clip(at, 0, taken - 1)], jnp.zeros((), parts.dtype))

    def write_rows(self, tensor: Tensor, rows: jax.Array, column: jax.Array, tile: Tile) -> None:
        """Replace each of ``rows`` from ``column`` on by the valid part of one of ``tile``'s, where there is such."""
        inside = jnp.arange(tile.shape[0], dtype=jnp.int32) < tile.valid[0]
        rows = jnp.where(inside, rows, jnp.int32(-1))
        where, target = self._elements(tensor, rows, column, tile.shape[1], tile.valid[1]), self.arrays[tensor.name]
        new = as_type(tile.payload.astype(self.bits.get(tensor.name, target.dtype)), target.dtype)
        self.arrays[tensor.name] = target.at[where].set(new, mode="drop")

    def _elements(self, tensor: Tensor, rows: jax.Array, column: jax.Array, width: int, valid: Any) -> tuple:
        outside = jnp.int32(2**31 - 1)  # an index that no array has; a negative one would count from the end
        number = jnp.arange(width, dtype=jnp.int32)
        columns = jnp.where((number < valid) & (column + number < tensor.shape[1]), column + number, outside)
        rows = jnp.where((rows >= 0) & (rows < tensor.shape[0]), rows, outside)
        return tuple(jnp.broadcast_arrays(rows[:, None], columns[None, :]))

    def _fori(self, count, body, carry):
        """``fori_loop`` over ``body(index, carry)`` with the output tensors carried along."""
        saved = dict(self.values)

        def step(index, state):
            tiles, outputs = state
            self.arrays = {**self.arrays, **outputs}
            tiles = body(index, tiles)
            return tiles, {name: self.arrays[name] for name in self.outputs}

        before = dict(self.arrays)
        state = (carry, {name: self.arrays[name] for name in self.outputs})
        carry, outputs = jax.lax.fori_loop(jnp.int32(0), jnp.asarray(count, jnp.int32), step, state)
        self.values = saved
        self.arrays = {**before, **outputs}
        return carry

    def loop(self, count, body, carry, stages):
        axis = Axis("loop", "loop")
        index = Index(((axis, 1),), 0)

        def step(number, tiles):
            self.values[axis] = number
            return _as_carried(body(index, tiles))

        return self._fori(count, step, _as_carried(carry))

    def grid(self, extents, body, order: Order, uneven: bool) -> None:
        extents = [int(extent) for extent in extents]
        axes = new_axes(len(extents))

        def step(number, nothing):
            for axis, coordinate in zip(axes, block_coordinates(number, extents, order), strict=True):
                self.values[axis] = coordinate
            body(*(Index(((axis, 1),), 0) for axis in axes))
            return nothing

        self._fori(int(np.prod(extents)), step, ())


def block_coordinates(number, extents: Sequence[int], order: Order) -> list:
    """Grid coordinates of the ``number``-th block in ``order``; ints or int32 arrays."""
    if order.group is None or len(extents) < 2:
        coordinates = []
        for extent in reversed(extents):
            coordinates.append(number % extent)
            number = number // extent
        return coordinates[::-1]
    *outer, rows, columns = extents
    group = min(max(int(order.group), 1), columns)
    plane, number = number // (rows * columns), number % (rows * columns)
    strip = number // (group * rows)
    inside = number % (group * rows)
    where = np.where if isinstance(number, int | np.ndarray) else jnp.where
    width = where((strip + 1) * group > columns, columns - strip * group, group)
    result = block_coordinates(plane, outer, Order()) if outer else []
    return [*result, inside // width, strip * group + inside % width]


def _as_carried(tiles: Any) -> Any:
    """Tiles as a loop carries them: their valid parts as int32 arrays."""
    return jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf, jnp.int32) if isinstance(leaf, int) else leaf, tiles)


def _whole(shape, rows, columns) -> bool:
    """True when a tile is known to hold nothing but valid elements."""
    return isinstance(rows, int) and isinstance(columns, int) and (rows, columns) == tuple(shape)


def _inside(shape, rows, columns):
    row = jnp.arange(shape[0], dtype=jnp.int32)[:, None] < rows
    return row & (jnp.arange(shape[1], dtype=jnp.int32)[None, :] < columns)


def _reach(
    kernel: Kernel, specs: Mapping[str, Spec], values: Mapping[str, Any], hardware: Hardware
) -> tuple[dict[str, list[int]], dict[str, list[bool]]]:
    """How far past its end a slice of each tensor may reach along each axis; and whether all surely lie inside."""
    recorder = Recorder.of_integers(kernel, specs, values, hardware)
    last = {axis: int(extent) - 1 for axis, extent in zip(recorder.axes, recorder.extents, strict=True)}
    past = {name: [0] * len(spec.shape) for name, spec in specs.items()}
    inside = {name: [True] * len(spec.shape) for name, spec in specs.items()}
    for access in recorder.accesses():
        if access.instruction.by_row:  # picked element by element
            continue
        name, around = access.tensor.name, last | _last_iterations(access.loops)
        for axis, (size, offset) in enumerate(zip(access.shape, access.offsets, strict=True)):
            extent = specs[name].shape[axis]
            if not isinstance(offset, Index):
                beyond = int(offset) + int(size) - extent
            elif all(isinstance(variable, Axis) and variable in around for variable, _ in offset.terms):
                start = int(offset.constant) + sum(max(int(f) * around[v], 0) for v, f in offset.terms)
                beyond = start + int(size) - extent
            else:  # data decides: it may start anywhere; one element is clamped, and does not count as valid
                inside[name][axis] = False
                beyond = int(size) if size > 1 else 0
            inside[name][axis] &= beyond <= 0
            past[name][axis] = max(past[name][axis], beyond)
    return past, inside


def _last_iterations(loops: Sequence[Loop]) -> dict[Any, int]:
    """The last index of each loop whose trip count does not come from data."""
    return {loop.axis: int(loop.count) - 1 for loop in loops if not loop.may_be_empty}


@functools.lru_cache(maxsize=256)
def _compiled(kernel: Kernel, specs_items: tuple, values_items: tuple, sizes_items: tuple, float64: bool):
    specs, values = dict(specs_items), dict(values_items)
    hardware = a2a3().replace(**dict(sizes_items))
    past, inside = _reach(kernel, specs, values, hardware)

    def run(*inputs):
        arrays = {}
        for name, spec in specs.items():
            dtype = jnp.dtype(jnp.float64) if float64 and spec.values is None else dtype_of(spec.dtype).jax
            source = kernel.in_place.get(name, name)
            if source in kernel.outputs:
                array = jnp.zeros(spec.shape, dtype)
            else:
                array = jnp.asarray(inputs[kernel.inputs.index(source)]).astype(dtype)
            pad = any(past[name]) and not spec.values
            arrays[name] = jnp.pad(array, [(0, extra) for extra in past[name]]) if pad else array
        reading = _Run(arrays, inside, hardware.sizes, float64)
        reading.outputs = tuple(kernel.outputs)
        reading.bits = {name: arrays[name].dtype for name in kernel.outputs if narrow(arrays[name].dtype)}
        arrays.update({name: bits_of(arrays[name]) for name in reading.bits})
        kernel.read(reading, tensors_with_shapes(kernel, specs, {n: s.shape for n, s in specs.items()}), values)

        def result(name):
            whole = reading.arrays[name][tuple(slice(0, size) for size in specs[name].shape)]
            return as_type(whole, reading.bits.get(name, whole.dtype))

        return tuple(map(result, kernel.outputs))

    return jitted_apart(run)


def _arrays_and_specs(kernel: Kernel, inputs: Sequence) -> tuple[list, dict[str, Spec]]:
    instance("kernel", kernel, Kernel, "a @kernel")
    if len(inputs) != len(kernel.inputs):
        raise KernelError(f"`{kernel.name}` takes {len(kernel.inputs)} arrays ({', '.join(kernel.inputs)})")
    specs, arrays = {}, []
    for name, value in zip(kernel.inputs, inputs, strict=True):
        if isinstance(value, Spec):
            if value.values is None:
                raise KernelError(f"`{name}` expects an array; a spec has no values")
            specs[name] = value
            arrays.append(np.asarray(value.values, np.int32))
        else:
            specs[name] = spec_of_array(kernel.name, name, value)
            arrays.append(value)
    return arrays, kernel.specs(**specs)


def spec_of_array(owner: str, name: str, array: Any, error: type[PyptoxError] = KernelError) -> Spec:
    """The spec of one argument; what is no array, or of no type that a kernel takes, is named."""
    unmasked(name, array)
    try:
        return Spec(tuple(array.shape), str(array.dtype))
    except AttributeError:
        got = f"{array!r} ({type(array).__name__})"
        raise error(f"`{name}` of `{owner}` must be an array; got {got}") from None
    except ValueError as why:
        raise error(f"`{name}` of `{owner}`: {why}. Convert it, say with astype") from None


def run(kernel: Kernel, *inputs: Any, hardware: Hardware | None = None, **parameters: Any):
    """The outputs of ``kernel`` in their stored dtypes, computed tile by tile.

    Args:
        kernel: a kernel.
        inputs: one array per input; a control input as ``px.control(values)``.
        hardware: the chip whose staging limits apply; :func:`pyptox.hardware.a2a3` by default.
        parameters: tile sizes and other parameters; defaults where left out.

    Returns:
        The output array, or a tuple when there are several.

    >>> import jax.numpy as jnp, pyptox as px
    >>> a, b = jnp.ones((5, 40), jnp.bfloat16), jnp.ones((40, 7), jnp.bfloat16)
    >>> float(px.run(px.kernels.matmul, a, b, m=16, n=16, k=16)[4, 6])
    40.0
    """
    arrays, specs = _arrays_and_specs(kernel, inputs)
    outputs = _lookup(kernel, specs, parameters, hardware, False)(*arrays)
    return outputs[0] if len(outputs) == 1 else outputs


def reference(kernel: Kernel, *inputs: Any, hardware: Hardware | None = None, **parameters: Any):
    """The outputs of ``kernel`` in float64, its casts removed; NumPy arrays.

    The inputs are converted exactly; the computation runs in its own float64 scope on the CPU.
    """
    arrays, specs = _arrays_and_specs(kernel, inputs)
    wide = [widened(name, array) for name, array in zip(kernel.inputs, arrays, strict=True)]
    with float64_scope():
        outputs = collected(tuple(kernel.outputs), _lookup(kernel, specs, parameters, hardware, True)(*wide))
    return outputs[0] if len(outputs) == 1 else outputs


def compilation_key(
    kernel: Kernel, specs: Mapping[str, Spec], parameters: Mapping[str, Any], hardware: Hardware | None
) -> tuple[tuple, tuple, tuple]:
    """What the values of a kernel are compiled for: specs, configuration, and the sizes of the chip that matter."""
    sizes = (hardware or a2a3()).sizes
    values = kernel.configuration(parameters)
    limits = {name: int(getattr(sizes, name)) for name in ("left", "right", "acc", "fractal_rows", "fractal_bytes")}
    # the values of control inputs are arguments: one compilation serves them all
    known = [
        (n, s if s.values is None else dataclasses.replace(s, values=(0,) * len(s.values))) for n, s in specs.items()
    ]
    return tuple(known), tuple(values.items()), tuple(limits.items())


def _lookup(kernel, specs, parameters, hardware, float64):
    return _compiled(kernel, *compilation_key(kernel, specs, parameters, hardware), float64)
