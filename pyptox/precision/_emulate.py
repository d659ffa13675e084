"""A kernel as a device computes it, with the rounding of every cast open to change at run time.

Tiles of floats are held in float32, which every stored type fits into. An operation on a narrow type is computed in
that type; a cast rounds to its type by the mode that a table gives for its line, or leaves the values as they are.
One compilation serves all tables, so that a search over casts costs a run each.
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
from .._rounding import Rounding, cast, round_to
from ..hardware import Hardware, a2a3
from ..lang import _run
from ..lang._apart import apart, jitted_apart
from ..lang._kernel import Kernel
from ..lang._reading import Operation
from ..lang._record import tensors_with_shapes
from ..lang._types import Index, Spec, Tile
from ._scope import stored_scope
from ._shadow import _floating, _with, rounds
from ._walker import AbstractArithmetic, Site, Walker, instruction_count, trip_bounds

MODES = tuple(mode for mode in Rounding if mode is not Rounding.STOCHASTIC)
AS_WRITTEN, KEPT = -1, len(MODES)
"""Entries of a table besides the numbers of :data:`MODES`: what the text says, and no rounding at all."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Loose:
    """Values of a tile, and whether they may be finer than its type."""

    values: jax.Array
    finer: jax.Array


class _Context:
    """What an operation's ``run`` rule may ask; floats are float32 where ``single``."""

    float64 = False

    def __init__(self, run: "_run._Run", single: bool):
        self.run, self.single = run, single

    def dtype(self, name: str) -> Any:
        return jnp.dtype(jnp.float32) if self.single and _floating(name) else dtype_of(name).jax

    def value(self, index: Index) -> Any:
        return self.run.value(index)

    def read(self, *where: Any) -> jax.Array:
        return _single(self.run.read(*where))

    def read_rows(self, *where: Any) -> jax.Array:
        return _single(self.run.read_rows(*where))

    def write(self, *what: Any) -> None:
        self.run.write(*what)

    def write_rows(self, *what: Any) -> None:
        self.run.write_rows(*what)


def _single(array: jax.Array) -> jax.Array:
    return array.astype(jnp.float32) if jnp.issubdtype(array.dtype, jnp.floating) else array


def is_cast(operation: Operation) -> bool:
    return operation.name in ("cast", "cast_on_drain")


class _Emulated(AbstractArithmetic):
    """Carries every tile as :class:`Loose`; ``table`` holds a mode for each site of a cast."""

    def __init__(self, low: "_run._Run", table: jax.Array, sites: dict[Site, int]):
        self.low, self.table, self.sites = low, table, sites
        self.stored, self.single = _Context(low, False), _Context(low, True)
        self.exactly = jnp.zeros((), bool)

    def state(self) -> Any:
        return {name: self.low.arrays[name] for name in self.low.outputs}

    def resume(self, state: Any) -> None:
        self.low.arrays = {**self.low.arrays, **state}

    def carried(self, tile: Tile) -> Tile:
        return tile

    def apply(
        self, walker: Walker, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any], made: Any
    ) -> Loose | None:
        single = [_with(tile, tile.payload.values) for tile in tiles]
        if is_cast(operation):
            return self._cast(walker, operation, tiles, attributes, made)
        if made is None:
            if attributes.get("atomic") and attributes["tensor"].dtype in ("bf16", "fp16"):
                raise KernelError("an atomic add to a narrow type is not emulated; make the output fp32")
            operation.run(self.single, *single, **attributes)
            return None
        finer = functools.reduce(jnp.logical_or, [tile.payload.finer for tile in tiles], self.exactly)
        narrow = made.dtype in ("bf16", "fp16") and rounds(operation, tiles, attributes, made)
        if not narrow:
            values = operation.run(self.single, *single, **attributes)
            if not _floating(made.dtype):
                return Loose(values, self.exactly)
            return Loose(apart(values), finer if made.dtype in ("bf16", "fp16") else self.exactly)
        stored = [_with(tile, tile.payload.values.astype(dtype_of(tile.dtype).jax)) for tile in tiles]
        values = apart(operation.run(self.stored, *stored, **attributes)).astype(jnp.float32)
        if tiles:
            values = jnp.where(finer, apart(operation.run(self.single, *single, **attributes)), values)
        return Loose(values, finer)

    def _cast(
        self, walker: Walker, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any], made: Any
    ) -> Loose:
        values = tiles[0].payload.values
        if not rounds(operation, tiles, attributes, made):
            values = values.astype(jnp.float32 if _floating(made.dtype) else dtype_of(made.dtype).jax)
            return Loose(values, self.exactly)
        site = walker.site(operation, tiles, attributes, made)
        number = self.sites.setdefault(site, len(self.sites))
        target, floating = dtype_of(made.dtype).jax, _floating(made.dtype)
        written = MODES.index(Rounding(attributes["rounding"]))
        mode = jnp.where(self.table[number] == AS_WRITTEN, jnp.int32(written), self.table[number])

        def rounded(how: Rounding) -> Callable[[jax.Array], jax.Array]:
            if floating:
                return lambda x: round_to(x.astype(jnp.float32), target, how)
            return lambda x: cast(x, target, how)

        branches = [rounded(how) for how in MODES]
        # an integer is the quantisation itself: there is nothing wider to keep
        branches.append((lambda x: x.astype(jnp.float32)) if floating else branches[written])
        kept = (mode == KEPT) & jnp.asarray(floating)
        return Loose(jax.lax.switch(mode, branches, values), kept)


