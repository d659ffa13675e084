"""Damped least squares on log time, with derivatives from :class:`pyptox._dual.Dual` constants."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._dual import gradient_of, seeds, value_of
from ..hardware import PUBLISHED, Hardware
from ..validation._problem import Problem

FREE = tuple(PUBLISHED)
"""Constants that are fitted by default."""


@dataclass(frozen=True)
class Calibration:
    """A fitted chip.

    Attributes:
        hardware: the chip with the fitted numbers.
        constants: fitted value by name, in the units of the chip's fields.
        residuals: ``log(predicted / measured)`` of each row.
        left_out: the same for each row when it is left out (linearised: residual / (1 - leverage)).
    """

    hardware: Hardware
    constants: dict[str, float]
    residuals: tuple[float, ...]
    left_out: tuple[float, ...]

    @property
    def error(self) -> float:
        """Mean absolute relative error."""
        return float(np.mean(np.abs(np.expm1(self.residuals))))

    @property
    def left_out_error(self) -> float:
        """Mean absolute relative error of rows left out of the fit."""
        return float(np.mean(np.abs(np.expm1(self.left_out))))

    def to_dict(self) -> dict:
        """Constants and errors as plain data."""
        return {
            "constants": self.constants,
            "error": self.error,
            "left_out_error": self.left_out_error,
            "residuals": list(self.residuals),
            "left_out": list(self.left_out),
        }

    def __str__(self) -> str:
        lines = [f"{len(self.residuals)} rows, error {self.error:.2%}, leave-one-out {self.left_out_error:.2%}"]
        return "\n".join(lines + [f"{name}={value:.6g}," for name, value in self.constants.items()])


def _evaluate(hardware: Hardware, problems: Sequence[Problem], names: Sequence[str], logs: np.ndarray):
    numbers = [math.exp(v) for v in logs]
    chip = hardware.replace(**dict(zip(names, seeds(numbers), strict=True)))
    residuals, rows = [], []
    for p in problems:
        time = p.cost(chip).time_us
        assert p.measured is not None
        residuals.append(math.log(value_of(time) / p.measured))
        rows.append(gradient_of(time, len(names)) * numbers / value_of(time))
    return np.array(residuals), np.array(rows)


def calibrate(
    hardware: Hardware,
    observations: Sequence[Problem],
    *,
    free: Sequence[str] = FREE,
    prior_strength: float = 0.1,
    steps: int = 30,
) -> Calibration:
    """Fit constants to measured times: ``min Σ r_i² + prior_strength² Σ log²(c / c_0)``.

    Args:
        hardware: where the fit starts, and what the prior pulls to. Free constants must be positive.
        observations: problems with a measured time.
        free: names of the constants to fit, the same for every row.
        prior_strength: how much one e-fold of a constant costs, in units of log time.
        steps: Levenberg-Marquardt steps at most.
    """
    flat = hardware.flat()
    for name in free:
        if name not in flat or not float(flat[name]) > 0:
            raise ValueError(
                f"`free` must name positive numbers of the chip; got {name!r}. Start it from a small positive value"
            )
    if not observations or any(o.measured is None for o in observations):
        raise ValueError("`observations` must be problems with a measured time; got none, or one without a time")
    start = np.log([float(flat[name]) for name in free])
    logs, damping = start.copy(), 1e-2
    residuals, jacobian = _evaluate(hardware, observations, free, logs)
    strength = prior_strength**2

    def loss(r: np.ndarray, x: np.ndarray) -> float:
        return float(r @ r + strength * (x - start) @ (x - start))

    for _ in range(steps):
        normal = jacobian.T @ jacobian + strength * np.eye(len(free))
        slope = jacobian.T @ residuals + strength * (logs - start)
        move = np.clip(-np.linalg.solve(normal + damping * np.eye(len(free)), slope), -0.5, 0.5)
        trial = _evaluate(hardware, observations, free, logs + move)
        gain = loss(residuals, logs) - loss(trial[0], logs + move)
        if gain > 0:
            logs, (residuals, jacobian), damping = logs + move, trial, damping / 3
            if gain < 1e-9:
                break
        else:
            damping *= 4
            if damping > 1e3:
                break
    normal = jacobian.T @ jacobian + strength * np.eye(len(free))
    leverage = np.einsum("ij,jk,ik->i", jacobian, np.linalg.inv(normal), jacobian)
    constants = {name: float(math.exp(v)) for name, v in zip(free, logs, strict=True)}
    return Calibration(
        hardware.replace(**constants),
        constants,
        tuple(map(float, residuals)),
        tuple(map(float, residuals / (1 - np.minimum(leverage, 0.99)))),
    )
