"""The choices of a decode layer that are tuned together, and the check of a choice's values."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import autotune
from pyptox import chip, control
from pyptox import program as pp
from pyptox.hardware import Hardware, a2a3

from ._config import PAGE, Config
from ._program import decode_program, layer_program
from ._specs import layer_arguments, layer_specs
from ._variant import FAMILIES, LADDER, Variant
from ._weights import random_weights

TOGETHER = {"q": ("q",), "kv": ("k", "v"), "o": ("o",), "mlp": ("gate", "up"), "down": ("down",)}
"""Products that are cut alike."""

WAVES = ("o", "mlp")
"""Those of them that may have a critical wave."""

FLAGS = ("funnel", "deferred")
EARLY = tuple(name for name in FAMILIES if name != "ends")
"""Whose tasks may be flagged for early dispatch: those of a layer."""

VECTORS = ("x_gamma", "o_residual", "silu", "down_residual", "seed_q", "seed_kv", "seed_attention", "seed_mlp")
TINY = Config(layers=1, hidden=320, intermediate=544, heads=10, key_heads=2, size=32, vocabulary=256, context=512)
"""The model whose tokens and errors are compared."""

LARGEST = 1 << 62
"""Points of a space; where the start adds values of its own to the lists, they are shorter."""

ERROR = 1.25
"""A choice may have so many times the float64 error of the start."""


def space_of(start: Variant, dtype: str = "bf16", hardware: Hardware | None = None) -> autotune.Space:
    """Tiles, K slices, stages and waves of every product, sizes of the vector kernels, and flags, around ``start``.

    Products whose tiles cannot fit the chip are left out; what else does not fit the verifier refuses.
    """
    element, mat = 1 if dtype == "a8w8" else 2, int((hardware or a2a3()).sizes.mat)
    choices = _choices(start, (128, 256, 512, 768, 1024), (64, 128, 192, 256))
    if math.prod(choice.cardinality for choice in choices.values()) >= LARGEST:
        choices = _choices(start, (256, 512, 1024), (64, 128, 256))
    space = autotune.Space(**choices)
    for name in TOGETHER:
        space = space.where(f"{name}.tiles", functools.partial(_fits, name, start.rows, element, mat))
    return space


def _choices(start: Variant, columns: Sequence[int], depths: Sequence[int]) -> dict[str, Any]:
    choices: dict[str, Any] = {}
    for name, members in TOGETHER.items():
        plan = getattr(start, members[0])
        choices[f"{name}.n"] = _values(plan.n, columns)
        choices[f"{name}.k"] = _values(plan.k, depths)
        slices = (1, 2, 4, 10, 17) if name == "down" else (1, 4, 5, 8, 10)
        choices[f"{name}.splits"] = _values(plan.splits, slices)
        choices[f"{name}.stages"] = _values(plan.stages, (2, 3))
        if name in WAVES:
            choices[f"{name}.wave"] = _values(plan.wave, (0, 2, 4, 6, 8))
    choices |= {
        "vectors.columns": _values(start.columns, (256, 512, 1024, 2048)),
        "vectors.row_steps": _values(start.row_steps, (1, 2, 4, 8)),
        "vectors.tiles": _values(start.vector_tiles, (0, 1)),
        "attention.pages": _values(start.pages, (1, 2)),
        "attention.stages": _values(start.stages, (1, 2, 3)),
        "flags.funnel": autotune.Boolean(start.funnel),
        "flags.deferred": autotune.Boolean(start.deferred),
    }
    return choices | {f"early.{name}": autotune.Boolean(getattr(start.early, name)) for name in EARLY}


def _fits(name: str, rows: int, element: int, mat: int, points: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether the operands in all slots of a product's pipeline fit Mat, as the verifier counts them."""
    n, k, stages = (points[f"{name}.{choice}"].astype(np.int64) for choice in ("n", "k", "stages"))
    return (rows + n) * k * stages * element <= mat


def _values(own: int, others: Sequence[int]) -> autotune.Choice:
    return autotune.Choice(*sorted({own, *others}), default=own)