@dataclass(frozen=True)
class Emulation:
    """A compiled kernel with open casts.

    Attributes:
        run: ``(inputs by name, table) -> outputs``, floats as float32.
        sites: the place of each cast in the table, filled in when ``run`` is traced.
        capacity: entries of the table.
    """

    run: Callable[..., tuple]
    capacity: int
    sites: dict[Site, int] = field(default_factory=dict)

    def table(self, modes: Mapping[Site, int] | None = None) -> np.ndarray:
        """A table with a mode for each of ``modes``, the others as written."""
        made = np.full(self.capacity, AS_WRITTEN, np.int32)
        for site, mode in (modes or {}).items():
            made[self.sites[site]] = mode
        return made


def emulation_of(
    kernel: Kernel, specs: Mapping[str, Spec], values: Mapping[str, Any], hardware: Hardware | None = None
) -> Emulation:
    """The kernel with open casts, compiled once for each kernel, specs and configuration."""
    chip = hardware or a2a3()
    known, configuration, limits = _run.compilation_key(kernel, specs, values, chip)
    bounds = trip_bounds(kernel, specs, dict(configuration), chip)
    return _compiled(kernel, known, configuration, limits, tuple(bounds.items()))


@functools.lru_cache(maxsize=256)
def _compiled(kernel: Kernel, specs_items: tuple, values_items: tuple, sizes_items: tuple, bounds: tuple) -> Emulation:
    specs, values = dict(specs_items), dict(values_items)
    hardware = a2a3().replace(**dict(sizes_items))
    past, inside = _run._reach(kernel, specs, values, hardware)
    capacity, sites = instruction_count(kernel, specs, values, hardware), {}

    def run(inputs: dict, table: jax.Array) -> tuple:
        def place(name: str, spec: Spec) -> jax.Array:
            source, dtype = kernel.in_place.get(name, name), dtype_of(spec.dtype).jax
            array = jnp.zeros(spec.shape, dtype) if source in kernel.outputs else inputs[source].astype(dtype)
            array = _single(array) if name in kernel.outputs else array
            return array if spec.values else jnp.pad(array, [(0, extra) for extra in past[name]])

        low = _run._Run({name: place(name, spec) for name, spec in specs.items()}, inside, hardware.sizes, False)
        low.outputs = tuple(kernel.outputs)
        walker = Walker(kernel, low, _Emulated(low, table, sites), dict(bounds))
        kernel.read(walker, tensors_with_shapes(kernel, specs, {n: s.shape for n, s in specs.items()}), values)
        return tuple(low.arrays[name][tuple(slice(0, size) for size in specs[name].shape)] for name in kernel.outputs)

    return Emulation(jitted_apart(run), capacity, sites)


