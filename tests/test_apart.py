"""One rounding an operation: what a kernel computes is what its text says, bit for bit, as NumPy computes it."""

import jax
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl
from pyptox import precision


def _kernel(change, dtype):
    @pl.kernel(outputs={"out": lambda x: x}, tile={"m": 32}, name=f"chain({dtype})")
    def chain(x, out, *, tile):
        def block(i):
            t = pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec)
            pl.store(out, (i * tile.m, 0), change(t))

        pl.grid((pl.cdiv(x.shape[0], tile.m),), block)

    return chain


def _arrays(dtype, scale=1.0):
    return (scale * np.random.default_rng(3).standard_normal((64, 64))).astype(dtype)


def _full(t, value):
    return pl.full((32, 64), value, t.dtype)


CHAINS = {
    "a sum and a difference": (lambda t: (t + 1000.0) - 1000.0, lambda x, c: (x + c(1000)) - c(1000)),
    "two factors": (lambda t: (t * 1.1) * 0.7, lambda x, c: (x * c(1.1)) * c(0.7)),
    "a product and a sum": (lambda t: t * t + t, lambda x, c: x * x + x),
    "a quotient": (lambda t: t / 3.0, lambda x, c: x / c(3)),
    "a quotient of tiles": (lambda t: t / _full(t, 3.0), lambda x, c: x / c(3)),
    "a quotient of a column": (lambda t: t / pl.row_max(t), lambda x, c: x / x.max(1, keepdims=True)),
    "a reciprocal twice": (lambda t: pl.reciprocal(pl.reciprocal(t)), lambda x, c: c(1) / (c(1) / x)),
}


@pytest.fixture(autouse=True)
def operators(monkeypatch):
    """Tiles with operators, so that a chain reads as NumPy's."""
    for sign, name in {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}.items():
        monkeypatch.setattr(pl.Tile, f"__{sign}__", getattr(pl, name), raising=False)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_of_operations_is_rounded_after_each(chain, dtype):
    change, expected = CHAINS[chain]
    x, kernel = _arrays(dtype), _kernel(change, dtype)
    want = expected(x, np.dtype(dtype).type)
    assert want.dtype == x.dtype
    run = np.asarray(px.run(kernel, x))
    np.testing.assert_array_equal(run, want)
    np.testing.assert_array_equal(jax.jit(lambda x: px.run(kernel, x))(x), want)
    np.testing.assert_array_equal(precision.emulated(kernel, x), want)


def test_a_scale_that_overflows_in_between_is_found():
    kernel, x = _kernel(lambda t: (t * 1e38) * 1e-37, "fp32"), _arrays("float32", 20.0)
    with np.errstate(over="ignore"):
        want = (x * np.float32(1e38)) * np.float32(1e-37)
    assert np.isinf(want).any()
    np.testing.assert_array_equal(px.run(kernel, x), want)
    specs = kernel.specs(x=pl.spec(x.shape, "fp32"))
    report = precision.examine(kernel, specs, {}, px.hardware.a2a3(), distribution="outliers")
    assert not report.passed


def test_derivatives_pass_through():
    kernel = _kernel(lambda t: t * t + t, "fp32")
    x = _arrays("float32")
    _, slope = jax.jvp(lambda x: px.run(kernel, x), (x,), (np.ones_like(x),))
    np.testing.assert_allclose(slope, 2 * x + 1, rtol=1e-5, atol=1e-6)
