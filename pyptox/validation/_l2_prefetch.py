"""Rows of ``l2_prefetch.csv``: warms of a coarse decode step, the streams themselves, and what they find.

All of them are answered by one program (:mod:`._decode_layers`) and one set of constants (:class:`pyptox.chip.Sdma`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ..chip import Sdma, Timeline, Warm, Warms, simulate, with_warms
from ..chip._oracle import _Engine
from ..hardware import Hardware
from ._decode_layers import LAYERS, WEIGHTS, Step, decode_step
from ._problem import NotCovered, Row, Source, text

GAIN, LOSS, NEUTRAL = "gain", "loss", "neutral"

NOISE = 0.005
"""Share of a step that is neither gain nor loss: rows of several hundred rounds resolve less than the 3 % of one."""

_MB = 1e6
_ANCHORS = (("rms", "rms_norm"), ("kv", "kv_write"), ("entry", "hc_pre"), ("q ", "q_b"))
_SETS = (
    (r"all attention|every other attention", ("wqkv_a", "wq_b", "indexer", "wo_a", "wo_b")),
    (r"q/kv", ("wqkv_a", "wq_b")),
    (r"indexer|\bcmp", ("indexer",)),
    (r"wo_a|o-proj", ("wo_a",)),
    (r"wo_b|o-proj", ("wo_b",)),
    (r"\bw1\b|_w1\b", ("w1",)),
    (r"\bw3\b|_w3\b", ("w3",)),
)
_O = ("wo_a", "wo_b")

Plan = tuple[tuple[tuple[str, ...], str, int], ...]
"""Warms of a step: weights in order, the stage that anchors them, and over how many contexts."""


@dataclass(frozen=True)
class Asked:
    """One number of a row."""

    measured: float
    unit: str
    answer: Callable[[Hardware], float]
    assumed: tuple[str, ...] = ()
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """The number, in the row's unit."""
        return self.answer(hardware), True


def problem(row: Row) -> Asked:
    """What the row states, and how it is answered."""
    group, metric = text(row, "group"), text(row, "metric")
    if group.startswith("older"):
        raise NotCovered("an older runtime, whose stages take other times that are not published")
    if group == "startup_spikes":
        raise NotCovered("how often a fresh process stalls is no property of the program")
    if metric == "warm task own time":
        segments = len(named(row)) or 1
        return Asked(_number(text(row, "duration_us")), "us", lambda chip: Sdma().issue_us * segments)
    if "start-up" in metric:
        return Asked(_number(text(row, "duration_us")), "us", lambda chip: Sdma().startup_us)
    if text(row, "bandwidth_gbs"):
        return _streamed(row)
    if "traffic" in metric:
        moe = sum(WEIGHTS[name] for name in ("w1", "w3", "w2", "shared")) / _MB
        return Asked(_number(text(row, "bytes_mb")), "MB", lambda chip: moe)
    speed = re.search(r"speed-up ([\d.]+)x", metric)
    if speed:
        told = ("a stream of reads that L2 supplies, against HBM",)
        return Asked(float(speed[1]), "x", lambda chip: float(chip.times.hbm_us) / float(chip.times.l2_us), told)
    if group == "moe_contention":
        return _stage(row)
    if group.endswith("window"):
        return _window(row)
    return _step(row)


def measured_outcome(row: Row) -> str | None:
    """``gain``, ``loss`` or ``neutral``; None for a row that states none."""
    return text(row, "outcome_sign") or None


def outcome(row: Row, hardware: Hardware) -> str | None:
    """The sign of what the warm does to what the row times."""
    if text(row, "group").startswith("older"):
        return None
    step, plan = decode_step(hardware), plan_of(row)
    if text(row, "group") == "moe_contention":
        stages = _stages(text(row, "metric"))
        before, after = (_span(step, one, stages, hardware) for one in ((), plan))
    else:
        before = _simulated(hardware, _reference(row)).makespan_us
        after = _simulated(hardware, plan).makespan_us
    change = after / before - 1
    return NEUTRAL if abs(change) < NOISE else LOSS if change > 0 else GAIN


