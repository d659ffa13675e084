"""``task_granularity.csv``: the same work in more or fewer tasks, or on more or fewer cores.

A row states how many tasks, blocks, scopes or cores; its work it does not state. That is set by the baseline row of its
group: the time with which the simulated program takes as long as measured. The other rows of the group have the same
core time or, where nothing says which cores share the work, the same time of all stages together. Where the scheduler
alone takes longer than measured, or the work is known, as it is of a whole model whose weights are streamed once, the
baseline sets a factor on the scheduler's constants instead: the runtime has changed over the months of these rows, and
profiling slows it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..chip import Workload, a2a3_schedule, a5_schedule, simulate
from ..hardware import Hardware, preset
from ._problem import NotCovered, Row, count, number, text
from ._staged import Program, root, slower, solved
from ._v200 import layer, width_of

VECTOR = re.compile(r"AIV|rope|merge|top_?k|idx|norm|softmax|gather|scatter|hc_|quant", re.IGNORECASE)
"""Workloads of vector cores."""

MODEL = re.compile(r"\w+-(\d+(?:\.\d+)?)B\b.*prefill(?!.*\b(layer\b|scope))")
"""A prefill of a whole model that has so many billion parameters, of two bytes."""

BARRIER_US = 1.0
"""A barrier inside a task, 8 AIV blocks and one counter: hw-native-sys/simpler PR #1442 (cc650a470)."""

WIDTH = 24
"""Tasks of a stage where a row does not say how they depend on each other: one for each cluster."""

LONG_US = 1000.0
"""A block beside which the scheduler costs little."""

UNITS_US = {"us": 1.0, "ms": 1e3}
STRUCTURE = ("tasks", "blocks_or_grid", "cores_used", "variant", "value", "unit", "per_task_us")
"""Columns of a group's baseline that its rows are given, named ``base_...``."""


def fill(rows: Sequence[Row]) -> list[Row]:
    """Rows with the columns of their group's baseline."""
    bases = {text(row, "group"): row for row in reversed(rows) if text(row, "is_baseline") == "1"}
    found = []
    for row in rows:
        base = bases.get(text(row, "group"), {})
        found.append({**row, **{f"base_{name}": text(base, name) for name in STRUCTURE}})
    return found


@dataclass(frozen=True)
class Variant:
    """A program, and the baseline that sets its work."""

    program: Program
    base: Program
    base_us: float
    measured: float
    assumed: tuple[str, ...]
    known: bool = False  # its work
    unit: str = "us"
    absolute: bool = False

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs of the program."""
        die = hardware.name.split("/")[-1]
        base, program = self.base, self.program
        if self.known:  # the weights, streamed once
            work = base.work_us * float(hardware.times.hbm_us)
            base, program = replace(base, work_us=work), replace(program, work_us=work)
        work, factor = solved(base, self.base_us, die, self.known)
        if not self.known:
            program = replace(program, work_us=max(work + program.work_us, 0.0))
        return program.time_us(hardware, slower(a2a3_schedule(), factor)), True


@dataclass(frozen=True)
class Occupancy:
    """Share of the cores' time that tasks of one long block fill, %."""

    tasks: int
    cores: int
    shape: str
    measured: float
    assumed: tuple[str, ...] = ("blocks long beside the scheduler's costs",)
    unit: str = "%"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """Busy time over cores and makespan."""
        clusters = self.cores // 2 if self.shape == "AIV" else self.cores
        chip = hardware.replace(aic=max(clusters, 1), aiv=2 * max(clusters, 1))
        work = Workload.of([self.shape] * self.tasks, [1] * self.tasks, [LONG_US] * self.tasks, [[]] * self.tasks)
        span = simulate(work, hardware=chip).makespan_us
        return 100.0 * self.tasks * LONG_US / (self.cores * span), True


@dataclass(frozen=True)
class Boundaries:
    """What a chain of tasks takes besides their blocks."""

    tasks: int
    measured: float
    assumed: tuple[str, ...] = ("a chain of tasks of one block",)
    unit: str = "us"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs of all boundaries."""
        program = Program(self.tasks, self.tasks, 1, "AIC", 10.0 * self.tasks)
        return program.time_us(hardware, a2a3_schedule()) - program.work_us, True


@dataclass(frozen=True)
class Launches:
    """How many launches a tier of the V200 benchmark has."""

    width: int
    measured: float
    assumed: tuple[str, ...] = ()
    unit: str = "dispatches"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """Tasks of the layer's program."""
        del hardware
        return float(layer(self.width).tasks), True


@dataclass(frozen=True)
class TierTime:
    """How long a tier of the V200 benchmark takes, from the published mean times of its kernels' blocks."""

    width: int
    measured: float
    assumed: tuple[str, ...] = ("kernels take their published means in every tier",)
    unit: str = "us"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs of the layer's program."""
        return simulate(layer(self.width), hardware=hardware).makespan_us, True


