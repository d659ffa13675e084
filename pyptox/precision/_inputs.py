"""Seeded inputs of named distributions: what random normal numbers hide, others show."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import instance, integer
from .._dtypes import DType, format_of
from .._errors import PyptoxError
from .._rounding import cast
from .._safetensors import read
from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._lookups import places_of

Draw = Callable[[np.random.Generator, tuple[int, ...], DType], np.ndarray]


def _normal(generator: np.random.Generator, shape: tuple[int, ...], kind: DType) -> np.ndarray:
    return generator.standard_normal(shape, np.float32)


def _outliers(generator: np.random.Generator, shape: tuple[int, ...], kind: DType) -> np.ndarray:
    channels = shape[-1] if shape else 1
    chosen = generator.choice(channels, max(channels // 100, 1), replace=False)
    scale = np.ones(channels, np.float32)
    scale[chosen] = generator.uniform(20.0, 100.0, len(chosen))
    return generator.standard_normal(shape, np.float32) * scale


def _lognormal(generator: np.random.Generator, shape: tuple[int, ...], kind: DType) -> np.ndarray:
    sign = np.where(generator.random(shape) < 0.5, np.float32(-1), np.float32(1))
    return sign * np.exp(2.0 * generator.standard_normal(shape, np.float32))


def _ties(generator: np.random.Generator, shape: tuple[int, ...], kind: DType) -> np.ndarray:
    if kind.name == "fp32":  # halfway between neighbours of bf16
        odd = 2.0 * generator.integers(0, 128, shape) + 257.0
        return (odd * np.exp2(generator.integers(-12, -4, shape))).astype(np.float32)
    return generator.integers(-8, 9, shape).astype(np.float32)  # sums are whole, and many lie halfway


def _near_overflow(generator: np.random.Generator, shape: tuple[int, ...], kind: DType) -> np.ndarray:
    sign = np.where(generator.random(shape) < 0.5, np.float32(-1), np.float32(1))
    return sign * (generator.uniform(0.5, 1.0, shape) * _finfo(kind).max).astype(np.float32)


def _denormal(generator: np.random.Generator, shape: tuple[int, ...], kind: DType) -> np.ndarray:
    return (generator.uniform(-1.0, 1.0, shape) * _finfo(kind).smallest_normal).astype(np.float32)


def _all_equal(generator: np.random.Generator, shape: tuple[int, ...], kind: DType) -> np.ndarray:
    return np.full(shape, generator.standard_normal(dtype=np.float32), np.float32)


class _FInfo:
    """The two numbers of a format as Python floats."""

    def __init__(self, kind: DType):
        import ml_dtypes

        info = ml_dtypes.finfo(kind.jax)
        self.max, self.smallest_normal = float(info.max), float(info.smallest_normal)


def _finfo(kind: DType) -> _FInfo:
    return _FInfo(kind)


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": _normal,
    "outliers": _outliers,
    "lognormal": _lognormal,
    "ties": _ties,
    "near_overflow": _near_overflow,
    "denormal": _denormal,
    "all_equal": _all_equal,
}
"""How floating-point inputs are drawn, by name:

