"""How large a rounding error may be: a kernel in float64 with a bound of the error beside every value.

For an operation ``y = f(x1, x2, ...)`` the errors ``E`` of the operands arrive as ``sum |df/dxi| Ei``, and what the
operation rounds itself comes on top: a few units in the last place of its result, for sums of n terms ``sqrt(n)`` of
them times the sum of magnitudes (Higham and Mary 2019), half a unit for a cast. A value that a loop carries from one
iteration to the next is not meant to be rounded to a narrow type each time: that buys no tolerance, see
:func:`narrowed_carries`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._dtypes import dtype_of
from .._float64 import collected, float64_scope
from ..cost._compilation_cache import persistent
from ..hardware import Hardware, a2a3
from ..lang import _run
from ..lang._kernel import Kernel
from ..lang._reading import Operation
from ..lang._record import Instruction, Loop, Recorder, tensors_with_shapes
from ..lang._types import Buffer, Spec, Tile
from ._chunks import spacing_of
from ._shadow import _floating, _Wide, _with, rounds
from ._walker import AbstractArithmetic, Walker, trip_bounds

_U32 = 2.0**-24
_SMALLEST = 2.0**-126
"""Of float32: hosts take what is below for zero."""
_ULPS = 4.0
"""Half units in the last place of an elementary operation; exp, division and roots are no more exact on the device."""

_SUMS = frozenset(
    ("move", "cast", "cast_on_drain", "named", "row_expand", "slice_columns", "concat_columns", "interleave", "add")
) | {"row_sum", "column_sum"}
"""Operations that copy or add what they are given: they do so with bounds of errors, too."""

Place = tuple[str, int]
"""File and line."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Bounded:
    """Values of a tile in float64, and a bound of each one's error."""

    value: jax.Array
    error: jax.Array


