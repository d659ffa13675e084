"""The cost of many candidates at once: jitted, vmapped, chunked.

Shapes, configurations and the chip's constants are all arguments, so one compilation serves every problem of a
kernel. Candidates go through in chunks of one size, large enough to use both cores and small enough to stay in
cache; the last chunk is padded, so nothing is traced twice.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import KernelError
from .._scalar import relaxed
from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._evaluate import Cost, Options, predict

CHUNK = 65536
"""Candidates in one call of the compiled function."""

GRADIENT_CHUNK = 8192
"""The same for value and gradient, whose working set is larger."""

SMALL_CHUNK, SMALL_GRADIENT_CHUNK = 1024, 64
"""The same for batches of up to so many, as a search proposes them: a second trace, and a hundredth of the work."""

EXACT, RELAXED = Options(), Options(relaxed=True)

_TRACES: dict[str, int] = {"evaluate": 0, "gradient": 0}


def trace_count(name: str) -> int:
    """How often ``"evaluate"`` or ``"gradient"`` has been traced in this process; tests hold it down."""
    return _TRACES[name]


def _types(specs: Mapping[str, Spec]) -> tuple:
    return tuple(
        (n, s.dtype, len(s.shape), len(s.values) if s.values is not None else 0, s.layout) for n, s in specs.items()
    )


def _specs_of(types: tuple) -> dict[str, Spec]:
    return {
        n: Spec((1,) * rank if not g else (g,), d, (1,) * g if g else None, layout) for n, d, rank, g, layout in types
    }


@functools.lru_cache(maxsize=128)
def _compiled(kernel: Kernel, types: tuple, options: Options):
    specs, fixed = _specs_of(types), dict(options.choices)

    def one(shapes, point, hardware, control):
        _TRACES["evaluate"] += 1
        with relaxed(options.relaxed):
            return predict(kernel, specs, shapes, {**point, **fixed}, hardware, options, control)

    return jax.jit(jax.vmap(one, in_axes=(None, 0, None, None)))


@functools.lru_cache(maxsize=128)
def _compiled_gradient(kernel: Kernel, types: tuple, options: Options, names: tuple[str, ...]):
    specs, fixed = _specs_of(types), dict(options.choices)

    def one(shapes, point, hardware, control):
        _TRACES["gradient"] += 1

        def objective(*sizes):
            with relaxed(options.relaxed):
                values = {**point, **dict(zip(names, sizes, strict=True)), **fixed}
                cost = predict(kernel, specs, shapes, values, hardware, options, control)
            over = jnp.float32(0.0)
            for space in ("Mat", "Left", "Right", "Vec"):
                limit = getattr(hardware.sizes, space.lower())
                over = over + jnp.where(cost.occupancy[space] > limit, cost.occupancy[space] / limit - 1.0, 0.0)
            return cost.time_us, over

        at = tuple(point[name] for name in names)
        # forward mode: a handful of tile sizes in, so a few tangents are cheaper than the machine in reverse
        value, push = jax.linearize(objective, *at)
        unit = [tuple(jnp.float32(row == column) for column in range(len(at))) for row in range(len(at))]
        slopes, over_slopes = zip(*(push(*tangent) for tangent in unit), strict=True)
        return (*value, slopes, over_slopes)

    # XLA's fusion takes minutes on the tangents of this graph and gains nothing there: compile without it
    return jax.jit(jax.vmap(one, in_axes=(None, 0, None, None)), compiler_options={"xla_disable_hlo_passes": "fusion"})


def _problem(specs: Mapping[str, Spec], hardware: Hardware):
    def number(value: Any):
        return jnp.asarray(value, jnp.float32)

    shapes = {name: tuple(np.float32(size) for size in spec.shape) for name, spec in specs.items()}
    control = {n: np.asarray(s.values, np.float32) for n, s in specs.items() if s.values is not None}
    return shapes, jax.tree_util.tree_map(np.float32, hardware.numbers()), control


def options_for(kernel: Kernel, options: Options, values: Mapping[str, Any]) -> Options:
    """``options`` with the fixed choices of a configuration."""
    chosen = tuple((name, values[name]) for name in kernel.choices if name in values)
    return dataclasses.replace(options, choices=chosen) if chosen else options


def evaluate(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    points: Mapping[str, Any],
    hardware: Hardware,
    options: Options = EXACT,
) -> Cost:
    """The cost of every candidate in ``points``.

    Args:
        kernel: a kernel.
        specs: every tensor's spec, from :meth:`Kernel.specs`.
        points: one array of equal length for each numeric parameter of the kernel.
        hardware: the chip.
        options: what is fixed when the reading is traced.

    Returns:
        A :class:`Cost` whose leaves are float32 NumPy arrays over the candidates.

    >>> import pyptox as px
    >>> kernel = px.kernels.matmul
    >>> specs = kernel.specs(px.spec((16, 512), "bf16"), px.spec((512, 1024), "bf16"))
    >>> points = {"m": [16, 16], "n": [128, 256], "k": [128, 128], "stages": [2, 2], "group": [4, 4]}
    >>> px.cost.evaluate(kernel, specs, points, px.hardware.a2a3()).blocks.tolist()
    [8.0, 4.0]
    """
    missing = [name for name in kernel.numeric if name not in points]
    if missing:
        raise KernelError(f"`points` lacks {', '.join(missing)}; `{kernel.name}` needs {', '.join(kernel.numeric)}")
    columns = {name: np.asarray(points[name], np.float32) for name in kernel.numeric}
    count = len(next(iter(columns.values())))
    function = _compiled(kernel, _types(specs), options)
    shapes, numbers, control = _problem(specs, hardware)
    # a control input multiplies the work of a candidate by its length
    chunk = (SMALL_CHUNK if count <= SMALL_CHUNK else CHUNK) >> (
        max(len(array) for array in control.values()).bit_length() if control else 0
    )
    pieces = []
    for start in range(0, count, chunk):
        part = {name: _padded(column[start : start + chunk], chunk) for name, column in columns.items()}
        pieces.append(function(shapes, part, numbers, control))
    sizes = [min(chunk, count - start) for start in range(0, count, chunk)]

    def join(*leaves):
        return np.concatenate(
            [np.broadcast_to(np.asarray(leaf), (chunk,))[:size] for leaf, size in zip(leaves, sizes, strict=True)]
        )

    return jax.tree_util.tree_map(join, *pieces)


def _padded(column: np.ndarray, size: int) -> np.ndarray:
    return column if len(column) == size else np.pad(column, (0, size - len(column)), mode="edge")


def value_and_grad(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    points: Mapping[str, Any],
    hardware: Hardware,
    names: tuple[str, ...],
    options: Options = RELAXED,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Time in µs of every candidate and its derivative by each parameter in ``names`` (µs an element).

    Under ``relaxed`` options the values are exact and roundings have the slope of the identity.
    """
    value, _, slopes, _ = penalised(kernel, specs, points, hardware, names, options)
    return value, slopes


