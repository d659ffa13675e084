"""Specs of the arguments of the decode programs."""

from collections.abc import Iterable, Sequence
from typing import Any

from pyptox import lang as pl
from pyptox import spec

from ._config import PAGE, Config, ModelError
from ._tasks import Step
from ._variant import Variant
from ._weights import NORMS, checked_dtype, layer_shapes

ROW_ARGUMENTS = ("slots", "places", "table", "lengths", "ones")
CACHES = ("k_cache", "v_cache")


def layer_arguments(config: Config, dtype: str) -> dict[str, Any]:
    """The spec of every weight of a layer."""
    stored = "fp32" if dtype == "fp32" else "bf16"
    found: dict[str, Any] = {}
    for name, shape in layer_shapes(config).items():
        if name in NORMS:
            found[name] = spec(shape, "fp32")
        elif dtype == "a8w8":
            found[name], found[f"{name}_scale"] = spec(shape, "int8"), spec(shape[1:], "fp32")
        else:
            found[name] = spec(shape, stored)
    return found


def layer_specs(config: Config, variant: Variant, dtype: str, lengths: Iterable[int]) -> tuple[Any, ...]:
    """Specs of the arguments of :func:`layer_program` for one window of requests of ``lengths`` keys.

    Raises:
        ModelError: as :func:`decode_specs`; more requests than a window has rows.
    """
    keys = checked_lengths(config, lengths)
    if len(keys) > variant.rows:
        raise ModelError(f"`lengths` must be of at most {variant.rows} requests, a window; got {len(keys)}")
    ahead = Step(config, variant, checked_dtype(dtype))
    residual = (len(keys), config.hidden)
    carried = (spec(residual, "fp32"), *((spec(residual, ahead.input),) if ahead.ahead else ()))
    gain, turns = spec((config.hidden,), "fp32"), spec((len(keys), config.size), "fp32")
    weights, cache = layer_arguments(config, dtype).values(), _cache_spec(config, dtype, keys)
    return (*carried, gain, turns, *_row_specs(config, keys), *weights, cache, cache)


def decode_specs(config: Config, dtype: str, lengths: Iterable[int], *, pages: int | None = None) -> tuple[Any, ...]:
    """Specs of the arguments of :func:`decode_program` for requests of ``lengths`` keys, the new ones included.

    ``pages`` a request; as many as the longest needs where left out.

    Raises:
        ModelError: no request, one without a key, or one beyond the model's context.
    """
    keys = checked_lengths(config, lengths)
    checked_dtype(dtype)
    batch, stored = len(keys), "fp32" if dtype == "fp32" else "bf16"
    rows, cache = _row_specs(config, keys, pages), _cache_spec(config, dtype, keys, pages)
    layer = [*layer_arguments(config, dtype).values(), cache, cache]
    table = spec((config.vocabulary, config.hidden), stored)
    rope = spec((_pages(keys, pages) * PAGE, config.size), "fp32")
    ends = table, rope, spec((config.hidden,), "fp32"), table, spec((1,), "int32")
    return (spec((batch,), "int32"), spec((batch,), "int32"), *rows, *ends, *(layer * config.layers))


def checked_lengths(config: Config, lengths: Iterable[int]) -> list[int]:
    """The keys of each request.

    Raises:
        ModelError: no request, one without a key, or one beyond the model's context.
    """
    keys = list(lengths)
    if not keys or min(keys) < 1:
        raise ModelError(f"`lengths` must hold a positive number for each request; got {keys}")
    if max(keys) > config.context:
        raise ModelError(f"`lengths` must be at most {config.context}, the model's context; got {max(keys)}")
    return keys


def _pages(keys: Sequence[int], pages: int | None) -> int:
    return pages or -(-max(keys) // PAGE)


def _cache_spec(config: Config, dtype: str, keys: Sequence[int], pages: int | None = None) -> Any:
    shape = len(keys) * _pages(keys, pages), config.key_heads, PAGE, config.size
    return spec(shape, "fp32" if dtype == "fp32" else "bf16")


def _row_specs(config: Config, keys: Sequence[int], pages: int | None = None) -> tuple[Any, ...]:
    """Of the arguments called :data:`ROW_ARGUMENTS`."""
    batch = len(keys)
    places = spec((batch * config.key_heads,), "int32"), spec((batch, 2), "int32")
    return *places, spec((batch, _pages(keys, pages)), "int32"), pl.control(keys), spec((batch, 1), "fp32")
