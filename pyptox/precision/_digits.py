"""Significant digits by stochastic rounding: the same kernel, every rounding up or down at random.

Each operation is computed in float64 at the operands that it has and rounded once to its type, up with the
probability of what is discarded. Over the runs, ``digits = -log10(sigma / |mu|)`` of an element says how many of its
digits do not depend on how things were rounded (Monte Carlo arithmetic: Parker 1997; Denis, de Oliveira Castro and
Petit 2016). It needs no reference, and finds cancellation that a single run may hide.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._dtypes import dtype_of
from .._errors import PyptoxError
from .._float64 import float64_scope
from .._rounding import Rounding, cast
from ..hardware import Hardware, a2a3
from ..lang import _run
from ..lang._apart import jitted_apart
from ..lang._kernel import Kernel
from ..lang._reading import Operation
from ..lang._record import tensors_with_shapes
from ..lang._types import Tile
from ._shadow import _Wide, _with, rounds
from ._walker import AbstractArithmetic, Walker, trip_bounds


class _Stochastic(AbstractArithmetic):
    """Tiles hold their stored values; ``step`` counts the roundings, so that each has random bits of its own."""

    def __init__(self, low: "_run._Run", key: jax.Array):
        self.low, self.wide, self.key, self.step = low, _Wide(low), key, jnp.int32(0)

    def state(self) -> Any:
        return {name: self.low.arrays[name] for name in self.low.outputs}, self.step

    def resume(self, state: Any) -> None:
        outputs, self.step = state
        self.low.arrays = {**self.low.arrays, **outputs}

    def carried(self, tile: Tile) -> Tile:
        return tile

    def apply(
        self, walker: Walker, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any], made: Any
    ) -> Any:
        if made is None or not rounds(operation, tiles, attributes, made):
            return operation.run(self.low, *tiles, **attributes)
        exact = [_with(tile, tile.payload.astype(jnp.float64)) for tile in tiles]
        ideal = operation.run(self.wide, *exact, **attributes)
        self.step = self.step + jnp.int32(1)
        key = jax.random.fold_in(self.key, self.step)
        return cast(ideal, dtype_of(made.dtype).jax, Rounding.STOCHASTIC, key=key)


@functools.lru_cache(maxsize=64)
def _compiled(kernel: Kernel, specs_items: tuple, values_items: tuple, sizes_items: tuple, bounds: tuple) -> Any:
    specs, values = dict(specs_items), dict(values_items)
    hardware = a2a3().replace(**dict(sizes_items))
    past, inside = _run._reach(kernel, specs, values, hardware)

    def run(inputs: dict, seed: jax.Array) -> tuple:
        arrays = {}
        for name, spec in specs.items():
            source, dtype = kernel.in_place.get(name, name), dtype_of(spec.dtype).jax
            array = jnp.zeros(spec.shape, dtype) if source in kernel.outputs else inputs[source].astype(dtype)
            arrays[name] = array if spec.values else jnp.pad(array, [(0, extra) for extra in past[name]])
        low = _run._Run(arrays, inside, hardware.sizes, False)
        low.outputs = tuple(kernel.outputs)
        walker = Walker(kernel, low, _Stochastic(low, jax.random.key(seed)), dict(bounds))
        kernel.read(walker, tensors_with_shapes(kernel, specs, {n: s.shape for n, s in specs.items()}), values)
        return tuple(low.arrays[name][tuple(slice(0, size) for size in specs[name].shape)] for name in kernel.outputs)

    return jitted_apart(run)


@dataclass(frozen=True)
class Digits:
    """How many decimal digits of an output do not depend on the rounding.

    Attributes:
        output: its name.
        digits: of each element, float64; infinite where all runs agree, 0 where none is significant.
        mean: over the runs.
        samples: how many runs.
    """

    output: str
    digits: np.ndarray
    mean: np.ndarray
    samples: int

    def quantile(self, share: float) -> float:
        """The digits that a share of the elements does not reach; ``quantile(0.5)`` is the median."""
        return float(np.quantile(self.digits, share, method="lower"))

    def to_dict(self) -> dict[str, Any]:
        named = {"least": 0.0, "p1": 0.01, "median": 0.5}
        figures = {name: value if np.isfinite(value := self.quantile(q)) else None for name, q in named.items()}
        return {"output": self.output, "samples": self.samples, **figures}

    def __str__(self) -> str:
        worst = np.unravel_index(int(np.argmin(self.digits)), self.digits.shape)
        return (
            f"{self.output}: {self.quantile(0.5):.1f} significant digits (median), {self.quantile(0.01):.1f} in the "
            f"worst 1 %, {self.quantile(0.0):.1f} at {tuple(map(int, worst))}; {self.samples} runs"
        )


def significant_digits(
    kernel: Kernel,
    *inputs: Any,
    samples: int = 32,
    seed: int = 0,
    hardware: Hardware | None = None,
    **parameters: Any,
) -> tuple[Digits, ...]:
    """The significant digits of every output that is not an index, over ``samples`` runs with stochastic rounding.

    Args:
        kernel: a kernel.
        inputs: one array per input; a control input as ``px.control(values)``.
        samples: runs, at least 3.
        seed: of the first run; the others count up from it.
        hardware: the chip whose staging limits apply.
        parameters: tile sizes and other parameters; defaults where left out.

    >>> import numpy as np, pyptox as px
    >>> x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    >>> (wide,) = significant_digits(px.kernels.convert("fp32"), x, samples=4)
    >>> (narrow,) = significant_digits(px.kernels.convert("bf16"), x, samples=16)
    >>> wide.quantile(0.5), 2 < narrow.quantile(0.5) < 4
    (inf, True)
    """
    if samples < 3:
        raise PyptoxError(f"`samples` must be at least 3; got {samples}. 32 give digits to a tenth or so")
    chip = hardware or a2a3()
    arrays, specs = _run._arrays_and_specs(kernel, inputs)
    known, configuration, limits = _run.compilation_key(kernel, specs, parameters, chip)
    bounds = tuple(trip_bounds(kernel, specs, dict(configuration), chip).items())
    runs: Mapping[str, list[np.ndarray]] = {n: [] for n in kernel.outputs if specs[n].dtype != "int32"}
    with float64_scope():
        compiled = _compiled(kernel, known, configuration, limits, bounds)
        given = {name: jnp.asarray(array) for name, array in zip(kernel.inputs, arrays, strict=True)}
        for number in range(samples):
            for name, array in zip(kernel.outputs, compiled(given, np.uint32(seed + number)), strict=True):
                if name in runs:
                    runs[name].append(np.asarray(array).astype(np.float64))
    return tuple(_digits(name, np.stack(values)) for name, values in runs.items())


def _digits(name: str, values: np.ndarray) -> Digits:
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    spread = np.where((values == values[0]).all(axis=0), 0.0, spread)  # a mean of equal values may be off by an ulp
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = np.where(spread == 0.0, np.inf, np.maximum(-np.log10(spread / np.abs(mean)), 0.0))
    return Digits(name, np.nan_to_num(digits, nan=0.0, posinf=np.inf), mean, len(values))
