"""Narrowing casts under every rounding mode, against exact rational arithmetic."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from pyptox.lang import ROUNDINGS, cast_array


def _grid(dtype) -> np.ndarray:
    """Every finite value of a 16-bit type, as float64."""
    with np.errstate(invalid="ignore"):
        values = np.arange(1 << 16, dtype=np.uint16).view(jnp.dtype(dtype)).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def _expected(x: float, low: float, high: float, low_is_even: bool, rounding: str) -> float:
    """``x`` strictly between neighbours ``low < high``."""
    towards, away = (low, high) if x > 0 else (high, low)
    if rounding == "floor":
        return low
    if rounding == "ceil":
        return high
    if rounding == "trunc":
        return towards
    towards_is_even = low_is_even if towards == low else not low_is_even
    if rounding == "odd":
        return away if towards_is_even else towards
    near, far = abs(Fraction(x) - Fraction(towards)), abs(Fraction(away) - Fraction(x))
    if near != far:
        return towards if near < far else away
    if rounding == "round":
        return away
    return towards if towards_is_even else away


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_sixteen_bit_targets(dtype, rounding):
    rng = np.random.default_rng(1)
    grid = _grid(dtype)
    picks = rng.choice(len(grid) - 1, 3000)
    picks = picks[(np.abs(grid[picks]) > 1e-30) & (np.abs(grid[picks + 1]) < 1e30)]
    low, high = grid[picks], grid[picks + 1]
    fraction = rng.choice([0.25, 0.5, 0.75], len(picks))
    x = (low + (high - low) * fraction).astype(np.float32)
    exact = (x.astype(np.float64) > low) & (x.astype(np.float64) < high)
    bits = low.astype(jnp.dtype(dtype)).view(np.uint16)
    got = np.asarray(cast_array(jnp.asarray(x), dtype, rounding)).astype(np.float64)
    for n in np.flatnonzero(exact):
        want = _expected(float(x[n]), low[n], high[n], bits[n] % 2 == 0, rounding)
        assert got[n] == want, (x[n], got[n], want)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("rint", [2, -2, 4, 127, -128, 0]),
        ("round", [3, -3, 4, 127, -128, 0]),
        ("floor", [2, -3, 3, 127, -128, 0]),
        ("ceil", [3, -2, 4, 127, -128, 0]),
        ("trunc", [2, -2, 3, 127, -128, 0]),
        ("odd", [3, -3, 3, 127, -128, 0]),
    ],
)
def test_integers_saturate(rounding, expected):
    x = jnp.asarray([2.5, -2.5, 3.5, 300.0, -300.0, jnp.nan], jnp.float32)
    assert cast_array(x, jnp.int8, rounding).tolist() == expected
