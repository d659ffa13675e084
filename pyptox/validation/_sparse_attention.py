"""``sparse_attention_a3.csv``: decode attention over picked rows of a compressed cache, in variants of one kernel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cost import Options, cost_of
from ..hardware import Hardware
from ..kernels import sparse_attention
from ..lang._types import Spec, spec
from ._problem import NotCovered, Row, count, number, text

HEADS, KEYS, SLICES = 64, 64, (1, 2, 4, 8)
"""Heads of a block and keys of a tile where a row does not say, and the slices of the vector work that are tried."""

SWITCHES = ("gather_continuous", "async_copy", "pingpong", "cv_pipeline", "broadcast_opt", "axpy_opt")


@dataclass(frozen=True)
class SparseProblem:
    """The kernel with the row's switches, in the slices that are fastest among those that fit."""

    specs: Mapping[str, Spec]
    values: Mapping[str, Any]
    measured: float
    assumed: tuple[str, ...]
    unit: str = "us"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs; it fits."""
        times = []
        for slices in SLICES:
            values = {**self.values, "slices": slices}
            cost = cost_of(sparse_attention, self.specs, values, hardware, Options(warm=4))
            if cost.legal:
                times.append(float(cost.time_us))
        if not times:
            raise NotCovered("none of the slices that were tried fits the chip")
        return min(times), True


def problem(row: Row) -> SparseProblem:
    """A variant of the kernel; a row without switches is taken for the fastest variant."""
    if "TileLang" not in text(row, "implementation"):
        raise NotCovered("a vendor kernel of unknown schedule")
    if text(row, "kv_heads") not in ("", "1"):
        raise NotCovered("more than one head of keys: the kernel of the library has one compressed cache")
    stated = [text(row, name) for name in SWITCHES]
    if any(stated) and not all(value in ("0", "1") for value in stated):
        raise NotCovered(f"some of {', '.join(SWITCHES)} are stated and some are not")
    contiguous, asynchronous, pingpong, pipelined, broadcast, fused = (value != "0" for value in stated)
    assumed = ["64 heads a block", "row slices of the vector work"]
    assumed += [] if any(stated) else ["every optimisation"]
    assumed += [] if text(row, "s2_split") else [f"tiles of {KEYS} keys"]
    heads, size, turned = (count(row, name) for name in ("q_heads", "d", "d_rope"))
    tokens = count(row, "batch") * count(row, "tokens")
    positions = count(row, "kv_s") if text(row, "kv_s") else count(row, "act_kv_s")
    specs = sparse_attention.specs(
        spec((tokens, heads, size), "bf16"),
        spec((tokens, heads, turned), "bf16"),
        spec((positions, size), "bf16"),
        spec((positions, turned), "bf16"),
        spec((tokens, count(row, "sparse_size")), "int32"),
    )
    values = {
        "m": min(HEADS, heads),
        "n": count(row, "s2_split") if text(row, "s2_split") else KEYS,
        "stages": 2 if pingpong else 1,
        "preload": 1 if pipelined else 0,
        "contiguous": contiguous,
        "wait": not asynchronous,
        "broadcast": broadcast,
        "fused": fused,
    }
    return SparseProblem(specs, values, number(row, "time_us"), tuple(assumed))
