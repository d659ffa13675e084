"""Values of every kernel against float64 NumPy, ragged sizes included."""

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl

RNG = np.random.default_rng(0)


def _matrix(*shape, dtype=jnp.bfloat16):
    return RNG.standard_normal(shape).astype(dtype)


def _close(actual, expected, reduction, unit=2.0**-8):
    scale = np.sqrt(reduction) * 4
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=2 * unit, atol=unit * scale)


SHAPES = [(40, 100, 70), (16, 64, 32), (1, 17, 5), (33, 48, 129)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_matmul(shape, dtype):
    m, k, n = shape
    a, b = _matrix(m, k, dtype=dtype), _matrix(k, n, dtype=dtype)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-20}[jnp.dtype(dtype).name]
    _close(px.run(px.kernels.matmul, a, b, m=16, n=32, k=48, group=2), expected, k, unit)
    reference = px.reference(px.kernels.matmul, a, b, m=16, n=32, k=48, group=2)
    assert np.asarray(reference).dtype == np.float64
    np.testing.assert_allclose(reference, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_int8_is_exact(shape):
    m, k, n = shape
    a = RNG.integers(-128, 128, (m, k)).astype(np.int8)
    b = RNG.integers(-128, 128, (k, n)).astype(np.int8)
    out = px.run(px.kernels.matmul, a, b, m=16, n=16, k=32)
    np.testing.assert_array_equal(np.asarray(out), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_staged_and_split(shape):
    m, k, n = shape
    a, b = _matrix(m, k), _matrix(k, n)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    _close(px.run(px.kernels.matmul_nt, a, b.T, m=16, n=32, k=48), expected, k)
    staged = px.run(px.kernels.matmul_staged, a, b.T, m=16, n=32, ka=64, kb=32, k0=16, group=2)
    _close(staged, expected, k)
    split = px.run(px.kernels.matmul_split_k, a, b, m=16, n=32, k=16, splits=3)
    assert split.dtype == jnp.float32
    _close(split, expected, k, 2.0**-20)
    split = px.run(px.kernels.matmul_split_k_nt, a, b.T, m=16, n=32, k=16, splits=3)
    _close(split, expected, k, 2.0**-20)
    for panels in (1, 3):
        _close(px.run(px.kernels.matmul_panels, a, b.T, m=16, n=16, panels=panels), expected, k)


@pytest.mark.parametrize("activation", ["none", "relu", "silu"])
def test_bias_activation(activation):
    a, b = _matrix(40, 100), _matrix(100, 70)
    bias = RNG.standard_normal(70).astype(np.float32)
    z = a.astype(np.float64) @ b.astype(np.float64) + bias
    expected = {"none": z, "relu": np.maximum(z, 0), "silu": z / (1 + np.exp(-z))}[activation]
    kernel = px.kernels.matmul_bias_activation
    _close(px.run(kernel, a, b, bias, m=16, n=32, k=48, activation=activation), expected, 100)


def test_grouped_matmul_with_an_empty_group():
    x, w, rows = _matrix(70, 100), _matrix(4, 100, 70), [20, 0, 33, 17]
    group = np.repeat(np.arange(4), rows)
    expected = np.einsum("rk,rkn->rn", x.astype(np.float64), w.astype(np.float64)[group])
    _close(px.run(px.kernels.grouped_matmul, x, w, px.control(rows), m=16, n=32, k=48), expected, 100)


def test_a_new_kernel_is_one_function_with_all_readings():
    @px.kernel(outputs={"out": lambda x: x}, tile={"m": 16, "n": 64}, ranges={"stages": (1, 4)})
    def scaled_exp(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2) -> None:
        m, n = x.shape

        def block(i):
            def step(j, nothing):
                part = pl.load(x, (i * tile.m, j * tile.n), (tile.m, tile.n), space=pl.Vec)
                pl.store(out, (i * tile.m, j * tile.n), pl.multiply(pl.exp(part), 0.5))
                return nothing

            pl.pipeline(pl.cdiv(n, tile.n), step, (), stages=stages)

        pl.grid((pl.cdiv(m, tile.m),), block)

    x = RNG.standard_normal((37, 150)).astype(np.float32)
    expected = np.exp(x.astype(np.float64)) / 2
    np.testing.assert_allclose(np.asarray(px.run(scaled_exp, x)), expected, rtol=1e-5)
    np.testing.assert_allclose(px.reference(scaled_exp, x), expected, rtol=1e-13)
    specs = scaled_exp.specs(px.spec(x.shape, "fp32"))
    points = {"m": [16, 16], "n": [64, 32], "stages": [2, 1]}
    cost = px.cost.evaluate(scaled_exp, specs, points, px.hardware.a2a3())
    assert cost.legal.all()
    assert cost.time_us[0] < cost.time_us[1]
    assert cost.blocks.tolist() == [3, 3]
    regions = px.regions(scaled_exp, specs, {"m": 16, "n": 64})
    written = np.zeros(x.shape, int)
    for region in regions:
        if region.mode == "write":
            for start, size in zip(region.starts, region.sizes, strict=True):
                written[start[0] : start[0] + size[0], start[1] : start[1] + size[1]] += 1
    assert (written == 1).all()


def test_misuse_is_explained():
    @px.kernel(outputs={"out": lambda x: x}, tile={"m": 16})
    def branching(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        def block(i):
            if i == 0:
                pl.zeros((16, 16), "fp32")

        pl.grid((pl.cdiv(x.shape[0], tile.m),), block)

    with pytest.raises(px.KernelError, match="cannot be compared"):
        px.run(branching, np.zeros((16, 16), np.float32))
    with pytest.raises(px.KernelError, match="k = 3"):
        px.kernels.matmul.specs(px.spec((2, 3), "bf16"), px.spec((4, 5), "bf16"))
    with pytest.raises(ValueError, match="positive integers"):
        px.spec((0, 3), "bf16")
    with pytest.raises(ValueError, match="`dtype`"):
        px.spec((1, 3), "bf17")
