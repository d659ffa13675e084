"""Casts under every rounding mode: all target values, their midpoints and all their neighbours, against exact grids."""

import threading
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyptox.precision import GRADIENTS, TOOLCHAIN, Rounding, cast, round_to

FLOATS = {
    "bf16": jnp.bfloat16,
    "fp16": jnp.float16,
    "fp8_e4m3fn": jnp.float8_e4m3fn,
    "fp8_e5m2": jnp.float8_e5m2,
}
MODES = [mode for mode in Rounding if mode is not Rounding.STOCHASTIC]


def _grid(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Every finite value of a format as float64, from zero up, with its bits; and the next one, which overflows."""
    dtype = np.dtype(FLOATS[name])
    word = np.dtype(f"uint{8 * dtype.itemsize}")
    bits = np.arange(1 << (8 * dtype.itemsize - 1), dtype=np.int64)
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = bits.astype(word).view(dtype).astype(np.float64)
    finite = np.isfinite(values)
    bits, values = bits[finite], values[finite]
    return np.append(values, 2 * values[-1] - values[-2]), np.append(bits, bits[-1] + 1)


def _points(grid: np.ndarray, source: type) -> np.ndarray:
    """All values and midpoints that the source can hold, and the nearest ones of the source on both sides of each."""
    exact = np.unique(np.concatenate([grid, (grid[:-1] + grid[1:]) / 2]))
    with np.errstate(over="ignore"):
        exact = exact.astype(source)[exact.astype(source).astype(np.float64) == exact]
    beside = [np.nextafter(exact, source(np.inf)), np.nextafter(exact, source(-np.inf))]
    points = np.unique(np.concatenate([exact, *beside, [np.finfo(source).max, 3e38]]).astype(source))
    return points[points >= 0]


def _expected(x: np.ndarray, grid: np.ndarray, bits: np.ndarray, mode: Rounding, negative: bool) -> np.ndarray:
    """Bits of magnitudes ``x`` under ``mode``. Comparisons of float64 are exact, and so are the grid's midpoints."""
    at = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, len(grid) - 2)
    low, high = grid[at], grid[at + 1]
    middle, odd = (low + high) / 2, bits[at] % 2 == 1
    tie = x == middle
    up = {
        Rounding.NEAREST_EVEN: (x > middle) | (tie & odd),
        Rounding.NEAREST_AWAY: (x > middle) | tie,
        Rounding.NEAREST_ODD: (x > middle) | (tie & ~odd),
        Rounding.TOWARD_ZERO: np.zeros(x.shape, bool),
        Rounding.DOWN: np.full(x.shape, negative),
        Rounding.UP: np.full(x.shape, not negative),
        Rounding.TO_ODD: ~odd,
    }[mode]
    return bits[at] + (up & (x != low))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("name", FLOATS)
def test_all_values_midpoints_and_neighbours(name, source, mode):
    grid, bits = _grid(name)
    x = _points(grid, source)
    assert len(x) > 3 * len(grid)
    wide = x.astype(np.float64)
    want = np.concatenate([_expected(wide, grid, bits, mode, negative) for negative in (False, True)])
    word = np.dtype(f"uint{8 * np.dtype(FLOATS[name]).itemsize}")
    for saturate in (False, True):
        got = np.asarray(cast(np.concatenate([x, -x]), name, mode, saturate))
        inside = want <= bits[-2]
        np.testing.assert_array_equal((got.view(word).astype(np.int64) & _below_sign(word))[inside], want[inside])
        with np.errstate(invalid="ignore"):
            stored = got.astype(np.float64)
        negative = np.repeat([False, True], len(x))
        assert np.all((np.signbit(stored) == negative) | np.isnan(stored))
        kept = {Rounding.DOWN: ~negative, Rounding.UP: negative}.get(
            mode, mode in (Rounding.TOWARD_ZERO, Rounding.TO_ODD)
        )
        beyond = grid[-2] if saturate else np.where(kept, grid[-2], np.nan if name == "fp8_e4m3fn" else np.inf)
        beyond = np.broadcast_to(beyond, stored.shape)
        np.testing.assert_array_equal(np.abs(stored)[~inside], beyond[~inside])


