"""The compiled part of gradient search; the only module here that needs JAX and Optax."""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._constraint import Points
from .._parameter import AbstractParameter

Items = tuple[tuple[str, AbstractParameter], ...]


def trajectories(
    value_and_grad: Callable[..., Any], items: Items, starts: Points, steps: int, learning_rate: float
) -> tuple[Points, np.ndarray]:
    """The iterates of Adam from every start: points by name [steps, starts] and relaxed values of that shape.

    Parameters without a scale keep their value and come back as they were given.
    """
    unit = np.stack([_to_unit(parameter, starts[name]) for name, parameter in items if parameter.relaxable], 1)
    fixed = {name: _number(parameter, starts[name]) for name, parameter in items if not parameter.relaxable}
    plain = jax.tree_util.all_leaves([value_and_grad])  # a function, not a pytree that holds the problem
    function = jax.tree_util.Partial(value_and_grad) if plain else value_and_grad
    codes, values = _scan(function, jnp.asarray(unit), fixed, learning_rate, items=items, steps=steps)
    points = {name: np.asarray(column) for name, column in _decode(np.asarray(codes, np.float64), items).items()}
    for name in fixed:
        points[name] = np.broadcast_to(starts[name], values.shape)
    return points, np.where(np.isfinite(values), np.asarray(values, np.float64), np.inf)


@functools.partial(jax.jit, static_argnames=("items", "steps"))
def _scan(
    function: Callable[..., Any],
    unit: jax.Array,
    fixed: dict[str, jax.Array],
    learning_rate: float,
    *,
    items: Items,
    steps: int,
) -> tuple[jax.Array, jax.Array]:
    """Codes [steps, starts, parameters] in the unit cube and relaxed values [steps, starts]."""
    optimiser = optax.adam(lambda count: learning_rate * (1 - 0.9 * count / steps), b1=0.8, b2=0.95)

    def step(carry: tuple[jax.Array, Any], _: None) -> tuple[tuple[jax.Array, Any], tuple[jax.Array, jax.Array]]:
        codes, state = carry
        points, pull = jax.vjp(lambda codes: _decode(codes, items), codes)
        values, by_name = function({**points, **fixed})
        (slopes,) = pull({name: by_name[name] for name in points})
        slopes = jnp.nan_to_num(slopes / values[:, None], posinf=0.0, neginf=0.0)  # slope of the log value
        with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to the integer step count
            update, state = optimiser.update(slopes, state, codes)
        moved = jnp.clip(cast(jax.Array, optax.apply_updates(codes, update)), 0.0, 1.0)
        return (moved, state), (codes, values)

    _, (codes, values) = jax.lax.scan(step, (unit, optimiser.init(unit)), None, length=steps)
    return codes, values


def _bounds(parameter: AbstractParameter) -> tuple[float, float]:
    """The codes of the lowest and the highest value."""
    low, high = parameter.encode(parameter.values[[0, -1]])
    return float(low), float(high)


def _to_unit(parameter: AbstractParameter, values: np.ndarray) -> np.ndarray:
    low, high = _bounds(parameter)
    return ((parameter.encode(values) - low) / max(high - low, 1e-9)).astype(np.float32)


def _decode(codes: Any, items: Items) -> dict[str, Any]:
    """Codes in the unit cube, parameters last, as relaxed values by name."""
    points, position = {}, 0
    for name, parameter in items:
        if parameter.relaxable:
            low, high = _bounds(parameter)
            points[name] = parameter.decode(low + (high - low) * codes[..., position])
            position += 1
    return points


def _number(parameter: AbstractParameter, values: np.ndarray) -> np.ndarray:
    """Values as floats where they are numbers, otherwise their positions."""
    numeric = parameter.values.dtype.kind in "biuf"
    return (values if numeric else parameter.digits(values)).astype(np.float32)
