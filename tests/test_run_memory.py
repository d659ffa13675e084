"""What a kernel's values need in memory: 16-bit tensors are neither widened nor copied as a whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox.lang._run import _lookup


def _temporary_bytes(kernel, specs, values):
    types = {"bf16": jnp.bfloat16, "fp16": jnp.float16, "fp32": jnp.float32, "int32": jnp.int32}
    inputs = [jax.ShapeDtypeStruct(specs[name].shape, types[specs[name].dtype]) for name in kernel.inputs]
    found = _lookup(kernel, specs, values, None, False).lower(*inputs).compile().memory_analysis()
    assert found is not None
    return found.temp_size_in_bytes


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_weight_is_read_where_it_lies(dtype):
    kernel = px.kernels.matmul_wide
    specs = kernel.specs(px.spec((16, 2048), dtype), px.spec((2048, 4096), dtype))
    used = _temporary_bytes(kernel, specs, {"m": 16, "n": 256, "k": 256, "stages": 2})
    assert used < 0.1 * 2048 * 4096 * 2


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_rows_are_gathered_from_where_they_lie(dtype):
    kernel = px.kernels.gather_rows
    specs = kernel.specs(px.spec((20000, 512), dtype), px.spec((16,), "int32"))
    used = _temporary_bytes(kernel, specs, {"m": 16, "n": 128, "stages": 2})
    assert used < 0.1 * 20000 * 512 * 2


def test_rows_beyond_the_table_and_columns_beyond_its_end():
    table = np.arange(60, dtype=np.float32).reshape(6, 10).astype(jnp.bfloat16)
    rows = np.array([5, 6, 0, 2**31 - 1, 3], np.int32)
    found = np.asarray(px.run(px.kernels.gather_rows, jnp.asarray(table), jnp.asarray(rows), m=4, n=16), np.float32)
    expected = np.zeros((5, 10), np.float32)
    for at, row in enumerate(rows):
        if row < 6:
            expected[at] = table[row]
    np.testing.assert_array_equal(found, expected)
