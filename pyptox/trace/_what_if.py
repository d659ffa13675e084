"""What one more stage, a wider row or another depth would buy: simulated, not guessed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cost import Options
from ..cost._core import last_done
from ..cost._evaluate import cost_of
from ..cost._nest import options_for
from ..cost._verify import plain_hardware
from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Spec


@dataclass(frozen=True)
class Change:
    """A changed parameter, its cycles beside those of the configuration, and whether it fits the chip."""

    name: str
    value: Any
    cycles: float
    before: float
    legal: bool

    def __str__(self) -> str:
        fits = "" if self.legal else "; does not fit the chip"
        return f"{self.name}={self.value}: {self.cycles:,.0f} cycles ({self.cycles / self.before - 1:+.1%}){fits}"


def what_if(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(warm=4),  # noqa: B008  (frozen)
) -> list[Change]:
    """Each parameter a step up and down (tiles doubled, halved), or another count, by full simulation; best first."""
    values, chip = kernel.configuration(values), plain_hardware(hardware)

    def simulated(configuration: Mapping[str, Any]) -> tuple[float, bool]:
        chosen = options_for(kernel, options, configuration)
        core = last_done(kernel, specs, configuration, hardware, chosen)
        return core.full_cycles(), bool(cost_of(kernel, specs, configuration, chip, chosen).legal)

    before, _ = simulated(values)
    changes = []
    for parameter in kernel.parameters:
        now = values[parameter.name]
        if parameter.kind == "choice":
            # other choices than counts change what is computed
            counts = [option for option in parameter.options if type(option) is int]
            others = [option for option in counts if option != now]
        elif parameter.kind == "tile":
            others = [2 * now, now // 2] if now >= 32 else [2 * now]
        else:
            others = [n for n in (now + 1, now - 1) if parameter.low <= n <= parameter.high]
        for other in others:
            cycles, legal = simulated({**values, parameter.name: other})
            changes.append(Change(parameter.name, other, cycles, before, legal))
    return sorted(changes, key=lambda change: (not change.legal, change.cycles))