def _below_sign(word: np.dtype) -> int:
    return (1 << (8 * word.itemsize - 1)) - 1


@pytest.mark.parametrize("mode", MODES)
def test_against_fractions(mode):
    """The grid oracle again in rational arithmetic, on every value of the 8-bit formats and random float64 between."""
    rng = np.random.default_rng(0)
    for name in ("fp8_e4m3fn", "fp8_e5m2"):
        grid, bits = _grid(name)
        between = grid[:-2] + rng.random(len(grid) - 2) * np.diff(grid[:-1])
        for x, got in zip(between, np.asarray(cast(between, name, mode)).astype(np.float64), strict=True):
            n = max(i for i in range(len(grid)) if Fraction(grid[i]) <= Fraction(x))
            low, high, exact = Fraction(grid[n]), Fraction(grid[n + 1]), Fraction(x)
            near = {True: low, False: high}[exact - low < high - exact]
            if exact - low == high - exact or exact == low:
                continue
            odd = low if bits[n] % 2 else high
            want = {"nea": near, "tow": low, "dow": low, "up": high, "to_": odd}[mode.value[:3]]
            assert Fraction(got) == want, (name, x, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["int8", "int32"])
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_integers(name, source, mode):
    info = np.iinfo(name)
    whole = (
        np.arange(-300, 301)
        if name == "int8"
        else np.concatenate([s * (np.int64(1) << np.arange(33)) + d for s in (-1, 1) for d in range(-3, 4)])
    )
    exact = np.concatenate([whole, whole + 0.5]).astype(source)
    x = np.unique(np.concatenate([exact, np.nextafter(exact, source(1e30)), np.nextafter(exact, source(-1e30))]))
    rounded = [_integer(Fraction(float(v)), mode) for v in x]
    got = np.asarray(cast(x, name, mode)).tolist()
    assert got == [min(max(v, info.min), info.max) for v in rounded]
    wrapped = [(v - info.min) % (1 << info.bits) + info.min for v in rounded]
    assert np.asarray(cast(x, name, mode, saturate=False)).tolist() == wrapped


def _integer(x: Fraction, mode: Rounding) -> int:
    low = x.__floor__()
    if x == low:
        return low
    half = x - low - Fraction(1, 2)
    odd, away = low % 2 == 1, x > 0
    up = {
        Rounding.NEAREST_EVEN: half > 0 or (half == 0 and odd),
        Rounding.NEAREST_AWAY: half > 0 or (half == 0 and away),
        Rounding.NEAREST_ODD: half > 0 or (half == 0 and not odd),
        Rounding.TOWARD_ZERO: x < 0,
        Rounding.DOWN: False,
        Rounding.UP: True,
        Rounding.TO_ODD: not odd,
    }[mode]
    return low + up


@pytest.mark.parametrize("name", [*FLOATS, "fp32"])
@pytest.mark.parametrize("mode", MODES)
def test_integer_sources(name, mode):
    whole = np.concatenate([s * (np.int64(1) << np.arange(31)) + d for s in (-1, 1) for d in (-1, 0, 1)])
    x = np.append(whole, [np.iinfo(np.int32).min, 0]).astype(np.int32)
    want = np.asarray(cast(x.astype(np.float64), name, mode)).astype(np.float64)
    np.testing.assert_array_equal(np.asarray(cast(x, name, mode)).astype(np.float64), want)


@pytest.mark.parametrize("name", FLOATS)
def test_what_is_not_finite(name):
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    got = np.asarray(cast(x, name, saturate=False)).astype(np.float64)
    infinity = np.nan if name == "fp8_e4m3fn" else np.inf
    np.testing.assert_array_equal(got, [infinity, -infinity, np.nan, 0, 0])
    assert np.signbit(got[-1])
    largest = float(jnp.finfo(FLOATS[name]).max)
    got = np.asarray(cast(x, name, saturate=True)).astype(np.float64)
    np.testing.assert_array_equal(got, [largest, -largest, np.nan, 0, 0])