def named(row: Row) -> tuple[str, ...]:
    """The weights that a row warms, in its order."""
    words = text(row, "issue_order") or text(row, "warm_set")
    if text(row, "metric") == "warm task own time":  # the set of the routed experts, with and without w3
        return ("w1",) if "without w3" in words else ("w1", "w3")
    found = list(dict.fromkeys(name for pattern, names in _SETS if re.search(pattern, words) for name in names))
    places = {name: words.find(name) for name in found}
    if all(place >= 0 for place in places.values()):
        found.sort(key=places.__getitem__)
    return tuple(found)


def plan_of(row: Row) -> Plan:
    """The warms of a row; an o-proj warm comes first where the row adds to it."""
    words, weights = text(row, "warm_set"), named(row)
    contexts = max(int(text(row, "contexts") or 1), int(text(row, "scopes") or 1))
    if not weights:
        return ()
    if text(row, "group") == "over_warming":
        rest = tuple(name for name in weights if name not in _O)
        return (_O, "q_b", 1), (rest, _anchor(row, "entry"), 1)
    if words.startswith("+"):
        weights = (*_O, *(name for name in weights if name not in _O))
    return ((weights, _anchor(row, "q "), contexts),)


def _reference(row: Row) -> Plan:
    return ((_O, "q_b", 1),) if text(row, "group") == "over_warming" else ()


def _anchor(row: Row, otherwise: str) -> str:
    words = (text(row, "anchor") or text(row, "warm_set")).lower() + " "
    if not text(row, "anchor") and "entry" not in words:
        words = otherwise
    return next((stage for word, stage in sorted(_ANCHORS, key=lambda a: a[0] != "entry") if word in words), "q_b")


def _assumed(row: Row) -> tuple[str, ...]:
    return ("stages and what they stream", *(() if text(row, "anchor") else ("the anchor",)))


def _step(row: Row) -> Asked:
    """A whole step with the warm against one without, as µs or as a share."""
    delta, share = _numbers(text(row, "delta_us")), _numbers(text(row, "delta_pct"))
    plan, reference = plan_of(row), _reference(row)
    if not plan:
        raise NotCovered("no set of weights is stated")

    def change(hardware: Hardware) -> tuple[float, float]:
        before = _simulated(hardware, reference).makespan_us
        return _simulated(hardware, plan).makespan_us - before, before

    before, after = _numbers(text(row, "baseline_us")), _numbers(text(row, "measured_us"))
    if delta:
        return Asked(sum(delta) / len(delta), "us", lambda chip: change(chip)[0], _assumed(row))
    if before and after:
        return Asked(after[0] - before[0], "us", lambda chip: change(chip)[0], _assumed(row))
    if share:
        return Asked(share[0], "%", lambda chip: 100 * change(chip)[0] / change(chip)[1], _assumed(row))
    raise NotCovered("no difference is stated")


def _window(row: Row) -> Asked:
    """An attention block from one hc_post to the next, in the layers of its kind but the first."""
    kind = text(row, "workload").split(" ")[0]
    plan = plan_of(row)
    values = _numbers(text(row, "measured_us")) or _numbers(text(row, "duration_us"))
    if not values or kind not in ("SWA", "HCA", "CSA"):
        raise NotCovered("no span of an attention block is stated")

    def answer(hardware: Hardware) -> float:
        step = decode_step(hardware)
        layers = [n for n in range(1, LAYERS) if step.kinds[n] == kind]
        finish = _finish(hardware, plan)
        return sum(finish(n, "hc_post") - finish(n - 1, "moe_post") for n in layers) / len(layers)

    return Asked(sum(values) / len(values), "us", answer, _assumed(row))


def _stage(row: Row) -> Asked:
    values = _numbers(text(row, "measured_us")) or _numbers(text(row, "baseline_us"))
    if not values:
        raise NotCovered("no time of the stage is stated")
    plan, stages = plan_of(row), _stages(text(row, "metric"))
    return Asked(values[0], "us", lambda chip: _span(decode_step(chip), plan, stages, chip), _assumed(row))


def _stages(metric: str) -> tuple[str, str]:
    """After which stage it begins, and with which it ends."""
    return ("gate", "w2") if "ffn" in metric else ("w2", "combine")


