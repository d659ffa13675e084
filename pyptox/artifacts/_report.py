"""A capture in one page: findings, utilisation, gaps by cause, the observed path, early dispatch."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._capture import Capture
from ._early import Early, early_dispatch
from ._finding import Finding
from ._gaps import CAUSES, Gaps, gaps, makespan_us, utilisation
from ._path import Path, observed_path
from ._record_rules import sound
from ._tables import Records
from ._validate import check_capture

SHOWN = 5
"""Lines of each list that the text shows; the JSON has them all."""

_LABELS = {
    "dispatch_receive": "dispatch → receive",
    "receive_start": "receive → start",
    "start_end": "start → end",
    "end_finish": "end → finish",
    "gap_before": "gap before a block",
}


@dataclass(frozen=True)
class Report:
    """What a capture says, from measured stamps alone.

    Attributes:
        capture: what was read.
        records: those of it whose stamps are times; all times here are of these.
        left_out: how many records are not.
        findings: rules that its files break, errors first.
        makespan_us: first dispatch to last finish.
        utilisation: share of the makespan in which each core with a row ran a kernel.
        gaps: of each block.
        path: the observed critical path.
        early: early dispatch by consumer; empty without a graph or below level 2.
    """

    capture: Capture
    findings: tuple[Finding, ...]
    makespan_us: float
    utilisation: dict[int, float]
    gaps: Gaps
    path: Path
    early: tuple[Early, ...]
    records: Records
    left_out: int = 0

    @property
    def passed(self) -> bool:
        """No finding is an error."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def path_by_name(self) -> dict[str, float]:
        """µs of the path in kernels, by kernel name; largest first."""
        records, totals = self.records, Counter[str]()
        for piece in self.path.pieces:
            if piece.cause == "kernel":
                kind = records.core_types[int(records.blocks.core_id[piece.block])]
                totals[self.capture.name(piece.task_id, kind)] += piece.end - piece.start
        return {name: cycles * 1e6 / records.clock_hz for name, cycles in totals.most_common()}

    def to_dict(self) -> dict[str, Any]:
        """Everything but the columns of single blocks."""
        records, g = self.records, self.gaps
        verdicts = Counter(one.verdict for one in self.early)
        return {
            "folder": str(self.capture.folder),
            "passed": self.passed,
            "program": self.capture.program,
            "layout": records.layout,
            "level": records.level,
            "tasks": len(np.unique(records.blocks.task_id)),
            "rows": len(records.blocks),
            "left_out": self.left_out,
            "missing": list(self.capture.missing),
            "findings": [finding.to_dict() for finding in self.findings],
            "makespan_us": self.makespan_us,
            "utilisation": {str(core): share for core, share in self.utilisation.items()},
            "intervals_us": {
                "dispatch_receive": _statistics(g.pickup_us),
                "receive_start": _statistics(g.setup_us if records.layout != "v2" else g.setup_us[:0]),
                "start_end": _statistics(g.kernel_us),
                "end_finish": _statistics(g.fin_us),
                "gap_before": _statistics(g.before_us),
            },
            "gap_causes_us": {cause: float(np.nansum(g.causes_us[cause])) for cause in CAUSES},
            "path": {
                "us": self.path.us,
                "by_cause_us": self.path.by_cause(),
                "by_kernel_us": self.path_by_name,
                "pieces": [vars(piece) for piece in self.path.pieces],
            },
            "early_dispatch": {
                "full": verdicts["full"],
                "partial": verdicts["partial"],
                "none": verdicts["none"],
                "consumers": [vars(one) | {"verdict": one.verdict} for one in self.early],
            },
        }

    def __str__(self) -> str:
        content, records = self.to_dict(), self.records
        busy: dict[str, float] = {}
        for core, share in self.utilisation.items():
            kind = records.core_types[core]
            busy[kind] = busy.get(kind, 0.0) + share
        cores = Counter(records.core_types[core] for core in self.utilisation)
        lines = [
            f"{self.capture.program or self.capture.folder.name}: {content['tasks']:,} tasks, {content['rows']:,} "
            f"rows, level {records.level}, layout {records.layout}",
            *([f"left out  {self.left_out:,} records whose stamps are no times"] if self.left_out else []),
            f"makespan  {self.makespan_us:,.2f} µs, first dispatch to last finish",
            "cores     "
            + ("; ".join(f"{cores[kind]} {kind} busy {busy[kind] / cores[kind]:.1%}" for kind in cores) or "no rows"),
            *_wrapped([f"{core} {share:.1%}" for core, share in self.utilisation.items()]),
            "",
            "interval            blocks     mean      p50      p90      max   µs",
        ]
        for name, values in content["intervals_us"].items():
            if values["count"]:
                numbers = " ".join(f"{values[key]:>8,.2f}" for key in ("mean", "p50", "p90", "max"))
                lines.append(f"{_LABELS[name]:<18} {values['count']:>7,} {numbers}")
        total = sum(content["gap_causes_us"].values())
        lines += ["", f"gaps between blocks of one core: {total:,.2f} µs over all cores"]
        lines += _shares(content["gap_causes_us"], total)
        lines += ["", f"observed path: {self.path.us:,.2f} µs in {len(self.path.pieces):,} pieces"]
        lines += _shares(self.path.by_cause(), self.path.us)
        lines += ["kernels on the path:", *_shares(dict(list(self.path_by_name.items())[: 2 * SHOWN]), self.path.us)]
        lines += ["", self._early_line(content["early_dispatch"])]
        lines += [f"missing: {text}" for text in self.capture.missing]
        return "\n".join([*lines, *self._findings()])

    def _early_line(self, early: dict[str, Any]) -> str:
        if not self.early:
            if self.capture.deps is None or self.capture.records.level < 2:
                return "early dispatch: cannot be told; it needs deps.json, and records from level 2"
            return "early dispatch: no task with rows has a direct producer with rows in the graph"
        blocks, structural = (sum(getattr(one, name) for one in self.early) for name in ("early", "eligible"))
        line = (
            f"early dispatch: of {len(self.early):,} consumers full {early['full']:,}, partial {early['partial']:,}, "
            f"none {early['none']:,}; {blocks:,} blocks by their stamps, {structural:,} of them by the flags too"
        )
        unsure = sum(not one.complete for one in self.early)
        return line + (f"; {unsure:,} consumers lack rows of a producer" if unsure else "")

    def _findings(self) -> list[str]:
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.severity, finding.code), []).append(finding)
        lines = [""] if groups else ["", "no rule is broken"]
        for (severity, code), found in groups.items():
            shown = SHOWN if severity == "error" else 1
            lines += [str(finding) for finding in found[:shown]]
            if len(found) > shown:
                lines.append(f"{severity} {code}: {len(found) - shown:,} more")
        return lines


