"""One rounding an operation, as on a chip, whatever the compiler would make of several.

XLA folds ``(x + a) - b`` into one sum, ``x / 3`` into a product and ``log(exp(x))`` into ``x``, contracts a product and
a sum into one rounding, and computes chains of narrow types in float32. Each changes what a kernel's values are, and
hides the faults that a comparison with float64 is to find. An exclusive or of the stored bits with a zero that is only
known at run time changes nothing, and nothing can be folded across it.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_ZERO: ContextVar[Any] = ContextVar("zero", default=None)
_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}


def apart(value: jax.Array) -> jax.Array:
    """``value``, such that what is computed from it starts from its stored bits; inside :func:`jitted_apart` only.

    Floats of 32 bits and fewer. Derivatives pass through.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    >>> chain = jitted_apart(lambda x: apart(apart(x * x) + x))
    >>> bool((np.asarray(chain(x)) == x * x + x).all())
    True
    """
    zero = _ZERO.get()
    if zero is None or not _is_apart(value):
        return value
    return _unchanged(value, zero)


def quotient(dividend: jax.Array, divisor: jax.Array) -> jax.Array:
    """``dividend / divisor``; of one divisor for many elements XLA would take the reciprocal, and round twice.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    >>> bool((np.asarray(jitted_apart(quotient)(x, np.float32(3))) == x / np.float32(3)).all())
    True
    """
    zero = _ZERO.get()
    if zero is None or dividend.dtype != divisor.dtype or not _is_apart(dividend):
        return jnp.divide(dividend, divisor)
    dividend, divisor = jnp.broadcast_arrays(dividend, divisor)
    unsigned = _UNSIGNED[dividend.dtype.itemsize]
    zeros = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(dividend), unsigned) & zero.astype(unsigned)
    return jnp.divide(dividend, _unchanged(divisor, zeros))


def _is_apart(value: jax.Array) -> bool:
    return jnp.issubdtype(value.dtype, jnp.floating) and value.dtype.itemsize in _UNSIGNED


@jax.custom_jvp
def _unchanged(value: jax.Array, zero: jax.Array) -> jax.Array:
    unsigned = _UNSIGNED[value.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(value, unsigned)
    return jax.lax.bitcast_convert_type(bits ^ zero.astype(unsigned), value.dtype)


@_unchanged.defjvp
def _unchanged_jvp(primals: tuple, tangents: tuple) -> tuple:
    return _unchanged(*primals), tangents[0]


@dataclass(frozen=True)
class Jitted:
    """A compiled function; ``compiled`` takes the zero first."""

    compiled: Any

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(self._zero(arguments), *arguments)

    def lower(self, *arguments: Any) -> Any:
        """As of ``jax.jit``."""
        return self.compiled.lower(self._zero(arguments), *arguments)

    @property
    def compilations(self) -> int:
        """For how many types of arguments it was compiled."""
        return self.compiled._cache_size()

    def _zero(self, arguments: tuple) -> Any:
        zero = _ZERO.get()
        if zero is not None:
            return zero
        if any(isinstance(leaf, Tracer) for leaf in jax.tree_util.tree_leaves(arguments)):
            return jax.lax.optimization_barrier(jnp.uint32(0))
        return np.uint32(0)


def jitted_apart(function: Callable[..., Any], donate: Sequence[int] = ()) -> Jitted:
    """``jax.jit(function)``, in which :func:`apart` works.

    In a function that a caller has jitted the zero is known; a barrier then hides it as long as XLA heeds barriers.
    """

    def traced(zero: jax.Array, *arguments: Any) -> Any:
        token = _ZERO.set(zero)
        try:
            return function(*arguments)
        finally:
            _ZERO.reset(token)

    return Jitted(jax.jit(traced, donate_argnums=tuple(n + 1 for n in donate)))
