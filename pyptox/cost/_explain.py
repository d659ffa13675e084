"""Explanation of one prediction: what limits it, what moves, what is full, and which constants it is made
of."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Space, Spec
from ._core import last_done
from ._evaluate import cost_of
from ._nest import Nest, Options, options_for
from ._range import outside
from ._verify import misfits, plain_hardware, plain_nest

SIMULATED_INSTRUCTIONS = 300_000
"""Nests with at most so many instructions are also simulated in full."""

_SHARED = {
    "hbm_us": "HBM bandwidth",
    "refetch_us": "HBM bandwidth",
    "writeback_us": "HBM bandwidth",
    "miss_byte": "HBM bandwidth",
    "l2_us": "L2 bandwidth",
    "launch_us": "launch",
}


@dataclass(frozen=True)
class Path:
    """One load or store over the whole kernel, bytes; ``l2_hit`` is the share L2 supplies, None for
    stores."""

    tensor: str
    mode: str
    moved: float
    useful: float
    over_fetch: float
    l2_hit: float | None


@dataclass(frozen=True)
class Explanation:
    """Why a prediction is what it is.

    Attributes:
        time_us, bound_us, cycles: the prediction, what no configuration beats, and cycles on the busiest
            core.
        limit: a pipe, ``HBM bandwidth``, ``L2 bandwidth`` or ``launch``.
        busy: cycles by pipe on the busiest core; ``share`` the same as a share of ``cycles``.
        paths: every load and store.
        occupancy: ``(used, limit)`` bytes by on-chip space.
        full_cycles: cycles of the full simulation, beside ``closed_cycles``; None where it would take too
            long.
        attribution: µs by constant of the chip; sums to ``time_us``.
        basis: what the prediction rests on.
        outside: what leaves the range that the chip's constants were fitted on.
        misfits: why it does not fit the chip, as :func:`pyptox.cost.verify` has it; empty where it does.
    """

    kernel: str
    specs: dict[str, str]
    values: dict[str, Any]
    hardware: str
    time_us: float
    bound_us: float
    limit: str
    cycles: float
    busy: dict[str, float]
    share: dict[str, float]
    paths: tuple[Path, ...]
    l2_hit: float
    occupancy: dict[str, tuple[float, float]]
    blocks: int
    waves: int
    cores: int
    legal: bool
    closed_cycles: float
    full_cycles: float | None
    attribution: dict[str, float]
    basis: str
    outside: tuple[str, ...]
    misfits: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {spec}" for name, spec in self.specs.items())
        values = " ".join(f"{name}={value}" for name, value in self.values.items())
        lines = [*(f"does not fit the chip: {text}" for text in self.misfits)]
        lines += ["what follows is what it would take if it did", ""] if lines else []
        lines += [
            f"{self.time_us:.2f} µs, limited by {self.limit} (bound {self.bound_us:.2f} µs)",
            f"{self.kernel} on {self.hardware}: {shapes}; {values}",
            f"{self.blocks} blocks on {self.cores} cores, {self.waves} wave{'s' * (self.waves != 1)}; "
            f"{self.cycles:,.0f} cycles; L2 supplies {self.l2_hit:.0%} of reads",
            "",
            "pipe        busy cycles   share",
        ]
        for pipe, cycles in sorted(self.busy.items(), key=lambda item: -item[1]):
            lines.append(f"{pipe:<10} {cycles:>12,.0f}  {self.share[pipe]:>6.1%}")
        lines += ["", "path               moved KiB  useful KiB  over-fetch  L2 hit"]
        for path in self.paths:
            hit = "     -" if path.l2_hit is None else f"{path.l2_hit:>6.0%}"
            lines.append(
                f"{path.mode + ' ' + path.tensor:<16} {path.moved / 1024:>11,.0f} "
                f"{path.useful / 1024:>11,.0f} "
                f"{path.over_fetch:>10.2f}x  {hit}"
            )
        lines += ["", "space    used KiB  limit KiB   full"]
        for space, (used, limit) in self.occupancy.items():
            if used:
                lines.append(f"{space:<6} {used / 1024:>10,.1f} {limit / 1024:>10,.0f} {used / limit:>6.0%}")
        if self.attribution:
            lines += ["", "constant           µs   share"]
            for name, part in sorted(self.attribution.items(), key=lambda item: -abs(item[1])):
                if abs(part) >= 5e-4 * self.time_us:
                    lines.append(f"{name:<14} {part:>6.2f}  {part / self.time_us:>6.1%}")
        lines.append("")
        if self.full_cycles:
            off = self.closed_cycles / self.full_cycles - 1
            lines.append(
                f"closed form {self.closed_cycles:,.0f} cycles, full simulation {self.full_cycles:,.0f} ({off:+.2%})"
            )
        lines.append(f"rests on: {self.basis}")
        lines += [f"outside what was calibrated: {note}" for note in self.outside]
        return "\n".join(lines)


def explain(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(warm=4),  # noqa: B008  (frozen)
) -> Explanation:
    """Explain the prediction of one configuration. Arguments as in :func:`pyptox.cost.verify`.

    >>> import pyptox as px
    >>> specs = px.kernels.matmul.specs(px.spec((16, 5120), "bf16"), px.spec((5120, 17408), "bf16"))
    >>> explain(px.kernels.matmul, specs, {"m": 16, "n": 256, "k": 256}, px.hardware.a2a3()).blocks
    68
    """
    from ._attribute import attribute

    values = kernel.configuration(values)
    options = options_for(kernel, options, values)
    chip = plain_hardware(hardware)
    nest = plain_nest(kernel, specs, values, hardware, options)
    cost = cost_of(kernel, specs, values, chip, options)
    control = any(spec.values is not None for spec in specs.values())
    cycles = float(cost.cycles)
    busy = {pipe: float(amount) for pipe, amount in cost.busy.items()}
    attribution = attribute(kernel, specs, values, chip, options)
    core = last_done(kernel, specs, values, hardware, options)
    small = core.instructions <= SIMULATED_INSTRUCTIONS
    return Explanation(
        kernel=kernel.name,
        specs={name: str(spec) for name, spec in specs.items()},
        values=dict(values),
        hardware=hardware.name,
        time_us=float(cost.time_us),
        bound_us=float(cost.bound_us),
        limit=_limit(busy, attribution, float(cost.time_us)),
        cycles=cycles,
        busy=busy,
        share={pipe: amount / max(cycles, 1.0) for pipe, amount in busy.items()},
        paths=tuple(_paths(_shared_nests(kernel, specs, values, hardware, options) if control else [(1.0, nest)])),
        l2_hit=float(cost.l2_hit),
        occupancy={
            name: (float(used), float(getattr(chip.sizes, Space(name).size_name)))
            for name, used in cost.occupancy.items()
        },
        blocks=round(float(cost.blocks)),
        waves=round(float(cost.waves)),
        cores=int(chip.cores(nest.kind) if options.cores is None else options.cores),
        legal=bool(cost.legal),
        closed_cycles=core.closed_cycles(options.warm),
        full_cycles=core.full_cycles() if small else None,
        attribution=attribution,
        basis=hardware.basis,
        outside=outside(nest, chip),
        misfits=() if cost.legal else misfits(kernel, specs, values, hardware, options),
    )


def _shared_nests(kernel: Kernel, specs: Mapping[str, Spec], values: Any, hardware: Hardware, options: Options):
    """The kernel as if every block met the same entry of its control inputs, for each entry, with the entry's share."""
    entries = list(zip(*(spec.values for spec in specs.values() if spec.values is not None), strict=True))
    share = Counter(entries)
    for position, entry in enumerate(entries):
        if entry in share:
            weight = share.pop(entry) / len(entries)
            yield weight, plain_nest(kernel, specs, values, hardware, options, position)


