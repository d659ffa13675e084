"""The cost of many candidates at once: jitted, vmapped, chunked.

Shapes, configurations and the chip's constants are all arguments, so one compilation serves every problem of a
kernel. Candidates go through in chunks of one size, large enough to use both cores and small enough to stay in
cache; the last chunk is padded, so nothing is traced twice.
"""

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

GRADIENT_CHUNK = 16384
"""The same for value and gradient, whose working set is larger."""

_TRACES: dict[str, int] = {"evaluate": 0, "gradient": 0}


def trace_count(name: str) -> int:
    """How often ``"evaluate"`` or ``"gradient"`` has been traced in this process; tests hold it down."""
    return _TRACES[name]


def _types(specs: Mapping[str, Spec]) -> tuple:
    return tuple((n, s.dtype, len(s.shape), len(s.values) if s.values is not None else 0) for n, s in specs.items())


def _specs_of(types: tuple) -> dict[str, Spec]:
    return {n: Spec((1,) * rank if not g else (g,), d, (1,) * g if g else None) for n, d, rank, g in types}


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

        def objective(sizes):
            with relaxed(options.relaxed):
                values = {**point, **dict(zip(names, sizes, strict=True)), **fixed}
                cost = predict(kernel, specs, shapes, values, hardware, options, control)
            over = jnp.float32(0.0)
            for space in ("Mat", "Left", "Right", "Vec"):
                limit = getattr(hardware.sizes, space.lower())
                over = over + jnp.where(cost.occupancy[space] > limit, cost.occupancy[space] / limit - 1.0, 0.0)
            return cost.time_us, over

        at = tuple(point[name] for name in names)
        basis = tuple(jnp.eye(len(names), dtype=jnp.float32)[n] for n in range(len(names)))
        # forward mode: a handful of tile sizes in, so a few tangents are cheaper than the machine in reverse
        (value, over), (slopes, over_slopes) = jax.vmap(
            lambda *tangent: jax.jvp(objective, (at,), (tangent,)), out_axes=((None, None), (0, 0))
        )(*basis)
        return value, over, slopes, over_slopes

    return jax.jit(jax.vmap(one, in_axes=(None, 0, None, None)))


def _problem(specs: Mapping[str, Spec], hardware: Hardware):
    def number(value: Any):
        return jnp.asarray(value, jnp.float32)

    shapes = {name: tuple(np.float32(size) for size in spec.shape) for name, spec in specs.items()}
    control = {n: np.asarray(s.values, np.float32) for n, s in specs.items() if s.values is not None}
    return shapes, jax.tree_util.tree_map(np.float32, hardware.numbers()), control


def options_for(kernel: Kernel, options: Options, values: Mapping[str, Any]) -> Options:
    """``options`` with the fixed choices of a configuration."""
    import dataclasses

    chosen = tuple((name, values[name]) for name in kernel.choices if name in values)
    return dataclasses.replace(options, choices=chosen) if chosen else options


def evaluate(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    points: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(),
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
    pieces = []
    for start in range(0, count, CHUNK):
        part = {name: _padded(column[start : start + CHUNK], CHUNK) for name, column in columns.items()}
        pieces.append(function(shapes, part, numbers, control))
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]

    def join(*leaves):
        return np.concatenate(
            [np.broadcast_to(np.asarray(leaf), (CHUNK,))[:size] for leaf, size in zip(leaves, sizes, strict=True)]
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
    options: Options = Options(relaxed=True),
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Time in µs of every candidate and its derivative by each parameter in ``names`` (µs an element).

    Under ``relaxed`` options the values are exact and roundings have the slope of the identity.
    """
    columns = {name: np.asarray(points[name], np.float32) for name in kernel.numeric}
    count = len(next(iter(columns.values())))
    function = _compiled_gradient(kernel, _types(specs), options, names)
    shapes, numbers, control = _problem(specs, hardware)
    values, slopes = [], []
    for start in range(0, count, GRADIENT_CHUNK):
        part = {n: _padded(c[start : start + GRADIENT_CHUNK], GRADIENT_CHUNK) for n, c in columns.items()}
        value, _, slope, _ = function(shapes, part, numbers, control)
        size = min(GRADIENT_CHUNK, count - start)
        values.append(np.asarray(value)[:size])
        slopes.append(np.asarray(slope)[:size])
    joined = np.concatenate(slopes)
    return np.concatenate(values), {name: joined[:, n] for n, name in enumerate(names)}