@dataclass(frozen=True)
class Spread:
    """From the first to the last start of a task's blocks on an A5; the baseline sets how long a block takes."""

    blocks: int
    base_blocks: int
    base_us: float
    cores: int
    measured: float
    assumed: tuple[str, ...] = ("the group's baseline sets the time of a block",)
    unit: str = "us"
    absolute: bool = False

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs, on the cores that the group states."""
        del hardware
        chip = preset("a5").replace(aic=self.cores, aiv=2 * self.cores)

        def spread(blocks: int, block_us: float) -> float:
            work = Workload.of(["AIC"], [blocks], [block_us], [[]])
            times = simulate(work, hardware=chip, schedule=a5_schedule()).times
            return float(times.end[0] - times.block[0] - times.start[0])

        block_us = root(lambda time: spread(self.base_blocks, time), self.base_us, 0.0, 2 * self.base_us)
        return spread(self.blocks, block_us), True


def problem(row: Row):
    """What a row asks, from its metric and from what it and its baseline state."""
    metric = text(row, "metric")
    if "dispatch count" in metric and "v200" in text(row, "group"):
        return Launches(width_of(text(row, "variant")), number(row, "value"))
    if "v200" in text(row, "group") and text(row, "unit") in UNITS_US and re.search(r"wall|latency|time|span", metric):
        return TierTime(width_of(text(row, "variant")), number(row, "value") * UNITS_US[text(row, "unit")])
    if "scheduling gap" in metric:
        return Boundaries(count(row, "tasks"), number(row, "value"))
    if "occupancy" in metric:
        return Occupancy(count(row, "tasks"), count(row, "cores_used"), _shape(row), number(row, "value"))
    if "spread" in metric:
        return _spread(row)
    if re.search(r"aggregate|work\b", metric) or "core-us" in text(row, "unit"):
        raise NotCovered("a sum of busy time: what each kernel does is not stated")
    if text(row, "unit") not in UNITS_US:
        raise NotCovered("not a time")
    if text(row, "platform") == "a5":
        raise NotCovered("a whole layer on an A5 whose kernels are not stated")
    if not text(row, "base_value"):
        raise NotCovered("no baseline in its group sets the work")
    return _variant(row)


def _variant(row: Row) -> Variant:
    base_row = {name.removeprefix("base_"): value for name, value in row.items() if name.startswith("base_")}
    for name in ("workload", "note"):
        base_row[name] = text(row, name)
    if not any(text(base_row, name) for name in ("tasks", "blocks_or_grid", "cores_used")):
        raise NotCovered("its group's baseline states neither tasks nor blocks of what changes")
    base, program = _program(base_row), _program(row)
    model, assumed = MODEL.search(text(row, "workload")), ["the group's baseline sets the work"]
    known = model is not None and base.tasks > 1 and base.stages > 1
    if known and model is not None:
        streamed = 2e9 * float(model.group(1))
        base, program = replace(base, work_us=streamed), replace(program, work_us=streamed)
        assumed = ["the work is one stream of the weights", "the group's baseline sets how slow its scheduler was"]
    elif text(row, "per_task_us") and text(base_row, "per_task_us"):
        more = program.tasks * number(row, "per_task_us") - base.tasks * number(base_row, "per_task_us")
        program = replace(program, work_us=more / (WIDTH if base.whole or program.whole else 1))
    if base.whole or program.whole:
        base, program = replace(base, whole=True), replace(program, whole=True)
        assumed.append("stages as wide as the chip")
    base_us = number(row, "base_value") * UNITS_US[text(row, "base_unit")]
    measured = number(row, "value") * UNITS_US[text(row, "unit")]
    return Variant(program, base, base_us, measured, tuple(assumed), known)


def _program(row: Row) -> Program:
    """Tasks and stages from columns, else from what the variant is called."""
    variant, shape = text(row, "variant"), _shape(row)
    scopes = re.search(r"(\d+)(?: spmd)? scopes", variant)
    barriers = re.search(r"(\d+) syncall barriers", variant)
    added = BARRIER_US * int(barriers.group(1)) if barriers else 0.0
    named = re.search(r"(\d+) tasks?\b", variant)
    tasks = count(row, "tasks") if text(row, "tasks") else int(named.group(1)) if named else 0
    blocks = count(row, "blocks_or_grid") if text(row, "blocks_or_grid") else _blocks(variant)
    if blocks:
        return Program(max(tasks, 1), 1, blocks, shape, added_us=added)
    if tasks and text(row, "cores_used"):  # rows of a swimlane: blocks of one grid
        return Program(1, 1, tasks, shape, added_us=added)
    if tasks:
        stages = int(scopes.group(1)) if scopes else -(-tasks // WIDTH)
        return Program(tasks, min(stages, tasks), 1, shape, whole=True, added_us=added)
    if text(row, "cores_used"):
        return Program(1, 1, count(row, "cores_used"), shape, added_us=added)
    raise NotCovered("it or its group's baseline states neither tasks nor blocks")


def _blocks(variant: str) -> int:
    """Blocks of an SPMD grid that a variant names as a number: ``spmd(16)``, ``spmd(T=8)``, ``16 blocks``."""
    found = re.search(r"spmd\((?:\w+=)?(\d+)\)", variant) or re.search(r"(\d+) (?:blocks|cores?)\b", variant)
    return int(found.group(1)) if found else 0


def _shape(row: Row) -> str:
    wide = text(row, "cores_used").isdigit() and int(text(row, "cores_used")) > 24
    return "AIV" if wide or VECTOR.search(text(row, "workload")) else "AIC"


def _spread(row: Row) -> Spread:
    blocks, base = (_blocks(text(row, name)) for name in ("variant", "base_variant"))
    cores = re.search(r"on (\d+) cores", text(row, "variant")) or re.search(
        r"on (\d+) cores", text(row, "base_variant")
    )
    if not (blocks and base and cores):
        raise NotCovered("blocks or cores are not stated")
    return Spread(blocks, base, number(row, "base_value"), int(cores.group(1)), number(row, "value"))