def _paths(nests: Iterable[tuple[float, Nest]]) -> Iterator[Path]:
    """What the loads and stores of weighted nests of one kernel move in all."""
    sums: dict[int, np.ndarray] = {}
    accesses = {}
    for weight, nest in nests:
        for key, transfer in nest.traffic.items():
            moved = float(transfer.moved)
            parts = np.array([moved, float(transfer.useful), moved * float(transfer.miss)])
            sums[key] = sums.get(key, 0.0) + weight * parts
            accesses[key] = transfer.access
    for key, (moved, useful, missed) in sums.items():
        access = accesses[key]
        hit = 1.0 - float(missed) / max(float(moved), 1.0) if access.mode == "read" else None
        mode = {"read": "load", "write": "store", "add": "add"}[access.mode]
        yield Path(access.tensor.name, mode, float(moved), float(useful), float(moved) / max(float(useful), 1.0), hit)


def _limit(busy: Mapping[str, float], attribution: Mapping[str, float], time_us: float) -> str:
    """The busiest pipe; where that pipe loads, what it waits for; the launch where it is most of the time."""
    if attribution.get("launch_us", 0.0) > 0.5 * time_us:
        return "launch"
    if attribution.get("writeback_us", 0.0) > 0.0:  # HBM is busy longer than any core
        return "HBM bandwidth"
    pipe = max(busy, key=busy.__getitem__)
    if pipe not in ("MTE2", "MTE2V"):
        return pipe
    parts: dict[str, float] = {}
    for name in ("hbm_us", "refetch_us", "miss_byte", "load_stride", "l2_us", "load_byte", "load_start", "load_row"):
        label = _SHARED.get(name, pipe)
        parts[label] = parts.get(label, 0.0) + attribution.get(name, 0.0)
    return max(parts, key=parts.__getitem__)
