"""Quantisers: scale, round once, saturate; and back."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from .._checks import integer, unmasked
from .._dtypes import format_of
from .._errors import PyptoxError
from .._rounding import Rounding, cast
from ..lang._apart import jitted_apart, quotient

_quotient = jitted_apart(quotient)
"""Float32 division as NumPy has it: one scale of many elements is divided by, not multiplied by its reciprocal."""

_TINY = float(jnp.finfo(jnp.float32).tiny)
"""The least normal number: what is below is flushed to zero."""

GRANULARITIES = ("tensor", "channel", "token", "group")
"""What shares a scale: everything, a column (all axes but the last are reduced), a row, or a part of a row."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["values", "scale", "zero"], meta_fields=["group"])
@dataclass(frozen=True)
class Quantized:
    """``values`` with ``x = (values - zero) scale``.

    ``scale`` and ``zero`` (None when symmetric) broadcast against ``values``; with a ``group`` they do so after the
    last axis of ``values`` is split into ``(-1, group)``.
    """

    values: jax.Array
    scale: jax.Array
    zero: jax.Array | None = None
    group: int | None = None

    def dequantize(self) -> jax.Array:
        """``x`` in float32, of the shape of ``values``."""
        wide = self.values.astype(jnp.float32)
        if self.group is not None:
            wide = wide.reshape(*wide.shape[:-1], -1, self.group)
        if self.zero is not None:
            wide = wide - self.zero
        most = jnp.finfo(jnp.float32).max  # a value that rounded up may stand for more than the largest number
        return jnp.clip(wide * self.scale, -most, most).reshape(self.values.shape)


def quantize(
    x: ArrayLike,
    dtype: str = "int8",
    *,
    per: str = "token",
    group: int | None = None,
    symmetric: bool = True,
    floor: float = 1e-4,
    scale: jax.Array | None = None,
    zero: jax.Array | None = None,
    rounding: Rounding | str = Rounding.NEAREST_EVEN,
    key: Any = None,
) -> Quantized:
    """``values = round(x / scale) + zero`` in ``dtype``, saturated; float32 arithmetic, as the library's kernels have.

    Symmetric: ``scale = max(amax, floor) / largest``. Asymmetric: ``scale = max(max(x, 0) - min(x, 0), floor) / (high -
    low)`` and ``zero = round(low - min(x, 0) / scale)``, so that zero is a value.

    Args:
        x: ``(..., rows, columns)``; a token is a row, a channel a column. Finite, or refused; while it is being traced
            nothing can be refused, and what shares a dynamic scale with a NaN or an infinity dequantises to NaN.
        dtype: ``int8``, ``fp8_e4m3fn`` or ``fp8_e5m2``; asymmetric needs an integer.
        per: one of :data:`GRANULARITIES`.
        group: elements of a row that share a scale; divides its length.
        floor: the least amax (or range), so that zeros have a scale; above 0.
        scale, zero: a static scale, above 0, and whole numbers within ``dtype``, broadcastable as :class:`Quantized`
            says; from the data where left out.
        rounding, key: as in :func:`cast`.

    >>> q = quantize(jnp.asarray([[1.0, -254.0], [0.0, 0.0]]))
    >>> q.values.tolist(), q.scale.tolist()[0]
    ([[0, -127], [0, 0]], [2.0])
    """
    kind = format_of(dtype)
    if kind.name not in ("int8", "fp8_e4m3fn", "fp8_e5m2"):
        raise PyptoxError(f"`dtype` of quantize must be int8, fp8_e4m3fn or fp8_e5m2; got {dtype!r}")
    if per not in GRANULARITIES:
        raise PyptoxError(f"`per` must be one of {', '.join(GRANULARITIES)}; got {per!r}")
    if not symmetric and kind.floating:
        raise PyptoxError(f"`symmetric` must be True for {kind.name}: only an integer has a zero point")
    if zero is not None and (symmetric or scale is None):
        raise PyptoxError("`zero` goes with `symmetric`=False and a static `scale`")
    if not symmetric and scale is not None and zero is None:
        raise PyptoxError("a static `scale` with `symmetric`=False needs its `zero`")
    if (per == "group") != (group is not None):
        raise PyptoxError(f"`group` goes with `per`='group'; got group {group} and per {per!r}")
    x = _numbers("x", x)
    if x.ndim == 0 or not x.size:
        raise PyptoxError(f"`x` must have a last axis and hold at least one element; got shape {x.shape}")
    if group is not None and x.shape[-1] % integer("group", group, 1):
        raise PyptoxError(f"`x` must have a last axis that `group` divides; got shape {x.shape} and group {group}")
    if not isinstance(x, Tracer) and not bool(jnp.isfinite(x).all()):
        places = jnp.argwhere(~jnp.isfinite(x))
        raise PyptoxError(
            f"`x` must be finite; {len(places):,} elements are not, the first at {tuple(map(int, places[0]))}. Mend "
            "them first: an integer would hide them"
        )
    shape, wide = x.shape, x.astype(jnp.float32)
    if group is not None:
        wide = wide.reshape(*shape[:-1], -1, group)
    info = jnp.finfo(kind.jax) if kind.floating else jnp.iinfo(kind.jax)
    low, high = float(info.min), float(info.max)
    least, width = _numbers("floor", floor).astype(jnp.float32), high if symmetric else high - low
    if least.ndim or not _all(jnp.isfinite(least) & (least >= _TINY * width)):
        raise PyptoxError(f"`floor` must be a number of at least {_TINY * width:.2g}, or scales vanish; got {floor!r}")
    if scale is None:
        scale, zero = _scale(wide, per, symmetric, least, low, high)
    else:
        scale = _static("scale", scale, wide.shape)
        if not _all(jnp.isfinite(scale) & (scale >= _TINY)):
            raise PyptoxError(
                f"`scale` must be finite and at least {_TINY:.2g} everywhere; the least is {float(scale.min()):.8g}."
                " Try max(amax, 1e-4) / 127"
            )
        if zero is not None:
            zero = _static("zero", zero, wide.shape)
            if not _all((zero >= low) & (zero <= high) & (zero == jnp.round(zero))):
                raise PyptoxError(
                    f"`zero` must be whole and within {kind.name}, {low:g} to {high:g}, so that 0 is a value; got one "
                    "that is not. Try round(low - min(x, 0) / scale)"
                )
    values = _quotient(wide, scale)
    if zero is not None:
        values = cast(values, "int32", rounding, key=key).astype(jnp.float32) + zero
    stored = cast(values, kind.name, rounding if zero is None else Rounding.NEAREST_EVEN, True, key=_only(key, zero))
    return Quantized(stored.reshape(shape), scale, zero, group)


