"""Predictions for measured rows, side by side."""

import csv
import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from .._files import write_whole
from ..hardware import Hardware
from . import (
    _decode_e2e,
    _flash_attention_times,
    _gemm_step_sweep,
    _gemm_times,
    _instruction,
    _kernel_task_times,
    _l2_hit_pipe_profile,
    _l2_prefetch,
    _memory_streaming,
    _precision,
    _ring_heap,
    _scheduling,
    _sparse_attention,
    _task_granularity,
    _tile_sweeps,
)
from ._problem import NotCovered, Problem, Question, Row, Source, text

FILES = {
    "gemm_times": Source(_gemm_times.problem),
    "gemm_step_sweep": Source(_gemm_step_sweep.problem),
    "l2_hit_pipe_profile": Source(_l2_hit_pipe_profile.problem),
    "vector_op_cycles": Source(_instruction.table_problem),
    "instr_reference_cycles": Source(_instruction.reference_problem),
    "flash_attention_times": Source(_flash_attention_times.problem),
    "memory_streaming_910b4": Source(_memory_streaming.problem),
    "sparse_attention_a3": Source(_sparse_attention.problem),
    "precision": Source(_precision.problem, measured=lambda row: None),  # its outcome is the verdict of a gate
    "tile_sweeps": Source(_tile_sweeps.problem, _tile_sweeps.outcome, _tile_sweeps.fill),
    "task_granularity": Source(_task_granularity.problem, fill=_task_granularity.fill),
    "scheduling": Source(_scheduling.problem),
    "kernel_task_times": Source(_kernel_task_times.problem, fill=_kernel_task_times.fill),
    "ring_heap": _ring_heap.SOURCE,
    "decode_e2e": Source(_decode_e2e.problem),
    "l2_prefetch": _l2_prefetch.SOURCE,
}


