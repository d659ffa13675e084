"""Values of the vector kernels against float64 NumPy, and what they occupy on chip."""

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl
from pyptox.cost import Options, predict

CHIP = px.hardware.a2a3()
K = px.kernels
SINGLE = 2.0**-24
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": SINGLE}
FLUSHED = {"bfloat16": 2.0**-112, "float16": 2.0**-25, "float32": 2.0**-112}
"""Halves are rounded to subnormals; a subnormal single may be taken for zero, before a gain of up to 2^14."""

DTYPES = [jnp.bfloat16, jnp.float16, jnp.float32]
SHAPES = [(37, 150), (1, 17), (8, 512)]


def _rows(shape, dtype, seed=0):
    """Rows of every kind: normal, ties, an outlier, subnormal, all equal, zero, and normal ones again."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    tiny = 2.0**-24 if np.dtype(dtype).name == "float16" else 2.0**-130
    special = [rng.integers(-2, 3, shape[1]), np.where(np.arange(shape[1]) == 3, 200, x[0])]
    special += [tiny * rng.integers(-8, 9, shape[1]), np.full(shape[1], 2.5), np.zeros(shape[1])]
    for row, values in enumerate(special[: shape[0] - 1], start=1):
        x[row] = values
    return x.astype(dtype)


def _check(kernel, inputs, expected, magnitude, roundings, **parameters):
    """``roundings`` float32 roundings relative to ``magnitude``, and one in the output's type."""
    out = np.asarray(px.run(kernel, *inputs, **parameters))
    name = out.dtype.name
    bound = UNIT[name] * np.abs(expected) + roundings * SINGLE * magnitude + FLUSHED[name]
    error = np.abs(out.astype(np.float64) - expected)
    assert (error <= bound).all(), (error / bound).max()
    reference = np.asarray(px.reference(kernel, *inputs, **parameters))
    assert reference.dtype == np.float64
    assert (np.abs(reference - expected) <= roundings * 2.0**-52 * magnitude + 1e-300).all()


def _wide(*arrays):
    return [np.asarray(array).astype(np.float64) for array in arrays]


def _layer_norm(x, weight, bias, epsilon=1e-5):
    inverse = 1 / np.sqrt(x.var(1, keepdims=True) + epsilon)
    out = (x - x.mean(1, keepdims=True)) * inverse * weight + bias
    return out, np.abs(x).max(1, keepdims=True) * inverse * np.abs(weight) + np.abs(out) + np.abs(bias)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(shape, dtype):
    x, vectors = _rows(shape, dtype), np.random.default_rng(1).standard_normal((2, shape[1]))
    weight, bias = vectors[0].astype(np.float32), vectors[1].astype(dtype)
    steps = 8 + 2 * np.sqrt(shape[1])
    wide, gain, shift = _wide(x, weight, bias)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6) * gain
    _check(K.rms_norm, (x, weight), expected, np.abs(expected) + 1e-30, steps, m=8)
    _check(K.rms_norm_tiled, (x, weight), expected, np.abs(expected) + 1e-30, steps, m=16, n=64)
    expected, magnitude = _layer_norm(wide, gain, shift)
    _check(K.layer_norm, (x, weight, bias), expected, magnitude, steps, m=16, steps=1, stages=1)
    _check(K.layer_norm_tiled, (x, weight, bias), expected, magnitude, steps, m=8, n=48)


