"""Severity of findings, and refusal to write what breaks a rule."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from ._finding import ArtifactError, Finding

_STRICT_TEXT = (
    "old-layout new-layout empty-phases core-to-thread lost-records phase-order missing-file "
    "several-names unknown-task partial-task no-rows unknown-pred unknown-submit level-below-4"
)
STRICT = frozenset(_STRICT_TEXT.split(" "))
"""Codes of what is accepted with a warning, and refused by the strictest reader: partial, older and newer captures."""


def strictly(findings: Iterable[Finding], strict: bool) -> tuple[Finding, ...]:
    """The findings, errors first; where ``strict``, those of :data:`STRICT` are errors."""
    judged = [replace(f, severity="error") if strict and f.code in STRICT else f for f in findings]
    return tuple(sorted(judged, key=lambda finding: finding.severity))


def refuse(findings: Iterable[Finding]) -> None:
    """Raise the first error."""
    for finding in findings:
        if finding.severity == "error":
            raise ArtifactError(finding)


@dataclass(frozen=True)
class Rule:
    """Where a rule is broken, record by record, and what to say of each."""

    broken: np.ndarray
    code: str
    severity: str
    message: Callable[[int], str]


def findings_of(rule: Rule, file: str, key: str) -> list[Finding]:
    """A finding for each record that breaks the rule."""
    return [
        Finding(rule.code, rule.severity, file, key, n, rule.message(n)) for n in np.flatnonzero(rule.broken).tolist()
    ]


def later_copies(values: np.ndarray) -> np.ndarray:
    """True where a value was there before.

    >>> later_copies(np.array([4, 5, 4])).tolist()
    [False, False, True]
    """
    first = np.zeros(len(values), bool)
    first[np.unique(values, return_index=True)[1]] = True
    return ~first
