"""One core, instruction by instruction: busy pipes, bubbles and their causes, and the chain that sets the time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..cost import Cost, Options, cost_of
from ..cost._core import last_done
from ..cost._machine import Event
from ..cost._nest import options_for
from ..cost._occupancy import HARD
from ..cost._verify import plain_hardware
from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Spec

LANES = ("MTE2", "MTE2V", "MTE1", "CUBE", "VECTOR", "FIXPIPE", "MTE3", "SCALAR")
"""Pipes in dataflow order. ``MTE2V`` is the MTE2 of the vector cores."""

LIMIT = 1_000_000
"""Instructions that are simulated at most."""


def name_of(event: Event) -> str:
    """What an instruction does and to what: ``load a``, ``move Left``, ``matmul``."""
    node = event.instruction
    if "tensor" in node.attributes:
        return f"{node.operation.name} {node.attributes['tensor'].name}"
    if node.operation.name == "move" and node.out is not None:
        return f"move {node.out.space.value}"
    return node.operation.name


@dataclass(frozen=True)
class Link:
    """One step of a chain: an instruction, its cycles, and what it waited for."""

    name: str
    pipe: str
    cycles: float
    cause: str


@dataclass(frozen=True)
class Trace:
    """The simulation of the core of a kernel that is done last.

    Attributes:
        events: every instruction, in program order; times in cycles.
        cycles: from the start to the end of the last one.
        closed_cycles: the same by the closed form.
        kernel_cycles: cycles of the kernel. More than those of the core where HBM is busy longer than any core.
        blocks: of the kernel's blocks on this core.
        busy: cycles that each pipe works.
        bubbles: idle cycles by pipe and cause: ``operand`` (not ready), ``slot`` (not free), ``end`` (nothing left).
        chain: the instructions that set the time of one steady iteration, latest first; each waited for the next.
        degenerate: why this is no real workload; empty if it is one.
        complete: False where the limit cut the simulation short.
    """

    kernel: str
    specs: dict[str, str]
    values: dict[str, Any]
    hardware: str
    clock_mhz: float
    cycles: float
    closed_cycles: float
    kernel_cycles: float
    blocks: int
    busy: dict[str, float]
    bubbles: dict[str, dict[str, float]]
    chain: tuple[Link, ...]
    degenerate: tuple[str, ...]
    complete: bool
    events: tuple[Event, ...] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the events."""
        content = {n: getattr(self, n) for n in self.__dataclass_fields__ if n not in ("events", "chain")}
        return content | {"instructions": len(self.events), "chain": [vars(link) for link in self.chain]}

    def _floor(self) -> list[str]:
        """What holds the kernel longer than the core."""
        if self.kernel_cycles <= 1.0001 * self.closed_cycles:
            return []
        return [f"the kernel takes {self.kernel_cycles:,.0f} cycles: HBM is busy longer than any core"]

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {spec}" for name, spec in self.specs.items())
        values = " ".join(f"{name}={value}" for name, value in self.values.items())
        lines = [
            f"{self.kernel} on {self.hardware}: {shapes}; {values}",
            f"{self.cycles:,.0f} cycles ({self.cycles / self.clock_mhz:,.2f} µs), {len(self.events):,} instructions "
            f"of {self.blocks:,} block{'s' if self.blocks > 1 else ''} on one core; "
            f"closed form {self.closed_cycles:,.0f} ({self.closed_cycles / max(self.cycles, 1.0) - 1:+.2%})",
            *self._floor(),
            "",
            "pipe        busy cycles   share   waits for operands   for slots   at the end",
        ]
        for pipe in (p for p in LANES if p in self.busy):
            gaps = self.bubbles[pipe]
            lines.append(
                f"{pipe:<10} {self.busy[pipe]:>12,.0f}  {self.busy[pipe] / max(self.cycles, 1.0):>6.1%}"
                f"   {gaps['operand']:>18,.0f}   {gaps['slot']:>9,.0f}   {gaps['end']:>10,.0f}"
            )
        lines += ["", "what sets the time of one iteration, latest first:"]
        for (name, pipe, cause), links in _runs(self.chain):
            times = f" x {len(links)}" if len(links) > 1 else ""
            cycles = sum(link.cycles for link in links)
            lines.append(f"  {pipe:<8} {name}{times}: {cycles:,.0f} cycles, started when {_WORDS[cause]}")
        lines += [f"degenerate: {reason}" for reason in self.degenerate]
        if not self.complete:
            lines.append(f"cut short after {len(self.events):,} instructions")
        return "\n".join(lines)


_WORDS = {"pipe": "its pipe was free", "operand": "its operand was ready", "slot": "a slot was free"}


