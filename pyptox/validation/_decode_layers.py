"""A coarse DeepSeek V4-Flash decode step: 43 layers, attention and MoE in turn, one task for each stage.

Spans of the blocks, bytes and order are published; a stage that streams weights takes what HBM takes for them, or L2.
Only how the rest of a span falls to stages that stream none is not published, and is stated here. Left out: numerics,
what single tiles read, the tail behind the last layer, and what other ranks do.
"""

from dataclasses import dataclass
from functools import lru_cache

from ..chip import Memory, Schedule, Warm, Workload, a2a3_schedule
from ..hardware import Hardware

LAYERS = 43
_MB = 10**6
_CLUSTERS = 24

WINDOW_US = {"SWA": 268.5, "HCA": 279.0, "CSA": 375.0}
"""Attention blocks in the network, cold: middles of the published spans (decode_e2e, dsv4_layer_network)."""

MOE_US = 477.0
"""MoE from the end of attention's hc_post to that of its own (decode_e2e, dsv4_snap_MoE)."""

COMBINE_US = 40.5
"""Of it the combination of the experts' rows (l2_prefetch, moe_contention)."""

FFN_US = 365.9
"""Of it the experts with their dispatch (l2_prefetch, moe_contention)."""

WEIGHTS = {
    "wqkv_a": 12_582_912,  # 4096 x 1024 and 4096 x 512 bf16
    "wq_b": 33_554_432,  # 1024 x 32768 int8
    "indexer": 11_000_000,  # CSA: 157.9 MB of attention weights, 146.9 in the others
    "wo_a": 67_108_864,  # 8 groups of 4096 x 1024 bf16
    "wo_b": 33_554_432,  # 8192 x 4096 int8
    "w1": 134_217_728,  # 16 experts of 4096 x 2048 int8
    "w3": 134_217_728,
    "w2": 134_217_728,
    "shared": 25_165_824,  # together 427.8 MB, as published
}
"""Bytes of a layer's weights, by the published shapes."""


@dataclass(frozen=True)
class Stage:
    """One task of a layer.

    Attributes:
        span_us: from being ready to its consumers' being so, cold, where it streams no weights.
        weights: what it streams.
        after: stages that it waits for, by name.
    """

    name: str
    shape: str
    blocks: int
    after: tuple[str, ...]
    span_us: float = 0.0
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Step:
    """A decode step.

    Attributes:
        work: its tasks.
        task: their numbers by layer and name of the stage.
        region: numbers of the regions by layer and name of the weights.
        kinds: attention of each layer.
    """

    work: Workload
    task: dict[tuple[int, str], int]
    region: dict[tuple[int, str], int]
    kinds: tuple[str, ...]

    def warms(
        self, weights: tuple[str, ...], anchor: str, *, contexts: int = 1, layers: tuple[int, ...] | None = None
    ) -> list[Warm]:
        """In every layer the same warm; over several contexts its weights go in turn."""
        result = []
        for layer in range(LAYERS) if layers is None else layers:
            mine = [name for name in weights if (layer, name) in self.region]
            for context in range(contexts):
                part = tuple((self.region[layer, name], 1.0) for name in mine[context::contexts])
                if part:
                    result.append(Warm(self.task[layer, anchor], part, context))
        return result


def kind(layer: int) -> str:
    """Layers 0 and 1 slide; then CSA and HCA alternate."""
    return "SWA" if layer < 2 else ("HCA", "CSA")[layer % 2 == 0]


