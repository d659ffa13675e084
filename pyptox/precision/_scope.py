"""Contexts in which JAX computes on the CPU, with and without float64; the caller's settings are untouched."""

import contextlib
from collections.abc import Iterator

import jax


def rounded_apart(result: jax.Array, one: jax.Array) -> jax.Array:
    """``result``, such that what is computed from it starts from its rounded value, as on a chip.

    XLA on CPUs contracts a product and a sum that follow each other into one rounding (FMA) where it fuses them, which
    changes a quarter of the results of ``a * b + c``. A factor that is only known at run time to be one prevents it:
    the product with it is exact, so that its contraction is harmless.

    >>> import numpy as np
    >>> a, b, c = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)
    >>> with stored_scope():
    ...     apart = jax.jit(lambda a, b, c, one: rounded_apart(a * b, one) + c)(a, b, c, np.float32(1))
    >>> bool((np.asarray(apart) == (a * b) + c).all())
    True
    """
    return result * one if result.dtype == one.dtype else result


@contextlib.contextmanager
def _scope(float64: bool) -> Iterator[None]:
    with jax.enable_x64(float64), jax.default_device(jax.devices("cpu")[0]):
        yield


def float64_scope() -> contextlib.AbstractContextManager[None]:
    """JAX has float64 and computes on the CPU. Hand NumPy arrays in and out: a float64 array degrades outside."""
    return _scope(True)


def stored_scope() -> contextlib.AbstractContextManager[None]:
    """JAX has no float64 and computes on the CPU, as a kernel in its stored types expects it."""
    return _scope(False)
