"""``scheduling.csv``: what one mechanism of the runtime costs.

Averages of the runtime that the ``a2a3`` schedule describes are compared: what a program shows whose tasks the row
states, or the constant that is looked at. Minima, maxima and older runtimes are not; of whole models only Qwen3-14B is.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..chip import Schedule, Timeline, Workload, a2a3_schedule, simulate
from ..hardware import Hardware
from . import _decode_e2e
from ._problem import NotCovered, Row, count, number, text

RECORD_US = 0.52
"""Writing one swimlane record: hw-native-sys/simpler, investigation 2026-07-aicore-swimlane-switch."""

FILLED_US = 1.0
"""A core fills its own arguments: hw-native-sys/simpler, investigation 2026-07-aicore-fills."""

HOST_US, HOST_TASK_US = 43.3, 8.08
"""One run of the Python host worker, and each of its tasks: simpler, investigation 2026-07-host-dispatch."""

EDGES = (0, 1, 1, 2)
"""Producers of the four tasks of a step of unrolled paged attention: scores, softmax, values, update."""

UNITS_US = {"us": 1.0, "ns": 1e-3}
OLDER = "an older runtime, or one that is instrumented"


@dataclass(frozen=True)
class Mechanism:
    """A number that a function of the schedule gives, µs."""

    value: Callable[[Hardware, Schedule], float]
    measured: float
    assumed: tuple[str, ...] = ()
    unit: str = "us"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs."""
        return self.value(hardware, a2a3_schedule()), True


def problem(row: Row) -> Mechanism:
    """The rule of the row's mechanism."""
    if text(row, "unit") not in UNITS_US:
        raise NotCovered("not a time")
    mechanism, metric = text(row, "mechanism"), text(row, "metric")
    for pattern, rule in RULES:
        if re.search(pattern, f"{mechanism}; {metric}"):
            found = rule(row)
            value, assumed = found if isinstance(found, tuple) else (found, ())
            return Mechanism(value, _value(row) * UNITS_US[text(row, "unit")], assumed)
    raise NotCovered("a mechanism outside the simulated scheduler, or a program that is not stated")


def _value(row: Row) -> float:
    """The number of a row; the middle of a range such as ``95-105``."""
    low, dash, high = text(row, "value").partition("-")
    if low and dash:
        return (number({"value": low}, "value") + number({"value": high}, "value")) / 2
    return number(row, "value")


def _average(row: Row) -> None:
    stat = f"{text(row, 'stat')} {text(row, 'variant')}"
    if re.search(r"\b(min|max|p90|p99)\b", stat):
        raise NotCovered("an extreme: the model has averages")


def _head(row: Row):
    """From publishing to start, averaged over the blocks of a task in a chain of chip-wide ones."""
    _average(row)
    chained = re.search(r"(\d+) chained (\w+) tasks, block_num (\d+).*?(\d+(?:\.\d+)?) us each", text(row, "workload"))
    place = re.search(r"t(\d+)", text(row, "stat"))
    if not chained or not place:
        raise NotCovered("tasks, blocks and times are not stated")
    if "no warmup" not in text(row, "variant"):
        raise NotCovered("a warm-up before the first task")
    tasks, blocks, task = int(chained.group(1)), int(chained.group(3)), int(place.group(1))

    def value(hardware: Hardware, schedule: Schedule) -> float:
        shape, time = chained.group(2), float(chained.group(4))
        t = _chain(hardware, schedule, [shape] * tasks, [blocks] * tasks, time)
        # blocks are published one after another and start a constant time later
        one = schedule.values()["dispatch_us"] + 3 * schedule.values()["dispatch_each_us"]
        return float(t.times.start[task] - t.times.dispatch[task]) - (one if shape == "MIX" else 0.0)

    return value


def _gap(row: Row):
    """From the end of a chip-wide MIX producer to the start of its consumer."""
    early = text(row, "variant") == "on"
    if text(row, "variant") not in ("on", "off"):
        raise NotCovered("neither with nor without early dispatch")

    def value(hardware: Hardware, schedule: Schedule) -> float:
        blocks = [int(hardware.counts.aic)] * 2
        t = _chain(hardware, schedule, ["MIX", "MIX"], blocks, 50.0, early)
        return float(t.times.start[1] - t.times.end[0])

    return value, ("a producer and a consumer of one MIX block on each cluster",)


def _hand_off(row: Row):
    """The same of small tasks on vector cores, staged."""
    if "removed" not in text(row, "variant"):
        raise NotCovered(OLDER)

    def value(hardware: Hardware, schedule: Schedule) -> float:
        t = _chain(hardware, schedule, ["AIV", "AIV"], [1, 1], 10.0, True)
        return float(t.times.start[1] - t.times.end[0])

    return value, ("a producer and a consumer of one block",)


def _switch(row: Row):
    """From the end of a block to the start of the pending one; a swimlane record is written in between."""
    _average(row)
    part = text(row, "variant")
    if part == "switch prev_tail":
        return lambda hardware, schedule: RECORD_US
    if part not in ("switch", "switch setup"):
        raise NotCovered("gaps of a program that is not stated")

    def value(hardware: Hardware, schedule: Schedule) -> float:
        wide = int(hardware.counts.aic)
        work = Workload.of(["AIC", "AIC"], [wide, wide], [100.0, 10.0], [[], []])
        t = simulate(work, hardware=hardware, schedule=schedule)
        first_end = t.times.start[0] + t.times.block[0]
        return float(t.times.start[1] - first_end) + (RECORD_US if part == "switch" else 0.0)

    return value