# --------------------------------------------------------------------------------------------------------------- traps
def test_trap_double_rounding_through_float32():
    x = 1 + 2.0**-8 + 2.0**-40
    assert float(cast(x, "bf16")) == 1 + 2.0**-7
    assert float(cast(np.float32(x), "bf16")) == 1.0  # what the way through float32 gives
    assert float(cast(cast(x, "fp32", "to_odd"), "bf16")) == 1 + 2.0**-7
    assert float(cast(cast(x, "fp32", "nearest_odd"), "bf16")) == 1.0  # the two meanings of odd


def test_trap_flushed_subnormals():
    smallest = 2.0**-24
    assert float(cast(smallest, "fp16")) == smallest
    assert float(jax.lax.reduce_precision(jnp.float32(smallest), 5, 10)) == 0.0  # what it is not built on
    assert float(cast(2.0**-9, "fp8_e4m3fn")) == 2.0**-9
    assert float(cast(np.float32(2.0**-133), "bf16")) == 2.0**-133


def test_trap_e4m3fn_overflow():
    x = np.array([448, 460, 464, 464.1, 1e4], np.float32)
    np.testing.assert_array_equal(np.asarray(cast(x, "fp8_e4m3fn")).astype(np.float32), [448] * 5)
    got = np.asarray(cast(x, "fp8_e4m3fn", saturate=False)).astype(np.float32)
    np.testing.assert_array_equal(got, [448, 448, 448, np.nan, np.nan])


def test_trap_int8_wraps():
    assert int(cast(300.0, "int8")) == 127
    assert int(cast(300.0, "int8", saturate=False)) == 44
    assert cast(np.array([np.nan, np.inf, -np.inf]), "int8").tolist() == [0, 127, -128]


# ---------------------------------------------------------------------------------------------------- as a JAX function
def test_stochastic_is_unbiased_and_takes_neighbours_only():
    x = jnp.full(200_000, 1 + 2.0**-9, jnp.float32)  # a quarter of the way
    got = np.asarray(cast(x, "bf16", "stochastic", key=jax.random.key(0))).astype(np.float64)
    assert set(np.unique(got)) == {1.0, 1 + 2.0**-7}
    assert abs(np.mean(got > 1) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / len(got))
    tiny = jnp.full(400_000, 2.0**-24 / 64, jnp.float32)  # far below the smallest number of fp16
    share = np.mean(np.asarray(cast(tiny, "fp16", "stochastic", key=jax.random.key(1))) > 0)
    assert abs(share - 1 / 64) < 5 * np.sqrt(1 / 64 / len(tiny))
    exact = jnp.arange(100, dtype=jnp.float32)
    np.testing.assert_array_equal(cast(exact, "bf16", "stochastic", key=jax.random.key(2)).astype(jnp.float32), exact)


@pytest.mark.parametrize("mode", MODES)
def test_jit_and_vmap(mode):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 16), np.float32) * 100)
    for name in (*FLOATS, "int8"):
        eager = np.asarray(cast(x, name, mode)).tobytes()
        assert np.asarray(jax.jit(lambda x, name=name: cast(x, name, mode))(x)).tobytes() == eager
        assert np.asarray(jax.vmap(lambda x, name=name: cast(x, name, mode))(x)).tobytes() == eager


