"""Exact narrowing under every rounding mode, from float64, float32 and integers; on bits, so nothing rounds twice.

A value is ``significand 2^lsb``. The target's grid at that value has the quantum ``2^q``: for a float
``q = max(exponent, smallest exponent) - mantissa bits``, which covers subnormals; for an integer ``q = 0``. The
``q - lsb`` lowest bits of the significand are discarded, and they decide by the mode whether the rest goes up by one.
No step is in floating point, so no subnormal is flushed and no compiler may keep excess precision.
"""

import enum
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_context

from ._checks import unmasked
from ._dtypes import DType, format_of
from ._errors import PyptoxError
from ._noise import Noise


class Rounding(enum.StrEnum):
    """How a value between two neighbours of a format is rounded.

    ``nearest_*`` differ in ties only. Two modes are called odd, and are not the same: ``to_odd`` (von Neumann; what the
    toolchain's headers describe) takes the neighbour whose last bit is 1, and makes a second rounding right;
    ``nearest_odd`` takes the nearest one, and in a tie the one whose last bit is 1 (what its CPU simulator does).
    ``stochastic`` goes up with the probability of the discarded fraction.

    The toolchain's names are aliases: ``rint``, ``round``, ``trunc``, ``floor``, ``ceil`` and ``odd`` (for ``to_odd``).

    >>> Rounding("rint"), Rounding("odd")
    (<Rounding.NEAREST_EVEN: 'nearest_even'>, <Rounding.TO_ODD: 'to_odd'>)
    """

    NEAREST_EVEN = "nearest_even"
    NEAREST_AWAY = "nearest_away"
    TOWARD_ZERO = "toward_zero"
    DOWN = "down"
    UP = "up"
    TO_ODD = "to_odd"
    NEAREST_ODD = "nearest_odd"
    STOCHASTIC = "stochastic"

    @classmethod
    def _missing_(cls, value: object) -> "Rounding":
        if isinstance(value, str) and value in TOOLCHAIN:
            return TOOLCHAIN[value]
        known = ", ".join([*cls, *TOOLCHAIN])
        raise ValueError(f"`rounding` must be one of {known}; got {value!r}")


TOOLCHAIN = {
    "rint": Rounding.NEAREST_EVEN,
    "round": Rounding.NEAREST_AWAY,
    "floor": Rounding.DOWN,
    "ceil": Rounding.UP,
    "trunc": Rounding.TOWARD_ZERO,
    "odd": Rounding.TO_ODD,
}
"""The toolchain's names of the modes."""


class _Parts(NamedTuple):
    """Magnitudes ``significand 2^lsb``, whose leading bit is at most at ``exponent``."""

    negative: jax.Array
    significand: jax.Array  # unsigned, as wide as the source
    lsb: jax.Array | int
    exponent: jax.Array
    special: tuple[jax.Array, jax.Array] | None  # where infinite, and where NaN; None in an integer
    width: int  # bits of a significand at most


def _unsigned(bits: int) -> np.dtype:
    return np.dtype(f"uint{bits}")


def _parts(x: jax.Array) -> _Parts:
    bits = x.dtype.itemsize * 8
    if jnp.issubdtype(x.dtype, jnp.integer):
        magnitude = jax.lax.bitcast_convert_type(jnp.abs(x), jnp.uint32)
        exponent = jnp.int32(31) - jax.lax.clz(magnitude).astype(jnp.int32)
        return _Parts(x < 0, magnitude, 0, exponent, None, 32)
    info, kind = jnp.finfo(x.dtype), _unsigned(bits)
    word = jax.lax.bitcast_convert_type(x, kind)
    magnitude = word & kind.type((1 << (bits - 1)) - 1)
    field, fraction = magnitude >> kind.type(info.nmant), magnitude & kind.type((1 << info.nmant) - 1)
    field = field.astype(jnp.int32)
    significand = fraction | ((field > 0).astype(kind) << kind.type(info.nmant))
    exponent = jnp.maximum(field, 1) + (info.minexp - 1)
    infinity = kind.type(((1 << info.nexp) - 1) << info.nmant)
    return _Parts(
        word != magnitude,
        significand,
        exponent - info.nmant,
        exponent,
        (magnitude == infinity, magnitude > infinity),
        info.nmant + 1,
    )


