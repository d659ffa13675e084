"""Which constants of the chip a prediction is made of."""

import dataclasses
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .._dual import gradient_of, seeds
from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._evaluate import cost_of
from ._nest import Options


def attribute(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(warm=4),  # noqa: B008  (frozen)
) -> dict[str, float]:
    """Microseconds of a prediction by constant of ``hardware.times``; they add up to its ``time_us``.

    ``share(c) = c ∂time/∂c``. A duration is a sum and maximum of terms that are linear in one constant;
    so the prediction is homogeneous of degree one in them and the shares sum to it exactly (Euler's theorem).

    Args:
        kernel: the kernel.
        specs: the spec of every tensor, outputs included (:meth:`Kernel.specs`).
        values: its configuration; missing parameters take their defaults.
        hardware: the chip, with plain numbers.
        options: as for :func:`pyptox.cost.predict`.

    Returns:
        Constant name -> µs, every field of :class:`pyptox.hardware.Times` (0 where it plays no part).
    """
    times = hardware.times
    names = [f.name for f in fields(times)]
    constants = seeds([float(getattr(times, name)) for name in names])
    chip = dataclasses.replace(hardware, times=dataclasses.replace(times, **dict(zip(names, constants, strict=True))))
    cost = cost_of(kernel, specs, values, chip, options)
    gradient = gradient_of(cost.time_us, len(names))
    return {name: float(c.value * g) for name, c, g in zip(names, constants, gradient, strict=True)}