@dataclass(frozen=True)
class Report:
    """One dictionary for each row: file, id, covered, reason, measured, predicted, unit, ...

    ``chip`` names what predicted them, and what its numbers rest on.
    """

    rows: list[dict[str, Any]]
    chip: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Rows, and a summary by file and by group."""
        files = sorted({r["file"] for r in self.rows})
        return {"rows": self.rows, "files": {f: self._file(f) for f in files}, "groups": self._groups()}

    def _file(self, name: str) -> dict[str, Any]:
        rows = [r for r in self.rows if r["file"] == name]
        errors = [abs(r["relative_error"]) for r in rows if r["relative_error"] is not None]
        judged = [r for r in rows if r["outcome_predicted"] is not None]
        return {
            "covered": sum(r["covered"] for r in rows),
            "not_covered": dict(Counter(r["reason"] for r in rows if not r["covered"])),
            "absolute": len(errors),
            "mean_error": float(np.mean(errors)) if errors else None,
            "median_error": float(np.median(errors)) if errors else None,
            "ratios": self._ratios(name),
            "assumed": _by_assumption(rows),
            "rests_on": FILES[name].rests_on if name in FILES else "",
            "outcomes": len(judged),
            "outcomes_agree": sum(r["outcome_predicted"] == r["outcome_measured"] for r in judged),
        }

    def _pairs(self) -> dict[str, list[tuple[float, float]]]:
        """Measured and predicted numbers of every group of times, launches or occupancies."""
        groups: dict[str, list] = {}
        for r in self.rows:
            known = r["unit"] in ("us", "dispatches") or r["file"] == "task_granularity"
            if r["group"] and r["predicted"] is not None and known:
                groups.setdefault(r["group"], []).append((r["measured"], r["predicted"]))
        return groups

    def _groups(self) -> dict[str, dict[str, float]]:
        result = {}
        for name, pairs in self._pairs().items():
            clear = _clear(pairs)
            if clear:
                agree = sum((a[0] > b[0]) == (a[1] > b[1]) for a, b in clear) / len(clear)
                ranks = [np.argsort(np.argsort(column)) for column in zip(*pairs, strict=True)]
                off = float(np.median([abs((a[1] / b[1]) / (a[0] / b[0]) - 1.0) for a, b in clear]))
                result[name] = {"rank": float(np.corrcoef(ranks[0], ranks[1])[0, 1]), "sign": agree, "ratio_error": off}
        return result

    def _ratios(self, file: str) -> dict[str, float] | None:
        """Of a file with groups: pairs in one group that differ by more than 3 %, the share of them whose order is
        right, and the median over groups of their ratios' median error. None where there is no pair."""
        names = {r["group"] for r in self.rows if r["file"] == file}
        pairs = [p for name, pairs in self._pairs().items() if name in names for p in _clear(pairs)]
        if not pairs:
            return None
        right = sum((a[0] > b[0]) == (a[1] > b[1]) for a, b in pairs) / len(pairs)
        return {"pairs": len(pairs), "sign": right, "ratio_error": float(np.median(list(self.ratios(file).values())))}

    def ratios(self, file: str) -> dict[str, float]:
        """By group of a file the median error of the ratios between its rows that differ by more than 3 %."""
        names = {r["group"] for r in self.rows if r["file"] == file}
        return {name: group["ratio_error"] for name, group in self._groups().items() if name in names}

    def __str__(self) -> str:
        data, lines = self.to_dict(), [f"predicted for {self.chip}"] if self.chip else []
        for name, s in data["files"].items():
            error = ""
            if s["mean_error"] is not None:
                error = f"; error mean {s['mean_error']:.1%}, median {s['median_error']:.1%}"
                error += "" if s["absolute"] == s["covered"] else f" of {s['absolute']} absolute ones"
            if s["ratios"]:
                error += (
                    f"; in groups sign right in {s['ratios']['sign']:.0%} of {s['ratios']['pairs']} pairs that differ "
                    f"by more than 3 %, ratios off by {s['ratios']['ratio_error']:.1%} (median)"
                )
            outcomes = f"; outcomes {s['outcomes_agree']}/{s['outcomes']}" if s["outcomes"] else ""
            lines.append(f"{name}: {s['covered']} rows covered{error}{outcomes}")
            lines += [f"  {line}" for line in textwrap.wrap(s["rests_on"], 118)]
            if len(s["assumed"]) <= _ASSUMPTIONS:
                lines += [f"  {n} {reason}: error mean {off:.1%}" for reason, (n, off) in s["assumed"].items()]
            lines += [f"  {n} not covered: {reason}" for reason, n in s["not_covered"].items()]
        lines += [
            f"{g}: rank {v['rank']:.2f}, sign {v['sign']:.0%}, ratios off by {v['ratio_error']:.1%} (median)"
            for g, v in data["groups"].items()
        ]
        return "\n".join(lines)

    def document(self) -> str:
        """The rows as JSON text."""
        return json.dumps(self.rows, indent=1, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the rows as JSON, all or nothing."""
        write_whole(path, self.document() + "\n")


_ASSUMPTIONS = 6
"""Kinds of assumption that are listed for a file; of more the rows say theirs."""


def _by_assumption(rows: list[dict[str, Any]]) -> dict[str, tuple[int, float]]:
    """Rows and their mean error by what was assumed."""
    errors: dict[str, list[float]] = {}
    for r in rows:
        if r["covered"] and r["reason"] and r["relative_error"] is not None:
            errors.setdefault(r["reason"], []).append(abs(r["relative_error"]))
    return {reason: (len(each), float(np.mean(each))) for reason, each in errors.items()}


def read(directory: str | Path, file: str) -> list[Row]:
    """Rows of one file; none when it is absent."""
    path = Path(directory) / f"{file}.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return FILES[file].fill(list(csv.DictReader(stream)))


def observations(directory: str | Path) -> list[tuple[str, str, Problem]]:
    """Problems to calibrate on, with file and id: timed products that state everything; no reference rows."""
    found = []
    for file in ("gemm_step_sweep", "gemm_times", "tile_sweeps"):
        for row in read(directory, file):
            try:
                problem = FILES[file].problem(row)
            except (NotCovered, ValueError):
                continue
            timed = (
                isinstance(problem, Problem)
                and problem.measured is not None
                and problem.unit == "us"
                and problem.absolute
            )
            if timed and text(row, "split") != "reference_only" and text(row, "outcome") in ("", "ok"):
                found.append((file, text(row, "id"), problem))
    return found


def _clear(pairs: list[tuple[float, float]]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Pairs of rows whose measured numbers differ by more than 3 %."""
    return [(a, b) for a, b in combinations(pairs, 2) if abs(a[0] / b[0] - 1) > 0.03]


def _answer(file: str, row: Row, hardware: Hardware) -> dict[str, Any]:
    result: dict[str, Any] = {"file": file, "id": text(row, "id"), "covered": False, "reason": ""}
    result |= dict.fromkeys(
        ("measured", "predicted", "unit", "relative_error", "outcome_measured", "outcome_predicted")
    )
    result["group"] = text(row, "group") or None
    try:
        if text(row, "split") == "reference_only":
            raise NotCovered("reference only: tiling unknown")
        result["outcome_measured"] = FILES[file].measured(row)
        if result["outcome_measured"]:
            result["outcome_predicted"] = FILES[file].outcome(row, hardware)
        if result["outcome_measured"] == "rejected":
            if result["outcome_predicted"] is None:
                raise NotCovered("failed for a reason that no size explains")
            return result | {"covered": True}
        prediction, legal = _prediction(FILES[file].problem(row), hardware)
        result |= prediction
        if result["outcome_measured"] == "ok" and result["outcome_predicted"] is None:
            result["outcome_predicted"] = "ok" if legal else "rejected"
    except NotCovered as error:
        result |= {"reason": str(error), "covered": result["outcome_predicted"] is not None}
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        result["reason"] = f"malformed row: {error}"
    return result


def _prediction(question: Question, hardware: Hardware) -> tuple[dict[str, Any], bool]:
    predicted, legal = question.predict(hardware)
    assert question.measured is not None
    reason = f"assumed: {', '.join(question.assumed)}" if question.assumed else ""
    answer = {
        "covered": True,
        "reason": reason if question.absolute else f"{reason}; compare inside its group only",
        "measured": question.measured,
        "predicted": predicted,
        "unit": question.unit,
        "relative_error": _relative_error(predicted, question.measured) if question.absolute else None,
    }
    return answer, legal


def _relative_error(predicted: float, measured: float) -> float | None:
    """None where nothing was measured and something is predicted."""
    if measured:
        return predicted / measured - 1.0
    return 0.0 if predicted == 0 else None


def validate(directory: str | Path, hardware: Hardware, only: Sequence[str] = ()) -> Report:
    """Predict every measured row of ``directory`` that the model covers; the others carry the reason.

    Args:
        directory: folder of ``NAME.csv`` files.
        hardware: the chip, where a row does not name its own.
        only: names of the files to read; all of them where left out.

    Raises:
        ValueError: there is no such folder, no row to read, or an unknown name.
    """
    unknown = [name for name in only if name not in FILES]
    if unknown:
        raise ValueError(f"`only` must name files among {', '.join(FILES)}; got {unknown[0]!r}")
    files = [name for name in FILES if name in only or not only]
    if not Path(directory).is_dir():
        raise ValueError(
            f"`directory` must be a folder of measured CSV files; got {str(directory)!r}. Try shared/measured"
        )
    if not any(read(directory, file) for file in files):
        known = ", ".join(f"{name}.csv" for name in files)
        raise ValueError(f"`directory` must hold rows in one of {known}; found none in {str(directory)!r}")
    rows = [_answer(file, row, hardware) for file in files for row in read(directory, file)]
    return Report(rows, f"{hardware.name}: {hardware.basis}")
