"""The cost of many candidates at once: jitted, vmapped, chunked.

Shapes, configurations and the chip's constants are all arguments, so one compilation serves every problem of a
kernel. Candidates go through in chunks of one size, small enough to stay in cache; the last chunk is padded, so
nothing is traced twice (:mod:`._chunks`).
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
from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._chunks import Chunked, compile_chunked
from ._evaluate import predict
from ._fusion import bounded
from ._nest import Options, kind_of
from ._nest import options_for as options_for
from ._occupancy import HARD
from ._summary import Cost

CHUNK = 16384
"""Candidates in one call of the compiled function."""

GRADIENT_CHUNK = 8192
"""The same for a value and its slope in one direction, whose working set is larger."""

SMALL_CHUNK, SMALL_GRADIENT_CHUNK = 1024, 256
"""The same for batches of up to so many, as a search proposes them: a second trace, and a small part of the work."""

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


def _example(kernel: Kernel, types: tuple, chunk: int) -> tuple:
    """Arguments of the right structure: ``(columns, shapes, numbers, control)``."""
    return {name: np.ones(chunk, np.float32) for name in kernel.numeric}, *_problem(_specs_of(types), a2a3())


@functools.lru_cache(maxsize=128)
def _compiled(kernel: Kernel, types: tuple, options: Options, chunk: int) -> Chunked:
    specs, fixed = _specs_of(types), dict(options.choices)

    def one(point, shapes, hardware, control):
        _TRACES["evaluate"] += 1
        with relaxed(options.relaxed):
            return predict(kernel, specs, shapes, {**point, **fixed}, hardware, options, control)

    def many(*arguments):
        return bounded(jax.vmap(one, in_axes=(0, None, None, None)), *arguments)(*arguments)

    return compile_chunked(many, *_example(kernel, types, chunk))


@functools.lru_cache(maxsize=128)
def _compiled_gradient(kernel: Kernel, types: tuple, options: Options, names: tuple[str, ...], chunk: int) -> Chunked:
    specs, fixed = _specs_of(types), dict(options.choices)

    def one(point, shapes, hardware, control):
        _TRACES["gradient"] += 1
        with relaxed(options.relaxed):
            cost = predict(kernel, specs, shapes, {**point, **fixed}, hardware, options, control)
        over = jnp.float32(0.0)
        for space in HARD:
            used, limit = cost.occupancy[space.value], getattr(hardware.sizes, space.size_name)
            over = over + jnp.where(used > limit, used / limit - 1.0, 0.0)
        return cost.time_us, over

    def many(columns, *others):
        point = {name: columns[name] for name in kernel.numeric}
        objective = bounded(jax.vmap(one, in_axes=(0, None, None, None)), point, *others, differentiated=True)

        def along(*moving):
            return objective({**point, **dict(zip(names, moving, strict=True))}, *others)

        # one direction a row: kernels then walk plain vectors, and there are half as many to compile as with a
        # tangent for every name, which is worth more than computing the value once for all of them
        return jax.jvp(along, tuple(point[n] for n in names), tuple(columns[_direction(n)] for n in names))

    columns, *others = _example(kernel, types, chunk)
    return compile_chunked(many, columns | {_direction(n): np.ones(chunk, np.float32) for n in names}, *others)


def _direction(name: str) -> str:
    return f"along {name}"


def _problem(specs: Mapping[str, Spec], hardware: Hardware):
    shapes = {name: tuple(np.float32(size) for size in spec.shape) for name, spec in specs.items()}
    control = {n: np.asarray(s.values, np.float32) for n, s in specs.items() if s.values is not None}
    numbers = jax.tree_util.tree_map(np.float32, hardware.numbers())
    return jax.device_put((shapes, numbers, control))  # once for all chunks


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
    chunk = _chunk(specs, CHUNK if _count(columns) > SMALL_CHUNK else SMALL_CHUNK)
    function = _compiled(kernel, _types(specs), _with_lanes(kernel, specs, hardware, options), chunk)
    return function(columns, *_problem(specs, hardware))


def _with_lanes(kernel: Kernel, specs: Mapping[str, Spec], hardware: Hardware, options: Options) -> Options:
    """``options`` with room for the chip's cores, rounded up so that chips of one family share a trace."""
    cores = hardware.cores(kind_of(kernel, specs, options)) if options.cores is None else options.cores
    return dataclasses.replace(options, lanes=32 * -(-int(cores) // 32))


def _count(columns: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(columns.values())))


def _chunk(specs: Mapping[str, Spec], usual: int) -> int:
    """Candidates in a chunk: a control input multiplies the work of each by its length."""
    lengths = [len(spec.values) for spec in specs.values() if spec.values is not None]
    return max(usual >> max(lengths).bit_length(), 16) if lengths else usual


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
    if not names:
        raise KernelError(f"`names` must hold a parameter of `{kernel.name}` to differentiate by; got none")
    columns = {name: np.tile(np.asarray(points[name], np.float32), len(names)) for name in kernel.numeric}
    rows = _count(columns)
    count = rows // len(names)
    unit = np.eye(len(names), dtype=np.float32).repeat(count, axis=1)
    directions = {_direction(name): row for name, row in zip(names, unit, strict=True)}
    chunk = _chunk(specs, GRADIENT_CHUNK if rows > SMALL_GRADIENT_CHUNK else SMALL_GRADIENT_CHUNK)
    options = _with_lanes(kernel, specs, hardware, options)
    function = _compiled_gradient(kernel, _types(specs), options, names, chunk)
    (value, over), slopes = function(columns | directions, *_problem(specs, hardware))
    time_slopes, over_slopes = (dict(zip(names, part.reshape(-1, count), strict=True)) for part in slopes)
    return value[:count], over[:count], time_slopes, over_slopes