def _span(step: Step, plan: Plan, stages: tuple[str, str], hardware: Hardware) -> float:
    finish = _finish(hardware, plan)
    return sum(finish(n, stages[1]) - finish(n, stages[0]) for n in range(1, LAYERS)) / (LAYERS - 1)


def _streamed(row: Row) -> Asked:
    """The rate of a stream: alone, beside another one, both together, or over what is in L2 already."""
    rate, set_ = _number(text(row, "bandwidth_gbs")), text(row, "warm_set")
    contexts = int(text(row, "contexts") or 1)
    if "resident" in text(row, "metric") or "resident" in set_:
        size = WEIGHTS["wo_a"] + WEIGHTS["wo_b"]
        return Asked(rate, "GB/s", lambda chip: 1e-3 * size / (size * Sdma().hit_byte_us))
    if contexts == 1:
        return Asked(rate, "GB/s", lambda chip: 1e-3 / Sdma().byte_us)
    mine = [n for n, name in enumerate(_O) if name in set_] or [0, 1]

    def answer(hardware: Hardware) -> float:
        ends = _parallel_us(float(hardware.times.hbm_us))
        return 1e-3 * sum(WEIGHTS[_O[n]] for n in mine) / max(ends[n] for n in mine)

    return Asked(rate, "GB/s", answer, ("both are issued at the same time",))


def _parallel_us(hbm_byte_us: float) -> list[float]:
    """When two contexts that begin together have brought wo_a and wo_b."""
    warms = Warms.of([[(0, 1.0)], [(1, 1.0)]], context=[0, 1], hbm_byte_us=hbm_byte_us)
    engine, ends = _Engine(warms), [0.0, 0.0]
    for context, name in enumerate(_O):
        engine.asked(context, WEIGHTS[name] * warms.sdma.byte_us)
    while any(engine.left):
        engine.advance(engine.now + 1.0)
        ends = [engine.now if left > 0 else end or engine.now for left, end in zip(engine.left, ends, strict=True)]
    return ends


@lru_cache(maxsize=32)
def _simulated(hardware: Hardware, plan: Plan) -> Timeline:
    return simulate(_planned(hardware, plan)[0], hardware=hardware)


@lru_cache(maxsize=32)
def _planned(hardware: Hardware, plan: Plan):
    step = decode_step(hardware)
    warms: list[Warm] = []
    for weights, anchor, contexts in plan:
        warms += step.warms(weights, anchor, contexts=contexts)
    return with_warms(step.work, warms, hbm_byte_us=float(hardware.times.hbm_us))


def _finish(hardware: Hardware, plan: Plan) -> Callable[[int, str], float]:
    places, step = _planned(hardware, plan)[1], decode_step(hardware)
    times = _simulated(hardware, plan).times.finish
    return lambda layer, stage: float(times[places[step.task[layer, stage]]])


def _numbers(words: str) -> list[float]:
    """The numbers of a column: one, or both ends of a range such as ``247-258`` or ``+625..+673``."""
    found = re.match(r"^\D*?([+-]?\d+(?:\.\d+)?)(?:(?:-|\.\.)([+-]?\d+(?:\.\d+)?))?", words)
    return [] if found is None else [float(part) for part in found.groups() if part is not None]


def _number(words: str) -> float:
    found = _numbers(words)
    if not found:
        raise NotCovered("the number is not stated")
    return found[0]


_RESTS_ON = (
    "calibrated: the rate of one stream, of two and of hits, their start-up and the cost of an issue are rows of "
    "this file (the bandwidth, startup and PR #963 ones), so those rows check themselves; spans of blocks and "
    "bytes are published elsewhere. Chosen with the three anchor rows in view: which stages need every vector "
    "core, and how a span falls to stages that stream no weights. Judged: signs, orders and gains of steps and "
    "windows. At risk in other rows: the size of losses (rms_norm a third of what is published, second warms 1.7 "
    "to 3.6 times), two contexts (predicted to gain nothing, not to lose), other anchors, and exchanges between "
    "ranks, which ask for HBM and have no SDMA queue of their own: a combine is slowed only while a warm is in "
    "flight, a dispatch never."
)
SOURCE = Source(problem, outcome, measured=measured_outcome, rests_on=_RESTS_ON)
"""How ``l2_prefetch.csv`` is read."""
