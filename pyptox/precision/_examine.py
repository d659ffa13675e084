"""``examine``: a kernel or a program on chosen inputs, measured and judged; or against what was saved."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._run import run
from ..lang._types import Spec
from ._baseline import BASELINES, baseline
from ._check import Bound, _tuple, compared, golden_and_bound, golden_of, nearest_report
from ._compare import Report, compare
from ._gates import AbstractGate, Finding, Verdict, judge
from ._inputs import sample_inputs
from ._shrink import reduction_length
from ._snapshot import Snapshot, SnapshotError, identity_of, load, save


@dataclass(frozen=True)
class Examination:
    """Stored values beside float64: what was compared, how far it is off, and whether that passes.

    Attributes:
        kernel: its name, or the program's.
        compared: the specs that were compared: all of a reduction, part of a large output.
        distribution: of the inputs, or the folder that they were replayed from.
        report: every figure, by output.
        verdict: of the gate; without one, of the bound that rounding obeys.
        golden: the float64 outputs.
        inputs, values: what it was run on, for what asks further; a program has no values.
    """

    kernel: str
    compared: dict[str, str]
    distribution: str
    seed: int | None
    report: Report
    verdict: Verdict
    inputs: tuple[Any, ...] = field(repr=False, compare=False)
    values: Mapping[str, Any] = field(repr=False)
    golden: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def passed(self) -> bool:
        return self.verdict.passed

    @property
    def summary(self) -> str:
        """The verdict in a few words."""
        return self.verdict.summary

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "kernel": self.kernel,
            "compared": self.compared,
            "distribution": self.distribution,
            "seed": self.seed,
            "report": self.report.to_dict(),
            **self.verdict.to_dict(),
        }

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {spec}" for name, spec in self.compared.items())
        head = f"float64 check {'passed' if self.passed else 'FAILED'}"
        inputs = f"compared {shapes}; inputs {self.distribution}" + ("" if self.seed is None else f", seed {self.seed}")
        leaves = "\n".join(map(str, self.report.leaves))
        return f"{head}\n{self.verdict}\n{inputs}\n{leaves}"


def examine(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware | None = None,
    seed: int = 0,
    *,
    gate: AbstractGate | Mapping[str, AbstractGate] | None = None,
    distribution: str | Mapping[str, str] = "normal",
    rows: int | None = None,
    columns: int | None = None,
    save_to: str | os.PathLike[str] | None = None,
    replay: str | os.PathLike[str] | None = None,
) -> Examination:
    """Run one configuration of ``kernel`` and its float64 reading on the same inputs, and judge the difference.

    Args:
        kernel, specs, values, hardware, seed, rows, columns: as in :func:`pyptox.precision.check`.
        gate: what must hold, for all outputs or by output; the bound of :func:`pyptox.precision.check` by default.
            :class:`VersusBaseline` is judged against plain JAX where :data:`BASELINES` has the kernel.
        distribution: of the inputs, as in :func:`sample_inputs`.
        save_to: keep inputs and float64 outputs in this new folder.
        replay: take inputs and float64 outputs from this folder instead; refused when it is of another kernel, shape,
            configuration or text, and beside a seed or a distribution.

    Raises:
        TooLargeError, SnapshotError: as said there.

    >>> import pyptox as px
    >>> specs = px.kernels.swiglu.specs(px.spec((4, 32), "bf16"), px.spec((4, 32), "bf16"))
    >>> examine(px.kernels.swiglu, specs, {}, distribution="outliers").passed
    True
    """
    chip = hardware or a2a3()
    identity, kept = _taken(lambda: identity_of(kernel, specs, values, chip), replay, save_to, distribution, seed)
    if kept is not None:
        values = kernel.configuration(values)
        inputs = [specs[name] if specs[name].values is not None else _kept(kept.inputs, name) for name in kernel.inputs]
        specs = kernel.specs(
            **{
                n: a if isinstance(a, Spec) else Spec(a.shape, str(a.dtype))
                for n, a in zip(kernel.inputs, inputs, strict=True)
            }
        )
    else:
        values, specs = compared(kernel, specs, values, chip, rows, columns)
        inputs = sample_inputs(kernel, specs, seed, distribution)
    origin = _origin(distribution) if replay is None else f"replayed from {replay}"
    subject = of_kernel(kernel, specs, values, chip, inputs, origin, seed if kept is None else kept.seed)
    return subject.examine(gate, kept and kept.golden, save_to, identity)


def survey(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    configurations: Sequence[Mapping[str, Any]],
    hardware: Hardware | None = None,
    seed: int = 0,
    *,
    gate: AbstractGate | Mapping[str, AbstractGate] | None = None,
    distribution: str | Mapping[str, str] = "normal",
) -> list[Examination]:
    """:func:`examine` of several configurations, on the same inputs and the same part of the output.

    The tiles and the order of a sum change the error; the float64 outputs are computed once for all that agree in
    the kernel's choices.

    >>> import pyptox as px
    >>> specs = px.kernels.matmul.specs(px.spec((16, 64), "bf16"), px.spec((64, 64), "bf16"))
    >>> [e.passed for e in survey(px.kernels.matmul, specs, [{"k": 16}, {"k": 64}])]
    [True, True]
    """
    chip = hardware or a2a3()
    parts = [compared(kernel, specs, values, chip) for values in configurations]
    shapes = [part[next(iter(kernel.outputs))].shape for _, part in parts]
    rows = max((shape[-2] if len(shape) > 1 else 1 for shape in shapes), default=1)
    _, common = (
        compared(kernel, specs, parts[0][0], chip, rows, max(shape[-1] for shape in shapes)) if parts else ({}, {})
    )
    inputs = sample_inputs(kernel, common, seed, distribution) if parts else []
    goldens: dict[tuple, dict[str, np.ndarray]] = {}
    results = []
    for values, _ in parts:
        subject = of_kernel(kernel, common, values, chip, inputs, _origin(distribution), seed)
        choices = tuple(values[name] for name in kernel.choices)
        results.append(subject.examine(gate, goldens.get(choices)))
        goldens[choices] = results[-1].golden
    return results


@dataclass(frozen=True)
class Subject:
    """What is examined, with its inputs.

    Attributes:
        name: of the kernel or program.
        specs: of every tensor that takes part.
        outputs: names and types of what it makes.
        run: the stored values.
        golden: the float64 values; ``bounded`` gives them with a bound of each one's error.
        baseline: plain JAX in the same types; None where there is none.
        inputs: by name; specs of control inputs.
        reduction: the longest sum.
    """

    name: str
    specs: Mapping[str, Spec]
    outputs: Mapping[str, str]
    run: Callable[[], tuple]
    golden: Callable[[], tuple]
    bounded: Callable[[], tuple[tuple, Bound]]
    baseline: Callable[[], Any] | None
    inputs: Mapping[str, Any]
    reduction: int
    origin: str
    seed: int | None
    values: Mapping[str, Any]

    def examine(
        self,
        gate: AbstractGate | Mapping[str, AbstractGate] | None,
        kept: Mapping[str, np.ndarray] | None = None,
        save_to: str | os.PathLike[str] | None = None,
        identity: Mapping[str, Any] | None = None,
    ) -> Examination:
        """Judge by ``gate``, or by the bound, against the golden that was ``kept`` or is computed now."""
        made, bound = self.bounded() if gate is None else (self.golden() if kept is None else (), None)
        golden = (
            dict(zip(self.outputs, made, strict=True)) if kept is None else {n: _kept(kept, n) for n in self.outputs}
        )
        if save_to is not None:
            arrays = {n: a for n, a in self.inputs.items() if not isinstance(a, Spec)}
            save(save_to, arrays, golden, identity or {}, self.seed)
        candidate = dict(zip(self.outputs, self.run(), strict=True))
        if gate is None:
            assert bound is not None
            verdict = self._within(bound, candidate, golden)
        else:
            plain = self.baseline() if self.baseline is not None else None
            verdict = judge(gate, candidate, golden, baseline=plain, seed=self.seed)
        return Examination(
            kernel=self.name,
            compared={name: str(spec) for name, spec in self.specs.items()},
            distribution=self.origin,
            seed=self.seed,
            report=compare(candidate, golden, seed=self.seed),
            verdict=verdict,
            inputs=tuple(self.inputs.values()),
            values=self.values,
            golden=golden,
        )

    def _within(self, limits: Bound, candidate: Mapping[str, Any], golden: Mapping[str, np.ndarray]) -> Verdict:
        shown = {name: str(spec) for name, spec in self.specs.items()}
        kinds = list(self.outputs.values())
        bound = nearest_report(
            self.name, shown, kinds, [*candidate.values()], [*golden.values()], limits, self.reduction, self.seed or 0
        )
        worst = f"error {bound.max_abs:.3g} at {bound.index}: got {bound.got:.8g}, expected {bound.expected:.8g}"
        text = f"{bound.summary}; {worst}" + ("" if self.seed is None else f"; seed {self.seed}")
        return Verdict((Finding(", ".join(self.outputs), "bound", bound.passed, text),))


def of_kernel(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    chip: Hardware,
    inputs: Sequence[Any],
    origin: str,
    seed: int | None,
) -> Subject:
    """One configuration of a kernel."""
    return Subject(
        name=kernel.name,
        specs=specs,
        outputs={name: specs[name].dtype for name in kernel.outputs},
        run=lambda: _tuple(run(kernel, *inputs, hardware=chip, **values)),
        golden=lambda: golden_of(kernel, specs, *inputs, hardware=chip, **values),
        bounded=lambda: golden_and_bound(kernel, specs, values, chip, inputs),
        baseline=(lambda: baseline(kernel, inputs, values)) if kernel.name in BASELINES else None,
        inputs=dict(zip(kernel.inputs, inputs, strict=True)),
        reduction=reduction_length(kernel, specs),
        origin=origin,
        seed=seed,
        values=values,
    )


def _taken(
    identity: Callable[[], dict[str, Any]],
    replay: str | os.PathLike[str] | None,
    save_to: str | os.PathLike[str] | None,
    distribution: str | Mapping[str, str],
    seed: int,
) -> tuple[dict[str, Any] | None, Snapshot | None]:
    """The identity, where something is kept or replayed, and the snapshot that is replayed."""
    drawn_or_kept(replay, distribution, seed)
    own = identity() if replay is not None or save_to is not None else None
    return own, load(replay, own) if replay is not None else None


def drawn_or_kept(replay: str | os.PathLike[str] | None, distribution: str | Mapping[str, str], seed: int) -> None:
    """Refuse what says how inputs are drawn beside a snapshot that has them."""
    idle = {"distribution": _origin(distribution) if distribution != "normal" else "", "seed": seed or ""}
    for name, given in idle.items():
        if replay is not None and given != "":
            raise SnapshotError(
                f"`{name}` is of inputs that are drawn, and `replay` takes those of {str(replay)!r}; got {given}. "
                "Leave one out"
            )


def _origin(distribution: str | Mapping[str, str]) -> str:
    return distribution if isinstance(distribution, str) else ", ".join(f"{n} {d}" for n, d in distribution.items())


def _kept(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise SnapshotError(f"`replay` must hold `{name}`; it has {', '.join(arrays)}")
    return arrays[name]
