"""The element types that kernels use, with their sizes in bytes."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type: its name in kernels, bytes an element, and the JAX dtype that stores it."""

    name: str
    bytes: int
    jax: np.dtype
    floating: bool
    unit_roundoff: float


def _make(name: str, jax_type, unit_roundoff: float) -> DType:
    dtype = jnp.dtype(jax_type)
    return DType(name, dtype.itemsize, dtype, unit_roundoff > 0, unit_roundoff)


DTYPES = {
    dtype.name: dtype
    for dtype in (
        _make("bf16", jnp.bfloat16, 2.0**-8),
        _make("fp16", jnp.float16, 2.0**-11),
        _make("fp32", jnp.float32, 2.0**-24),
        _make("int8", jnp.int8, 0.0),
        _make("int32", jnp.int32, 0.0),
    )
}
_ALIASES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


def dtype_of(name: str) -> DType:
    """The type called ``name`` (``bf16``, ``fp16``, ``fp32``, ``int8``, ``int32``, or its long spelling).

    >>> dtype_of("bfloat16").bytes
    2
    """
    key = str(name)
    key = _ALIASES.get(key, key)
    if key not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}; got {name!r}")
    return DTYPES[key]
