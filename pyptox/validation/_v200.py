"""One decode layer of Qwen3-14B as a public benchmark of V200 runs it: the same kernels in launches of five widths.

The batch of 90 is cut into tiles of 16 rows. Kernels that are split over blocks are launched in groups of ``width``
blocks: one block a launch in its first tier, all blocks of a tile in its last. Attention has four blocks of 24 keys'
pages a request. Source: yanghaoran29/V200-benchmark:README.md@0caf26f9; its formula gives 3096, 1602, 864, 678 and 522
launches.
"""

import re
from dataclasses import dataclass

from .._errors import PyptoxError
from ..chip import Memory, Workload
from ..chip._costs import BlockCost, block_cost
from ..hardware import Hardware
from ..kernels import matmul
from ..lang._types import spec
from ..program._task import INPUT, OUTPUT, Arg, Task
from ..program._tensor import Buffer, Tensor, dense_strides
from ._problem import NotCovered

TILES, REQUESTS, CHUNKS, WIDE = 6, 90, 4, 10**6


@dataclass(frozen=True)
class Kernel:
    """A kernel of the layer.

    Attributes:
        core: its kind.
        blocks: of one tile; of one request where ``each`` is.
        time_us: published mean of a block, where the cost model has no kernel of its tiles.
        product: (K, N, tile of K, columns of a block) of a projection.
        after: kernels that it waits for.
        split: whether its blocks may be launched one by one.
        each: it is launched for each request.
    """

    core: str
    blocks: int
    time_us: float
    after: tuple[str, ...]
    product: tuple[int, int, int, int] | None = None
    split: bool = True
    each: bool = False


KERNELS = {
    "rmsnorm": Kernel("AIV", 1, 23.95, (), split=False),
    "q_proj": Kernel("AIC", 20, 26.06, ("rmsnorm",), (5120, 5120, 128, 256)),
    "k_proj": Kernel("AIC", 8, 18.2, ("rmsnorm",), (5120, 1024, 128, 128)),
    "v_proj": Kernel("AIC", 8, 17.89, ("rmsnorm",), (5120, 1024, 128, 128)),
    "qk_norm": Kernel("AIV", 1, 13.19, ("q_proj", "k_proj"), split=False),
    "rope_kv_cache": Kernel("AIV", 1, 9.48, ("qk_norm", "v_proj"), split=False, each=True),
    "qk_matmul": Kernel("AIC", CHUNKS, 29.35, ("rope_kv_cache",), each=True),
    "online_softmax": Kernel("AIV", CHUNKS, 20.82, ("qk_matmul",), each=True),
    "sv_matmul": Kernel("AIC", CHUNKS, 29.35, ("online_softmax",), each=True),
    "online_update": Kernel("AIV", CHUNKS, 2.56, ("sv_matmul",), each=True),
    "out_proj_residual": Kernel("AIC", 40, 29.7, ("online_update",), (5120, 5120, 128, 128)),
    "post_rmsnorm": Kernel("AIV", 1, 24.39, ("out_proj_residual",), split=False),
    "gate_proj": Kernel("AIC", 34, 95.7, ("post_rmsnorm",), (5120, 17408, 128, 512)),
    "up_proj": Kernel("AIC", 34, 95.7, ("post_rmsnorm",), (5120, 17408, 128, 512)),
    "silu": Kernel("AIV", 34, 2.82, ("gate_proj", "up_proj")),
    "down_proj": Kernel("AIC", 40, 72.22, ("silu",), (17408, 5120, 128, 128)),
    "down_proj_residual": Kernel("AIV", 40, 2.59, ("down_proj",)),
}
"""In the order of submission. Times that are not published (``sv_matmul``, ``up_proj``) are those of the like kernel;
``online_update`` is that of the same benchmark's paged attention."""


SCOPES = tuple(KERNELS)[:5], tuple(KERNELS)[5:10], tuple(KERNELS)[10:]
"""Projections, attention, and the rest: each is submitted for all tiles before the next."""


def width_of(variant: str) -> int:
    """Blocks of a launch in the tier called ``variant``.

    >>> width_of("spmd-4"), width_of("non-spmd"), width_of("all-spmd") == WIDE
    (4, 1, True)
    """
    named = {"non-spmd": 1, "all-spmd": WIDE}
    found = re.fullmatch(r"spmd-(\d+)", variant)
    if variant not in named and not found:
        raise NotCovered("the width of a launch is not stated as non-spmd, spmd-N or all-spmd")
    return named[variant] if variant in named else int(found.group(1))  # type: ignore[union-attr]


