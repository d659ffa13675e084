"""``decode_e2e.csv``: decode steps and layers of Qwen3-14B, simulated as the program of the step that a row names.

A row says its program by what it was measured before or after: its task count, words of its variant, or the pull
request that it is from. The programs are those of :mod:`models.qwen3_14b`, which is imported when a row asks for it.
"""

import functools
import re
from dataclasses import dataclass
from typing import Any

from ..hardware import Hardware, preset
from ._problem import NotCovered, Row, count, number, on_die, text

UNITS_US = {"us": 1.0, "ms": 1e3}
WINDOW, CONTEXT = 16, 3338

LONGEST = 4096
"""Keys of every request of a test that was run with ``--max-seq`` (``tile_sweeps.csv``, group qwen14_190)."""

ADOPTED = {190: "pipelined", 602: "early-dispatch", 682: "funnelled", 756: "disjoint-spmd", 794: "critical-waves"}
"""The last step of the ladder in the program from a pull request on (its case study and ``scheduling.csv``)."""

NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4}


@dataclass(frozen=True)
class Decode:
    """A simulated step, or one of its layers or stages.

    Attributes:
        step: of the ladder, without sampling on the device.
        changes: to its variant.
        layers: of the step; 1 with one window for a layer by itself.
        lengths: keys of each request.
        whole: with embedding and head.
        stage: whose part of the critical path is asked for; empty for all.
    """

    step: str
    layers: int
    lengths: tuple[int, ...]
    whole: bool
    measured: float
    assumed: tuple[str, ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()
    stage: str = ""
    unit: str = "us"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs."""
        die = hardware.name.split("/")[-1]
        asked = self.step, self.changes, self.layers if self.whole else 1, self.lengths, self.whole
        total, stages = _simulated(*asked, die)
        if self.stage:
            return stages.get(self.stage, 0.0), True
        return total * (1 if self.whole else self.layers), True


@functools.lru_cache(maxsize=32)
def _simulated(
    step: str, changes: tuple, layers: int, lengths: tuple[int, ...], whole: bool, die: str
) -> tuple[float, dict[str, float]]:
    """The makespan, and its parts by stage."""
    from models import qwen3_14b as qwen

    from .. import program as pp
    from ..chip import simulate

    asked = dict(changes)
    if "early" in asked:
        asked["early"] = qwen.Early() if asked["early"] else qwen.Early.none()
    machine, variant = on_die(preset(die), die), qwen.variant_named(step).replace(**asked)
    config = qwen.Config(layers=layers)
    if whole:
        program, specs = qwen.decode_program(config, variant, "bf16"), qwen.decode_specs(config, "bf16", lengths)
    else:
        program = qwen.layer_program(config, variant, "bf16")
        specs = qwen.layer_specs(config, variant, "bf16", lengths)
    timeline = simulate(pp.graph(program, *specs, hardware=machine), hardware=machine)
    return timeline.makespan_us, timeline.attribution()


def problem(row: Row) -> Decode:
    """A step, a layer or its attention, by what the row calls it."""
    if text(row, "model") != "Qwen3-14B":
        raise NotCovered("the model has no program here, or its quantised one was timed with the host")
    if text(row, "phase") != "decode":
        raise NotCovered("the tasks of a prefill are not stated")
    if "host" in text(row, "evidence"):
        raise NotCovered("host time is not modelled")
    stage, measured = text(row, "stage"), number(row, "value") * _unit(row)
    if stage.startswith("single layer"):
        step = _step(row)
        keys = LONGEST if "max" in text(row, "context") else context_of(text(row, "context"))[0]
        return Decode(step, 1, (keys,) * WINDOW, False, measured, (f"as {step}",))
    if stage.startswith("full step"):
        changes = changes_of(text(row, "variant"))
        batch, (keys, assumed) = _batch(row), context_of(text(row, "context"))
        step = _step(row)
        return Decode(step, count(row, "layers"), (keys,) * batch, True, measured, (*assumed, f"as {step}"), changes)
    if stage == "attention":
        if re.search(r"CANN|vLLM|extern", text(row, "variant")):
            raise NotCovered("another kernel than the program's")
        keys, assumed = context_of(text(row, "context"))
        step = _step(row)
        return Decode(step, 1, (keys,) * WINDOW, False, measured, assumed, stage="attention")
    raise NotCovered("a stage that the program does not have")


def changes_of(variant: str) -> tuple[tuple[str, Any], ...]:
    """What a variant's words change.

    >>> changes_of("un-fused")
    (('attention', 'steps'), ('funnel', False))
    """
    return (("attention", "steps"), ("funnel", False)) if "un-fused" in variant else ()


def context_of(stated: str) -> tuple[int, tuple[str, ...]]:
    """Keys of each request, and what was assumed for them; the middle of a range.

    >>> context_of("3338-3358"), context_of("3338 uniform")
    ((3348, ()), (3338, ()))
    """
    found = [int(n) for n in re.findall(r"\d+", stated)]
    if not found or "max" in stated:
        return CONTEXT, (f"context {CONTEXT}, as in the other full steps",)
    return sum(found[:2]) // len(found[:2]), ()


def _unit(row: Row) -> float:
    unit = text(row, "unit")
    if unit not in UNITS_US:
        raise NotCovered(f"unit {unit!r} is not a time of the device")
    return UNITS_US[unit]


def _batch(row: Row) -> int:
    """Requests: those of so many windows where the variant says it."""
    named = re.search(r"(\w+) 16-row windows?", text(row, "variant"))
    if named:
        word = named.group(1)
        return WINDOW * (int(word) if word.isdigit() else NUMBERS.get(word, 1))
    return count(row, "batch")


def _step(row: Row) -> str:
    """The step of the ladder whose program a row was measured with."""
    variant, source = text(row, "variant"), text(row, "source")
    if "parent" in variant:
        return "task-per-iteration"
    if "pre-pipeline" in variant:
        return "own-tiles"
    if "perf_baselines" in source:
        return "aligned"
    found = re.search(r"pypto-lib PR #(\d+)", source)
    if not found:
        raise NotCovered("the program is not stated")
    request = int(found.group(1)) - ("before" in variant)
    adopted = [step for first, step in ADOPTED.items() if first <= request]
    if not adopted:
        raise NotCovered("a program from before the first step that is known")
    return adopted[-1]
