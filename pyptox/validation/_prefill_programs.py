"""What the orchestrator submits for a prefill of Qwen3-14B: coarse programs from published sizes, nesting and order.

Sizes follow from the model. Which tensors a layer keeps between its stages, and in which of the scopes, is stated
nowhere: it was read off the published marks and outcomes, so these show that one such program explains them all, not
more. Left out: how many tasks a stage is cut into (windows and pools are therefore not compared), numerics, and the
cache, which is no part of a heap.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..program import Scope
from ..rings import Submissions

HIDDEN, HEADS, KV_HEADS, HEAD, INTERMEDIATE, VOCABULARY = 5120, 40, 8, 128, 17408, 151936
"""Qwen3-14B (Qwen/Qwen3-14B: config.json)."""

FP32, BF16 = 4, 2
TILE = 128  # tokens of a tile, and positions of a block of keys
CONTEXT = 4096  # positions that scratch of attention is made for
PADDED_HEADS = 16  # query heads of one KV head, padded to a fractal

WEIGHT_BYTES_LAYER = BF16 * (HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD + HIDDEN * HEADS * HEAD + 3 * HIDDEN * INTERMEDIATE)
WEIGHT_BYTES_ENDS = BF16 * 2 * HIDDEN * VOCABULARY

# Between stages of a layer, bytes a token: what a cube stage makes is fp32, what it takes is bf16.
BEYOND_LAYER = (FP32 * HIDDEN, FP32 * HIDDEN)  # hidden state before and after
BEYOND_TILE = (FP32 * KV_HEADS * HEAD, FP32 * KV_HEADS * HEAD)  # keys and values
STAGES = (
    BF16 * HIDDEN,  # normalised
    FP32 * HEADS * HEAD,  # queries
    BF16 * HEADS * HEAD,  # attention
    FP32 * HIDDEN,  # after the output projection
    BF16 * HIDDEN,  # normalised
    FP32 * INTERMEDIATE,  # gate
    FP32 * INTERMEDIATE,  # up
    BF16 * INTERMEDIATE,  # activation
    FP32 * HIDDEN,  # down
)
# Between the phases of a layer, where it goes over all tokens once a phase and keeps what it hands on in bf16.
PHASES = (BF16 * HEADS * HEAD, BF16 * HEADS * HEAD, FP32 * HIDDEN)  # queries, attention, residual


def attention_bytes() -> int:
    """Scratch of one token and KV head: scores, weights and partial outputs of every block of the longest context,
    their maxima and sums, the queries and the output."""
    rows = CONTEXT // TILE * PADDED_HEADS
    blocks = rows * TILE * (FP32 + BF16) + rows * HEAD * FP32 + 2 * rows * FP32
    return blocks + PADDED_HEADS * HEAD * (BF16 + FP32)


@dataclass
class _Builder:
    scopes: list[Scope] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    def begin(self, site: str) -> None:
        self.open.append(len(self.scopes))
        self.scopes.append(Scope(len(self.scopes), "auto", len(self.open) - 1, site, len(self.bytes)))

    def end(self) -> None:
        number = self.open.pop()
        scope = self.scopes[number]
        self.scopes[number] = Scope(number, scope.mode, scope.depth, scope.site, scope.begin, len(self.bytes))

    def add(self, sizes: Iterable[int]) -> None:
        self.bytes += sizes

    def done(self) -> Submissions:
        while self.open:
            self.end()
        waits = [[task - 1] if task else [] for task in range(len(self.bytes))]
        return Submissions.of(self.bytes, scopes=self.scopes, waits=waits)


def token_by_token(layers: int, tokens: int, nesting: int, four_rings: bool) -> Submissions:
    """Attention for one token at a time, each with scratch for the longest context.

    Args:
        layers, tokens: of the model and of the prompt.
        nesting: scopes inside each other where the compiler places them: everything is in the innermost ones, but for
            what outlives a layer, which is in the one around the loop over layers.
        four_rings: scopes are placed by hand instead: what outlives a layer, a tile or a token has a ring of its own.
    """
    build = _Builder()
    before = 0 if four_rings else max(0, nesting - 4)  # around the loop over layers
    for depth in range(before + 1):
        build.begin(f"scope {depth}")
    for _ in range(layers):
        build.add(size * tokens for size in BEYOND_LAYER)
        build.begin("layer")
        build.add(size * tokens for size in BEYOND_TILE)
        for first in range(0, tokens, TILE):
            rows = min(TILE, tokens - first)
            build.begin("tile")
            build.add(size * rows for size in STAGES)
            for _ in range(rows):
                build.begin("token")
                build.add([attention_bytes()] * KV_HEADS)
                build.end()
            build.end()
        build.end()
    return build.done()


def by_phases(layers: int, rows: int, windows: int) -> Submissions:
    """Every phase of a layer over ``rows`` tokens at once; ``windows`` such rounds of all layers, one after another."""
    build = _Builder()
    build.begin("prefill")
    for _ in range(windows):
        build.begin("window")
        for _ in range(layers):
            build.begin("layer")
            build.add(size * rows for size in PHASES)
            build.end()
        build.end()
    return build.done()


def memory_bytes(layers: int, batch: int, positions: int) -> int:
    """Weights and cache of Qwen3-14B."""
    cache = 2 * layers * batch * positions * KV_HEADS * HEAD * BF16
    return layers * WEIGHT_BYTES_LAYER + WEIGHT_BYTES_ENDS + cache
