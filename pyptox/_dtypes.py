"""The element types that kernels use, with their sizes in bytes, and the formats that values are rounded to."""

from dataclasses import dataclass
from typing import Any

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


FORMATS = DTYPES | {
    dtype.name: dtype
    for dtype in (_make("fp8_e4m3fn", jnp.float8_e4m3fn, 2.0**-4), _make("fp8_e5m2", jnp.float8_e5m2, 2.0**-3))
}
"""What :func:`pyptox.precision.cast` rounds to: the types of kernels, and the two 8-bit floats."""

_BY_DTYPE = {kind.jax: kind for kind in FORMATS.values()}


def format_of(dtype: Any) -> DType:
    """The format called ``dtype``, by its name here, its long name, or as a NumPy or JAX dtype.

    >>> format_of("fp8_e4m3fn").bytes, format_of(jnp.bfloat16).name, format_of("float8_e5m2").name
    (1, 'bf16', 'fp8_e5m2')
    """
    if isinstance(dtype, str) and (kind := FORMATS.get(_ALIASES.get(dtype, dtype))):
        return kind
    try:
        return _BY_DTYPE[jnp.dtype(dtype)]
    except (KeyError, TypeError):
        raise ValueError(f"`dtype` must be one of {', '.join(FORMATS)}; got {dtype!r}") from None
