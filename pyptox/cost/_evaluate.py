"""The cost reading: from a kernel, shapes, a configuration and a chip to a prediction.

One function, :func:`predict`, serves every use: on plain numbers it is the reading that ``explain`` and the full
simulation start from, on traced scalars it is what :mod:`pyptox.cost._batch` jits and vmaps over candidates.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._machine import closed_form
from ._nest import ACCURATE, Options, options_for, record
from ._summary import Cost, summary
from ._unequal import predict_groups, predict_positions


def cost_of(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = ACCURATE,
) -> Cost:
    """The cost of one configuration, on the sizes and the control data that ``specs`` hold."""
    values = kernel.configuration(values)
    shapes = {name: spec.shape for name, spec in specs.items()}
    control = {name: np.asarray(spec.values, float) for name, spec in specs.items() if spec.values is not None}
    return predict(kernel, specs, shapes, values, hardware, options_for(kernel, options, values), control)


def predict(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    shapes: Mapping[str, tuple],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options,
    control: Mapping[str, Any] | None = None,
) -> Cost:
    """The cost of one candidate. Arguments as in :func:`record`; ``control`` holds the control inputs' arrays."""
    if control:
        return predict_groups(kernel, specs, shapes, values, hardware, options, control)
    nest = record(kernel, specs, shapes, values, hardware, options)
    if nest.recorder.uneven:
        return predict_positions(kernel, specs, shapes, values, hardware, options, nest)
    cycles = closed_form(nest.walk, options.warm)
    return summary(nest, hardware, options, cycles, nest.walk.count)
