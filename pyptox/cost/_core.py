"""What the core that is done last runs: its blocks in order, each as a nest of plain numbers."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._hand_out import last_core
from ._machine import Event, closed_form, count_instructions, full_cycles, simulate
from ._nest import Nest, Options, options_for, record
from ._unequal import along_axis, blocks_each
from ._verify import plain_hardware, plain_nest


@dataclass(frozen=True)
class Core:
    """The nests that one core runs, one after the other. Blocks that are alike are one nest, a walk over all of them.

    Attributes:
        nests: in order; blocks that cost the same are the same object.
    """

    nests: tuple[Nest, ...]

    def closed_cycles(self, warm: int) -> float:
        """Cycles of all of them by the closed form."""
        return self._total(lambda nest: float(closed_form(nest.walk, warm)))

    def full_cycles(self) -> float:
        """Cycles of all of them by the full simulation."""
        return self._total(lambda nest: full_cycles(nest.walk))

    @property
    def blocks(self) -> int:
        """Blocks of the kernel that it runs."""
        return sum(int(nest.walk.count) for nest in self.nests)

    @property
    def instructions(self) -> float:
        """Instructions of all of them."""
        return self._total(lambda nest: count_instructions([nest.walk]))

    def _total(self, of: Any) -> float:
        distinct = {id(nest): nest for nest in self.nests}
        each = {key: of(nest) for key, nest in distinct.items()}
        return sum(each[id(nest)] for nest in self.nests)

    def simulate(self, limit: int) -> Iterator[Event]:
        """At most ``limit`` events of all of them, times and numbers running on from nest to nest."""
        start, number = 0.0, 0
        for block, nest in enumerate(self.nests):
            if number >= limit:
                return
            end, first = start, number
            for event in simulate(nest.walk, limit - number):
                if len(self.nests) > 1:
                    event = Event(
                        event.instruction,
                        event.pipe,
                        event.start + start,
                        event.end + start,
                        event.cause,
                        event.after + first if event.after >= 0 else first - 1,
                        (block, *event.iteration[1:]),
                    )
                end, number = max(end, event.end), number + 1
                yield event
            start = end


def last_done(
    kernel: Kernel, specs: Mapping[str, Spec], values: Mapping[str, Any], hardware: Hardware, options: Options
) -> Core:
    """The core that is done last. Arguments as in :func:`pyptox.cost.verify`."""
    values, chip = kernel.configuration(values), plain_hardware(hardware)
    options = options_for(kernel, options, values)
    first = plain_nest(kernel, specs, values, hardware, options)
    entries = list(zip(*(spec.values for spec in specs.values() if spec.values is not None), strict=True))
    if entries:
        nests: dict[Any, Nest] = {}
        for position, entry in enumerate(entries):
            if entry not in nests:
                nests[entry] = plain_nest(kernel, specs, values, hardware, options, position)
        cycles = {entry: float(closed_form(nest.walk, options.warm)) for entry, nest in nests.items()}
        runs = [(cycles[entry], float(blocks_each(first))) for entry in entries]
        return Core(tuple(nests[entries[n]] for n in last_core(runs, first.active)))
    if not first.recorder.uneven:
        return Core((first,))
    shapes = {name: spec.shape for name, spec in specs.items()}

    @functools.cache
    def at(position: int) -> Nest:
        return record(kernel, specs, shapes, values, chip, options, None, position, first.traffic)

    def cost_at(position: int, _: Any = None) -> tuple[Any, float]:
        return _Cycles(float(closed_form(at(position).walk, options.warm))), float(blocks_each(first))

    _, _, runs = along_axis(cost_at, int(first.recorder.extents[0]))
    return Core(tuple(at(n) for n in last_core(runs, first.active)))


@dataclass(frozen=True)
class _Cycles:
    cycles: float
