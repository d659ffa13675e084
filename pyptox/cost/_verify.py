"""Verification: what stops a configuration from running, and what makes it slower than it need be.

Everything is read off the recorded nest on plain numbers: errors are overflows of hard spaces and rows
    below the
chip's minimum; hints are the toolchain's PH001 and a few of our own (``PT2xx``).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from .._dtypes import dtype_of
from .._errors import VerifierError
from .._scalar import cdiv, is_number, round_up
from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._record import Loop, data_at
from ..lang._types import Buffer, Space, Spec
from ._machine import closed_form
from ._nest import Nest, Options, options_for, record
from ._occupancy import HARD, Use, occupancy, uses

OVERFLOW, NARROW_ROW = "PT101", "PT102"
SHORT_ROW, SPILL, IDLE_SLOTS, LARGE_TILE, IDLE_CORES = "PH001", "PT201", "PT202", "PT203", "PT204"
MAY_WRAP = "PT205"

_BUSY_SHARE = 0.75
"""Below this share of busy core-waves the unevenness of the last wave is worth a hint."""

_SAME_CYCLES = 1e-3
"""A stage more that saves less than this share of the cycles does not help."""


@dataclass(frozen=True)
class Finding:
    """One error or hint.

    Attributes:
        code: PH001 is the toolchain's, the others are pyptox's (errors ``PT1xx``, hints ``PT2xx``).
        message: what is wrong, with numbers, and what to try.
        site: ``file:line`` in the kernel, or empty where no single line is to blame.
        details: the numbers of the message by name.
    """

    code: str
    message: str
    site: str
    details: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.code} {self.message}" + (f" [{self.site}]" if self.site else "")


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found; ``passed`` is True without errors."""

    kernel: str
    errors: tuple[Finding, ...]
    hints: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return not self.errors

    def require(self) -> None:
        """Raise :class:`pyptox.VerifierError` with every error, if there is one."""
        if self.errors:
            raise VerifierError("\n".join(map(str, self.errors)))

    def __str__(self) -> str:
        lines = [f"error: {finding}" for finding in self.errors] + [f"hint: {finding}" for finding in self.hints]
        return "\n".join(lines) if lines else f"`{self.kernel}` verified: no errors, no hints"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "passed": self.passed,
            "errors": [asdict(finding) for finding in self.errors],
            "hints": [asdict(finding) for finding in self.hints],
        }


def plain_hardware(hardware: Hardware) -> Hardware:
    """``hardware`` with Python numbers, whole ones as ints: what the plain readings need."""

    def plain(number: Any) -> int | float:
        value = float(number)
        return int(value) if value.is_integer() else value

    return jax.tree_util.tree_map(plain, hardware)


def plain_nest(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options,
    group: int | None = None,
) -> Nest:
    """The recorded kernel on plain numbers; of a control input, position ``group`` or that of its largest element."""
    values, chip = kernel.configuration(values), plain_hardware(hardware)
    shapes = {name: spec.shape for name, spec in specs.items()}
    data = {}
    for spec in specs.values():
        if spec.values is not None:
            data = data_at(specs, max(range(len(spec.values)), key=spec.values.__getitem__) if group is None else group)
            break
    return record(kernel, specs, shapes, values, chip, options_for(kernel, options, values), data)


def verify(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(warm=4),  # noqa: B008  (frozen)
) -> Verification:
    """Errors and hints of one configuration.

    Args:
        kernel: a kernel.
        specs: every tensor's spec, from :meth:`pyptox.Kernel.specs`.
        values: tile sizes and other parameters; defaults where left out.
        hardware: the chip whose limits apply.
        options: as in :func:`pyptox.cost.evaluate`.

    >>> import pyptox as px
    >>> specs = px.kernels.matmul.specs(px.spec((128, 512), "bf16"), px.spec((512, 6144), "bf16"))
    >>> verify(px.kernels.matmul, specs, {"m": 128, "n": 512, "k": 512}, px.hardware.a2a3()).errors[0].code
    'PT101'
    """
    values = kernel.configuration(values)
    nest = plain_nest(kernel, specs, values, hardware, options)
    chip = plain_hardware(hardware)
    by_space = uses(nest.recorder, chip.sizes)
    errors = _errors(kernel, nest, by_space, chip)
    hints = [
        *_short_rows(nest, chip),
        *_spills(kernel, nest, by_space, chip),
        *_idle_slots(kernel, specs, values, nest, hardware, options),
        *_large_tiles(nest, chip),
        *_idle_cores(nest, chip, options),
        *_may_wrap(kernel, nest),
    ]
    return Verification(kernel.name, errors, tuple(hints))


def _errors(kernel: Kernel, nest: Nest, by_space: Any, chip: Hardware) -> tuple[Finding, ...]:
    return (*_overflows(kernel, by_space, chip), *_narrow_rows(kernel, nest, chip))