def _goes_up(
    mode: Rounding, negative: jax.Array, kept: jax.Array, dropped: jax.Array, whole: jax.Array, key: Any
) -> jax.Array:
    """Whether ``kept + dropped / whole`` becomes ``kept + 1``; ``whole`` is a power of two."""
    one = kept.dtype.type(1)
    odd, inexact, twice = (kept & one) == one, dropped > 0, dropped << one
    if mode is Rounding.NEAREST_EVEN:
        return (twice > whole) | ((twice == whole) & odd)
    if mode is Rounding.NEAREST_AWAY:
        return (twice >= whole) & inexact
    if mode is Rounding.NEAREST_ODD:
        return (twice > whole) | ((twice == whole) & ~odd)
    if mode is Rounding.DOWN:
        return negative & inexact
    if mode is Rounding.UP:
        return ~negative & inexact
    if mode is Rounding.TO_ODD:
        return inexact & ~odd
    if mode is Rounding.STOCHASTIC:
        return dropped > (key.bits(kept.shape, kept.dtype) & (whole - one))
    return jnp.zeros(kept.shape, bool)


def _round(parts: _Parts, quantum: Any, mode: Rounding, key: Any, widens: bool) -> jax.Array:
    """The magnitude in units of ``2^quantum``; where ``widens``, the quantum may lie below the lowest bit."""
    kind, bits = parts.significand.dtype, parts.significand.dtype.itemsize * 8
    shift = jnp.asarray(quantum - parts.lsb, jnp.int32)
    significand = parts.significand
    if mode is Rounding.STOCHASTIC:  # the probability has as many bits as the word
        most = bits - 1
        significand = significand >> jnp.clip(shift - most, 0, most).astype(kind)
    else:  # beyond this everything is dropped, and is less than half
        most = min(parts.width + 1, bits - 1)
    down = jnp.clip(shift, 0, most).astype(kind)
    whole = kind.type(1) << down
    kept, dropped = significand >> down, significand & (whole - kind.type(1))
    kept = kept + _goes_up(mode, parts.negative, kept, dropped, whole, key).astype(kind)
    if not widens:
        return kept
    up = jnp.clip(-shift, 0, bits - 1).astype(kind)
    return jnp.where(shift < 0, jnp.where(-shift < bits, significand << up, kind.type(0)), kept)


def _to_float(parts: _Parts, dtype: np.dtype, mode: Rounding, saturate: bool, key: Any, widens: bool) -> jax.Array:
    info, word, wide = jnp.finfo(dtype), _unsigned(dtype.itemsize * 8), np.uint32
    top = word.type(word.type(1) << word.type(word.itemsize * 8 - 1))
    largest, infinity, nan = (
        wide(np.asarray(value, np.float32).astype(dtype).view(word) & ~top) for value in (info.max, np.inf, np.nan)
    )
    exponent = jnp.clip(parts.exponent, info.minexp, info.maxexp + 1)
    magnitude = _round(parts, exponent - info.nmant, mode, key, widens).astype(wide)
    # the significand's leading bit, where there is one, adds the last unit of the exponent field
    magnitude = magnitude + ((exponent - info.minexp).astype(wide) << wide(info.nmant))
    if widens:
        magnitude = jnp.where(parts.significand == 0, wide(0), magnitude)
    limit = largest if saturate else infinity
    beyond = (magnitude > largest) | (parts.exponent > info.maxexp)
    magnitude = jnp.where(beyond, jnp.where(_overflows(mode, parts.negative), limit, largest), magnitude)
    if parts.special is not None:
        infinite, undefined = parts.special
        magnitude = jnp.where(undefined, nan, jnp.where(infinite, limit, magnitude))
    word_of = magnitude.astype(word)
    return jax.lax.bitcast_convert_type(jnp.where(parts.negative, word_of | top, word_of), dtype)


def _overflows(mode: Rounding, negative: jax.Array) -> jax.Array:
    """Whether what lies beyond the largest value rounds to infinity."""
    if mode in (Rounding.TOWARD_ZERO, Rounding.TO_ODD):
        return jnp.zeros(negative.shape, bool)
    if mode in (Rounding.DOWN, Rounding.UP):
        return negative if mode is Rounding.DOWN else ~negative
    return jnp.ones(negative.shape, bool)


def _to_integer(parts: _Parts, dtype: np.dtype, mode: Rounding, saturate: bool, key: Any) -> jax.Array:
    magnitude, bits = _round(parts, 0, mode, key, True).astype(jnp.uint32), dtype.itemsize * 8
    if saturate:
        limit = jnp.uint32((1 << (bits - 1)) - 1) + parts.negative.astype(jnp.uint32)
        magnitude = jnp.where((magnitude > limit) | (parts.exponent >= bits - 1), limit, magnitude)
    if parts.special is not None:
        infinite, undefined = parts.special
        magnitude = jnp.where(undefined if saturate else undefined | infinite, jnp.uint32(0), magnitude)
    low = magnitude.astype(_unsigned(bits))
    return jax.lax.bitcast_convert_type(jnp.where(parts.negative, (~low) + low.dtype.type(1), low), dtype)


