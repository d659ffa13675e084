"""Finalists that pass a gate, with their errors."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pyptox import PyptoxError
from pyptox.cost import Cost
from pyptox.hardware import Hardware
from pyptox.lang import Kernel, Spec

from ._result import Candidate


class NoCandidatePassedError(PyptoxError):
    """Every finalist failed the gate; the message has the one with the least error."""


def passing(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    ranked: Sequence[tuple[Candidate, Cost]],
    gate: Any,
    hardware: Hardware,
    seed: int,
    distribution: str | Mapping[str, str],
) -> tuple[list[tuple[Candidate, Cost]], list[dict[str, Any]]]:
    """Those of ``ranked`` that pass ``gate``, with their error filled in, and what was found of each.

    Raises:
        NoCandidatePassedError: none does.
    """
    from pyptox.precision import survey

    configs = [candidate.config for candidate, _ in ranked]
    found = survey(kernel, specs, configs, hardware, seed, gate=gate, distribution=distribution)
    errors = [max(leaf.relative_l2 for leaf in examination.report.leaves) for examination in found]
    kept = [n for n, examination in enumerate(found) if examination.passed]
    if not kept:
        least = min(range(len(found)), key=lambda n: errors[n])
        config = " ".join(f"{name}={value}" for name, value in configs[least].items())
        raise NoCandidatePassedError(
            f"`gate` must be passed by one of the {len(found)} finalists; none does. The one with the least error, "
            f"{config}: {found[least].summary}. Try a looser gate, or more evaluations"
        )
    return (
        [(dataclasses.replace(ranked[n][0], relative_l2=errors[n]), ranked[n][1]) for n in kept],
        [{"passed": found[n].passed, "summary": found[n].summary} for n in kept],
    )
