"""Arrays of 16-bit floats as bits while they are cut and written in loops.

On the CPU the compiler has no 16-bit floats: it widens the whole array around every slice and every update, and moves
the widening out of the loop, so that a weight takes three times its bytes and a cache is copied at every write.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def narrow(dtype: Any) -> bool:
    """Whether the CPU's compiler widens all of an array of this type around each cut and each write in a loop."""
    return jnp.issubdtype(dtype, jnp.floating) and jnp.dtype(dtype).itemsize == 2


def as_type(array: jax.Array, dtype: Any) -> jax.Array:
    """The same bits as another type of that size."""
    return array if array.dtype == dtype else jax.lax.bitcast_convert_type(array, dtype)


def bits_of(array: jax.Array) -> jax.Array:
    return as_type(array, jnp.uint16)


def sliced(array: jax.Array, starts: Sequence, shape: tuple[int, ...]) -> jax.Array:
    """A slice; of 16-bit floats as bits that depend on where it is, so that no loop begins with a copy of them all."""
    if not narrow(array.dtype):
        return jax.lax.dynamic_slice(array, starts, shape)
    array, starts = jax.lax.optimization_barrier((array, tuple(starts)))
    return as_type(jax.lax.dynamic_slice(bits_of(array), starts, shape), array.dtype)
