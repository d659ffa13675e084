"""Adam on relaxed parameters, many starts side by side; the only module here that needs JAX and Optax."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._constraint import Points
from .._parameter import AbstractParameter

Items = tuple[tuple[str, AbstractParameter], ...]

_ADAM = optax.scale_by_adam(b1=0.8, b2=0.95)


def trajectories(
    value_and_grad: Callable[..., Any], items: Items, starts: Points, steps: int, learning_rate: float
) -> tuple[Points, np.ndarray]:
    """The iterates of Adam from every start: points by name [steps, starts] and relaxed values of that shape.

    The unit cube holds the codes of the relaxable parameters; the others keep the value of their start.
    """
    free = [(name, parameter, *_bounds(parameter)) for name, parameter in items if parameter.relaxable]
    fixed = {name: _number(parameter, starts[name]) for name, parameter in items if not parameter.relaxable}
    unit = np.stack([(p.encode(starts[name]) - low) / span for name, p, low, span in free], axis=1)
    state: Any = _ADAM.init(jnp.asarray(unit, jnp.float32))
    path, values = [], []
    for step in range(steps):
        codes = [low + span * column for (_, _, low, span), column in zip(free, unit.T, strict=True)]
        relaxed = {name: parameter.decode(code) for (name, parameter, _, _), code in zip(free, codes, strict=True)}
        value, by_name = value_and_grad({name: column.astype(np.float32) for name, column in relaxed.items()} | fixed)
        value = np.asarray(value, np.float64)
        chain = [span * parameter.slope(code) for (_, parameter, _, span), code in zip(free, codes, strict=True)]
        slopes = np.stack([np.asarray(by_name[name]) * c for (name, *_), c in zip(free, chain, strict=True)], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.nan_to_num(slopes / value[:, None], posinf=0.0, neginf=0.0)  # slope of the log value
        direction, state = _direction(jnp.asarray(slopes, jnp.float32), state)
        path.append(relaxed)
        values.append(np.where(np.isfinite(value), value, np.inf))
        rate = learning_rate * (1 - 0.9 * step / steps)
        unit = np.clip(unit - rate * np.asarray(direction, np.float64), 0.0, 1.0)
    points = {name: np.stack([relaxed[name] for relaxed in path]) for name, *_ in free}
    kept = {name: np.broadcast_to(starts[name], (steps, len(unit))) for name in fixed}
    return points | kept, np.stack(values)


@jax.jit
def _direction(slopes: jax.Array, state: Any) -> tuple[jax.Array, Any]:
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to the integer step count
        update, state = _ADAM.update(slopes, state)
    return jnp.asarray(update), state


def _bounds(parameter: AbstractParameter) -> tuple[float, float]:
    """The code of the lowest value and the span up to the highest; a single value has a span of almost nothing."""
    low, high = parameter.encode(parameter.values[[0, -1]])
    return float(low), max(float(high - low), 1e-9)


def _number(parameter: AbstractParameter, values: np.ndarray) -> np.ndarray:
    """Values as floats where they are numbers, otherwise their positions."""
    numeric = parameter.values.dtype.kind in "biuf"
    return (values if numeric else parameter.digits(values)).astype(np.float32)