def acts_on() -> dict[str, tuple[str, ...]]:
    """Names of tasks by parameter, where they differ from its own."""
    own: dict[str, tuple[str, ...]] = {
        f"{n}.{c}": tuple(TOGETHER[n]) for n in TOGETHER for c in ("n", "k", "splits", "stages", "wave")
    }
    own |= {f"vectors.{c}": VECTORS for c in ("columns", "row_steps", "tiles")}
    return own | {f"early.{name}": FAMILIES[name] for name in EARLY}


def values_of(variant: Variant) -> dict[str, Any]:
    """The point of the space that a variant is."""
    values: dict[str, Any] = {}
    for name, members in TOGETHER.items():
        plan = getattr(variant, members[0])
        chosen = ("n", "k", "splits", "stages", *(("wave",) if name in WAVES else ()))
        values |= {f"{name}.{c}": getattr(plan, c) for c in chosen}
    vectors = {"columns": variant.columns, "row_steps": variant.row_steps, "tiles": variant.vector_tiles}
    values |= {f"vectors.{c}": value for c, value in vectors.items()}
    values |= {"attention.pages": variant.pages, "attention.stages": variant.stages}
    values |= {f"early.{name}": getattr(variant.early, name) for name in EARLY}
    return values | {f"flags.{c}": getattr(variant, c) for c in FLAGS}


def variant_of(values: Mapping[str, Any], start: Variant, name: str = "tuned") -> Variant:
    """The variant that a point is; what the space does not have is as in ``start``."""
    cuts = {}
    for group, members in TOGETHER.items():
        chosen = ("n", "k", "splits", "stages", *(("wave",) if group in WAVES else ()))
        own = {c: values[f"{group}.{c}"] for c in chosen}
        cuts |= {member: dataclasses.replace(getattr(start, member), **own) for member in members}
    return start.replace(
        name=name,
        columns=values["vectors.columns"],
        row_steps=values["vectors.row_steps"],
        vector_tiles=values["vectors.tiles"],
        pages=values["attention.pages"],
        stages=values["attention.stages"],
        early=dataclasses.replace(start.early, **{name: values[f"early.{name}"] for name in EARLY}),
        **{c: values[f"flags.{c}"] for c in FLAGS},
        **cuts,
    )


def graph_of(
    variant: Variant,
    config: Config | None = None,
    dtype: str = "bf16",
    lengths: Sequence[int] = (3338,) * 16,
    hardware: Hardware | None = None,
) -> pp.Graph:
    """One layer of a window of requests of ``lengths`` keys."""
    shape = config or Config()
    specs = layer_specs(shape, variant, dtype, lengths)
    return pp.graph(layer_program(shape, variant, dtype), *specs, hardware=hardware)


def best_step(
    *,
    config: Config | None = None,
    dtype: str = "bf16",
    lengths: Sequence[int] = (3338,) * 16,
    hardware: Hardware | None = None,
) -> Variant:
    """The fastest step of the ladder for one layer, by simulation; the last of equals."""
    return _best_step(config, dtype, tuple(lengths), hardware)


@functools.lru_cache(maxsize=16)
def _best_step(config: Config | None, dtype: str, lengths: tuple[int, ...], hardware: Hardware | None) -> Variant:
    def time_us(variant: Variant) -> float:
        graph = graph_of(variant, config, dtype, lengths, hardware)
        return chip.simulate(graph, hardware=hardware).makespan_us

    return min(reversed(LADDER), key=time_us)


def tune(
    start: Variant,
    *,
    config: Config | None = None,
    dtype: str = "bf16",
    lengths: Sequence[int] = (3338,) * 16,
    hardware: Hardware | None = None,
    check: bool = True,
    **settings: Any,
) -> autotune.ProgramResult:
    """Tune one layer of a window of requests of ``lengths`` keys; ``settings`` are those of the search.

    Raises:
        PyptoxError: as :func:`autotune.tune_program`.
    """
    return autotune.tune_program(
        lambda values: graph_of(variant_of(values, start), config, dtype, lengths, hardware),
        space_of(start, dtype, hardware),
        start=values_of(start),
        acts_on=acts_on(),
        hardware=hardware,
        check=(lambda values: checked(variant_of(values, start), start, dtype)) if check else None,
        **settings,
    )


