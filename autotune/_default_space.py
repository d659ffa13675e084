"""The search space of a kernel on given tensors: tile sizes in multiples of a fractal, counts within their range."""

import math
from collections.abc import Mapping
from typing import Any

from pyptox.hardware import Hardware
from pyptox.lang import Kernel, Spec
from pyptox.lang._record import Recorder

from ._parameter import AbstractParameter
from ._size import Integer, Multiple, PowerOfTwo
from ._space import Space

FRACTAL = 16
LARGEST = 512
"""Largest row or column tile, elements; the reduction may be twice as long."""

_PROBES = (101, 103, 107, 109, 113, 127, 131)


def extents(kernel: Kernel, specs: Mapping[str, Spec], hardware: Hardware) -> dict[str, int]:
    """For each tile size the longest tensor axis that it cuts, found by reading the kernel once with marked sizes."""
    marks = {name: FRACTAL * _PROBES[n] for n, name in enumerate(kernel.tile)}
    recorder = Recorder.of_integers(kernel, specs, kernel.configuration(marks), hardware)
    found: dict[str, int] = {}
    for access in recorder.accesses():
        for axis, size in enumerate(access.shape):
            for name, mark in marks.items():
                if size == mark:
                    found[name] = max(found.get(name, 1), int(access.tensor.shape[axis]))
    longest = max(max(spec.shape) for spec in specs.values())
    return {name: found.get(name, longest) for name in kernel.tile}


def default_space(
    kernel: Kernel, specs: Mapping[str, Spec], hardware: Hardware, held: Mapping[str, Any] | None = None
) -> Space:
    """Every tile in multiples of 16 up to 512 (or the axis, if shorter), counts as the kernel declares them.

    A kernel's own default is among them, be it finer or larger, as far as the axis allows.

    Parameters in ``held`` are left out, and so are choices that are fixed when the cost is traced: each of their values
    costs a compilation.

    A tile named ``k...`` is a reduction length: multiples of 64 up to 1024 where the axis allows.
    """
    longest = extents(kernel, specs, hardware)
    parameters: dict[str, AbstractParameter] = {}
    for p in kernel.parameters:
        if p.name in (held or {}):
            continue
        if p.kind == "tile":
            reduction = p.name.startswith("k")
            whole = math.ceil(longest[p.name] / FRACTAL) * FRACTAL
            step = 64 if reduction and whole > 256 else FRACTAL
            largest = max(2 * LARGEST if reduction else LARGEST, p.default // step * step)
            high = min(largest, math.ceil(whole / step) * step)
            # what a kernel takes by default is among them, be it finer than the others, as 8 whole rows in Vec are
            fine = step if p.default % step == 0 or p.default > high else math.gcd(step, p.default)
            parameters[p.name] = Multiple(fine, high, fine)
        elif p.kind == "int":
            small = p.high <= 8
            parameters[p.name] = Integer(p.low, p.high) if small else PowerOfTwo(p.low, _power_below(p.high))
    return Space(**parameters)


def _power_below(value: int) -> int:
    return 1 << (value.bit_length() - 1)