def _chain(hardware, schedule, shapes: list[str], blocks: list[int], time_us: float, early: bool = False) -> Timeline:
    waits = [[n - 1] if n else [] for n in range(len(shapes))]
    work = Workload.of(shapes, blocks, [time_us] * len(shapes), waits, early=[early] * len(shapes))
    return simulate(work, hardware=hardware, schedule=schedule)


def _first_wave(row: Row):
    """How far apart a thread publishes its share of single-block tasks that are ready together."""
    if text(row, "variant") != "before" or "per-thread first-wave" not in text(row, "metric"):
        raise NotCovered("publishing in one batch, or across threads: each task is published by itself")

    def value(hardware: Hardware, schedule: Schedule) -> float:
        share = int(hardware.counts.aic) // schedule.threads
        work = Workload.of(["AIC"] * share * 3, [1] * share * 3, [22.0] * share * 3, [[]] * share * 3)
        t = simulate(work, hardware=hardware, schedule=schedule.replace(submit_us=0.0))
        return float(t.times.start.max() - t.times.start.min())

    return value, ("24 tasks of one block",)


def _submissions(row: Row):
    """All submissions of unrolled paged attention."""
    if text(row, "variant") == "before":
        raise NotCovered(OLDER)
    if "paged_attention" not in text(row, "workload"):
        raise NotCovered("a program that is not stated")
    tasks = count(row, "tasks")

    def value(hardware: Hardware, schedule: Schedule) -> float:
        kinds, edges = ["AIC", "AIV"] * (tasks // 2), (EDGES * (tasks // 4 + 1))[: tasks // 2 * 2]
        work = Workload.of(kinds, [1] * len(kinds), [10.0] * len(kinds), [[]] * len(kinds), edges=edges)
        return float(work.submissions(schedule.values())[-1])

    return value, ("four tasks a step with 0, 1, 1 and 2 producers",)


def _arguments(row: Row):
    added = FILLED_US if "AICore fills" in f"{text(row, 'mechanism')} {text(row, 'variant')}" else 0.0
    return lambda hardware, schedule: schedule.values()["receive_us"] + added


def _notified(row: Row):
    """One look, a doorbell, a sweep over cores, or an end that is seen."""
    _average(row)
    variant = text(row, "variant")
    sweep = re.search(r"(\d+)-core COND sweep", variant)
    if sweep:
        return lambda hardware, schedule: int(sweep.group(1)) * schedule.values()["poll_us"]
    if variant.startswith("COND LDR"):
        return lambda hardware, schedule: schedule.values()["poll_us"]
    if re.match(r"AICPU->?AICore", variant):
        return lambda hardware, schedule: schedule.values()["doorbell_us"]
    if re.match(r"AICore->?AICPU COND", variant):
        return lambda hardware, schedule: schedule.values()["fin_us"] + schedule.values()["poll_us"]
    raise NotCovered("a path that the runtime's scheduler does not take")


def _host(row: Row):
    tasks = count(row, "tasks")
    return lambda hardware, schedule: HOST_US + HOST_TASK_US * tasks


def _empty(row: Row):
    """An empty kernel: its swimlane record."""
    del row
    return (lambda hardware, schedule: RECORD_US), ("the time is that of its swimlane record",)


def _decoded(row: Row):
    """A decode of Qwen3-14B with or without a change."""
    variant = text(row, "variant")
    layers = re.search(r"Qwen3-14B decode(?: (\d+) layers?)?$", text(row, "workload"))
    if not layers:
        raise NotCovered("a program that is not stated")
    if text(row, "mechanism").startswith("early dispatch"):
        step, changes, whole, measured = "early-dispatch", (("early", variant != "off"),), False, 1
    else:
        step, changes, whole, measured = "disjoint-spmd", _decode_e2e.changes_of(variant), True, 40
    keys, assumed = _decode_e2e.context_of("")
    asked = _decode_e2e.Decode(step, int(layers.group(1) or measured), (keys,) * 16, whole, 1.0, changes=changes)
    return (lambda hardware, schedule: asked.predict(hardware)[0]), (*assumed, f"as {step}")


RULES: tuple[tuple[str, Callable], ...] = (
    (r"early dispatch; L2 makespan", _decoded),
    (r"fusion; table", _decoded),
    (r"head OH", _head),
    (r"early dispatch; producer-end to consumer-start gap", _gap),
    (r"early dispatch; hand-off", _hand_off),
    (r"core task switch", _switch),
    (r"first-wave|first-dispatch", _first_wave),
    (r"orchestrator entry cost", _submissions),
    (r"AICore setup per task", _arguments),
    (r"fills .*args", _arguments),
    (r"MMIO/notification", _notified),
    (r"host run\(\) cost", _host),
    (r"empty task; task", _empty),
)
"""Patterns of ``mechanism; metric``, and their rules."""