def layer(width: int, hardware: Hardware | None = None) -> Workload:
    """The layer in launches of up to ``width`` blocks.

    With ``hardware``, blocks of the projections take what the cost model says, and weights lie in L2 or do not.
    """
    if width < 1:
        raise PyptoxError(f"`width` must be at least 1 block; got {width}")
    names: list[str] = []
    columns: dict[str, list] = {name: [] for name in ("shape", "blocks", "time", "waits", "cost", "uses")}
    costs = {name: _cost(kernel, hardware) for name, kernel in KERNELS.items()}
    regions: list[int] = []  # the part of a weight that each block reads
    first: dict[str, int] = {}
    for name, kernel in KERNELS.items():
        if kernel.product:
            first[name] = len(regions)
            regions += [kernel.product[0] * kernel.product[3] * 2] * kernel.blocks
    last: list[dict[str, list[int]]] = [{} for _ in range(TILES)]
    for scope in SCOPES:
        for tile, found in enumerate(last):
            for name in scope:
                kernel = KERNELS[name]
                found[name] = []
                requests = (tile + 1) * REQUESTS // TILES - tile * REQUESTS // TILES if kernel.each else 1
                for request in range(requests):
                    before = [task for other in kernel.after for task in _of(found, other, request, requests)]
                    todo = kernel.blocks
                    while todo:
                        blocks = min(width, todo) if kernel.split else todo
                        todo -= blocks
                        found[name].append(len(names))
                        names.append(f"t{len(names)} {name}")
                        parts = range(first.get(name, 0) + todo, first.get(name, 0) + todo + blocks)
                        uses = [(part, 1.0 / blocks) for part in parts] if kernel.product else []
                        row = kernel.core, blocks, costs[name].cold_us, before, costs[name], uses
                        for column, value in zip(columns.values(), row, strict=True):
                            column.append(value)
    memory = Memory.of(
        *([getattr(cost, name) for cost in columns["cost"]] for name in ("resident_us", "hbm_us", "l2_us")),
        regions=regions,
        uses=columns["uses"],
        together=[cost.together for cost in columns["cost"]],
    )
    return Workload.of(
        columns["shape"],
        columns["blocks"],
        columns["time"],
        columns["waits"],
        edges=[min(len(waits), 2) for waits in columns["waits"]],
        memory=memory if hardware is not None else None,
        names=names,
    )


def _of(last: dict[str, list[int]], other: str, request: int, requests: int) -> list[int]:
    """The launches of ``other`` that a launch waits for: all, or those of its own request."""
    found = last[other]
    if KERNELS[other].each and requests > 1:
        own = len(found) // requests
        return found[request * own : (request + 1) * own]
    return found


def _cost(kernel: Kernel, hardware: Hardware | None) -> BlockCost:
    if hardware is None or kernel.product is None:
        return BlockCost(kernel.time_us, kernel.time_us, 0.0, 0.0, 1.0, {})
    k, n, depth, columns = kernel.product
    # priced as launches that come one after another, which are nearer to the published means than overlapping ones
    return block_cost(product_task(16, k, n, depth, columns, "bf16"), hardware)


def product_task(m: int, k: int, n: int, depth: int, columns: int, dtype: str) -> Task:
    """A projection of ``m`` rows whose blocks hold ``columns`` of the weight and go through K in steps of ``depth``."""
    specs = matmul.specs(spec((m, k), dtype), spec((k, n), dtype))

    def arg(number: int, name: str) -> Arg:
        shape = specs[name].shape
        buffer = Buffer(number, name, shape, specs[name].dtype)
        direction = INPUT if name in matmul.inputs else OUTPUT
        return Arg(name, Tensor(buffer, shape, dense_strides(shape)), direction)

    values = matmul.configuration({"m": min(m, 16), "n": columns, "k": depth, "stages": 2, "group": 1})
    args = tuple(arg(number, name) for number, name in enumerate(specs))
    return Task(0, "matmul", matmul, args, values=values, blocks=-(-n // columns), shape="AIC")
