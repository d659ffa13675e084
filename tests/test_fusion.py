"""Bounded fusion changes neither values nor derivatives, whatever it keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pyptox.cost._fusion import BARRIERS_HOLD, bounded


@jax.jit
def _inner(x, y):
    return jnp.where(x >= y, x, y) / y


def _chain(x, y, scalar):
    seen = [x, y]
    for n in range(30):
        a, b = seen[-1], seen[-2 if n % 3 else 0]
        seen.append(_inner(a + scalar, b) + jnp.ceil(a) * jnp.float32(0.25) + _inner(a + scalar, b))
    seen.append(jax.nn.relu(seen[-1]) * jax.lax.cond(scalar > 1, jnp.sin, jnp.cos, seen[3]))  # holds functions
    table = jnp.cumsum(seen[-1]) + jnp.sum(seen[5])
    return {"last": seen[-1], "sum": table, "input": x, "scalar": scalar * 2}


X = np.linspace(1, 2, 64, dtype=np.float32)
ARGUMENTS = (X, X[::-1].copy(), jnp.float32(1.5))


@pytest.mark.parametrize(("keep", "largest"), [(0, 1), (3, 20), (100, 1000)])
def test_values_and_tangents_are_those_of_the_function(keep, largest):
    cut = bounded(_chain, *ARGUMENTS, keep=keep, largest=largest)
    compiled = jax.jit(cut, compiler_options=BARRIERS_HOLD)(*ARGUMENTS)
    tangents = (jnp.ones_like(X), jnp.zeros_like(X), jnp.float32(0.5))
    expected, expected_slopes = jax.jvp(_chain, ARGUMENTS, tangents)
    slopes = jax.jvp(cut, ARGUMENTS, tangents)[1]
    for name, value in expected.items():
        np.testing.assert_allclose(compiled[name], value, rtol=1e-5)
        scale = float(np.max(np.abs(expected_slopes[name])))  # slopes cross zero
        np.testing.assert_allclose(slopes[name], expected_slopes[name], rtol=1e-4, atol=1e-5 * scale)


def test_equal_work_is_merged_and_unused_work_dropped():
    def wasteful(x):
        _ = jnp.exp(x)
        return (x + 1.0) * (x + 1.0) + jnp.float32(1.0) * (1 + x.astype(jnp.int32)).astype(jnp.float32)

    jaxpr = jax.make_jaxpr(bounded(wasteful, X, keep=0, largest=10))(X)
    names = [equation.primitive.name for equation in jaxpr.jaxpr.eqns]
    assert "exp" not in names
    # x + 1, the two sums of different types, and the last one
    assert names.count("add") == 3


def test_barriers_last_until_kernels_are_formed():
    def shared(x):
        kept = jnp.sin(x) * 2.0 + 1.0
        return kept * 3.0, kept - x

    def kernels(function):
        text = jax.jit(function, compiler_options=BARRIERS_HOLD).lower(X).compile().as_text()
        return str(text).count(" fusion(")

    def barred(x):
        return shared(jax.lax.optimization_barrier(x + 1.0))

    # should the compiler lose the pass that is named in the options, barriers would silently do nothing
    assert kernels(barred) == kernels(shared) + 1