def test_float64_is_exact_under_jit_in_threads_and_in_both_modes():
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    results = []

    def work():
        results.append(float(cast(x, "bf16")[0]))
        results.append(float(jax.jit(lambda: cast(x, "bf16"))()[0]))
        with jax.enable_x64(True):
            results.append(float(cast(x, "bf16")[0]))
            results.append(float(jax.jit(lambda x: cast(x, "bf16"))(x)[0]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    work()
    assert results == [1 + 2.0**-7] * 8
    assert not jax.config.read("jax_enable_x64")


def test_gradients():
    x = jnp.asarray([0.3, 500.0], jnp.float32)
    slopes = {g: jax.grad(lambda x, g=g: round_to(x, "fp8_e4m3fn", gradient=g).sum())(x).tolist() for g in GRADIENTS}
    assert slopes == {"straight_through": [1, 1], "clipped": [1, 0], "zero": [0, 0]}
    _, tangent = jax.jvp(lambda x: round_to(x, "bf16"), (x[0],), (jnp.float32(1.2345678),))
    assert tangent == jnp.float32(1.2345678)  # not itself rounded
    assert jax.grad(lambda x: cast(x, "bf16").astype(jnp.float32).sum())(x).tolist() == [1, 1]
    assert jax.grad(lambda x: round_to(x, "bf16", "stochastic", key=jax.random.key(0)).sum())(x).tolist() == [1, 1]


def test_names_and_refusals():
    assert {Rounding(name) for name in TOOLCHAIN} | {Rounding.NEAREST_ODD, Rounding.STOCHASTIC} == set(Rounding)
    with pytest.raises(ValueError, match="`dtype` must be one of bf16"):
        cast(1.0, "bf17")
    with pytest.raises(ValueError, match="`rounding` must be one of nearest_even"):
        cast(1.0, "bf16", "sideways")
    with pytest.raises(ValueError, match="`key` needs"):
        cast(1.0, "bf16", "stochastic")
    with pytest.raises(ValueError, match="`x` must hold"):
        cast(np.ones(2, bool), "bf16")


def test_large_numpy_arrays_are_cast_in_pieces():
    x = np.random.default_rng(0).standard_normal((2, (1 << 17) + 77))
    got = np.asarray(cast(x, "bf16", "trunc"))
    assert got.shape == x.shape
    with jax.enable_x64(True):
        np.testing.assert_array_equal(got, cast(jnp.asarray(x), "bf16", "trunc"))


@settings(max_examples=60, deadline=None)
@given(
    x=st.floats(allow_nan=False, allow_infinity=False),
    y=st.floats(allow_nan=False, allow_infinity=False),
    name=st.sampled_from([*FLOATS, "fp32", "int8", "int32"]),
    mode=st.sampled_from(MODES),
)
def test_any_float64(x, y, name, mode):
    """Monotone, idempotent, and within the neighbours that DOWN and UP give."""
    pair = np.array([min(x, y), max(x, y)])
    low, high = np.asarray(cast(pair, name, mode, saturate=True)).astype(np.float64)
    assert low <= high
    np.testing.assert_array_equal(np.asarray(cast(np.array([low, high]), name, mode, saturate=True)), [low, high])
    for value, got in zip(pair, (low, high), strict=True):
        down, up = (float(cast(value, name, m, saturate=True)) for m in (Rounding.DOWN, Rounding.UP))
        assert got in (down, up)


# ------------------------------------------------------------------------------------------------- stochastic rounding
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_stochastic_noise_is_uniform_uncorrelated_and_of_the_key(source):
    x = np.full(1 << 19, 1 + 2**-10, source)  # an eighth of the way to the next bf16; two pieces
    up = [np.asarray(cast(x, "bf16", "stochastic", key=jax.random.key(n))).astype(np.float32) > 1 for n in range(3)]
    for one in up:
        assert abs(one.mean() - 0.125) < 5 * np.sqrt(0.125 * 0.875 / x.size)
        for lag in (1, 2, 64, 1 << 18):
            assert abs(np.corrcoef(one[lag:], one[:-lag])[0, 1]) < 5 / np.sqrt(x.size - lag)
    assert abs(np.corrcoef(up[0], up[1])[0, 1]) < 5 / np.sqrt(x.size)
    again = np.asarray(cast(jnp.asarray(x) if source is np.float32 else x, "bf16", "stochastic", key=jax.random.key(1)))
    np.testing.assert_array_equal(again.astype(np.float32) > 1, up[1])  # in pieces and as a whole


@pytest.mark.parametrize(
    "key", [3, "a", np.zeros(3), np.zeros((2, 2), np.uint32), lambda: jax.random.split(jax.random.key(0))]
)
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(ValueError, match=r"`key` must be one key of jax.random; got .*Try jax.random.key\(0\)"):
        cast(np.ones(1, np.float32), "bf16", "stochastic", key=key)
