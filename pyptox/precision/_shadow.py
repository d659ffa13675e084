"""A kernel in its stored types and, beside it, in float64 with a chosen share of every rounding error.

For each operation f with low-precision operands x, result y and local error ``e = y - f64(x)`` (Herbgrind's: at the
operands that it had, so that it is blamed for its own rounding only), the shadow is ``z_out = f64(z) + theta e``. With
theta = 0 everywhere the shadow is the float64 reference, with theta = 1 it retraces the low-precision values, and the
derivative by one line's theta is what that line adds to an output, to first order.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._dtypes import dtype_of
from .._errors import KernelError
from ..hardware import Hardware, a2a3
from ..lang import _run
from ..lang._apart import apart, jitted_apart
from ..lang._kernel import Kernel
from ..lang._reading import Operation
from ..lang._record import tensors_with_shapes
from ..lang._types import Index, Spec, Tensor, Tile
from ._walker import AbstractArithmetic, Site, Walker, instruction_count, trip_bounds

SQUARES, COUNT, LARGEST, FLIPS = range(4)
"""Columns of the statistics of a site: sum of squared local errors, elements, largest one, changed decisions. Of a
named tile the errors are those against the reference, and the last column is the sum of squares of that."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pair:
    """A tile's stored values, and its shadow; None while that is the stored values exactly."""

    low: jax.Array
    high: jax.Array | None = None

    @property
    def shadow(self) -> jax.Array:
        return self.low.astype(jnp.float64) if self.high is None else self.high


class _Wide:
    """What an operation's ``run`` rule may ask of the float64 side."""

    float64 = True

    def __init__(self, run: "_run._Run"):
        self.run = run

    def dtype(self, name: str) -> Any:
        return jnp.dtype(jnp.float64)

    def value(self, index: Index) -> Any:
        return self.run.value(index)

    def read(self, *where: Any) -> jax.Array:
        return self.run.read(*where).astype(jnp.float64)

    def read_rows(self, *where: Any) -> jax.Array:
        return self.run.read_rows(*where).astype(jnp.float64)

    def write(self, *what: Any) -> None:
        self.run.write(*what)

    def write_rows(self, *what: Any) -> None:
        self.run.write_rows(*what)


def _with(tile: Tile, payload: Any) -> Tile:
    return Tile(tile.shape, tile.valid, tile.dtype, tile.space, payload)


def _floating(dtype: str) -> bool:
    return dtype_of(dtype).floating


def _keeps_all(before: str, after: str) -> bool:
    """True when a cast can round nothing."""
    if after == "fp32":
        return before != "int32"
    return before == "int8" and after == "int32"


def rounds(operation: Operation, tiles: Sequence[Tile], attributes: Mapping[str, Any], made: Any) -> bool:
    """Whether the result of an operation may differ from its float64 value at the same operands."""
    if operation.name in ("cast", "cast_on_drain"):
        return not _keeps_all(tiles[0].dtype, made.dtype)
    if made is None:
        return attributes.get("atomic") is not None and _floating(attributes["tensor"].dtype)
    whole = not _floating(made.dtype) and not any(_floating(tile.dtype) for tile in tiles)
    if operation.name == "full":
        value = float(attributes["value"])
        return bool(np.isfinite(value) and float(np.asarray(value, dtype_of(made.dtype).jax)) != value)
    return not (operation.exact or whole)