def misfits(
    kernel: Kernel, specs: Mapping[str, Spec], values: Mapping[str, Any], hardware: Hardware, options: Options
) -> tuple[str, ...]:
    """The errors of :func:`verify` as text, without its hints: why a configuration does not fit the chip."""
    nest, chip = plain_nest(kernel, specs, values, hardware, options), plain_hardware(hardware)
    return tuple(map(str, _errors(kernel, nest, uses(nest.recorder, chip.sizes), chip)))


def _where(site: Any) -> str:
    if not site:
        return ""
    path = Path(site[0])
    return f"{'/'.join(path.parts[-2:])}:{site[1]}"


def _tile(buffer: Buffer) -> str:
    return f"{buffer.tile.dtype}[{','.join(f'{size:g}' for size in buffer.tile.shape)}]"


def _overflow(kernel: Kernel, space: Space, using: list[Use], used: float, limit: float) -> dict[str, Any]:
    largest = max(using, key=lambda use: use.bytes)
    return {
        "kernel": kernel.name,
        "space": space.value,
        "used": int(used),
        "limit": int(limit),
        "tile": largest.buffer.label,
        "shape": [int(size) for size in largest.buffer.tile.shape],
        "dtype": largest.buffer.tile.dtype,
        "slots": int(largest.slots),
        "tile_bytes": int(largest.bytes),
    }


def _overflows(kernel: Kernel, by_space: dict[Space, list[Use]], chip: Hardware) -> Iterator[Finding]:
    for space, used in occupancy(by_space).items():
        limit = getattr(chip.sizes, space.size_name)
        if space not in HARD or used <= limit:
            continue
        details = _overflow(kernel, space, by_space[space], used, limit)
        largest = max(by_space[space], key=lambda use: use.bytes).buffer
        message = (
            f"`{kernel.name}` needs {used:,.0f} bytes of {space.value}, which holds {limit:,.0f}; the "
            "largest tile is "
            f"`{largest.label}` {_tile(largest)} in {details['slots']} slot(s), {details['tile_bytes']:,} "
            "bytes. "
            "Try a smaller tile or fewer stages"
        )
        yield Finding(OVERFLOW, message, _where(largest.site), details)


def _narrow_rows(kernel: Kernel, nest: Nest, chip: Hardware) -> Iterator[Finding]:
    for buffer in nest.recorder.buffers.values():
        tile = buffer.tile
        if tile is None or (is_number(tile.shape[1]) and tile.shape[1] == 1):
            continue
        row = tile.shape[1] * dtype_of(tile.dtype).bytes
        if row < chip.sizes.min_row:
            message = (
                f"`{kernel.name}`: the innermost row of `{buffer.label}` {_tile(buffer)} is {row:g} bytes; "
                "a tile "
                f"needs at least {chip.sizes.min_row:g}. Try at least "
                f"{cdiv(int(chip.sizes.min_row), dtype_of(tile.dtype).bytes)} columns"
            )
            details = {"kernel": kernel.name, "tile": buffer.label, "row": row, "limit": chip.sizes.min_row}
            yield Finding(NARROW_ROW, message, _where(buffer.site), details)


def _short_rows(nest: Nest, chip: Hardware) -> Iterator[Finding]:
    for transfer in nest.traffic.values():
        access, node = transfer.access, transfer.access.instruction
        width = dtype_of(access.tensor.dtype).bytes
        row = min(access.shape[-1], access.tensor.shape[-1]) * width
        if row >= chip.sizes.line or access.shape[-1] >= access.tensor.shape[-1] or transfer.useful == 0:
            continue
        over = transfer.moved / transfer.useful
        verb = "load" if access.mode == "read" else "store"
        message = (
            f"the {verb} of `{access.tensor.name}` has an innermost row of {row:g} bytes; GM moves lines of "
            f"{chip.sizes.line:g}, so it moves {over:.2f}x the bytes it needs. Try "
            f"{cdiv(int(chip.sizes.line), width)} columns or more"
        )
        details = {"tensor": access.tensor.name, "row": row, "line": chip.sizes.line, "over_fetch": over}
        yield Finding(SHORT_ROW, message, _where(node.site), details)


def _cycles_of(nodes: list, name: str) -> float:
    total = 0.0
    for node in nodes:
        if isinstance(node, Loop):
            total += (node.count - 1) * _cycles_of(node.first, name) + _cycles_of(node.last, name)
        elif node.operation.name == name:
            total += sum(cycles for _, cycles in node.costs)
    return total


