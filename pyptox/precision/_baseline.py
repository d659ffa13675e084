"""Plain JAX in the same element types: what a kernel's error is held against, where it is not the kernel's fault."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import PyptoxError
from .._rounding import cast
from ..lang._kernel import Kernel
from ..lang._types import Spec

_FLOAT32 = jnp.float32


def _product(a: jax.Array, b: jax.Array, **_: Any) -> jax.Array:
    if a.dtype == jnp.int8:
        return jnp.matmul(a, b, preferred_element_type=jnp.int32)
    return jnp.matmul(a, b, preferred_element_type=_FLOAT32, precision=jax.lax.Precision.HIGHEST)


def _product_nt(a: jax.Array, b: jax.Array, **_: Any) -> jax.Array:
    return _product(a, b.T)


def _attention(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool = False, **_: Any) -> jax.Array:
    scores = jnp.einsum("gmk,gnk->gmn", q, k, preferred_element_type=_FLOAT32) * _FLOAT32(q.shape[-1] ** -0.5)
    if causal:
        later = jnp.arange(k.shape[1], dtype=jnp.int32)[None, :] > jnp.arange(q.shape[1], dtype=jnp.int32)[:, None]
        scores = jnp.where(later[None], _FLOAT32(-jnp.inf), scores)
    weights = cast(jax.nn.softmax(scores, axis=-1), v.dtype)
    return jnp.einsum("gmn,gnk->gmk", weights, v, preferred_element_type=_FLOAT32)


def _rms_norm(x: jax.Array, weight: jax.Array, epsilon: float, **_: Any) -> jax.Array:
    wide = x.astype(_FLOAT32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + _FLOAT32(epsilon))
    return wide * scale * weight.astype(_FLOAT32)[None, :]


def _layer_norm(x: jax.Array, weight: jax.Array, bias: jax.Array, epsilon: float, **_: Any) -> jax.Array:
    wide = x.astype(_FLOAT32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + _FLOAT32(epsilon))
    return centred * scale * weight.astype(_FLOAT32)[None, :] + bias.astype(_FLOAT32)[None, :]


def _softmax(x: jax.Array, **_: Any) -> jax.Array:
    return jax.nn.softmax(x.astype(_FLOAT32), axis=-1)


def _swiglu(gate: jax.Array, up: jax.Array, **_: Any) -> jax.Array:
    return jax.nn.silu(gate.astype(_FLOAT32)) * up.astype(_FLOAT32)


def _residual_add(residual: jax.Array, x: jax.Array, **_: Any) -> jax.Array:
    return residual.astype(_FLOAT32) + x.astype(_FLOAT32)


BASELINES: Mapping[str, Callable[..., jax.Array]] = {
    **dict.fromkeys(("matmul", "matmul_split_k"), _product),
    **dict.fromkeys(("matmul_nt", "matmul_split_k_nt", "matmul_panels", "matmul_staged"), _product_nt),
    "flash_attention": _attention,
    **dict.fromkeys(("rms_norm", "rms_norm_tiled"), _rms_norm),
    **dict.fromkeys(("layer_norm", "layer_norm_tiled"), _layer_norm),
    **dict.fromkeys(("softmax", "softmax_two_pass", "softmax_online"), _softmax),
    "swiglu": _swiglu,
    "residual_add": _residual_add,
}
"""By kernel name: a function of the inputs and of the choices by name; what it gives is cast to the output's type."""


def baseline(kernel: Kernel, inputs: Any, values: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The output of ``kernel`` as plain JAX computes it in the same types, by name.

    Raises:
        PyptoxError: there is no plain implementation of this kernel.
    """
    if kernel.name not in BASELINES:
        raise PyptoxError(
            f"`kernel` {kernel.name} has no plain implementation; there is one of {', '.join(BASELINES)}. Give the "
            "outputs of one as `baseline`"
        )
    function, chosen = BASELINES[kernel.name], {name: values[name] for name in kernel.choices}
    (name,) = kernel.outputs
    dtype = kernel.specs(*(Spec(array.shape, str(array.dtype)) for array in inputs))[name].dtype
    return {name: jax.jit(lambda *arrays: cast(function(*arrays, **chosen), dtype))(*inputs)}