class _Shadow(AbstractArithmetic):
    """Carries every tile as a :class:`Pair`.

    ``theta`` scales the errors of each site; ``sites`` collects them in the order in which they are met.
    """

    def __init__(
        self,
        low: "_run._Run",
        high: "_run._Run",
        theta: jax.Array,
        sites: dict[Site, int],
        measure: bool,
    ):
        self.low, self.high, self.wide, self.theta, self.sites = low, high, _Wide(high), theta, sites
        self.statistics = jnp.zeros((theta.shape[0] if measure else 0, 4), jnp.float64)
        self.measure, self.outputs = measure, low.outputs

    def state(self) -> Any:
        return (
            {name: self.low.arrays[name] for name in self.outputs},
            {name: self.high.arrays[name] for name in self.outputs},
            self.statistics,
        )

    def resume(self, state: Any) -> None:
        low, high, self.statistics = state
        self.low.arrays = {**self.low.arrays, **low}
        self.high.arrays = {**self.high.arrays, **high}

    def carried(self, tile: Tile) -> Tile:
        return _with(tile, Pair(tile.payload.low, tile.payload.shadow))

    def apply(
        self, walker: Walker, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any], made: Any
    ) -> Pair | None:
        low_tiles = [_with(tile, tile.payload.low) for tile in tiles]
        same_tiles = [_with(tile, tile.payload.low.astype(jnp.float64)) for tile in tiles]
        high_tiles = [_with(tile, tile.payload.shadow) for tile in tiles]
        if made is None:
            if rounds(operation, tiles, attributes, made):
                error = self._added(attributes, low_tiles[0])
                share = self._share(walker.site(operation, tiles, attributes, made), error, None)
                high_tiles[0] = _with(high_tiles[0], high_tiles[0].payload + share)
            operation.run(self.low, *low_tiles, **attributes)
            operation.run(self.wide, *high_tiles, **attributes)
            return None
        if operation.name == "named" and self.measure:
            self._compare(walker.site(operation, tiles, attributes, made), tiles[0])
        low = operation.run(self.low, *low_tiles, **attributes)
        exact_inputs = all(tile.payload.high is None for tile in tiles) and not self._inexact(attributes)
        if not rounds(operation, tiles, attributes, made):
            if exact_inputs:
                return Pair(low)
            high = self._inside(operation.run(self.wide, *high_tiles, **attributes), made)
            if not _floating(made.dtype) and any(_floating(tile.dtype) for tile in tiles):
                site = walker.site(operation, tiles, attributes, made)
                self._measure(site, flips=jnp.sum(self._inside(low.astype(jnp.float64), made) != high))
            return Pair(low, high)
        low = apart(low)
        ideal = operation.run(self.wide, *same_tiles, **attributes)
        error = self._inside(low.astype(jnp.float64) - ideal, made)
        share = self._share(walker.site(operation, tiles, attributes, made), error, made)
        high = ideal if exact_inputs else operation.run(self.wide, *high_tiles, **attributes)
        return Pair(low, self._inside(high + share, made))

    def _compare(self, site: Site, tile: Tile) -> None:
        shadow = self._inside(tile.payload.shadow, tile)
        error = self._inside(tile.payload.low.astype(jnp.float64) - shadow, tile)
        count = tile.valid[0] * tile.valid[1]
        self._measure(site, jnp.sum(error**2), count, jnp.max(jnp.abs(error)), jnp.sum(shadow**2))

    def _inexact(self, attributes: Mapping[str, Any]) -> bool:
        """An operand in GM has a shadow of its own."""
        tensor = attributes.get("tensor")
        return tensor is not None and self.high.arrays[tensor.name] is not self.low.arrays[tensor.name]

    def _added(self, attributes: Mapping[str, Any], tile: Tile) -> jax.Array:
        """What an atomic add of ``tile`` to what is stored rounds off."""
        tensor: Tensor = attributes["tensor"]
        shape = (tile.shape[1],) if tensor.rank == 1 else (1,) * (tensor.rank - 2) + tuple(tile.shape)
        starts = self.low._starts(attributes["offsets"])
        old = jax.lax.dynamic_slice(self.low.arrays[tensor.name], starts, shape).reshape(tile.payload.shape)
        new = old + tile.payload.astype(old.dtype)
        ideal = old.astype(jnp.float64) + tile.payload.astype(jnp.float64)
        inside = _run._inside(tile.payload.shape, *tile.valid)
        return jnp.where(inside, new.astype(jnp.float64) - ideal, 0.0)

    def _share(self, site: Site, error: jax.Array, made: Any) -> jax.Array:
        number = self._number(site)
        if self.measure:
            kept = jnp.isfinite(error)
            count = made.valid[0] * made.valid[1] if made is not None else error.size
            self._measure(site, jnp.sum(jnp.where(kept, error, 0.0) ** 2), count, jnp.max(jnp.abs(error), initial=0.0))
        # an overflow has no first order; it shows in the output, and in the site's largest error
        return self.theta[number] * jnp.where(jnp.isfinite(error), error, 0.0)

    def _measure(self, site: Site, squares: Any = 0.0, count: Any = 0, largest: Any = 0.0, flips: Any = 0) -> None:
        if not self.measure:
            return
        row = self.statistics[self._number(site)]
        sums = row + jnp.stack([jnp.asarray(x, jnp.float64) for x in (squares, count, 0.0, flips)])
        sums = sums.at[LARGEST].set(jnp.maximum(row[LARGEST], largest))
        self.statistics = self.statistics.at[self._number(site)].set(sums)

    def _number(self, site: Site) -> int:
        number = self.sites.setdefault(site, len(self.sites))
        if number >= self.theta.shape[0]:
            raise KernelError(
                f"`kernel` has more operations when it is run than when it is recorded ({self.theta.shape[0]}); its "
                "text must not depend on whether a size is an int"
            )
        return number

    def _inside(self, values: jax.Array, made: Any) -> jax.Array:
        """Zero where a tile is padding, in the derivative too: what is not there has no error."""
        return jnp.where(_run._inside(values.shape, *made.valid), values, 0.0)