def test_layer_norm_of_a_large_mean():
    x = (np.random.default_rng(2).standard_normal((5, 300)) + 1000).astype(np.float32)
    ones, zeros = np.ones(300, np.float32), np.zeros(300, np.float32)
    expected, magnitude = _layer_norm(*_wide(x, ones, zeros))
    for kernel in (K.layer_norm, K.layer_norm_tiled):
        parameters = {"n": 64} if "n" in kernel.tile else {}
        _check(kernel, (x, ones, zeros), expected, magnitude, 20, **parameters)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(shape, dtype):
    x = _rows(shape, dtype)
    x[0, : shape[1] // 2] = -np.inf  # a masked half: whole column tiles without a finite element
    (wide,) = _wide(x)
    below = wide - wide.max(1, keepdims=True)
    expected = np.exp(below) / np.exp(below).sum(1, keepdims=True)
    # the rounding of x - max is one of its size in the exponential
    magnitude = expected * (1 + np.where(np.isinf(below), 0, np.abs(below)))
    steps = 10 + np.sqrt(shape[1])
    _check(K.softmax, (x,), expected, magnitude, steps, m=8)
    _check(K.softmax_two_pass, (x,), expected, magnitude, steps, m=16, n=48)
    _check(K.softmax_online, (x,), expected, magnitude, steps, m=16, n=48)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations(shape, dtype):
    gate, up = _rows(shape, dtype), _rows(shape, dtype, seed=3)
    g, u = _wide(gate, up)
    with np.errstate(over="ignore"):
        expected = g / (1 + np.exp(-g)) * u
    _check(K.swiglu, (gate, up), expected, np.abs(expected) * (1 + np.abs(g)), 8, m=16, n=64)
    residual = up.astype(np.float32)
    _check(K.residual_add, (residual, gate), g + u, np.abs(g) + np.abs(u), 1, m=8, n=128, steps=3)
    _check(K.residual_add, (up, gate), g + u, np.abs(g) + np.abs(u), 1, m=8, n=128, steps=3)


def test_shapes_that_do_not_fit_are_explained():
    x = px.spec((4, 16), "bf16")
    with pytest.raises(px.KernelError, match="`weight` must be fp32"):
        K.rms_norm.specs(x, px.spec((15,), "fp32"))
    with pytest.raises(px.KernelError, match="`up` must have the shape of `gate`"):
        K.swiglu.specs(x, px.spec((4, 15), "bf16"))
    with pytest.raises(px.KernelError, match="matrix of floats"):
        K.softmax.specs(px.spec((4, 16), "int8"))


# -------------------------------------------------------------------------------------------------------- occupancy
def _occupancy(kernel, *inputs, **parameters):
    specs = kernel.specs(*inputs)
    shapes = {name: spec.shape for name, spec in specs.items()}
    return predict(kernel, specs, shapes, kernel.configuration(parameters), CHIP, Options()).occupancy


COLUMN = 32
"""Bytes of one element of a column of float32 in Vec: each row is padded to 32 bytes."""


def test_occupancy_of_norms_equals_a_hand_count():
    x, vector = px.spec((512, 1024), "bf16"), px.spec((1024,), "fp32")
    used = _occupancy(K.rms_norm, x, vector, m=8, steps=4, stages=3)
    # x and out cross pipes: three slots; weight crosses and is loaded once a block. While the squares are made
    # their tile and the wide one are alive.
    assert used["Vec"] == 3 * 2 * (8 * 1024 * 2) + 1024 * 4 + 2 * (8 * 1024 * 4)
    assert used["Mat"] == used["Acc"] == 0


# ---------------------------------------------------------------------------------- what the kernels rest on
def test_what_one_operand_lacks_is_padding():
    @pl.kernel(outputs={"out": lambda x, y: px.spec((16, 16), "fp32")}, tile={"m": 16})
    def joined(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        def block(i):
            a, b = (pl.load(t, (i * 16, 0), (tile.m, 16), space=pl.Vec) for t in (x, y))
            pl.store(out, (i * 16, 0), pl.add(a, b))

        pl.grid((1,), block)

    x, y = np.ones((16, 16), np.float32), np.ones((3, 5), np.float32)
    for first, second in ((x, y), (y, x)):
        out = np.asarray(px.run(joined, first, second))
        assert out.sum() == 2 * 3 * 5


def test_nothing_lies_beyond_a_leading_axis():
    @pl.kernel(outputs={"out": lambda x: x}, tile={"m": 16}, ranges={"steps": (1, 8)})
    def copy(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, steps: int = 4) -> None:
        def block(i):
            def step(r, nothing):
                at = (i * steps + r, 0, 0)
                pl.store(out, at, pl.add(pl.load(x, at, (1, tile.m, x.shape[2]), space=pl.Vec), 1.0))
                return nothing

            pl.pipeline(steps, step, (), stages=2)

        pl.grid((pl.cdiv(x.shape[0], steps),), block)

    x = np.random.default_rng(0).standard_normal((5, 10, 40)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(px.run(copy, x)), x + np.float32(1))
    specs = copy.specs(px.spec(x.shape, "fp32"))
    shapes = {name: spec.shape for name, spec in specs.items()}
    cost = predict(copy, specs, shapes, copy.configuration({}), CHIP.replace(aiv=1, aic=1), Options(warm=4))
    whole = predict(copy, specs, shapes, copy.configuration({"steps": 5}), CHIP.replace(aiv=1, aic=1), Options(warm=4))
    assert cost.useful["read"] <= 8 / 5 * whole.useful["read"]
