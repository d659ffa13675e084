"""Smaller versions of a problem with the same reductions.

Which axes are free is found by asking the kernel for its output shape: an input axis that changes the
    output may
shrink, one that does not is a reduction and keeps its length. Axes that only make sense together (``k``
of both
operands) are tried together.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from .._errors import PyptoxError
from ..lang._kernel import Kernel
from ..lang._types import Spec

Place = tuple[str, int]  # input name and axis


@dataclass(frozen=True)
class Group:
    """Input axes of one length that change together, and the output axes (from the end) that follow them."""

    places: tuple[Place, ...]
    size: int
    follows: frozenset[int]  # -1 columns, -2 rows, ...; empty for a reduction


def _resized(specs: Mapping[str, Spec], places: tuple[Place, ...], size: int) -> dict[str, Spec]:
    changed = dict(specs)
    for name, axis in places:
        shape = list(changed[name].shape)
        shape[axis] = size
        changed[name] = dataclasses.replace(changed[name], shape=tuple(shape))
    return changed


def groups(kernel: Kernel, specs: Mapping[str, Spec]) -> list[Group]:
    """The axes of the inputs, grouped. Control inputs have none."""
    inputs = {name: specs[name] for name in kernel.inputs}
    places = [(n, axis) for n, spec in inputs.items() if spec.values is None for axis in range(len(spec.shape))]
    size_of = {place: inputs[place[0]].shape[place[1]] for place in places}
    before = kernel.specs(**inputs)
    found: list[Group] = []
    taken: set[Place] = set()
    for together in (1, 2, 3):
        for candidate in itertools.combinations(places, together):
            size = size_of[candidate[0]]
            if taken & set(candidate) or any(size_of[place] != size for place in candidate):
                continue
            try:
                after = kernel.specs(**_resized(inputs, candidate, size + 1))
            except (PyptoxError, ValueError):
                continue
            follows = {
                axis - len(before[name].shape)
                for name in kernel.outputs
                for axis, (old, new) in enumerate(zip(before[name].shape, after[name].shape, strict=True))
                if old != new
            }
            found.append(Group(candidate, size, frozenset(follows)))
            taken |= set(candidate)
    return found


def reduction_length(kernel: Kernel, specs: Mapping[str, Spec]) -> int:
    """The longest reduction of a kernel, elements; 1 where nothing is reduced."""
    return max((group.size for group in groups(kernel, specs) if not group.follows), default=1)


def shrink(kernel: Kernel, specs: Mapping[str, Spec], rows: int, columns: int) -> dict[str, Spec]:
    """``specs`` with at most ``rows`` rows and ``columns`` columns of output, all reductions in full length.

    With a control input the rows keep their number, since the data addresses them.

    >>> import pyptox as px
    >>> matmul = px.kernels.matmul
    >>> specs = matmul.specs(px.spec((64, 5120), "bf16"), px.spec((5120, 17408), "bf16"))
    >>> str(shrink(matmul, specs, 16, 300)["out"]), str(shrink(matmul, specs, 16, 300)["b"])
    ('bf16[16,300]', 'bf16[5120,300]')
    """
    inputs = {name: specs[name] for name in kernel.inputs}
    data = any(spec.values is not None for spec in inputs.values())
    for group in groups(kernel, specs):
        limit = {frozenset({-1}): columns, frozenset({-2}): group.size if data else rows}.get(group.follows)
        if limit is not None and limit < group.size:
            smaller = _resized(inputs, group.places, limit)
            try:
                kernel.specs(**smaller)
            except (PyptoxError, ValueError):
                continue  # the data of a control input reaches beyond it
            inputs = smaller
    return kernel.specs(**inputs)
