"""Computing a kernel in its stored types as a chip does: one rounding an operation, on the CPU, without float64."""

import contextlib
from collections.abc import Iterator

import jax
from jax.core import eval_context


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
def stored_scope() -> Iterator[None]:
    """JAX has no float64 and computes on the first CPU device; the caller's settings are untouched."""
    with eval_context(), jax.enable_x64(False), jax.default_device(jax.devices("cpu")[0]):
        yield
