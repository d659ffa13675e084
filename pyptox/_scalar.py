"""Arithmetic that works alike on Python numbers and on traced JAX scalars.

The cost reading of a kernel computes with traced scalars, the full simulation and the regions with plain
floats. Every formula is written once against these functions: plain numbers stay plain (no device work),
anything else goes through ``jax.numpy``.

Two habits keep the traced form fast and exact. ``maximum`` is a ``where``, whose derivative compiles to a
select instead of the balanced-tie rule. ``cdiv`` divides two values that are both runtime values, since XLA
turns a division by a literal into a multiplication that is off by one ulp at exact multiples; its relaxed
derivative is a primitive's own, which multiplies by one reciprocal.
"""

import contextlib
import contextvars
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ._dual import Dual

Scalar = Any  # int, float or a traced float32/int32 scalar (or an array of them)

_PLAIN = (int, float, Dual)

_RELAXED: contextvars.ContextVar[bool] = contextvars.ContextVar("pyptox_relaxed", default=False)


@contextlib.contextmanager
def relaxed(flag: bool):
    """Within this context ``ceil`` keeps its exact value and has the derivative of the identity."""
    token = _RELAXED.set(flag)
    try:
        yield
    finally:
        _RELAXED.reset(token)


def is_number(*values: Scalar) -> bool:
    """True when every value is a plain Python number, or a :class:`pyptox._dual.Dual` of plain numbers."""
    for value in values:  # noqa: SIM110  (called for every number of a plain reading: a generator takes twice as long)
        if not isinstance(value, _PLAIN):
            return False
    return True


def is_zero(value: Scalar) -> bool:
    """True for the literal zero; a traced value that happens to be zero is not."""
    return isinstance(value, int | float) and value == 0


def where(condition: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """``a`` where the condition holds, ``b`` elsewhere."""
    if isinstance(condition, bool):
        return a if condition else b
    if a is b:
        return a
    return jnp.where(condition, a, b)


def maximum(a: Scalar, b: Scalar) -> Scalar:
    """The larger value; the derivative is that of the larger operand (the first, on ties)."""
    if is_number(a, b):
        return a if a >= b else b
    if a is b:
        return a
    return jnp.where(b > a, b, a)


def minimum(a: Scalar, b: Scalar) -> Scalar:
    """The smaller value; the derivative is that of the smaller operand (the first, on ties)."""
    if is_number(a, b):
        return a if a <= b else b
    if a is b:
        return a
    return jnp.where(b < a, b, a)


def later(a: Scalar, b: Scalar) -> Scalar:
    """The later of two times. Times are never negative, so a literal zero is dropped at trace time."""
    if is_zero(a):
        return b
    if is_zero(b):
        return a
    return maximum(a, b)


def clip(value: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """``value`` limited to ``[low, high]``."""
    return minimum(maximum(value, low), high)


def ceil(value: Scalar) -> Scalar:
    """Round up. Under ``relaxed(True)`` the value is the same and the slope is one."""
    if is_number(value):
        return float(math.ceil(value))
    rounded = jnp.ceil(value)
    if _RELAXED.get():
        return value + jax.lax.stop_gradient(rounded - value)
    return jax.lax.stop_gradient(rounded)


def cdiv(a: Scalar, b: Scalar) -> Scalar:
    """``ceil(a / b)``, exact for integers below 2**24 in float32."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    if is_number(a, b):
        return float(math.ceil(a / b))
    if _RELAXED.get():
        return ceil_of_ratio.bind(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32))
    return jax.lax.stop_gradient(jnp.ceil(a / b))


ceil_of_ratio = Primitive("ceil_of_ratio")
"""``ceil(a / b)`` with the derivative of ``a / b``; either may be a scalar."""


def _ratio_rounded_up(a: Any, b: Any) -> Any:
    return jnp.ceil(a / b)


def _ratio_tangent(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a, b), (a_dot, b_dot) = primals, tangents
    value = ceil_of_ratio.bind(a, b)
    inverse = 1.0 / b
    slope: Any = 0.0 if isinstance(a_dot, ad.Zero) else a_dot
    if not isinstance(b_dot, ad.Zero):
        slope = slope - (a * inverse) * b_dot
    return value, jnp.broadcast_to(slope * inverse, jnp.shape(value))


ceil_of_ratio.def_impl(jax.jit(_ratio_rounded_up))
ceil_of_ratio.def_abstract_eval(lambda a, b: ShapedArray(jnp.broadcast_shapes(a.shape, b.shape), a.dtype))
ad.primitive_jvps[ceil_of_ratio] = _ratio_tangent
batching.defbroadcasting(ceil_of_ratio)
mlir.register_lowering(ceil_of_ratio, mlir.lower_fun(_ratio_rounded_up, multiple_results=False))


def floor(value: Scalar) -> Scalar:
    """Round down, with the derivative rule of :func:`ceil`."""
    return -ceil(-value)


def round_up(value: Scalar, step: Scalar) -> Scalar:
    """``value`` rounded up to a multiple of ``step``."""
    return cdiv(value, step) * step
