"""``flash_attention_times.csv``: full attention of one head, queries times keys, on a number of cores.

The series on a few cores mixes two tiles, and its note says from which length on: below it a tile is one step of the
cube, from there on the tuner picks. It is also bound by its launches: however little a run does, it takes 42 µs.
"""

import re
from dataclasses import dataclass

from ..cost import Options, cost_of
from ..hardware import Hardware
from ..kernels import flash_attention
from ..lang._types import spec
from ._problem import NotCovered, Row, count, number, text

KEYS, SLICES, AHEAD = (128, 256), (1, 2, 4), (2, 4)
"""What is tried where a row does not say: keys of a tile, slices of the vector work, and tiles of scores ahead."""

SHORT_KEYS = 128
"""The tile of keys of the short regime: one step of the cube."""

LAUNCHED_US = 42.0
"""What a run of the few-core series takes at least: its rows of little work lie between 41.7 and 44.1 µs."""


@dataclass(frozen=True)
class AttentionProblem:
    """Attention of ``queries x keys`` at the tile that the model likes best among those that fit."""

    queries: int
    keys: int
    size: int
    tile_queries: int
    tile_keys: tuple[int, ...]
    cores: int
    measured: float
    assumed: tuple[str, ...]
    least: float = 0.0
    unit: str = "us"
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """µs of the best tile; it fits."""
        rows = ((1, self.queries, self.size), *((1, self.keys, self.size),) * 2)
        specs = flash_attention.specs(*(spec(shape, "fp16") for shape in rows))
        times = []
        for n in self.tile_keys:
            for slices in SLICES:
                for ahead in AHEAD:
                    given = {"m": self.tile_queries, "n": n, "slices": slices, "preload": ahead}
                    cost = cost_of(flash_attention, specs, given, hardware, Options(warm=4, cores=self.cores))
                    if cost.legal:
                        times.append(float(cost.time_us))
        if not times:
            raise NotCovered("none of the tiles that were tried fits the chip")
        return max(self.least, min(times)), True


def problem(row: Row) -> AttentionProblem:
    """One row; the tile of keys is the tuner's where none is stated, or where the stated one is cut further."""
    if not text(row, "implementation").startswith(("PTO manual", "PTO-DSL")):
        raise NotCovered("a vendor kernel of unknown schedule")
    if text(row, "causal") not in ("no", ""):
        raise NotCovered("a causal row: only full attention is compared")
    if not text(row, "s0"):
        raise NotCovered("the number of queries is not stated")
    stated = count(row, "tile_s1") if text(row, "tile_s1") else 0
    mixed = re.search(r"vs >=(\d+) visibly use a different tile", text(row, "note"))
    if mixed and not stated:
        short = count(row, "s1") < int(mixed.group(1))
        stated = SHORT_KEYS if short else 0
        regime = (
            f"the short regime: tiles of {SHORT_KEYS} keys" if short else "the long regime: the tuner's tile of keys"
        )
        assumed = [regime, f"at least {LAUNCHED_US:g} µs for a launch of this series"]
    else:
        assumed = [] if stated in KEYS else ["the tuner's tile of keys"]
    if not text(row, "head_size"):
        assumed.append("head size 128")
    return AttentionProblem(
        count(row, "s0"),
        count(row, "s1"),
        count(row, "head_size") if text(row, "head_size") else 128,
        count(row, "cube_s0") if text(row, "cube_s0") else 128,
        (stated,) if stated in KEYS else KEYS,
        count(row, "cores_aic"),
        number(row, "time_us"),
        tuple(assumed),
        least=LAUNCHED_US if mixed else 0.0,
    )
