"""``examine``: one configuration of a kernel on chosen inputs, measured and judged; or against what was saved."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._run import reference, run
from ..lang._types import Spec
from ._baseline import BASELINES, baseline
from ._check import _tuple, bound_report, compared
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
        inputs, values: what the kernel was run on, for :func:`attribute` and its like.
    """

    kernel: str
    compared: dict[str, str]
    distribution: str
    seed: int | None
    report: Report
    verdict: Verdict
    inputs: tuple[Any, ...] = field(repr=False)
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
        expected = _tuple(reference(kernel, *inputs, hardware=chip, **values))
    if save_to is not None:
        arrays = {n: a for n, a in zip(kernel.inputs, inputs, strict=True) if not isinstance(a, Spec)}
        save(save_to, arrays, dict(zip(names, expected, strict=True)), identity, seed_of)
    got = _tuple(run(kernel, *inputs, hardware=chip, **values))
    candidate, golden = dict(zip(names, got, strict=True)), dict(zip(names, expected, strict=True))
    if gate is None:
        bound = bound_report(kernel, specs, values, chip, inputs, got, expected, seed_of or 0)
        worst = f"error {bound.max_abs:.3g} at {bound.index}: got {bound.got:.8g}, expected {bound.expected:.8g}"
        text = f"{bound.summary}; {worst}" + ("" if seed_of is None else f"; seed {seed_of}")
        verdict = Verdict((Finding(", ".join(names), "bound", bound.passed, text),))
    else:
        plain = baseline(kernel, inputs, values) if kernel.name in BASELINES else None
        verdict = judge(gate, candidate, golden, baseline=plain, seed=seed_of)
    return Examination(
        kernel=kernel.name,
        compared={name: str(spec) for name, spec in specs.items()},
        distribution=origin,
        seed=seed_of,
        report=compare(candidate, golden, seed=seed_of),
        verdict=verdict,
        inputs=tuple(inputs),
        values=values,
    )


def _origin(distribution: str | Mapping[str, str]) -> str:
    return distribution if isinstance(distribution, str) else ", ".join(f"{n} {d}" for n, d in distribution.items())


def _kept(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise SnapshotError(f"`replay` must hold `{name}`; it has {', '.join(arrays)}")
    return arrays[name]