@functools.partial(jax.jit, static_argnames=("dtype", "mode", "saturate"))
def _narrowed(x: jax.Array, key: Any, dtype: np.dtype, mode: Rounding, saturate: bool) -> jax.Array:
    integer = jnp.issubdtype(x.dtype, jnp.integer)
    if integer:
        x = x.astype(jnp.int32)
    elif x.dtype.itemsize < 4:
        x = x.astype(jnp.float32)  # exact
    if x.dtype == dtype and not saturate:
        return x
    parts = _parts(x)
    if jnp.issubdtype(dtype, jnp.integer):
        return _to_integer(parts, dtype, mode, saturate, key)
    return _to_float(parts, dtype, mode, saturate, key, widens=integer)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _cast(x: jax.Array, key: Any, dtype: np.dtype, mode: Rounding, saturate: bool) -> jax.Array:
    return _narrowed(x, key, dtype, mode, saturate)


@_cast.defjvp
def _cast_jvp(dtype: np.dtype, mode: Rounding, saturate: bool, primals: tuple, tangents: tuple):
    out = _cast(*primals, dtype, mode, saturate)
    if not jnp.issubdtype(dtype, jnp.floating):
        return out, np.zeros(out.shape, jax.dtypes.float0)
    return out, tangents[0].astype(dtype)


def _prepare(
    x: Any, dtype: Any, rounding: Any, saturate: bool | None, key: Any
) -> tuple[Any, DType, Rounding, bool, Noise | None]:
    kind, mode = format_of(dtype), Rounding(rounding)
    if (mode is Rounding.STOCHASTIC) != (key is not None):
        if key is None:
            raise PyptoxError("`key` needs jax.random.key(seed) for `rounding`='stochastic'; got None")
        raise PyptoxError(
            f"`key` is for stochastic rounding only; got one with `rounding`={mode.value!r}. Leave it out"
        )
    if not isinstance(saturate, bool | np.bool_ | None):
        raise PyptoxError(f"`saturate` must be True, False or None; got {saturate!r}")
    unmasked("x", x)
    noise = None if key is None else Noise.of(key)
    x = x if isinstance(x, jax.Array) else np.asarray(x)
    if x.dtype not in (np.int32, np.int8) and not (jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize <= 8):
        raise PyptoxError(f"`x` must hold floating-point numbers of 64 bits at most, int32 or int8; got {x.dtype}")
    if saturate is None:
        saturate = not kind.floating or kind.name == "fp8_e4m3fn"
    return x, kind, mode, bool(saturate), noise


def cast(
    x: Any,
    dtype: Any,
    rounding: Rounding | str = Rounding.NEAREST_EVEN,
    saturate: bool | None = None,
    *,
    key: Any = None,
) -> jax.Array:
    """``x`` in ``dtype``, rounded once. Jittable, vmappable; a NumPy float64 array is exact with x64 off, too.

    Args:
        x: floats of any format, int32 or int8; any shape.
        dtype: ``bf16``, ``fp16``, ``fp32``, ``fp8_e4m3fn``, ``fp8_e5m2``, ``int8`` or ``int32``, or a JAX dtype.
            A format that holds all values of ``x`` is converted to as it is.
        rounding: a :class:`Rounding` or its name, the toolchain's names included.
        saturate: beyond the largest value, infinities included, take the largest value. Without it a float becomes
            infinite where the mode says so (NaN in e4m3fn, which has no infinity), and an integer wraps modulo 2^bits.
            By default integers and e4m3fn saturate, as the hardware does. NaN stays NaN, and is 0 as an integer;
            so are infinities that wrap. Beyond the largest value ``toward_zero`` and ``to_odd`` take the largest one,
            never an infinity, though its last bit may be even (448 in e4m3fn is): its neighbour, whose bit is odd, is
            no value. A second rounding after ``to_odd`` then starts from the largest value, not from what was there.
        key: of ``jax.random``, for stochastic rounding; the same key and shape round the same way.

    The derivative is that of the identity, in ``dtype``; nothing for an integer. :func:`round_to` keeps it wide.

    >>> [float(cast(1 + 2**-8 + 2**-40, "bf16", mode)) for mode in ("rint", "trunc")]
    [1.0078125, 1.0]
    """
    x, kind, mode, saturate, noise = _prepare(x, dtype, rounding, saturate, key)
    if x.dtype == kind.jax and not (saturate and kind.floating):
        return jnp.asarray(x)
    if isinstance(x, np.ndarray) and x.size > _PIECE and not isinstance(noise and noise.seeds, Tracer):
        with eval_context(), jax.enable_x64(x.dtype == np.float64):
            return _in_pieces(x, noise, kind.jax, mode, saturate)
    if x.dtype == np.float64 and not isinstance(x, Tracer) and not jax.config.read("jax_enable_x64"):
        with jax.enable_x64(True):
            return _narrowed(x, noise, kind.jax, mode, saturate)
    return _cast(jnp.asarray(x), noise, kind.jax, mode, saturate)


