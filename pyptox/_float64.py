"""The scope in which references are computed: float64, on the CPU, whatever the caller has set, in any thread."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer, eval_context

from ._errors import PyptoxError


@contextlib.contextmanager
def float64_scope() -> Iterator[None]:
    """Float64 on the first CPU device, computed at once even while the caller is being traced.

    The setting is the thread's own, so it is entered in the thread that computes; the caller's is untouched.
    """
    with eval_context(), jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield


def widened(name: str, array: Any) -> np.ndarray:
    """An input of a reference: int32 as it is (it may address data), everything else exactly as float64."""
    if isinstance(array, Tracer):
        raise PyptoxError(
            f"`{name}` of a reference must be an array with values; got a value that is being traced. Call it outside "
            "jax.jit, jax.grad and jax.vmap, or through jax.pure_callback"
        )
    array = np.asarray(array)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return array if array.dtype == np.int32 else array.astype(np.float64)


def collected(names: Sequence[str], outputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """The outputs of a reference as NumPy arrays, each checked to be float64 (or int32, which holds no rounding).

    Carried out of the scope as they are, they would turn to float32 at the next operation.
    """
    arrays = tuple(np.asarray(output) for output in outputs)
    for name, array in zip(names, arrays, strict=True):
        if array.dtype not in (np.float64, np.int32):
            raise AssertionError(f"`{name}` of a reference is {array.dtype}, not float64: an operation narrowed it")
    return arrays