def _runs(chain: tuple[Link, ...]) -> list[tuple[tuple[str, str, str], list[Link]]]:
    """Equal neighbours together."""
    runs: list[tuple[tuple[str, str, str], list[Link]]] = []
    for link in chain:
        key = (link.name, link.pipe, link.cause)
        if runs and runs[-1][0] == key:
            runs[-1][1].append(link)
        else:
            runs.append((key, [link]))
    return runs


def _bubbles(events: list[Event], cycles: float) -> dict[str, dict[str, float]]:
    gaps: dict[str, dict[str, float]] = {}
    free: dict[str, float] = {}
    for event in events:
        idle = event.start - free.get(event.pipe, 0.0)
        cause = "slot" if event.cause == "slot" else "operand"
        gaps.setdefault(event.pipe, {"operand": 0.0, "slot": 0.0})[cause] += max(idle, 0.0)
        free[event.pipe] = event.end
    return {pipe: {**gap, "end": cycles - free[pipe]} for pipe, gap in gaps.items()}


def _chain(events: list[Event], busy: Mapping[str, float], cycles: float) -> tuple[Link, ...]:
    """Back from the middle of the busiest pipe until the same instruction comes round, one iteration earlier."""
    if not events:
        return ()
    pipe = max(busy, key=lambda name: busy[name])
    at = min((n for n, e in enumerate(events) if e.pipe == pipe), key=lambda n: abs(events[n].end - 0.6 * cycles))
    first = events[at]
    links: list[Link] = []
    while at >= 0 and len(links) < 500:
        event = events[at]
        round_again = event.instruction.key == first.instruction.key and event.pipe == first.pipe
        if round_again and links and _period(event) != _period(first):
            break
        links.append(Link(name_of(event), event.pipe, event.end - event.start, event.cause))
        at = event.after
    return tuple(links)


def _period(event: Event) -> tuple[int, ...]:
    """The block of the walk, and the iteration of the outermost loop in it."""
    return event.iteration[:2]


def _degenerate(kind: str, busy: Mapping[str, float]) -> tuple[str, ...]:
    reasons = []
    if kind in ("AIC", "MIX") and not busy.get("CUBE"):
        reasons.append("no cube work in a kernel of the cube core")
    if kind == "MIX" and not busy.get("VECTOR"):
        reasons.append("no vector work in a mixed kernel")
    if not any(cycles for pipe, cycles in busy.items() if pipe != "SCALAR"):
        reasons.append("nothing but scalar work")
    return tuple(reasons)


def _does_not_fit(cost: Cost, hardware: Hardware) -> tuple[str, ...]:
    over = []
    for space in HARD:
        used, limit = float(cost.occupancy[space.value]), float(getattr(hardware.sizes, space.size_name))
        if used > limit:
            over.append(f"does not fit the chip: {space.value} takes {used / 1024:,.0f} of {limit / 1024:,.0f} KiB")
    return tuple(over)


def trace(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(warm=4),  # noqa: B008  (frozen)
    *,
    limit: int = LIMIT,
) -> Trace:
    """Simulate the core of ``kernel`` that is done last, instruction by instruction.

    >>> import pyptox as px
    >>> specs = px.kernels.matmul.specs(px.spec((16, 512), "bf16"), px.spec((512, 256), "bf16"))
    >>> result = trace(px.kernels.matmul, specs, {"m": 16, "n": 256, "k": 128}, px.hardware.a2a3())
    >>> sorted(result.busy)
    ['CUBE', 'FIXPIPE', 'MTE1', 'MTE2']
    """
    values = kernel.configuration(values)
    options = options_for(kernel, options, values)
    core = last_done(kernel, specs, values, hardware, options)
    cost = cost_of(kernel, specs, values, plain_hardware(hardware), options)
    events = list(core.simulate(limit))
    cycles = max((event.end for event in events), default=0.0)
    busy: dict[str, float] = {}
    for event in events:
        busy[event.pipe] = busy.get(event.pipe, 0.0) + event.end - event.start
    return Trace(
        kernel=kernel.name,
        specs={name: str(spec) for name, spec in specs.items()},
        values=dict(values),
        hardware=hardware.name,
        clock_mhz=float(hardware.clock_mhz),
        cycles=cycles,
        closed_cycles=core.closed_cycles(options.warm),
        kernel_cycles=float(cost.cycles),
        busy=busy,
        bubbles=_bubbles(events, cycles),
        chain=_chain(events, busy, cycles),
        degenerate=_degenerate(core.nests[0].kind, busy) + _does_not_fit(cost, hardware),
        blocks=core.blocks,
        complete=core.instructions <= limit,
        events=tuple(events),
    )