def _spills(kernel: Kernel, nest: Nest, by_space: dict[Space, list[Use]], chip: Hardware) -> Iterator[Finding]:
    used, limit = occupancy(by_space)[Space.ACC], chip.sizes.acc
    if used <= limit:
        return
    extra = _cycles_of([nest.walk], "acc_spill")
    details = _overflow(kernel, Space.ACC, by_space[Space.ACC], used, limit) | {"extra_drain_cycles": extra}
    largest = max(by_space[Space.ACC], key=lambda use: use.bytes).buffer
    cost = (
        f"its parts are drained and taken back, {extra:,.0f} FIXPIPE cycles a core"
        if extra
        else "the prediction holds no extra drains for it"
    )
    message = (
        f"`{kernel.name}` needs {used:,.0f} bytes of Acc, which holds {limit:,.0f} (`{largest.label}` "
        f"{_tile(largest)}): {cost}. Try a smaller m or n"
    )
    yield Finding(SPILL, message, _where(largest.site), details)


def _idle_slots(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    nest: Nest,
    hardware: Hardware,
    options: Options,
) -> Iterator[Finding]:
    stages = values.get("stages", 1)
    if "stages" not in kernel.numeric or stages <= 1:
        return
    here = closed_form(nest.walk, options.warm)
    fewer = plain_nest(kernel, specs, {**values, "stages": stages - 1}, hardware, options)
    there = closed_form(fewer.walk, options.warm)
    if there > here * (1 + _SAME_CYCLES):
        return
    message = f"stages={stages} is no faster than stages={stages - 1} here. Try stages={stages - 1}: it frees its slots"
    yield Finding(IDLE_SLOTS, message, "", {"stages": stages, "cycles": here, "cycles_with_fewer": there})


def _large_tiles(nest: Nest, chip: Hardware) -> Iterator[Finding]:
    seen = set()
    for transfer in nest.traffic.values():
        access = transfer.access
        for axis, (size, extent) in enumerate(zip(access.shape, access.tensor.shape, strict=True)):
            if size <= round_up(extent, chip.sizes.fractal_rows) or (access.tensor.name, axis) in seen:
                continue
            seen.add((access.tensor.name, axis))
            message = (
                f"the tile of `{access.tensor.name}` is {size:g} long on axis {axis}, the tensor only "
                f"{extent:g}: the "
                f"rest is padding that still takes room. Try {round_up(extent, chip.sizes.fractal_rows):g}"
            )
            details = {"tensor": access.tensor.name, "axis": axis, "tile": size, "extent": extent}
            yield Finding(LARGE_TILE, message, _where(access.instruction.site), details)


_INT8_PRODUCTS = (1 << 31) // (128 * 128)
"""So many products of two int8 numbers always fit an int32 sum."""


def _may_wrap(kernel: Kernel, nest: Nest) -> Iterator[Finding]:
    for length, node in _reductions([nest.walk], ()):
        if length >= _INT8_PRODUCTS:
            message = (
                f"`{kernel.name}` may add {length:,.0f} products of int8 numbers in int32, which wraps from "
                f"{_INT8_PRODUCTS:,} of the largest on. Try to split K, with the parts added in fp32"
            )
            yield Finding(MAY_WRAP, message, _where(node.site), {"products": length, "limit": _INT8_PRODUCTS})


def _reductions(nodes: list, loops: tuple[Loop, ...]) -> Iterator[tuple[float, Any]]:
    """Products that every int8 product of matrices adds up: those of all turns since its sum was made."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from _reductions(node.first, (*loops, node))
        elif node.operation.name == "matmul" and node.tiles[0].dtype == "int8":
            home = node.writes.loop if node.writes is not None else None
            inside = loops if home is None else loops[[loop.key for loop in loops].index(home.key) + 1 :]
            turns = 1 if node.fresh else math.prod(float(loop.count) for loop in inside)
            yield turns * float(node.tiles[0].shape[1]), node


def _idle_cores(nest: Nest, chip: Hardware, options: Options) -> Iterator[Finding]:
    if nest.recorder.alone:  # the blocks of one group say nothing about the whole grid
        return
    cores = int(chip.cores(nest.kind) if options.cores is None else options.cores)
    blocks = int(nest.recorder.blocks)
    waves = cdiv(blocks, cores)
    busy = blocks / (waves * cores)
    if busy >= _BUSY_SHARE:
        return
    details = {"blocks": blocks, "cores": cores, "waves": waves, "busy_share": busy}
    if blocks < cores:
        rest = "" if nest.kind == "AIV" else ", or split K"
        message = f"{blocks} blocks keep {cores - blocks} of {cores} cores idle. Try smaller tiles{rest}"
    else:
        last = blocks - (waves - 1) * cores
        message = (
            f"{blocks} blocks take {waves} waves on {cores} cores, and the last wave has only {last} "
            f"({busy:.0%} busy). Try tiles that give a multiple of {cores} blocks"
        )
    yield Finding(IDLE_CORES, message, "", details)
