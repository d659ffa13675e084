"""``bench``: a model's decode step, predicted, and timed where ``PYPTO_BENCH`` asks for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._options import show

if TYPE_CHECKING:
    from models.qwen3_14b import Config, Variant

    from ..hardware import Hardware

MODEL = "qwen3-14b"


@dataclass(frozen=True)
class Asked:
    """The step that a command is asked about; made by :meth:`of`."""

    variant: "Variant"
    shape: "Config"
    dtype: str
    batch: int
    context: int
    hardware: "Hardware"
    checkpoint: Path | None = None

    @classmethod
    def of(
        cls,
        model: str,
        variant: str,
        config: Path | None,
        layers: int,
        dtype: str,
        batch: int,
        context: int,
        hardware: str,
        checkpoint: Path | None = None,
    ) -> "Asked":
        """From options.

        Raises:
            ValueError: an unknown model, or layers below 1; PyptoxError for what the model refuses.
        """
        from benchmarks import decode
        from models.qwen3_14b import Config, checked_tensors, read_config

        from ..hardware import preset

        if model != MODEL:
            raise ValueError(f"`MODEL` must be {MODEL}; got {model!r}")
        chosen = decode.variant_of(variant, config)
        if layers < 0:
            raise ValueError(f"`--layers` must be positive; got {layers}")
        if checkpoint is None:
            shape = Config(layers=layers or Config().layers)
        elif layers:
            raise ValueError(f"`--layers` must be left out with --checkpoint, whose config says it; got {layers}")
        else:
            shape = read_config(checkpoint)
            checked_tensors(checkpoint, shape)
        return cls(chosen, shape, dtype, batch, context, preset(hardware), checkpoint)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "config": self.shape,
            "dtype": self.dtype,
            "batch": self.batch,
            "context": self.context,
            "hardware": self.hardware,
        }


def bench_step(asked: Asked, out: Path | None, as_json: bool) -> None:
    """One step; its files are written to ``out``."""
    from benchmarks import decode

    from ..artifacts import write_simulation
    from ._rounds import rounds_of

    found, timeline = decode.simulated(asked.variant, **asked.settings)
    timed = rounds_of(
        MODEL,
        lambda count, warmup: decode.measure(
            *(asked.variant, asked.shape, asked.dtype, asked.batch, asked.context),
            rounds=count,
            warmup=warmup,
            checkpoint=asked.checkpoint,
        ),
    )
    written = [] if out is None else write_simulation(out, timeline)
    if as_json:
        return show(found.to_dict() | {"run": None if timed is None else timed.to_dict()}, True)
    print(found if timed is None else f"{found}\n{timed}")
    if written:
        print("written: " + ", ".join(map(str, written)))
    return None


def bench_growing(asked: Asked, steps: int, as_json: bool) -> None:
    """Autoregressive steps, each request one key longer at every one."""
    from benchmarks import decode

    found = decode.growing(asked.variant, steps, **asked.settings)
    show({"steps": [step.to_dict() for step in found]} if as_json else decode.growing_table(found), as_json)


def bench_ladder(asked: Asked, as_json: bool) -> None:
    """Every step of the ladder."""
    from benchmarks.ladder import ladder, ladder_table

    steps = ladder(**asked.settings)
    show({"ladder": [step.to_dict() for step in steps]} if as_json else ladder_table(steps), as_json)


def tune_layer(
    dtype: str,
    batch: int,
    context: int,
    variant: str,
    hardware: str,
    seed: int,
    evaluations: int | None,
    save: Path | None,
    check: bool,
    as_json: bool,
) -> None:
    """Tune a decode layer jointly, and write the variant for ``bench --config``."""
    from autotune import write_json
    from models import qwen3_14b as qwen

    from ..hardware import preset

    if batch < 1:
        raise ValueError(f"`--batch` must be at least 1; got {batch}")
    if evaluations is not None and evaluations < 1:
        raise ValueError(f"`--evaluations` must be at least 1; got {evaluations}")
    if dtype not in ("bf16", "a8w8"):
        raise ValueError(f"`--dtype` must be bf16 or a8w8; got {dtype!r}")
    rows = qwen.LADDER[-1].rows
    problem: dict[str, Any] = {"dtype": dtype, "lengths": (context,) * min(batch, rows), "hardware": preset(hardware)}
    search: dict[str, Any] = {} if evaluations is None else {"evaluations": evaluations}
    start, found = qwen.tuned(
        qwen.variant_named(variant) if variant else None, **problem, seed=seed, check=check, **search
    )
    place = save or Path("build_output") / f"{MODEL}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, qwen.variant_of(found.best.config, start).to_dict())
    if as_json:
        return show(found.to_dict() | {"from": start.name, "config": str(place)}, True)
    print(f"{MODEL} {dtype}, one layer, batch {batch}, context {context}, from {start.name}\n{found}")
    print(f"\nwritten: {place}\n[MODEL] layer_us={found.best.time_us:.3f}")
    return None