@dataclass(frozen=True)
class Shadow:
    """The compiled readings of one kernel for inputs of given types.

    Attributes:
        forward: ``(low inputs, shadow inputs, theta) -> (low outputs, shadow outputs, statistics)``; inputs by
            name, those without a shadow left out of the second.
        pull: ``(low inputs, shadow inputs, theta, weights of the shadow outputs) -> (d / d theta, d / d shadow
            inputs)``.
        sites: a number for each, filled in when ``forward`` is traced.
        capacity: entries of theta.
    """

    forward: Callable[..., tuple]
    pull: Callable[..., tuple]
    capacity: int
    sites: dict[Site, int] = field(default_factory=dict)


def shadow_of(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    inexact: frozenset[str],
    hardware: Hardware | None = None,
) -> Shadow:
    """The readings of ``kernel``; ``inexact`` names the inputs that have a shadow of their own.

    Compiled once for each kernel, specs and configuration. Call them in a float64 scope.
    """
    chip = hardware or a2a3()
    known, configuration, limits = _run.compilation_key(kernel, specs, values, chip)
    bounds = trip_bounds(kernel, specs, dict(configuration), chip)
    return _compiled(kernel, known, configuration, limits, inexact, tuple(bounds.items()))


@functools.lru_cache(maxsize=256)
def _compiled(
    kernel: Kernel, specs_items: tuple, values_items: tuple, sizes_items: tuple, inexact: frozenset, bounds: tuple
) -> Shadow:
    specs, values = dict(specs_items), dict(values_items)
    hardware = a2a3().replace(**dict(sizes_items))
    past, inside = _run._reach(kernel, specs, values, hardware)
    capacity = instruction_count(kernel, specs, values, hardware)
    sites: dict[Site, int] = {}

    def place(name: str, inputs: dict, dtype: Any) -> jax.Array:
        """The padded tensor: an input, zeros, or the input that an output starts as."""
        source = kernel.in_place.get(name, name)
        array = jnp.zeros(specs[name].shape, dtype) if source in kernel.outputs else inputs[source].astype(dtype)
        return array if specs[name].values else jnp.pad(array, [(0, extra) for extra in past[name]])

    def outputs_of(low_in: dict, high_in: dict, theta: jax.Array, measure: bool) -> tuple:
        low_arrays = {name: place(name, low_in, dtype_of(spec.dtype).jax) for name, spec in specs.items()}
        own = {*high_in, *kernel.outputs}
        wide_in = {name: array.astype(jnp.float64) for name, array in low_in.items()} | high_in
        high_arrays = low_arrays | {name: place(name, wide_in, jnp.dtype(jnp.float64)) for name in specs if name in own}
        low = _run._Run(low_arrays, inside, hardware.sizes, False)
        high = _run._Run(high_arrays, inside, hardware.sizes, True)
        high.values = low.values  # where loops and the grid stand
        low.outputs = tuple(kernel.outputs)
        shadow = _Shadow(low, high, theta, sites, measure)
        walker = Walker(kernel, low, shadow, dict(bounds), recompute=not measure)
        kernel.read(walker, tensors_with_shapes(kernel, specs, {n: s.shape for n, s in specs.items()}), values)

        def whole(arrays: dict) -> tuple:
            return tuple(arrays[name][tuple(slice(0, size) for size in specs[name].shape)] for name in kernel.outputs)

        return whole(shadow.low.arrays), whole(shadow.high.arrays), shadow.statistics

    def pull(low_in: dict, high_in: dict, theta: jax.Array, weights: tuple) -> tuple:
        _, back = jax.vjp(lambda theta, high_in: outputs_of(low_in, high_in, theta, False)[1], theta, high_in)
        return back(weights)

    def forward(low_in: dict, high_in: dict, theta: jax.Array) -> tuple:
        return outputs_of(low_in, high_in, theta, True)

    # handed over at run time: as a constant it would be folded away
    return Shadow(jitted_apart(forward), jitted_apart(pull), capacity, sites)