class Emulator:
    """One kernel on one set of inputs: its outputs under any table, as NumPy arrays, and their float64 values."""

    def __init__(self, kernel: Kernel, inputs: Sequence[Any], hardware: Hardware | None, parameters: Mapping[str, Any]):
        arrays, specs = _run._arrays_and_specs(kernel, inputs)
        self.kernel, self.specs, self.inputs = kernel, specs, dict(zip(kernel.inputs, arrays, strict=True))
        with stored_scope():
            self.emulation = emulation_of(kernel, specs, parameters, hardware)
            self.inputs = {name: jnp.asarray(array) for name, array in self.inputs.items()}
            self.as_written = self.outputs({})
        made = _run.reference(kernel, *inputs, hardware=hardware, **parameters)
        self.reference = made if isinstance(made, tuple) else (made,)

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every cast that rounds, in the order of the text."""
        return tuple(self.emulation.sites)

    def outputs(self, modes: Mapping[Site, int]) -> tuple[np.ndarray, ...]:
        """The outputs with other modes at some sites, in their types; float32 where they no longer fit these."""
        with stored_scope():
            table = self.emulation.table() if not self.emulation.sites else self.emulation.table(modes)
            arrays = [np.asarray(array) for array in self.emulation.run(self.inputs, table)]
        return tuple(_stored(a, self.specs[n].dtype) for a, n in zip(arrays, self.kernel.outputs, strict=True))

    def error(self, outputs: Sequence[np.ndarray]) -> float:
        """The relative 2-norm of the error of all outputs but indices, as :func:`along_error` measures it."""
        total = 0.0
        for got, expected in zip(outputs, self.reference, strict=True):
            if got.dtype != np.int32:
                norm = float(np.linalg.norm(expected)) or 1.0
                total += (float(np.linalg.norm(got.astype(np.float64) - expected)) / norm) ** 2
        return total**0.5


def _stored(array: np.ndarray, dtype: str) -> np.ndarray:
    narrow = array.astype(dtype_of(dtype).jax)
    same = np.array_equal(narrow.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    return narrow if same else array


def emulated(kernel: Kernel, *inputs: Any, hardware: Hardware | None = None, **parameters: Any) -> Any:
    """The emulated golden: what a device computes that follows the kernel's text to the letter, as NumPy arrays.

    The same order, element types and rounding modes, one rounding an operation; what remains of a difference to a
    device is how it sums inside one instruction, and its elementary functions. Use it to find wrong bits, and
    :func:`pyptox.reference`, the ideal golden, to measure errors.

    Args:
        kernel: a kernel.
        inputs: one array per input; a control input as ``px.control(values)``.
        hardware: the chip whose staging limits apply.
        parameters: tile sizes and other parameters; defaults where left out.

    >>> import numpy as np, pyptox as px
    >>> a = np.random.default_rng(0).standard_normal((16, 64)).astype("bfloat16")
    >>> emulated(px.kernels.matmul, a, a.T.copy()).dtype.name
    'bfloat16'
    """
    arrays, specs = _run._arrays_and_specs(kernel, inputs)
    with stored_scope():
        emulation = emulation_of(kernel, specs, parameters, hardware)
        given = {name: jnp.asarray(array) for name, array in zip(kernel.inputs, arrays, strict=True)}
        made = [np.asarray(array) for array in emulation.run(given, emulation.table())]
    outputs = tuple(a.astype(dtype_of(specs[n].dtype).jax) for a, n in zip(made, kernel.outputs, strict=True))
    return outputs[0] if len(outputs) == 1 else outputs