def _numbers(name: str, value: Any) -> jax.Array:
    """``value`` as an array of real numbers."""
    unmasked(name, value)
    try:
        array = jnp.asarray(value if isinstance(value, jax.Array) else np.asarray(value))
    except (TypeError, ValueError):
        raise PyptoxError(f"`{name}` must be an array of real numbers; got {value!r}") from None
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise PyptoxError(f"`{name}` must hold real numbers; got {array.dtype}")
    return array


def _static(name: str, value: Any, shape: tuple[int, ...]) -> jax.Array:
    """A scale or zero point in float32 that broadcasts against what it scales."""
    array = _numbers(name, value).astype(jnp.float32)
    try:
        fits = jnp.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise PyptoxError(f"`{name}` must broadcast against {shape}; got shape {array.shape}")
    return array


def _all(right: jax.Array) -> bool:
    """Whether it is so everywhere; taken for granted while it is being traced."""
    return isinstance(right, Tracer) or bool(right.all())


def _only(key: Any, zero: jax.Array | None) -> Any:
    return key if zero is None else None


def _scale(
    wide: jax.Array, per: str, symmetric: bool, floor: jax.Array, low: float, high: float
) -> tuple[jax.Array, jax.Array | None]:
    axes = {"tensor": tuple(range(wide.ndim)), "channel": tuple(range(wide.ndim - 1))}.get(per, (wide.ndim - 1,))
    if symmetric:
        amax = jnp.max(jnp.abs(wide), axis=axes, keepdims=True)
        return _quotient(jnp.maximum(amax, floor), jnp.float32(high)), None
    least = jnp.minimum(jnp.min(wide, axis=axes, keepdims=True), 0.0)
    most = jnp.maximum(jnp.max(wide, axis=axes, keepdims=True), 0.0)
    span, extent = jnp.float32(high - low), most - least
    scale = _quotient(jnp.maximum(extent, floor), span)
    wide_scale = _quotient(most, span) - _quotient(least, span)
    scale = jnp.where(jnp.isinf(extent), wide_scale, scale)  # a range beyond float32 has a scale still
    return scale, jnp.round(low - _quotient(least, scale))


def fake_quantize(x: ArrayLike, dtype: str = "int8", **options: Any) -> jax.Array:
    """``x`` after :func:`quantize` and back, float32; the derivative is that of the identity (straight through).

    >>> jax.grad(lambda x: fake_quantize(x, per="tensor").sum())(jnp.asarray([0.3, 1.0])).tolist()
    [1.0, 1.0]
    """
    x = _numbers("x", x).astype(jnp.float32)
    there = jax.lax.stop_gradient(x)
    return quantize(there, dtype, **options).dequantize() + (x - there)
