"""Exact float32 narrowing under a rounding mode.

XLA narrows with ties to even only. The other modes work on the bits: truncate towards zero to the target's
grid, then step by one unit in the last place where the mode asks for it. Both steps are exact in float32.
"""

import jax
import jax.numpy as jnp

ROUNDINGS = ("rint", "round", "floor", "ceil", "trunc", "odd")


def _round_integer(x: jax.Array, rounding: str) -> jax.Array:
    if rounding == "rint":
        return jax.lax.round(x, jax.lax.RoundingMethod.TO_NEAREST_EVEN)
    if rounding == "round":
        return jax.lax.round(x, jax.lax.RoundingMethod.AWAY_FROM_ZERO)
    if rounding == "floor":
        return jnp.floor(x)
    if rounding == "ceil":
        return jnp.ceil(x)
    truncated = jnp.trunc(x)
    if rounding == "trunc":
        return truncated
    is_even = truncated - 2 * jnp.floor(truncated / 2) == 0
    return jnp.where((truncated != x) & is_even, truncated + jnp.sign(x), truncated)


def _neighbours(x: jax.Array, dtype) -> tuple[jax.Array, jax.Array]:
    """The representable values of ``dtype`` just towards zero and just away from zero of float32 ``x``."""
    nearest = x.astype(dtype)
    wide = nearest.astype(jnp.float32)
    bits = jax.lax.bitcast_convert_type(nearest, jnp.uint16)
    one = jnp.uint16(1)
    overshoot = jnp.abs(wide) > jnp.abs(x)
    towards = jnp.where(overshoot, bits - one, bits)
    away = jnp.where(overshoot, bits, bits + one)
    return (
        jax.lax.bitcast_convert_type(towards, dtype),
        jax.lax.bitcast_convert_type(away, dtype),
    )


def cast_array(x: jax.Array, dtype, rounding: str) -> jax.Array:
    """``x`` in ``dtype`` under a rounding mode of :data:`ROUNDINGS`; integers saturate, NaN becomes 0 there."""
    dtype = jnp.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        if jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.clip(x.astype(jnp.int32), info.min, info.max).astype(dtype)
        rounded = _round_integer(x.astype(jnp.float32), rounding)
        return jnp.clip(jnp.nan_to_num(rounded, nan=0.0), float(info.min), float(info.max)).astype(dtype)
    if jnp.issubdtype(x.dtype, jnp.integer) or x.dtype.itemsize <= dtype.itemsize or rounding == "rint":
        return x.astype(dtype)
    x = x.astype(jnp.float32)
    towards, away = _neighbours(x, dtype)
    low, high = towards.astype(jnp.float32), away.astype(jnp.float32)
    exact = low == x
    if rounding == "trunc":
        pick_away = jnp.zeros(x.shape, bool)
    elif rounding == "floor":
        pick_away = x < 0
    elif rounding == "ceil":
        pick_away = x > 0
    elif rounding == "round":
        # compare the exact distances; both differences are exact in float32 (Sterbenz)
        pick_away = jnp.abs(x - low) >= jnp.abs(high - x)
    else:  # odd
        bits = jax.lax.bitcast_convert_type(towards, jnp.uint16)
        pick_away = (bits & jnp.uint16(1)) == 0
    chosen = jnp.where(exact | ~pick_away, towards, away)
    return jnp.where(jnp.isfinite(x), chosen, x.astype(dtype))
