"""What :func:`autotune.tune` answers."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyptox.hardware import Hardware

from ._store import write_json

FORMAT = "pyptox.tune/1"


def hardware_hash(hardware: Hardware) -> str:
    """Sixteen hex digits that name the numbers of a chip.

    >>> import pyptox as px
    >>> len(hardware_hash(px.hardware.a2a3()))
    16
    """
    numbers = {name: float(value) for name, value in hardware.flat().items()}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Candidate:
    """One configuration with its prediction. ``rank`` 0 is the answer; ``note`` says why it is listed.

    ``relative_l2`` is the error against float64 where a gate was asked for.
    """

    rank: int
    config: dict[str, Any]
    time_us: float
    limit: str
    occupancy: dict[str, float]
    legal: bool = True
    note: str = ""
    relative_l2: float | None = None


@dataclass(frozen=True)
class Result:
    """The answer of a tuning run; prints as a table.

    Attributes:
        best: the chosen configuration.
        default: the kernel's default configuration, for comparison.
        candidates: the best ones in order, scored by the full simulation.
        rejected: illegal candidates by the constraint that rejected them.
        bound_us: what no configuration can beat (compute, HBM and launch).
        gap: predicted time over the bound, minus one.
        controls: the values of control inputs.
        sync: barriers between pipes, ``"manual"`` or ``"auto"``.
        check: float64 comparison of the best configuration, or None when it was not asked for; its `passed`
            is None where the inputs are too large to compare.
    """

    kernel: str
    specs: dict[str, str]
    hardware: str
    hardware_hash: str
    basis: str
    method: str
    seed: int
    evaluations: int
    relaxed_evaluations: int
    seconds: float
    space_size: int
    best: Candidate
    default: Candidate
    candidates: tuple[Candidate, ...]
    rejected: dict[str, int]
    bound_us: float
    gap: float
    interrupted: bool = False
    check: dict[str, Any] | None = None
    limits: dict[str, float] = field(default_factory=dict)
    controls: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sync: str = "manual"

    @property
    def pareto(self) -> tuple[Candidate, ...]:
        """The candidates that none is both faster and more exact than, fastest first; needs a gate for the errors."""
        front: list[Candidate] = []
        for candidate in sorted(self.candidates, key=lambda c: (c.time_us, c.relative_l2 or 0.0)):
            error = candidate.relative_l2
            if error is not None and (not front or error < (front[-1].relative_l2 or 0.0)):
                front.append(candidate)
        return tuple(front)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON values."""
        return {"format": FORMAT, **asdict(self)}

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, atomically."""
        write_json(Path(path), self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read a result that :meth:`save` wrote."""
        text = Path(path).read_text()
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"`path` {path} is not JSON ({error}); expected a file written by Result.save") from None
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise ValueError(f"`path` {path} is not a tuning result of format {FORMAT}")
        values = {name: value for name, value in content.items() if name != "format"}
        for name in ("best", "default"):
            values[name] = Candidate(**values[name])
        values["candidates"] = tuple(Candidate(**c) for c in values["candidates"])
        values["controls"] = {name: tuple(rows) for name, rows in values.get("controls", {}).items()}
        return cls(**values)

    def snippet(self) -> str:
        """Python that predicts the best configuration again."""
        inputs = ", ".join(
            f"px.control({list(self.controls[name])})"
            if name in self.controls
            else f"px.spec({_shape(text)}, {_dtype(text)!r})"
            for name, text in self.specs.items()
        )
        return (
            "import pyptox as px\n\n"
            f"kernel = px.kernels.{self.kernel}\n"
            f"specs = kernel.specs({inputs})\n"
            f"config = {self.best.config!r}\n"
            f"chip = px.hardware.preset({self.hardware.split('/')[-1]!r})\n"
            f"options = px.cost.Options(warm=4, sync={self.sync!r})\n"
            "print(px.cost.explain(kernel, specs, config, chip, options).time_us)\n"
        )

    def table(self) -> str:
        """Candidates in order, the default, and the walls that rejected the others."""
        names = list(self.best.config)
        errors = any(c.relative_l2 is not None for c in self.candidates)
        title = ["rel L2".rjust(9)] if errors else []
        lines = ["  ".join([f"{'rank':>4}", f"{'µs':>9}", *title, *(f"{n:>6}" for n in names), "limit"])]
        for c in (*self.candidates, self.default):
            cells = [
                f"{c.note or c.rank:>4}"[:7],
                f"{c.time_us:9.2f}",
                *([f"{c.relative_l2:9.2e}" if c.relative_l2 is not None else " " * 9] if errors else []),
                *(f"{c.config[n]!s:>6}" for n in names),
            ]
            lines.append("  ".join([*cells, c.limit if c.legal else "illegal"]))
        if any(self.rejected.values()):
            walls = ", ".join(f"{name} {count:,}" for name, count in self.rejected.items() if count)
            lines.append(f"rejected: {walls}")
        return "\n".join(lines)

    def __str__(self) -> str:
        problem = ", ".join(f"{name} {text}" for name, text in self.specs.items())
        config = " ".join(f"{name}={value}" for name, value in self.best.config.items())
        fill = ", ".join(
            f"{space} {used / 1024:.0f} of {self.limits[space] / 1024:.0f} KiB"
            for space, used in self.best.occupancy.items()
            if used
        )
        faster = self.default.time_us / self.best.time_us
        lines = [
            f"{self.kernel}  {problem}  on {self.hardware}",
            f"  best      {config}",
            f"  time      {self.best.time_us:.1f} µs predicted, limited by {self.best.limit}",
            f"  bound     {self.bound_us:.1f} µs (compute, HBM, launch); {100 * self.gap:.0f} % above it",
            f"  default   {self.default.time_us:.1f} µs; the best is {faster:.2f} x as fast"
            if self.default.legal
            else "  default   does not fit the chip",
            f"  occupancy {fill}",
        ]
        if self.check is not None:
            passed = self.check.get("passed")
            verdict = "NOT COMPARED" if passed is None else "passed" if passed else "FAILED"
            lines.append(f"  float64   {verdict}: {self.check.get('summary', '')}")
        lines.append(
            f"  search    {self.method}, {self.evaluations:,} of {self.space_size:,} candidates "
            f"in {self.seconds:.2f} s, seed {self.seed}{', interrupted' if self.interrupted else ''}"
        )
        lines.append(f"  rests on  {self.basis}; chip {self.hardware_hash}")
        return "\n".join([*lines, "", self.table()])


def _shape(text: str) -> str:
    inside = text[text.index("[") + 1 : -1]
    return f"({inside},)" if "," not in inside else f"({inside})"


def _dtype(text: str) -> str:
    return text[: text.index("[")]
