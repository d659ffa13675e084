"""Contexts in which JAX computes on the CPU, with and without float64; the caller's settings are untouched."""

import contextlib
from collections.abc import Iterator

import jax


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