``normal``; ``outliers``, one channel (column) in a hundred 20 to 100 times as large; ``lognormal`` of either sign,
sigma 2; ``ties``, values whose sums (of float32: themselves) lie halfway between neighbours of a 16-bit type;
``near_overflow``, the upper half of the type's range; ``denormal``, below its smallest normal number; ``all_equal``.
"""

_INTEGERS: dict[str, tuple[int, ...]] = {"near_overflow": (-128, -127, 126, 127), "denormal": (-1, 0, 1)}


def draw(distribution: str, shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """An array of a named distribution, the same for the same arguments on every machine.

    Args:
        distribution: one of :data:`DISTRIBUTIONS`, or ``FILE.safetensors:NAME``, a slice of that tensor whose corner
            the seed picks.
        shape: of the array.
        dtype: ``bf16``, ``fp16``, ``fp32``, ``fp8_e4m3fn``, ``fp8_e5m2``, ``int8`` or ``int32``; integers are within
            -128 to 127.
        seed: of the draw.

    >>> draw("all_equal", (2,), "fp32", seed=1).tolist()
    [1.7291035652160645, 1.7291035652160645]
    """
    try:
        sizes = tuple(integer("shape", size, 0) for size in shape)
    except TypeError:
        raise PyptoxError(f"`shape` must be sizes; got {shape!r} ({type(shape).__name__}). Try (16, 64)") from None
    return _draw(_generator(seed), distribution, sizes, format_of(dtype))


def drawable(distribution: str | Mapping[str, str], seed: int) -> None:
    """Refuse a distribution or a seed that no input could be drawn by, whatever its shape."""
    _generator(seed)
    for each in distribution.values() if isinstance(distribution, Mapping) else (distribution,):
        if isinstance(each, str) and ".safetensors:" in each:
            _tensor(each)
        else:
            _known(each)


def _known(distribution: Any) -> None:
    if not isinstance(distribution, str) or distribution not in DISTRIBUTIONS:
        known = ", ".join(DISTRIBUTIONS)
        raise PyptoxError(f"`distribution` must be one of {known}, or FILE.safetensors:NAME; got {distribution!r}")


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(integer("seed", seed, 0))


def _draw(generator: np.random.Generator, distribution: str, shape: tuple[int, ...], kind: DType) -> np.ndarray:
    if isinstance(distribution, str) and ".safetensors:" in distribution:
        return _narrow(_slice(generator, distribution, shape), kind)
    _known(distribution)
    if kind.floating:
        return _narrow(DISTRIBUTIONS[distribution](generator, shape, kind), kind)
    if distribution in _INTEGERS:
        return generator.choice(np.array(_INTEGERS[distribution], np.int32), shape).astype(kind.jax)
    if distribution == "all_equal":
        return np.full(shape, generator.integers(-128, 128), kind.jax)
    return generator.integers(-128, 128, shape, dtype=np.int32).astype(kind.jax)


def _narrow(values: np.ndarray, kind: DType) -> np.ndarray:
    return np.asarray(cast(values, kind.name)) if kind.floating else np.asarray(cast(values, kind.name, saturate=True))


def _tensor(place: str) -> np.ndarray:
    """The tensor ``FILE.safetensors:NAME``."""
    file, _, name = place.rpartition(":")
    if not Path(file).is_file():
        raise PyptoxError(f"`distribution` must name a safetensors file that exists; got {file!r} in {place!r}")
    tensors = read(Path(file))
    if name not in tensors:
        raise PyptoxError(f"`distribution` names {name!r}; {file} has {', '.join(tensors) or 'no tensor'}")
    return tensors[name]


def _slice(generator: np.random.Generator, place: str, shape: tuple[int, ...]) -> np.ndarray:
    """A part of a tensor in a file: along its own axes where it has as many, else of its elements in order."""
    tensor = _tensor(place)
    if tensor.ndim != len(shape) or any(have < want for have, want in zip(tensor.shape, shape, strict=True)):
        tensor = tensor.reshape(-1)
        if tensor.size < math.prod(shape):
            raise PyptoxError(
                f"`distribution` {place!r} must hold {math.prod(shape):,} elements for {shape}; it has {tensor.size:,}"
            )
        start = int(generator.integers(tensor.size - math.prod(shape) + 1))
        part = tensor[start : start + math.prod(shape)].reshape(shape)
    else:
        corner = [int(generator.integers(have - want + 1)) for have, want in zip(tensor.shape, shape, strict=True)]
        part = tensor[tuple(slice(at, at + want) for at, want in zip(corner, shape, strict=True))]
    if part.dtype == np.float64 or part.dtype == np.int32:
        return np.array(part)
    return np.asarray(part).astype(np.float32)


def sample_inputs(
    kernel: Kernel, specs: Mapping[str, Spec], seed: int = 0, distribution: str | Mapping[str, str] = "normal"
) -> list[Any]:
    """Seeded inputs for a kernel; control inputs as they are, and places in a tensor (pages, rows, slots) in range.

    Args:
        kernel: a kernel.
        specs: every tensor's spec.
        seed: of the draw.
        distribution: as in :func:`draw`, for all inputs, or by name; ``normal`` where left out.
    """
    instance("kernel", kernel, Kernel, "a @kernel")
    integers = any(specs[name].dtype == "int32" and specs[name].values is None for name in kernel.inputs)
    _generator(seed)  # refuses what is no seed
    places = places_of(kernel, specs, np.random.default_rng(seed + 1)) if integers else {}
    return draw_all(specs, kernel.inputs, seed, distribution, places, kernel.name)


def draw_all(
    specs: Mapping[str, Spec],
    names: Sequence[str],
    seed: int,
    distribution: str | Mapping[str, str],
    places: Mapping[str, np.ndarray],
    owner: str,
) -> list[Any]:
    """What :func:`sample_inputs` gives, with ``places`` where no distribution is asked for by name."""
    chosen = distribution if isinstance(distribution, Mapping) else {}
    by_name = distribution if isinstance(distribution, Mapping) else dict.fromkeys(names, distribution)
    unknown = [name for name in by_name if name not in names]
    if unknown:
        raise PyptoxError(f"`distribution` names {', '.join(unknown)}; the inputs of `{owner}` are {', '.join(names)}")
    generator = _generator(seed)
    return [
        specs[name]
        if specs[name].values is not None
        else places[name]
        if name in places and name not in chosen
        else _draw(generator, by_name.get(name, "normal"), specs[name].shape, format_of(specs[name].dtype))
        for name in names
    ]