def tuned(start: Variant | None = None, **settings: Any) -> tuple[Variant, autotune.ProgramResult]:
    """:func:`tune`, and where it began: at ``start``, or at the best step of the ladder where that comes out ahead.

    The answer is never slower, by its own simulation, than any step of the ladder.
    """
    problem = {name: settings[name] for name in ("config", "dtype", "lengths", "hardware") if name in settings}
    best = best_step(**problem)
    if start is not None and start != best:
        found = tune(start, **settings)
        fastest = chip.simulate(graph_of(best, **problem), hardware=problem.get("hardware")).makespan_us
        if found.best.time_us <= fastest:
            return start, found
    return best, tune(best, **settings)


def checked(variant: Variant, start: Variant, dtype: str = "bf16") -> autotune.Check:
    """Tokens of a tiny model against those of ``start`` read in float64, and the error beside that of ``start``.

    All variants compute one function, so that one float64 reading is right for all. Tokens must be equal where the
    two largest logits are farther apart than the error of ``start``.
    """
    exact = _logits(start, dtype, exact=True)
    found, before = _logits(variant, dtype), _logits(start, dtype)
    error, allowed = (float(np.linalg.norm(x - exact) / np.linalg.norm(exact)) for x in (found, before))
    top = np.sort(exact, -1)
    clear = top[:, -1] - top[:, -2] > 2 * np.abs(before - exact).max()
    equal = found.argmax(-1) == exact.argmax(-1)
    passed = bool(clear.any() and equal[clear].all() and error <= ERROR * allowed)
    tokens = f"{int(equal[clear].sum())}/{int(clear.sum())}"
    return autotune.Check(passed, {"tokens": tokens, "float64 error": error, "of the start": allowed})


@functools.lru_cache(maxsize=64)
def _logits(variant: Variant, dtype: str, exact: bool = False) -> np.ndarray:
    variant = variant.replace(sampling=False)
    program, arrays = decode_program(TINY, variant, dtype), list(_arrays(dtype))
    results = pp.reference(program, *arrays) if exact else pp.run(program, *arrays, whole=False)
    return np.asarray(results[0], np.float64)


def _arrays(dtype: str) -> Iterator[Any]:
    """Arguments of a step of the tiny model: requests of differing length, keys and values drawn."""
    c, rng = TINY, np.random.default_rng(0)
    lengths = np.array([1, 7, 128, 129, 200, 255, 256, 40, 3, 90, 130, 250, 17, 64, 65, 127])
    batch, pages = len(lengths), 2
    weights = random_weights(c, dtype)
    table = np.arange(batch * pages, dtype=np.int32).reshape(batch, pages)
    page, row = table[np.arange(batch), (lengths - 1) // PAGE], (lengths - 1) % PAGE
    slots = (page[:, None] * c.key_heads + np.arange(c.key_heads)) * PAGE + row[:, None]
    yield rng.integers(0, c.vocabulary, batch).astype(np.int32)
    yield (lengths - 1).astype(np.int32)
    yield slots.reshape(-1).astype(np.int32)
    yield np.stack([page, row], axis=1).astype(np.int32)
    yield table
    yield control(lengths)
    yield np.ones((batch, 1), np.float32)
    yield weights.embedding
    frequencies = c.rope_base ** (-np.arange(0, c.size, 2) / c.size)
    angles = np.arange(pages * PAGE)[:, None] * frequencies
    yield np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    yield weights.final_norm
    yield weights.head
    yield np.zeros(1, np.int32)
    shape = batch * pages, c.key_heads, PAGE, c.size
    for layer in weights.layers:
        yield from (layer[name] for name in layer_arguments(c, dtype))
        for _ in range(2):
            yield (0.3 * rng.standard_normal(shape)).astype(weights.embedding.dtype)