def penalised(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    points: Mapping[str, Any],
    hardware: Hardware,
    names: tuple[str, ...],
    options: Options = RELAXED,
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """As :func:`value_and_grad`, with the overflow of hard spaces (as shares of their limits) and its slopes.

    Returns:
        ``(time_us, overflow, time slopes, overflow slopes)``.
    """
    columns = {name: np.asarray(points[name], np.float32) for name in kernel.numeric}
    count = len(next(iter(columns.values())))
    function = _compiled_gradient(kernel, _types(specs), options, names)
    shapes, numbers, control = _problem(specs, hardware)
    chunk = SMALL_GRADIENT_CHUNK if count <= SMALL_GRADIENT_CHUNK else GRADIENT_CHUNK
    pieces = []
    for start in range(0, count, chunk):
        part = {n: _padded(c[start : start + chunk], chunk) for n, c in columns.items()}
        size = min(chunk, count - start)
        piece = function(shapes, part, numbers, control)
        pieces.append(jax.tree_util.tree_map(lambda leaf, size=size: np.asarray(leaf)[:size], piece))
    value, over, slopes, over_slopes = jax.tree_util.tree_map(lambda *leaves: np.concatenate(leaves), *pieces)
    named = dict(zip(names, slopes, strict=True))
    return value, over, named, dict(zip(names, over_slopes, strict=True))