_PIECE = 1 << 18
"""Elements of a large NumPy array that are handed over at a time: their memory is used again, not asked for anew."""


def _in_pieces(x: np.ndarray, noise: Noise | None, dtype: np.dtype, mode: Rounding, saturate: bool) -> jax.Array:
    flat, out = x.reshape(-1), _aligned(x.size, dtype)
    seeds = None if noise is None else np.asarray(noise.seeds)
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        if len(piece) < _PIECE:  # no other shape to compile for
            piece = np.concatenate([piece, np.zeros(_PIECE - len(piece), x.dtype)])
        here = None if seeds is None else Noise(seeds, np.uint32(start % (1 << 32)))
        done = np.asarray(_narrowed(piece, here, dtype, mode, saturate))
        out[start : start + _PIECE] = done[: flat.size - start]
    return jax.device_put(out.reshape(x.shape), may_alias=True)


def _aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """Memory that JAX takes over on a CPU without a copy: it begins at a multiple of 64 bytes."""
    raw = np.empty(size * dtype.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * dtype.itemsize].view(dtype)


GRADIENTS = ("straight_through", "clipped", "zero")
"""The derivatives that :func:`round_to` offers."""


def round_to(
    x: Any,
    dtype: Any,
    rounding: Rounding | str = Rounding.NEAREST_EVEN,
    saturate: bool | None = None,
    *,
    gradient: str = "straight_through",
    key: Any = None,
) -> jax.Array:
    """The values of :func:`cast` in the type of ``x``, with a derivative in that type, too.

    Args:
        x: float32 or float64; any shape. A NumPy float64 array is rounded once with x64 off, too; what is returned is
            float32 then, which holds every value of ``dtype`` but integers beyond 2^24.
        dtype, rounding, saturate, key: as in :func:`cast`.
        gradient: ``straight_through`` (the identity's), ``clipped`` (that inside the range of ``dtype``, zero beyond),
            or ``zero`` (the true one).

    >>> import jax
    >>> jax.grad(lambda x: round_to(3 * x, "int8"))(0.9), round_to(2.7, "int8").item()
    (Array(3., dtype=float32), 3.0)
    """
    x, kind, mode, saturate, noise = _prepare(x, dtype, rounding, saturate, key)
    if x.dtype not in (np.float32, np.float64):
        raise PyptoxError(f"`x` of round_to must be float32 or float64; got {x.dtype}. Try cast")
    if gradient not in GRADIENTS:
        raise PyptoxError(f"`gradient` must be one of {', '.join(GRADIENTS)}; got {gradient!r}")
    if x.dtype == np.float64 and not isinstance(x, Tracer) and not jax.config.read("jax_enable_x64"):
        return cast(x, kind.jax, mode, saturate, key=key).astype(jnp.float32)
    x = jnp.asarray(x)
    return _round_to(x, noise, kind.jax, mode, saturate, gradient)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4, 5))
def _round_to(x: jax.Array, key: Any, dtype: np.dtype, mode: Rounding, saturate: bool, gradient: str) -> jax.Array:
    return _narrowed(x, key, dtype, mode, saturate).astype(x.dtype)


@_round_to.defjvp
def _round_to_jvp(dtype: np.dtype, mode: Rounding, saturate: bool, gradient: str, primals: tuple, tangents: tuple):
    x, tangent = primals[0], tangents[0]
    out = _round_to(*primals, dtype, mode, saturate, gradient)
    if gradient == "zero":
        return out, jnp.zeros_like(tangent)
    if gradient == "clipped":
        info = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
        inside = (x >= float(info.min)) & (x <= float(info.max))
        tangent = jnp.where(inside, tangent, jnp.zeros((), x.dtype))
    return out, tangent