def report(capture: Capture, *, strict: bool = False) -> Report:
    """Validate a capture and read its timeline; ``strict`` as in :func:`validate`."""
    (records, left_out), deps = sound(capture.records), capture.deps
    return Report(
        capture=capture,
        findings=check_capture(capture, strict=strict),
        makespan_us=makespan_us(records),
        utilisation=utilisation(records),
        gaps=gaps(records, deps),
        path=observed_path(records, deps),
        early=early_dispatch(records, deps) if deps is not None and records.level >= 2 else (),
        records=records,
        left_out=left_out,
    )


def _statistics(values: np.ndarray) -> dict[str, Any]:
    there = values[~np.isnan(values)]
    if not len(there):
        return {"count": 0, "mean": None, "p50": None, "p90": None, "max": None}
    p50, p90 = np.percentile(there, [50, 90])
    numbers = {"mean": there.mean(), "p50": p50, "p90": p90, "max": there.max()}
    return {"count": len(there), **{key: float(value) for key, value in numbers.items()}}


def _shares(parts: dict[str, float], total: float) -> list[str]:
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return [f"  {name:<24} {us:>10,.2f} µs  {us / total:>6.1%}" for name, us in ordered if us and total]


def _wrapped(parts: list[str], width: int = 8) -> list[str]:
    return ["          " + "  ".join(parts[at : at + width]) for at in range(0, len(parts), width)]
