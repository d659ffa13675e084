"""``memory_streaming_910b4.csv``: copies, conversions and prefix sums of a long vector, against its length.

A run of this method starts with an L2 full of modified lines (a flush writes a large buffer), which the copies show:
they take 1.6 times as long a byte where they fit L2 as where they do not. Two figures belong to the method, not to the
chip, and come from the smallest rows of each kind: ``CLONE_US`` and ``OPERATOR_US``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._dtypes import dtype_of
from ..cost import Options, cost_of
from ..cost._nest import record
from ..cost._traffic import dirty_after, left_in_l2
from ..hardware import Hardware
from ..kernels import convert, copy, scan_carry, scan_rows
from ..lang._kernel import Kernel
from ..lang._types import Spec, spec
from ._problem import NotCovered, Row, count, number, on_die, text

CLONE_US = 32.0
"""A framework's copy between two events takes the host at least so long (28.9 and 36.2 µs), and the device works
meanwhile."""

OPERATOR_US = 88.0
"""What the call of an operator outside the framework adds: the row scans and scans of 327,680 elements, less the
device's part of them."""

PIECE_BYTES = 32768
"""A copy goes in pieces of so many bytes, two at a time: a third of Vec."""


@dataclass(frozen=True)
class Step:
    """One kernel of a run; ``reads`` names what the step before it has left in L2, ``kept`` whether all of it."""

    kernel: Kernel
    specs: Mapping[str, Spec]
    tile: Mapping[str, int]
    reads: str = ""
    kept: bool = False


@dataclass(frozen=True)
class StreamProblem:
    """Kernels one after the other, on an L2 of modified lines; the launch is paid once, and the method's own time."""

    steps: tuple[Step, ...]
    die: str
    cores: Mapping[str, int]
    measured: float
    assumed: tuple[str, ...]
    sync: str = "manual"
    least: float = 0.0
    added: float = 0.0
    unit: str = "us"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs of the whole run; whether every tile fits."""
        chip = on_die(hardware, self.die).replace(**self.cores)
        total, legal, dirty, share = float(chip.times.launch_us), True, 1.0, 0.0
        for step in self.steps:
            resident = ((step.reads, 1.0 if step.kept else share),) if step.reads else ()
            options = Options(warm=4, sync=self.sync, dirty=dirty, resident=resident)
            values = step.kernel.configuration(self._fitting(step, chip, options))
            cost = cost_of(step.kernel, step.specs, values, chip, options)
            total += float(cost.time_us - chip.times.launch_us)
            legal = legal and bool(cost.legal)
            shapes = {name: s.shape for name, s in step.specs.items()}
            traffic = record(step.kernel, step.specs, shapes, values, chip, options).traffic
            share, dirty = left_in_l2(traffic, chip.sizes), dirty_after(traffic, chip.sizes, dirty)
        return max(self.least, total + self.added), legal

    def _fitting(self, step: Step, chip: Hardware, options: Options) -> dict[str, int]:
        """The tile of a step, its rows halved until it fits."""
        tile = dict(step.tile)
        while tile["m"] > 16:
            if cost_of(step.kernel, step.specs, tile, chip, options).legal:
                break
            tile["m"] //= 2
        return tile


def problem(row: Row) -> StreamProblem:
    """The kernels of a row on its die."""
    op = text(row, "op")
    die = re.search(r"910B\d", text(row, "platform"))
    if die is None:
        raise NotCovered("column `platform` names no die of 910B")
    if "algorithm unknown" in text(row, "note"):
        raise NotCovered("a vendor operator of unknown algorithm")
    elements = count(row, "elements")
    try:
        dtype = dtype_of(text(row, "dtype_in")).name
    except ValueError as error:
        raise NotCovered(f"column `dtype_in`: {error}") from None
    stated = {kind.lower(): int(size) for size, kind in re.findall(r"(\d+) (AIC|AIV)", text(row, "cores"))}
    common: dict[str, Any] = {"die": die.group(), "cores": stated, "measured": number(row, "time_us")}
    flushed = "an L2 of modified lines at the start"
    if op in ("copy", "cast"):
        kernel, width = _copier(row, op, dtype, elements)
        step = Step(kernel, kernel.specs(spec((1, elements), dtype)), {"m": 1, "n": PIECE_BYTES // width, "steps": 1})
        assumed = (flushed, f"pieces of {PIECE_BYTES} bytes", f"at least {CLONE_US:g} µs on the host")
        return StreamProblem((step,), assumed=assumed, least=CLONE_US, **common)
    if op not in ("mcscan", "mcscan_no_l2", "row_scan"):
        raise NotCovered(f"no kernel of the library does `{op}`")
    side = count(row, "scan_tile")
    rows = scan_rows(stated.get("aiv", 40))
    specs = rows.specs(spec((-(-elements // side), side), dtype), spec((side, side), dtype))
    steps = [Step(rows, specs, {"m": side})]
    if op != "row_scan":
        carried = scan_carry.specs(specs["sums"], specs["total"])
        steps.append(Step(scan_carry, carried, {"m": side}, reads="sums", kept=op == "mcscan"))
    assumed = (flushed, f"{OPERATOR_US:g} µs for the operator's call", "automatic barriers")
    assumed += ("parts that fit L2 between the two passes",) if op == "mcscan" else ()
    return StreamProblem(tuple(steps), assumed=assumed, sync="auto", added=OPERATOR_US, **common)


def _copier(row: Row, op: str, dtype: str, elements: int) -> tuple[Kernel, int]:
    """The kernel of a copy or a conversion, and the bytes of the wider of its two element types."""
    width = int(dtype_of(dtype).bytes)
    if op == "copy":
        return copy, width
    out = number(row, "bytes_moved") / elements - width
    names = {"fp16": ("int8", "fp16", "fp32"), "bf16": ("int8", "bf16", "fp32")}.get(dtype, ("int8", "fp16", "fp32"))
    for name in names:
        if dtype_of(name).bytes == out:
            return convert(name), max(width, int(out))
    raise NotCovered("the bytes that are moved do not say what the elements are converted to")
