"""Random bits for stochastic rounding, by hashing each element's place."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Noise(NamedTuple):
    """Bits of element ``n`` are those of place ``start + n``, so that pieces of an array round as the whole does.

    Several times as fast as a cryptographic generator. Source: the finaliser ``lowbias32`` of C. Wellons, "Prospecting
    for Hash Functions" (2018), keyed twice.
    """

    seeds: Any  # uint32, three words
    start: Any = 0

    @classmethod
    def of(cls, key: Any) -> "Noise":
        """The noise of a key of ``jax.random``.

        >>> Noise.of(jax.random.key(0)).bits((2,), jnp.uint32).shape
        (2,)
        """
        dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
        typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
        if not (typed and shape == ()) and not (dtype == np.uint32 and shape == (2,)):
            got = repr(key) if dtype is None else f"{dtype}{list(shape or ())}"
            raise ValueError(f"`key` must be one key of jax.random; got {got}. Try jax.random.key(0)")
        return cls(jax.random.bits(key, (3,), jnp.uint32))

    def bits(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Uniform bits of an unsigned type."""
        kind = np.dtype(dtype)
        place = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) + jnp.uint32(self.start)
        mixed = _hashed(place ^ self.seeds[0])
        low = _hashed(mixed ^ self.seeds[1])
        if kind.itemsize <= 4:
            return low.astype(kind)
        high = _hashed(mixed ^ self.seeds[2])
        return high.astype(kind) << kind.type(32) | low.astype(kind)


def _hashed(x: jax.Array) -> jax.Array:
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x ^ (x >> np.uint32(16))
