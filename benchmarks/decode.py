"""How long does a Qwen3 decode step take, and what limits it?

Predicted on the chip (``[MODEL]``); with ``PYPTO_BENCH=1`` the same program is also timed on the local JAX device
(``[RUN]``).
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.qwen3_14b import (
    LADDER,
    Config,
    Model,
    ModelError,
    Variant,
    decode_program,
    decode_specs,
    layer_program,
    layer_specs,
    load_weights,
    random_weights,
    variant_named,
)
from pyptox import chip
from pyptox import program as pp
from pyptox.hardware import Hardware, preset


@dataclass(frozen=True)
class Stage:
    """All tasks of one name: how many, their blocks, the busy time of all cores, and their part of the step, µs."""

    name: str
    tasks: int
    blocks: int
    busy_us: float
    path_us: float


@dataclass(frozen=True)
class Prediction:
    """A simulated decode step.

    Attributes:
        step_us: of the whole batch.
        tokens_per_s: over the batch.
        limit: the largest part of ``attribution``, whose parts add up to the step.
    """

    variant: str
    dtype: str
    hardware: str
    layers: int
    batch: int
    context: int
    step_us: float
    tokens_per_s: float
    tasks: int
    edges: int
    limit: str
    attribution: dict[str, float]
    utilisation: dict[str, float]
    stages: tuple[Stage, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "stages": [vars(stage) for stage in self.stages]}

    def __str__(self) -> str:
        lines = [
            f"qwen3-14b {self.dtype}, {self.layers} layers, batch {self.batch}, context {self.context}, "
            f"{self.variant} on {self.hardware}",
            f"  step         {self.step_us / 1000:.2f} ms, {self.tokens_per_s:.0f} tokens/s",
            f"  limit        {self.limit}",
            f"  tasks        {self.tasks:,}, {self.edges:,} edges",
            "  utilisation  " + ", ".join(f"{name} {share:.0%}" for name, share in self.utilisation.items()),
            "",
            f"{'stage':<18} {'tasks':>6} {'blocks':>8} {'busy µs':>11} {'of step µs':>11} {'share':>7}",
        ]
        for s in self.stages:
            share = s.path_us / self.step_us
            lines.append(f"{s.name:<18} {s.tasks:>6} {s.blocks:>8} {s.busy_us:>11.1f} {s.path_us:>11.1f} {share:>7.1%}")
        named = {stage.name for stage in self.stages}
        for name, part in sorted(self.attribution.items(), key=lambda item: -item[1]):
            if name not in named and part:
                lines.append(f"{name:<18} {'':>6} {'':>8} {'':>11} {part:>11.1f} {part / self.step_us:>7.1%}")
        return "\n".join([*lines, "", f"[MODEL] step_us={self.step_us:.3f}"])


def predict(
    variant: Variant,
    *,
    config: Config | None = None,
    dtype: str = "bf16",
    batch: int = 16,
    context: int = 3338,
    hardware: Hardware | None = None,
) -> Prediction:
    """Simulate one decode step of ``batch`` requests of ``context`` keys each, the new one included.

    Raises:
        ModelError: no request, or a context beyond the model's.
    """
    return simulated(variant, config=config, dtype=dtype, batch=batch, context=context, hardware=hardware)[0]


def simulated(
    variant: Variant,
    *,
    config: Config | None = None,
    dtype: str = "bf16",
    batch: int = 16,
    context: int = 3338,
    hardware: Hardware | None = None,
) -> tuple[Prediction, chip.Timeline]:
    """:func:`predict`, and the timeline that it is read from."""
    config, machine = config or Config(), hardware or preset("a2a3")
    if batch < 1:
        raise ModelError(f"`batch` must be at least 1; got {batch}")
    specs = decode_specs(config, dtype, [context] * batch)
    graph = pp.graph(decode_program(config, variant, dtype), *specs, hardware=machine)
    timeline = chip.simulate(graph, hardware=machine)
    return _prediction(timeline, variant, config, dtype, [context] * batch), timeline


def predict_layer(
    variant: Variant,
    *,
    config: Config | None = None,
    dtype: str = "bf16",
    lengths: Sequence[int] = (3338,) * 16,
    hardware: Hardware | None = None,
) -> Prediction:
    """Simulate one layer of one window by itself, as a stand-alone test of a layer runs it; nothing is in L2.

    Raises:
        ModelError: no request, more than a window, or a context beyond the model's.
    """
    config, machine = config or Config(), hardware or preset("a2a3")
    program, specs = layer_program(config, variant, dtype), layer_specs(config, variant, dtype, lengths)
    timeline = chip.simulate(pp.graph(program, *specs, hardware=machine), hardware=machine)
    return _prediction(timeline, variant, dataclasses.replace(config, layers=1), dtype, lengths)


def _prediction(
    timeline: chip.Timeline, variant: Variant, config: Config, dtype: str, lengths: Sequence[int]
) -> Prediction:
    graph, attribution, step = timeline.graph, timeline.attribution(), timeline.makespan_us
    assert graph is not None
    work, stages = timeline.workload, dict[str, tuple[int, int, float]]()
    for task, blocks, each in zip(graph.tasks, work.blocks, timeline.times.block, strict=True):
        if task.kernel is not None:
            cores = 3 if task.shape == "MIX" else 1
            tasks, total, busy = stages.get(task.name, (0, 0, 0.0))
            stages[task.name] = tasks + 1, total + int(blocks), busy + float(blocks * each) * cores
    return Prediction(
        variant.name,
        dtype,
        timeline.hardware.name,
        config.layers,
        len(lengths),
        max(lengths),
        step,
        len(lengths) / step * 1e6,
        len(graph.tasks),
        len(graph.edges),
        timeline.limit,
        attribution,
        timeline.utilisation,
        tuple(Stage(name, *stages[name], path_us=attribution.get(name, 0.0)) for name in stages),
    )


def growing(variant: Variant, steps: int, *, context: int = 3338, **settings: Any) -> list[Prediction]:
    """:func:`predict` for ``steps`` autoregressive steps: each request has one more key at every step.

    Steps between two whose keys fill the same pages are simulated as well: nothing is interpolated.

    Raises:
        ModelError: as :func:`predict`, before the first step is simulated.
    """
    if steps < 1:
        raise ModelError(f"`decode-steps` must be at least 1; got {steps}")
    limit = (settings.get("config") or Config()).context
    if context + steps - 1 > limit:
        raise ModelError(f"`context` must be at most {limit - steps + 1} for {steps} steps; got {context}")
    return [predict(variant, context=context + number, **settings) for number in range(steps)]


def growing_table(steps: Sequence[Prediction]) -> str:
    """One line a step, and what all of them take."""
    total = sum(s.step_us for s in steps)
    tokens = sum(s.batch for s in steps) / total * 1e6
    lines = [f"{'step':>5} {'context':>8} {'µs':>11}  limit"]
    lines += [f"{n:>5} {s.context:>8} {s.step_us:>11.1f}  {s.limit}" for n, s in enumerate(steps)]
    return "\n".join(
        [
            *lines,
            "",
            f"{len(steps)} steps {total / 1000:.2f} ms, {tokens:.0f} tokens/s",
            f"[MODEL] total_us={total:.3f}",
        ]
    )


# ----------------------------------------------------------------------------------------------------------- for real
def measure(
    variant: Variant,
    config: Config,
    dtype: str = "bf16",
    batch: int = 16,
    context: int = 3338,
    *,
    rounds: int = 100,
    warmup: int = 5,
    checkpoint: Path | None = None,
) -> np.ndarray:
    """Times of ``rounds`` decode steps on the local JAX device, µs, one more key a round.

    The weights are those of ``checkpoint``, a folder; random where left out.

    Raises:
        ModelError: a context beyond the model's; as :func:`models.qwen3_14b.load_weights`.
    """
    longest = context + rounds + warmup + 1
    if longest > config.context:
        raise ModelError(
            f"`context` must be at most {config.context - rounds - warmup - 1} for so many rounds; got {context}"
        )
    weights = random_weights(config, dtype) if checkpoint is None else load_weights(checkpoint, config, dtype)
    model = Model(weights, variant)
    return np.array(list(model.step_times_us(batch, context, rounds=rounds, warmup=warmup + 1)))  # one to compile


def variant_of(name: str, file: Path | None = None) -> Variant:
    """A step of the ladder, or the variant that a JSON file holds.

    Raises:
        ModelError: there is no such step, or the file holds no variant.
    """
    if file is None:
        return variant_named(name)
    if file.is_dir():
        raise ModelError(f"`config` must be a JSON file of a variant; {file.name} is a folder. Try --checkpoint")
    try:
        data = json.loads(file.read_text())
    except ValueError as error:
        raise ModelError(f"`config` must be a JSON file; {file.name}: {error}") from error
    return Variant.from_dict(data)


def changed(variant: Variant) -> Variant:
    """Another configuration with other kernels, tasks and edges."""
    o, down = variant.o, variant.down
    return variant.replace(
        o=dataclasses.replace(o, n=256 if o.n != 256 else 128, wave=0),
        down=dataclasses.replace(down, splits=10 if down.splits != 10 else 5),
        columns=512,
    )


def resimulated(variant: Variant, config: Config, given: argparse.Namespace) -> float:
    """Seconds to simulate :func:`changed` once ``variant`` has been."""
    begin = time.perf_counter()
    predict(changed(variant), config=config, batch=given.batch, context=given.context)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=3338)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--variant", default=LADDER[-1].name)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    variant, config = variant_named(given.variant), Config(layers=given.layers)
    begin = time.perf_counter()
    found = predict(variant, config=config, batch=given.batch, context=given.context)
    seconds = {"first_s": time.perf_counter() - begin, "again_s": resimulated(variant, config, given)}
    if given.json:
        print(json.dumps(found.to_dict() | seconds))
    else:
        print(f"{found}\nsimulated in {seconds['first_s']:.2f} s; a changed variant in {seconds['again_s']:.2f} s")


if __name__ == "__main__":
    main()