class _Bound(AbstractArithmetic):
    """Carries every tile as :class:`Bounded`; at ``free`` places nothing may be rounded to a narrow type."""

    def __init__(self, values: "_run._Run", errors: "_run._Run", free: frozenset[Place]):
        self.values, self.errors, self.free = values, errors, free
        self.wide, self.wide_errors = _Wide(values), _Wide(errors)

    def state(self) -> Any:
        return tuple({name: run.arrays[name] for name in self.values.outputs} for run in (self.values, self.errors))

    def resume(self, state: Any) -> None:
        for run, arrays in zip((self.values, self.errors), state, strict=True):
            run.arrays = {**run.arrays, **arrays}

    def carried(self, tile: Tile) -> Tile:
        return tile

    def apply(
        self, walker: Walker, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any], made: Any
    ) -> Bounded | None:
        values = [_with(tile, tile.payload.value) for tile in tiles]
        errors = [_with(tile, tile.payload.error) for tile in tiles]
        tensor = attributes.get("tensor")
        if tensor is not None:
            if attributes.get("by_row"):  # row numbers are what they are
                errors[-1] = values[-1]
            if made is None and attributes.get("atomic"):
                errors[0] = _with(tiles[0], errors[0].payload + self._added(attributes, values[0]))
            value = operation.run(self.wide, *values, **attributes)
            error = operation.run(self.wide_errors, *errors, **attributes)
            if made is None:
                return None
            return Bounded(value, error if _floating(made.dtype) or tensor.is_output else jnp.zeros(value.shape))
        value = operation.run(self.wide, *values, **attributes)
        error = self._handed_on(operation, values, errors, attributes, value)
        if rounds(operation, tiles, attributes, made):
            site = walker.site(operation, tiles, attributes, made)
            error = error + self._own(operation, values, attributes, made, value, (site.file, site.line) in self.free)
        inside = _run._inside(value.shape, *made.valid)
        return Bounded(value, jnp.where(inside & ~jnp.isnan(error), error, 0.0))

    def _handed_on(self, operation: Operation, values: list, errors: list, attributes: dict, value: Any) -> Any:
        """The errors of the operands, as the result has them."""
        total = jnp.zeros(value.shape, jnp.float64)
        if not jnp.issubdtype(value.dtype, jnp.floating):
            return total
        if operation.name in _SUMS and all(jnp.issubdtype(tile.payload.dtype, jnp.floating) for tile in values):
            return operation.run(self.wide, *errors, **attributes).astype(jnp.float64)
        if operation.name == "matmul":
            left, right = (_with(tile, jnp.abs(tile.payload)) for tile in values[:2])
            total = operation.run(self.wide, errors[0], right, errors[2], **attributes)
            return total + operation.run(self.wide, left, errors[1], _with(errors[2], 0 * total), **attributes)
        for n, tile in enumerate(values):
            if not jnp.issubdtype(tile.payload.dtype, jnp.floating):
                continue

            def alone(payload: jax.Array, n: int = n, tile: Tile = tile) -> jax.Array:
                given = [*values[:n], _with(tile, payload), *values[n + 1 :]]
                return operation.run(self.wide, *given, **attributes).astype(jnp.float64)

            _, moved = jax.jvp(alone, (tile.payload,), (errors[n].payload.astype(tile.payload.dtype),))
            total = total + jnp.abs(moved)
        return total

    def _own(self, operation: Operation, values: list, attributes: dict, made: Any, value: Any, free: bool) -> Any:
        """What the operation rounds itself."""
        narrow = dtype_of(made.dtype).unit_roundoff > _U32
        unit = dtype_of(made.dtype).unit_roundoff if _floating(made.dtype) else 0.0
        if narrow and free:
            unit, narrow = _U32, False
        if operation.name in ("cast", "cast_on_drain"):
            if not _floating(made.dtype):
                return jnp.full(value.shape, 0.5)
            if narrow:
                return 0.5 * spacing_at(value, made.dtype)
            return unit * jnp.abs(value) + _SMALLEST
        size, factor = jnp.abs(value), _ULPS
        positive = [_with(tile, jnp.abs(tile.payload)) for tile in values]
        if operation.name == "matmul":
            product = operation.run(self.wide, *positive[:2], _with(values[2], 0 * value), **attributes)
            size, factor = size + values[0].shape[1] ** 0.5 * product, 1.0
        elif operation.name.endswith("_sum") or not _of_the_language(operation):
            size = jnp.maximum(size, jnp.abs(operation.run(self.wide, *positive, **attributes)))
            factor = 1.0 + max(max(tile.shape) for tile in values) ** 0.5
        # what its type cannot hold is infinite when run, and a quotient by it 0: all of the value is error
        overflows = jnp.abs(value) > float(jnp.finfo(dtype_of(made.dtype).jax).max) if _floating(made.dtype) else False
        return factor * unit * size + jnp.where(overflows, jnp.abs(value), 0.0) + _SMALLEST

    def _added(self, attributes: dict, tile: Tile) -> jax.Array:
        """What an atomic add of ``tile`` to what is stored rounds off."""
        tensor = attributes["tensor"]
        shape = (tile.shape[1],) if tensor.rank == 1 else (1,) * (tensor.rank - 2) + tuple(tile.shape)
        starts = self.values._starts(attributes["offsets"])
        old = jax.lax.dynamic_slice(self.values.arrays[tensor.name], starts, shape).reshape(tile.payload.shape)
        unit = dtype_of(tensor.dtype).unit_roundoff if _floating(tensor.dtype) else 0.0
        return unit * jnp.abs(old + tile.payload)


def _of_the_language(operation: Operation) -> bool:
    return getattr(operation.run, "__module__", "").startswith("pyptox.lang")


def spacing_at(value: jax.Array, dtype: str) -> jax.Array:
    """The distance between neighbours of ``dtype`` at each value."""
    spacing = spacing_of(np.dtype(dtype_of(dtype).jax))
    assert spacing.bits is not None
    _, exponent = jnp.frexp(jnp.maximum(jnp.abs(value), spacing.smallest))
    return jnp.ldexp(jnp.ones(value.shape, jnp.float64), exponent - 1 - spacing.bits)


def narrowed_carries(kernel: Kernel, specs: Mapping[str, Spec], values: Mapping[str, Any], hardware: Hardware) -> list:
    """Places, ``(file, line)``, where a value that a loop carries is rounded to a narrow type on its way round.

    The weights of an attention are narrowed inside its loop too, but they are not carried into themselves.
    """
    recorder = Recorder.of_integers(kernel, specs, values, hardware)
    assert recorder.walk is not None
    found: dict[Place, None] = {}
    for node in recorder.walk.first:
        if isinstance(node, Loop):
            _narrowed_in(node, found)
    return list(found)


