"""Values of the vector kernels against float64 NumPy, and what they occupy on chip."""

import itertools
from typing import Any

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


def _layer_norm(x, weight, bias):
    inverse = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
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
        _check(kernel, (x, ones, zeros), expected, magnitude, 20, m=8)


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


@pytest.mark.parametrize("shape", [(9, 3, 16), (1, 20, 64)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rope(shape, dtype):
    tokens, _, features = shape
    x = np.random.default_rng(4).standard_normal(shape).astype(dtype)
    angle = np.random.default_rng(5).uniform(-4, 4, (tokens, features // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    wide, turn = x.astype(np.float64), (cos + 1j * sin.astype(np.float64))[:, None]
    for kernel in (K.rope, K.rope_interleaved):
        pairs = wide.reshape(*shape[:2], -1, 2) if kernel is K.rope_interleaved else wide.reshape(*shape[:2], 2, -1)
        axis = 3 if kernel is K.rope_interleaved else 2
        turned = (np.take(pairs, 0, axis) + 1j * np.take(pairs, 1, axis)) * turn
        expected = np.stack([turned.real, turned.imag], axis).reshape(shape)
        _check(kernel, (x, cos, sin), expected, np.abs(wide).max() * 2, 3, m=16, steps=4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_quantize_per_token(shape, dtype):
    x = _rows(shape, dtype)
    x[-1] = 127 * np.sign(x[-1]) * (np.arange(shape[1]) % 128 + 0.5) / 127.5  # near ties, and the limit itself
    (wide,) = _wide(x)
    scales = np.maximum(np.abs(wide).max(1, keepdims=True), 1e-4) / 127
    for kernel in (K.quantize_per_token, K.quantize_per_token_tiled):
        parameters: dict[str, Any] = {"n": 64} if "n" in kernel.tile else {"m": 8}
        q, scale = (np.asarray(part) for part in px.run(kernel, x, **parameters))
        assert (q.dtype, scale.dtype, scale.shape) == (np.int8, np.float32, (shape[0], 1))
        np.testing.assert_allclose(scale, scales, rtol=2 * SINGLE)
        # to nearest; where x / scale is within its own rounding of a tie, either neighbour
        assert (np.abs(q - wide / scales) <= 0.5 + 127 * 4 * SINGLE).all()
        assert np.abs(q).max() <= 127
        back = np.asarray(px.run(K.dequantize_per_token, q, scale, m=8, n=64))
        np.testing.assert_array_equal(back, q.astype(np.float32) * scale)
        assert (np.abs(back - wide) <= (0.5 + 1e-4) * scales).all()
        reference, _ = px.reference(kernel, x, **parameters)
        np.testing.assert_allclose(reference, wide / scales, rtol=1e-14)


def test_a_row_of_zeros_has_a_scale():
    q, scale = px.run(K.quantize_per_token, np.zeros((3, 40), np.float32))
    assert not np.asarray(q).any()
    np.testing.assert_allclose(np.asarray(scale), 1e-4 / 127, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_quantize_per_channel(dtype):
    x = _rows((21, 150), dtype)
    scale = np.exp2(np.random.default_rng(6).integers(-6, 2, 150)).astype(np.float32)  # division is exact
    q = np.asarray(px.run(K.quantize_per_channel, x, scale, m=8, n=64))
    np.testing.assert_array_equal(q, np.clip(np.rint(_wide(x)[0] / scale), -128, 127))
    back = np.asarray(px.run(K.dequantize_per_channel, q, scale, m=8, n=64))
    np.testing.assert_array_equal(back, q.astype(np.float32) * scale)


@pytest.mark.parametrize("shape", [(40, 100, 70), (1, 17, 5), (33, 48, 129)])
def test_w8a8_matmul(shape):
    m, k, n = shape
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
    a_scale, b_scale = (rng.uniform(0.001, 0.1, s).astype(np.float32) for s in ((m, 1), (n,)))
    product = a.astype(np.int64) @ b.astype(np.int64)
    expected = product * a_scale.astype(np.float64) * b_scale
    for kernel in (K.w8a8_matmul, K.w8a8_matmul_fp32):
        _check(kernel, (a, b, a_scale, b_scale), expected, np.abs(expected), 3, m=16, n=32, k=48, group=2)


@pytest.mark.parametrize("dtype", [*DTYPES, np.int8])
def test_gather_rows(dtype):
    rng = np.random.default_rng(8)
    table = rng.integers(-100, 100, (53, 70)).astype(dtype)
    rows = rng.integers(0, 53, 41).astype(np.int32)
    rows[3:6] = rows[3]
    expected = table[rows]
    rows[[0, 40]], expected[[0, 40]] = [-1, 53], 0  # rows that the table does not have
    for m, n, steps in ((8, 32, 3), (16, 128, 1)):
        out = px.run(K.gather_rows, table, rows, m=m, n=n, steps=steps)
        np.testing.assert_array_equal(np.asarray(out), expected)
    np.testing.assert_array_equal(px.reference(K.gather_rows, table, rows), expected.astype(np.float64))


@pytest.mark.parametrize("dtype", [*DTYPES, np.int8])
def test_cache_write(dtype):
    rng = np.random.default_rng(9)
    x, cache = rng.integers(-100, 100, (21, 70)).astype(dtype), rng.integers(-100, 100, (90, 70)).astype(dtype)
    slots = rng.permutation(90)[:21].astype(np.int32)
    slots[[2, 20]] = [-1, 90]
    expected = cache.copy()
    kept = (slots >= 0) & (slots < 90)
    expected[slots[kept]] = x[kept]
    out = px.run(K.cache_write, x, slots, cache, m=8, n=32)
    np.testing.assert_array_equal(np.asarray(out), expected)
    np.testing.assert_array_equal(px.reference(K.cache_write, x, slots, cache), expected.astype(np.float64))


def test_a_gather_pays_for_each_row():
    def cost(rows, width, table=50000):
        specs = K.gather_rows.specs(px.spec((table, width), "bf16"), px.spec((rows,), "int32"))
        shapes = {name: spec.shape for name, spec in specs.items()}
        configuration = K.gather_rows.configuration({"m": 16, "n": 1024})
        return specs, predict(K.gather_rows, specs, shapes, configuration, CHIP, Options(warm=4))

    specs, narrow = cost(4096, 16)
    # the row numbers, and a line for each row, of which it asks for 32 bytes
    assert narrow.moved["read"] - 4096 * 512 == pytest.approx(4096 / 16 * 512)
    assert narrow.useful["read"] == 4096 * (32 + 4)
    assert narrow.moved["hbm"] == narrow.moved["read"]
    assert narrow.bound_us < narrow.time_us
    assert cost(4096, 1024)[1].time_us < cost(8192, 1024)[1].time_us
    # which rows it reads is not known: all of the table
    read = next(r for r in px.regions(K.gather_rows, specs, {}) if r.tensor == "table")
    assert (read.starts == 0).all()
    assert (read.sizes == [50000, 16]).all()


def _flushed(x):
    """What the host computes with: subnormal singles are zeros."""
    (wide,) = _wide(x)
    return np.where(np.abs(wide) < 2.0**-126, 0, wide)


def _top(x, k):
    """Columns of the k largest, the lowest first on ties: a stable sort."""
    return np.argsort(-x, axis=1, kind="stable")[:, :k]


def _scores(shape, dtype):
    x = _rows(shape, dtype)
    if shape[0] > 7:
        x[6], x[7] = -np.inf, np.where(np.arange(shape[1]) % 5 == 4, 1, -np.inf)
    return x


@pytest.mark.parametrize("shape", [(37, 150), (1, 17), (8, 512)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_argmax_over_shards_is_exact(shape, dtype):
    x = _scores(shape, dtype)
    bounds = [0, shape[1] // 3, shape[1] // 3 + 5, shape[1]]
    for start, stop in itertools.pairwise(bounds):
        x[-1, start:stop] = 9  # a tie between shards
    found = []
    for start, stop in itertools.pairwise(bounds):
        base = np.array([start], np.int32)
        value, index = px.run(K.argmax_shard, x[:, start:stop], base, m=16, n=32)
        np.testing.assert_array_equal(np.asarray(index)[:, 0], start + _flushed(x[:, start:stop]).argmax(1))
        found.append((np.asarray(value)[:, 0], np.asarray(index)[:, 0]))
    value, index = px.run(K.argmax_merge, *(np.stack(part) for part in zip(*found, strict=True)), n=16)
    np.testing.assert_array_equal(np.asarray(index), _flushed(x).argmax(1))
    np.testing.assert_allclose(np.asarray(value), x.max(1).astype(np.float32), rtol=0, atol=2.0**-126)


@pytest.mark.parametrize(("shape", "k", "groups"), [((37, 150), 8, 4), ((9, 70), 6, 13), ((1, 17), 17, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_top_k_is_exact(shape, k, groups, dtype):
    x = _scores(shape, dtype)
    expected = _top(_flushed(x), k)
    inner = K.top_k_groups(k, groups)
    values, indices = px.run(inner, x, m=16, n=32)
    assert values.shape == indices.shape == (shape[0], groups * k)
    if groups > 1:
        values, indices = px.run(K.top_k_merge(k), values, indices, m=8, n=16)
    np.testing.assert_array_equal(np.asarray(indices), expected)
    np.testing.assert_array_equal(np.asarray(values), np.take_along_axis(x, expected, 1).astype(np.float32))
    _, references = px.reference(K.top_k_groups(k), x, m=16, n=32)
    np.testing.assert_array_equal(references, _top(_wide(x)[0], k))  # subnormal singles are not so in float64


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


X, WEIGHT, NUMBERS = px.spec((512, 1024), "bf16"), px.spec((1024,), "fp32"), px.spec((512,), "int32")
INTEGERS, SCALES = px.spec((512, 1024), "int8"), px.spec((512, 1), "fp32")
HEADS, ANGLES = px.spec((300, 40, 128), "bf16"), px.spec((300, 64), "fp32")
ROW, TILE, HEAD = 8 * 1024, 16 * 256, 16 * 128
"""Elements of the tiles: eight whole rows, 16 by 256, and 16 heads."""

ONE_PASS = [
    # what crosses pipes has a slot for each stage; of what the vector core makes and uses, what is alive at once:
    # the wide tile and its squares
    (K.rms_norm, (X, WEIGHT), {"m": 8, "stages": 3}, 3 * 2 * ROW * 2 + 1024 * 4 + 2 * ROW * 4),
    # the centred tile and its squares
    (K.layer_norm, (X, WEIGHT, WEIGHT), {"m": 8}, 2 * 2 * ROW * 2 + 2 * 1024 * 4 + 2 * ROW * 4),
    # the wide tile and the maxima, later the exponentials and the sums
    (K.softmax, (X,), {"m": 8}, 2 * 2 * ROW * 2 + ROW * 4 + 8 * COLUMN),
    # gate, up, and what becomes of exp(-gate)
    (K.swiglu, (X, X), {"m": 16, "n": 256}, 2 * 3 * TILE * 2 + 3 * TILE * 4),
    # the sum is stored as it is
    (K.residual_add, (px.spec((512, 1024), "fp32"), X), {"m": 16, "n": 256}, 2 * TILE * (4 + 2 + 4) + TILE * 4),
    # the head and two products; the halves are views, or copies of which the head is not needed any more
    (K.rope, (HEADS, ANGLES, ANGLES), {"m": 16}, 2 * 2 * HEAD * 2 + 2 * 2 * 64 * 4 + 2 * HEAD * 4),
    (K.rope_interleaved, (HEADS, ANGLES, ANGLES), {"m": 16}, 2 * 2 * HEAD * 2 + 2 * 2 * 64 * 4 + 2 * HEAD * 4),
    # the wide tile and its magnitudes
    (K.quantize_per_token, (X,), {"m": 8}, 2 * (ROW * 2 + ROW + 8 * COLUMN) + 2 * ROW * 4),
    (K.quantize_per_channel, (X, WEIGHT), {"m": 16, "n": 256}, 2 * TILE * (2 + 1) + 256 * 4 + TILE * 4),
    (K.dequantize_per_token, (INTEGERS, SCALES), {"m": 16, "n": 256}, 2 * (TILE * (1 + 4) + 16 * COLUMN) + TILE * 4),
    (K.dequantize_per_channel, (INTEGERS, WEIGHT), {"m": 16, "n": 256}, 2 * TILE * (1 + 4) + 256 * 4 + TILE * 4),
    # row numbers that only loads use have one slot
    (K.gather_rows, (px.spec((5000, 1024), "bf16"), NUMBERS), {"m": 16, "n": 256}, 2 * TILE * 2 + 16 * 4),
    (K.cache_write, (X, NUMBERS, px.spec((5000, 1024), "bf16")), {"m": 16, "n": 256}, 2 * (TILE * 2 + 16 * 4)),
    (
        K.argmax_merge,
        (px.spec((16, 512), "fp32"), px.spec((16, 512), "int32")),
        {"n": 64},
        2 * 4 * 64 * 4 + 2 * 64 * 4,
    ),
    # both concatenations, the columns that were chosen, and what the loop was given
    (K.top_k_groups(8, 4), (X,), {"m": 16, "n": 256}, 2 * (TILE * 2 + 2 * 16 * 32) + 2 * 16 * 264 * 4 + 3 * 16 * 32),
    (
        K.top_k_merge(8),
        (px.spec((512, 32), "fp32"), px.spec((512, 32), "int32")),
        {"m": 16, "n": 16},
        2 * 2 * (16 * 16 * 4 + 16 * 32) + 2 * 16 * 24 * 4 + 3 * 16 * 32,
    ),
]

SEVERAL_PASSES = [
    # logits and the running maximum cross; the wide tile, its maxima, and what the loop was given
    (K.argmax_shard, (X, px.spec((1,), "int32")), 0, 2 * (TILE * 2 + 16 * COLUMN) + TILE * 4 + 3 * 16 * COLUMN),
    # the pass that writes: its tiles, the wide one, and the columns that it is given
    (K.rms_norm_tiled, (X, WEIGHT), 1, 2 * 2 * TILE * 2 + 2 * 256 * 4 + TILE * 4 + 16 * COLUMN),
    (K.layer_norm_tiled, (X, WEIGHT, WEIGHT), 1, 2 * 2 * TILE * 2 + 2 * 2 * 256 * 4 + TILE * 4 + 2 * 16 * COLUMN),
    (K.softmax_two_pass, (X,), 2, 2 * 2 * TILE * 2 + TILE * 4 + 2 * 16 * COLUMN),
    (K.softmax_online, (X,), 1, 2 * 2 * TILE * 2 + TILE * 4 + 2 * 16 * COLUMN),
    (K.quantize_per_token_tiled, (X,), 1, 2 * TILE * (2 + 1) + TILE * 4 + 16 * COLUMN),
]


@pytest.mark.parametrize(
    ("kernel", "inputs", "parameters", "expected"), ONE_PASS, ids=[case[0].name for case in ONE_PASS]
)
def test_occupancy_equals_a_hand_count(kernel, inputs, parameters, expected):
    used = _occupancy(kernel, *inputs, **parameters)
    assert used["Vec"] == expected
    assert used["Mat"] == used["Acc"] == 0


@pytest.mark.parametrize(
    ("kernel", "inputs", "before", "expected"), SEVERAL_PASSES, ids=[case[0].name for case in SEVERAL_PASSES]
)
def test_occupancy_of_passes_is_bracketed_by_hand_counts(kernel, inputs, before, expected):
    """What the last pass needs, at most with the loads of the passes before it on top; up to two columns apart."""
    used = _occupancy(kernel, *inputs, m=16, n=256)["Vec"]
    columns = 2 * 16 * COLUMN
    assert expected - columns <= used <= expected + before * 2 * TILE * 2 + columns


def test_occupancy_of_a_mixed_kernel_equals_a_hand_count():
    inputs = INTEGERS, px.spec((1024, 1024), "int8"), SCALES, WEIGHT
    used = _occupancy(K.w8a8_matmul, *inputs, m=64, n=128, k=256)
    assert used["Mat"] == 2 * (64 * 256 + 256 * 128)
    assert used["Acc"] == 64 * 128 * 4
    # each of two vector cores holds half: two slots of the accumulator on its way, where the float32 tiles take its
    # place, and the scales; the output comes when both slots are done with
    assert used["Vec"] == (2 * 64 * 128 * 4 + 64 * COLUMN + 128 * 4) / 2


# -------------------------------------------------------------------------------------------------------- traffic
def test_a_second_pass_finds_its_tiles_in_l2():
    def cost(rows, columns, chip=CHIP):
        specs = K.softmax_two_pass.specs(px.spec((rows, columns), "bf16"))
        shapes = {name: spec.shape for name, spec in specs.items()}
        configuration = K.softmax_two_pass.configuration({"m": 16, "n": 1024})
        return predict(K.softmax_two_pass, specs, shapes, configuration, chip, Options(warm=4))

    rows, columns = 4096, 8192
    once = rows * columns * 2
    small = cost(rows, columns)
    assert small.moved["read"] == pytest.approx(3 * once)
    assert small.moved["hbm"] == pytest.approx(once)
    # tiles of all cores together that L2 does not hold come from HBM on every pass
    lost = cost(rows, columns, CHIP.replace(l2=1 << 20))
    assert lost.moved["hbm"] == pytest.approx(3 * once)
    assert lost.time_us > small.time_us


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


@pytest.mark.parametrize("length", [130_000, 140_000])
def test_sums_of_int8_products_that_may_wrap_are_named(length):
    kernel = px.kernels.w8a8_matmul
    operands = px.spec((16, length), "int8"), px.spec((length, 64), "int8")
    specs = kernel.specs(*operands, px.spec((16, 1), "fp32"), px.spec((64,), "fp32"))
    hints = px.cost.verify(kernel, specs, {}, px.hardware.a2a3()).hints
    named = [hint for hint in hints if hint.code == "PT205"]
    assert len(named) == (length >= 1 << 17)


def test_operands_of_other_shapes_are_named():
    @px.kernel(outputs={"out": lambda x: x})
    def uneven(x: pl.Tensor, out: pl.Tensor) -> None:
        def block(_):
            whole, half = (pl.load(x, (0, 0), (64, width), space=pl.Vec) for width in (64, 32))
            pl.store(out, (0, 0), pl.add(whole, half))

        pl.grid((1,), block)

    with pytest.raises(px.KernelError, match=r"`add` needs operands of one shape.*fp32\[64,64\] and fp32\[64,32\]"):
        px.run(uneven, np.zeros((64, 64), np.float32))
