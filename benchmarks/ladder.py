"""The published ladder of Qwen3-14B as a case study: what limited each step, what moved it, and what was measured."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.qwen3_14b import LADDER, PUBLISHED, Config, Measured
from pyptox.hardware import a2a3

from .decode import Prediction, predict, predict_layer

ACTORS = {
    "submission": ("submit_us", "submit_edge_us"),
    "dispatch": ("dispatch_us", "dispatch_each_us", "dummy_us", "doorbell_us", "receive_us", "first_us", "switch_us"),
    "retirement": ("complete_us", "complete_each_us", "fin_us", "poll_us"),
}
"""Constants of the scheduler by who spends them."""

PUBLISHED_CONTEXTS = range(3338, 3359)
"""Keys of a request in the published steps."""

SHOWN = 6
"""Parts of a step that are listed; the rest is one line."""


@dataclass(frozen=True)
class LadderStep:
    """A step of the ladder.

    Attributes:
        layer: one layer by itself.
        ends_us: what a whole step takes besides its layers: embedding, head, sampling.
        layers: of the whole step.
        published: measurements of it.
    """

    layer: Prediction
    ends_us: float
    layers: int
    published: tuple[Measured, ...]

    @property
    def step_us(self) -> float:
        """A whole step: its layers one after another, and its ends."""
        return self.layers * self.layer.step_us + self.ends_us

    @property
    def parts(self) -> dict[str, float]:
        """Microseconds of the layer by who spends them, largest first; they add up to it."""
        return dict(sorted(_by_actor(self.layer.attribution).items(), key=lambda item: -item[1]))

    def to_dict(self) -> dict[str, Any]:
        return {
            "variant": self.layer.variant,
            "layer": self.layer.to_dict(),
            "layers": self.layers,
            "ends_us": self.ends_us,
            "step_us": self.step_us,
            "parts": self.parts,
            "published": [vars(measured) for measured in self.published],
        }


def _by_actor(attribution: Mapping[str, float]) -> dict[str, float]:
    actor = {name: title for title, names in ACTORS.items() for name in names}
    parts: dict[str, float] = {}
    for name, part in attribution.items():
        title = actor.get(name, f"{name} blocks")
        parts[title] = parts.get(title, 0.0) + part
    return {name: part for name, part in parts.items() if part}


def ladder(*, config: Config | None = None, batch: int = 16, context: int = 3338, **settings: Any) -> list[LadderStep]:
    """Every step of the ladder, one layer by itself and the ends of a whole step.

    Raises:
        ModelError: as :func:`benchmarks.decode.predict`.
    """
    config, steps = config or Config(), []
    published = _comparable(config, batch, context, settings)
    for variant in LADDER:
        window = min(batch, variant.rows)
        whole = predict(variant, config=dataclasses.replace(config, layers=1), batch=batch, context=context, **settings)
        layer = predict_layer(variant, config=config, lengths=[context] * window, **settings)
        windows = -(-batch // variant.rows)
        ends = whole.step_us - windows * layer.step_us
        steps.append(LadderStep(layer, ends, windows * config.layers, published.get(variant.name, ())))
    return steps


def _comparable(
    config: Config, batch: int, context: int, settings: Mapping[str, Any]
) -> dict[str, tuple[Measured, ...]]:
    """The measurements that were made with what is asked for: the whole model, or a layer of it, on its chip."""
    chip = settings.get("hardware")
    same = settings.get("dtype", "bf16") == "bf16" and batch == 16 and context in PUBLISHED_CONTEXTS
    same &= chip is None or chip.name == a2a3().name
    if not same or dataclasses.replace(config, layers=Config().layers) != Config():
        return {}
    whole = config.layers == Config().layers
    return {name: tuple(m for m in each if whole or m.what == "layer_us") for name, each in PUBLISHED.items()}


def ladder_table(steps: Sequence[LadderStep]) -> str:
    """A line a step, then what each was limited by, in microseconds that sum to it."""
    lines = [
        f"{'step':<20} {'layer µs':>9} {'change':>8} {'tasks':>6} {'edges':>7} {'step ms':>8}  {'limit':<22} published"
    ]
    for before, s in itertools.pairwise([None, *steps]):
        assert s is not None
        change = "" if before is None else f"{s.layer.step_us / before.layer.step_us - 1:+.1%}"
        published = "; ".join(_compared(s, before, measured) for measured in s.published) or "no time"
        lines.append(
            f"{s.layer.variant:<20} {s.layer.step_us:>9.1f} {change:>8} {s.layer.tasks:>6} {s.layer.edges:>7} "
            f"{s.step_us / 1000:>8.2f}  {next(iter(s.parts)):<22} {published}"
        )
    lines += [
        "",
        "a step is its layers, each as long as by itself, and its ends; `bench --variant` simulates them together",
    ]
    for before, s in itertools.pairwise([None, *steps]):
        assert s is not None
        lines += ["", *_account(before, s)]
    sources = dict.fromkeys(f"{m.source}: {m.note}" for s in steps for m in s.published)
    return "\n".join([*lines, *(["", "published by"] if sources else []), *(f"  {source}" for source in sources)])


def _account(before: LadderStep | None, s: LadderStep) -> Iterator[str]:
    """Who spends the layer's time, beside what they spent a step before."""
    old = {} if before is None else before.parts
    yield f"{s.layer.variant}: {s.layer.step_us:,.1f} µs"
    parts = list(s.parts.items())
    shown = dict(parts[:SHOWN])
    shown |= {"other": sum(part for _, part in parts[SHOWN:])} if parts[SHOWN:] else {}
    rest = sum(old.values()) - sum(old.get(name, 0.0) for name in shown)
    for name, part in (*shown.items(), ("sum", s.layer.step_us)):
        earlier = rest if name == "other" else sum(old.values()) if name == "sum" else old.get(name, 0.0)
        moved = "" if before is None else f" {part - earlier:>+9.1f}"
        yield f"  {name:<22} {part:>9.1f} {part / s.layer.step_us:>7.1%}{moved}"


def _compared(s: LadderStep, before: LadderStep | None, measured: Measured) -> str:
    """A measurement beside what is predicted for it."""
    if measured.what == "ratio":
        own = s.step_us / before.step_us if before else 1.0
        return f"{measured.value - 1:+.1%} of the step (predicted {own - 1:+.1%})"
    own, unit = (s.layer.step_us, "µs") if measured.what == "layer_us" else (s.step_us / 1000, "ms a step")
    return f"{measured.value:,.1f} {unit} (predicted {own / measured.value - 1:+.1%})"