def _narrowed_in(loop: Loop, found: dict[Place, None]) -> None:
    """Follow every value that the loop carries: ``origins[buffer]`` has those it depends on, and where narrowed."""
    origins: dict[Buffer, set[tuple[Buffer, Place | None]]] = {old: {(old, None)} for old, _ in loop.carried}
    made: set[Buffer] = set()

    def follow(nodes: Sequence[Any]) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                follow(node.first)
                for old, new in node.carried:
                    origins[old] = origins.get(old, set()) | origins.get(new, set())
            elif node.out is not None:
                into(node)

    def into(node: Instruction) -> None:
        reached: set[tuple[Buffer, Place | None]] = set()
        for tile in node.tiles:
            if tile.payload not in origins and tile.payload not in made:  # made before, and written in place
                origins[tile.payload] = {(tile.payload, None)}
            reached |= origins.get(tile.payload, set())
        assert node.out is not None
        kind = dtype_of(node.out.dtype)
        if kind.floating and kind.unit_roundoff > _U32 and not node.operation.exact:
            reached |= {(origin, node.site) for origin, _ in reached}
        if node.fresh:
            made.add(node.out.payload)
            origins[node.out.payload] = reached
        else:
            origins[node.out.payload] = origins.get(node.out.payload, set()) | reached

    follow(loop.first)
    ends = [*loop.carried, *((buffer, buffer) for buffer in origins if buffer not in made)]
    for old, new in ends:
        found.update(dict.fromkeys(place for origin, place in origins.get(new, ()) if origin == old and place))
    for node in loop.first:
        if isinstance(node, Loop):
            _narrowed_in(node, found)


def bounded(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware | None,
    inputs: Mapping[str, Any],
    errors: Mapping[str, Any] | None = None,
    free: Sequence[Place] = (),
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Every output in float64, and the bound of its rounding error: one trace, compiled once for each configuration.

    Args:
        kernel, specs, values, hardware: as in :func:`pyptox.precision.check`.
        inputs: arrays by name; values of control inputs too. Of a program in float64, as its earlier tasks made them.
        errors: bounds of the errors that inputs come with, float64; none where left out.
        free: places whose narrowing buys no tolerance.
    """
    chip = hardware or a2a3()
    known, configuration, limits = _run.compilation_key(kernel, specs, values, chip)
    bounds = trip_bounds(kernel, specs, dict(configuration), chip)
    with persistent(), float64_scope():
        compiled = _compiled(kernel, known, configuration, limits, tuple(bounds.items()), frozenset(free))
        given, with_errors = ({n: jnp.asarray(a) for n, a in some.items()} for some in (inputs, errors or {}))
        made, bound = compiled(given, with_errors)
        return collected(tuple(kernel.outputs), made), collected(tuple(kernel.outputs), bound)


@functools.lru_cache(maxsize=64)
def _compiled(
    kernel: Kernel, specs_items: tuple, values_items: tuple, sizes_items: tuple, bounds: tuple, free: frozenset
) -> Callable[[dict, dict], tuple[tuple, tuple]]:
    specs, values = dict(specs_items), dict(values_items)
    hardware = a2a3().replace(**dict(sizes_items))
    past, inside = _run._reach(kernel, specs, values, hardware)

    def run(inputs: dict, errors: dict) -> tuple[tuple, tuple]:
        def place(name: str, error: bool) -> jax.Array:
            spec, source = specs[name], kernel.in_place.get(name, name)
            if error and source in errors:
                array = errors[source].astype(jnp.float64)
            elif source in kernel.outputs or (error and (name in kernel.outputs or _floating(spec.dtype))):
                array = jnp.zeros(spec.shape, jnp.float64)
            else:
                array = inputs[source].astype(jnp.float64)
            return array if spec.values else jnp.pad(array, [(0, extra) for extra in past[name]])

        wide, wide_errors = (
            _run._Run({name: place(name, error) for name in specs}, inside, hardware.sizes, True)
            for error in (False, True)
        )
        wide_errors.values = wide.values  # where loops and the grid stand
        wide.outputs = wide_errors.outputs = tuple(kernel.outputs)
        walker = Walker(kernel, wide, _Bound(wide, wide_errors, free), dict(bounds))
        kernel.read(walker, tensors_with_shapes(kernel, specs, {n: s.shape for n, s in specs.items()}), values)

        def whole(arrays: dict) -> tuple:
            return tuple(arrays[n][tuple(slice(0, size) for size in specs[n].shape)] for n in kernel.outputs)

        return whole(wide.arrays), whole(wide_errors.arrays)

    return jax.jit(run)
