"""Contexts in which JAX computes on the CPU, with and without float64; the caller's settings are untouched."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

_OPTIONS = {"xla_backend_optimization_level": 0}
"""LLVM's higher levels contract a product and a sum into one rounding (FMA), here and not there as loops are fused; a
quarter of the results of ``a * b + c`` differ then. Compiling takes half the time."""


def each_rounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` jitted so that every operation rounds its own result, as the instructions of a chip do.

    >>> import numpy as np
    >>> a, b, c = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)
    >>> with stored_scope():
    ...     apart = np.asarray(each_rounded(lambda a, b, c: a * b + c)(a, b, c))
    >>> bool((apart == (a * b) + c).all())
    True
    """
    return jax.jit(function, compiler_options=_OPTIONS)


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
