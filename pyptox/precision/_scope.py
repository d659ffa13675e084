"""Computing a kernel in its stored types as a chip does: one rounding an operation, on the CPU, without float64."""

import contextlib
from collections.abc import Iterator

import jax
from jax.core import eval_context


@contextlib.contextmanager
def stored_scope() -> Iterator[None]:
    """JAX has no float64 and computes on the first CPU device; the caller's settings are untouched."""
    with eval_context(), jax.enable_x64(False), jax.default_device(jax.devices("cpu")[0]):
        yield
