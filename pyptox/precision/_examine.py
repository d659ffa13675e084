"""``examine``: one configuration of a kernel on chosen inputs, measured and judged; or against what was saved."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._run import run
from ..lang._types import Spec
from ._baseline import BASELINES, baseline
from ._check import _tuple, bound_report, compared, golden_of
from ._compare import Report, compare
from ._gates import AbstractGate, Finding, Verdict, judge
from ._inputs import sample_inputs
from ._snapshot import SnapshotError, identity_of, load, save


@dataclass(frozen=True)
class Examination:
    """A kernel's stored values beside float64: what was compared, how far it is off, and whether that passes.

    Attributes:
        compared: the specs that were compared: all of a reduction, part of a large output.
        distribution: of the inputs, or the folder that they were replayed from.
        report: every figure, by output.
        verdict: of the gate; without one, of the bound that rounding obeys.
        inputs, values: what the kernel was run on, for what asks further.
    """

    kernel: str
    compared: dict[str, str]
    distribution: str
    seed: int | None
    report: Report
    verdict: Verdict
    inputs: tuple[Any, ...] = field(repr=False, compare=False)
    values: Mapping[str, Any] = field(repr=False)

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
            configuration or text.

    Raises:
        TooLargeError, SnapshotError: as said there.

    >>> import pyptox as px
    >>> specs = px.kernels.swiglu.specs(px.spec((4, 32), "bf16"), px.spec((4, 32), "bf16"))
    >>> examine(px.kernels.swiglu, specs, {}, distribution="outliers").passed
    True
    """
    chip = hardware or a2a3()
    identity = identity_of(kernel, specs, values, chip)
    names = tuple(kernel.outputs)
    if replay is not None and distribution != "normal":
        raise SnapshotError(
            f"`distribution` is of inputs that are drawn, and `replay` takes those of {str(replay)!r}; got "
            f"{_origin(distribution)}. Leave one out"
        )
    if replay is not None:
        kept = load(replay, identity)
        values, seed_of, origin = kernel.configuration(values), kept.seed, f"replayed from {replay}"
        inputs = [specs[name] if specs[name].values is not None else _kept(kept.inputs, name) for name in kernel.inputs]
        expected = tuple(_kept(kept.golden, name) for name in names)
        given = {
            n: a if isinstance(a, Spec) else Spec(a.shape, str(a.dtype))
            for n, a in zip(kernel.inputs, inputs, strict=True)
        }
        specs = kernel.specs(**given)
    else:
        values, specs = compared(kernel, specs, values, chip, rows, columns)
        seed_of, origin = seed, _origin(distribution)
        inputs = sample_inputs(kernel, specs, seed, distribution)
        expected = golden_of(kernel, specs, *inputs, hardware=chip, **values)
    if save_to is not None:
        arrays = {n: a for n, a in zip(kernel.inputs, inputs, strict=True) if not isinstance(a, Spec)}
        save(save_to, arrays, dict(zip(names, expected, strict=True)), identity, seed_of)
    subject = _Subject(kernel, specs, chip, inputs, expected, origin, seed_of)
    return subject.examine(values, gate)


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
    subjects: dict[tuple, _Subject] = {}
    results = []
    for values, _ in parts:
        choices = tuple(values[name] for name in kernel.choices)
        if choices not in subjects:
            inputs = sample_inputs(kernel, common, seed, distribution)
            expected = golden_of(kernel, common, *inputs, hardware=chip, **values)
            subjects[choices] = _Subject(kernel, common, chip, inputs, expected, _origin(distribution), seed)
        results.append(subjects[choices].examine(values, gate))
    return results


@dataclass(frozen=True)
class _Subject:
    """A kernel with inputs and what float64 makes of them."""

    kernel: Kernel
    specs: Mapping[str, Spec]
    chip: Hardware
    inputs: Sequence[Any]
    expected: tuple
    origin: str
    seed: int | None

    def examine(self, values: Mapping[str, Any], gate: AbstractGate | Mapping[str, AbstractGate] | None) -> Examination:
        names = tuple(self.kernel.outputs)
        got = _tuple(run(self.kernel, *self.inputs, hardware=self.chip, **values))
        candidate, golden = (dict(zip(names, arrays, strict=True)) for arrays in (got, self.expected))
        if gate is None:
            verdict = self._bound(values, got)
        else:
            plain = baseline(self.kernel, self.inputs, values) if self.kernel.name in BASELINES else None
            verdict = judge(gate, candidate, golden, baseline=plain, seed=self.seed)
        return Examination(
            kernel=self.kernel.name,
            compared={name: str(spec) for name, spec in self.specs.items()},
            distribution=self.origin,
            seed=self.seed,
            report=compare(candidate, golden, seed=self.seed),
            verdict=verdict,
            inputs=tuple(self.inputs),
            values=values,
        )

    def _bound(self, values: Mapping[str, Any], got: tuple) -> Verdict:
        bound = bound_report(
            self.kernel, self.specs, values, self.chip, self.inputs, got, self.expected, self.seed or 0
        )
        worst = f"error {bound.max_abs:.3g} at {bound.index}: got {bound.got:.8g}, expected {bound.expected:.8g}"
        text = f"{bound.summary}; {worst}" + ("" if self.seed is None else f"; seed {self.seed}")
        return Verdict((Finding(", ".join(self.kernel.outputs), "bound", bound.passed, text),))


def _origin(distribution: str | Mapping[str, str]) -> str:
    return distribution if isinstance(distribution, str) else ", ".join(f"{n} {d}" for n, d in distribution.items())


def _kept(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise SnapshotError(f"`replay` must hold `{name}`; it has {', '.join(arrays)}")
    return arrays[name]