def stages(attention: str, overhead_us: dict[tuple[str, int], float], byte_us: float) -> list[Stage]:
    """One layer: its projections take their weights' bytes, attention what is left of the published span."""
    full = _CLUSTERS
    first = (
        Stage("hc_pre", "AIV", 24, (), 12.0),
        Stage("rms_norm", "AIV", 8, ("hc_pre",), 8.0),
        Stage("norm_apply", "AIV", 2 * full, ("rms_norm",), 19.0),
        Stage("q_a_kv", "AIC", full, ("norm_apply",), weights=("wqkv_a",)),
        Stage("kv_write", "AIV", 8, ("q_a_kv",), 11.0),
        Stage("q_norm", "AIV", 8, ("q_a_kv",), 14.0),
        Stage("q_b", "MIX", full, ("q_norm",), weights=("wq_b",)),
    )
    last = (
        Stage("wo_a", "AIC", full, ("attention",), weights=("wo_a",)),
        Stage("o_quant", "AIV", 8, ("wo_a",), 8.0),
        Stage("wo_b", "AIC", full, ("o_quant",), weights=("wo_b",)),
        Stage("hc_post", "AIV", 24, ("wo_b",), 12.0),
    )
    index = (Stage("index", "MIX", 16, ("q_norm",), weights=("indexer",)),) if attention == "CSA" else ()

    def span(stage: Stage) -> float:
        streamed = sum(WEIGHTS[name] for name in stage.weights) * byte_us
        return stage.span_us or overhead_us[stage.shape, stage.blocks] + streamed

    beside = {"kv_write", "index"}
    left = WINDOW_US[attention] - sum(span(s) for s in (*first, *last) if s.name not in beside)
    after = ("q_b", "kv_write", *(s.name for s in index))
    middle = Stage("attention", "MIX", 16, after, left)
    moe = (
        Stage("moe_pre", "AIV", 24, ("hc_post",), 36.0),
        Stage("gate", "AIC", 8, ("moe_pre",), 18.6),
        Stage("shared", "AIC", full, ("moe_pre",), weights=("shared",)),
        Stage("w1", "AIC", full, ("dispatch",), weights=("w1",)),
        Stage("w3", "AIC", full, ("w1",), weights=("w3",)),
        Stage("w2", "AIC", full, ("w3",), weights=("w2",)),
        Stage("combine", "AIV", 24, ("w2", "shared"), COMBINE_US),
        Stage("moe_post", "AIV", 24, ("combine",), 16.0),
    )
    sent = FFN_US - sum(span(s) for s in moe if s.name in ("w1", "w3", "w2"))
    dispatch = Stage("dispatch", "AIV", 24, ("gate",), sent)
    return [*first, *index, middle, *last, *moe[:3], dispatch, *moe[3:]]


@lru_cache(maxsize=4)
def decode_step(hardware: Hardware, schedule: Schedule | None = None) -> Step:
    """The step on a chip."""
    c = (schedule or a2a3_schedule()).values()
    hbm, l2 = float(hardware.times.hbm_us), float(hardware.times.l2_us)
    overhead = {(shape, n): _overhead_us(c, shape, n) for shape in ("AIC", "AIV", "MIX") for n in (8, 16, 24, 48)}
    names, shapes, blocks, durations, resident, moved, l2_us = ([] for _ in range(7))
    waits, uses, sizes = [], [], []
    task: dict[tuple[int, str], int] = {}
    region: dict[tuple[int, str], int] = {}
    kinds = tuple(kind(layer) for layer in range(LAYERS))
    for layer, attention in enumerate(kinds):
        for stage in stages(attention, overhead, hbm):
            number = task[layer, stage.name] = len(names)
            names.append(f"t{number} {stage.name}[{layer}]")
            shapes.append(stage.shape)
            blocks.append(stage.blocks)
            before = [task[layer, name] for name in stage.after] or ([number - 1] if number else [])
            waits.append(before)
            size = sum(WEIGHTS[name] for name in stage.weights)
            span = stage.span_us - overhead[stage.shape, stage.blocks] if not size else size * hbm
            durations.append(max(span, 0.0))
            resident.append(size * l2 if size else max(span, 0.0))
            exchange = stage.name == "combine"  # all-to-all, which other streams slow down
            moved.append(size * hbm if size else max(span, 0.0) if exchange else 0.0)
            l2_us.append(size * l2)
            mine = []
            for name in stage.weights:
                region[layer, name] = len(sizes)
                mine.append((len(sizes), WEIGHTS[name] / size))
                sizes.append(WEIGHTS[name])
            uses.append(mine)
    memory = Memory.of(
        resident, moved, l2_us, regions=sizes, uses=uses, together=blocks, capacity=float(hardware.sizes.l2)
    )
    work = Workload.of(shapes, blocks, durations, waits, names=names, memory=memory)
    return Step(work, task, region, kinds)


def _overhead_us(c: dict[str, float], shape: str, blocks: int) -> float:
    """What the scheduler adds to a stage: three threads publish its blocks, and see and retire them."""
    each = -(-blocks // 3) * (3 if shape == "MIX" else 1)
    looked = (each + 1) // 2
    publish = c["dispatch_us"] + c["dispatch_each_us"] * each + c["doorbell_us"] + c["receive_us"]
    return publish + c["fin_us"] + c["poll_us"] * looked + c["complete_us"] + c["complete_each_us"] * each
