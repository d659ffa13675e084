"""The validator: every rule that the files of a run break, each as a value."""

import os
from collections.abc import Callable
from pathlib import Path

from ._capture import PMU_FILE, Capture, find_names, find_records, read_capture, read_counters
from ._deps import FILE as DEPS
from ._deps import read_deps
from ._finding import ArtifactError, Finding
from ._graph_rules import check_deps
from ._names import PROGRAM_FILE, read_names, read_program
from ._pair_rules import check_counters, check_names, check_pair
from ._record_rules import check_records
from ._records import FILE as RECORDS
from ._records import read_records
from ._rules import strictly


def check_capture(capture: Capture, *, strict: bool = False) -> tuple[Finding, ...]:
    """Findings of a capture that was read, errors first. ``strict`` as in :func:`validate`."""
    records_name = capture.files.get("records", RECORDS)
    findings = check_records(capture.records, records_name)
    if capture.deps is None:
        findings.append(_missing(DEPS, "critical_path and the reports need it"))
    else:
        findings += check_deps(capture.deps, capture.files.get("deps", DEPS))
        findings += check_pair(capture.records, capture.deps, records_name, capture.files.get("deps", DEPS))
        findings += check_names(capture)
        findings += check_counters(capture)
    if strict and capture.records.level < 4:
        text = f"the reports need level 4; got {capture.records.level}"
        findings.append(Finding("level-below-4", "error", records_name, "chip_swimlane_level", None, text))
    return strictly([*findings, *_maps(capture.folder)], strict)


def validate(path: str | os.PathLike[str], *, strict: bool = False) -> tuple[Finding, ...]:
    """Every rule that a file, or the files of a directory, break; errors first. Never raises for damage.

    Args:
        path: a directory of a run, or one ``chip_swimlane_records``, ``deps``, ``name_map*`` ``dispatch_program``
            or ``pmu.csv`` file.
        strict: what only the strictest reader refuses (partial captures, older and newer layouts, missing siblings)
            is an error too.

    Raises:
        FileNotFoundError: no such path.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path, strict)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be a folder of a run or a file in one; {str(path)!r} does not exist")
    return strictly(_one(path), strict)


def _folder(folder: Path, strict: bool) -> tuple[Finding, ...]:
    records = find_records(folder)
    if records is None:
        return (Finding("missing-file", "error", RECORDS, "", None, f"is missing in {folder}"),)
    try:
        return check_capture(read_capture(folder), strict=strict)
    except ArtifactError:
        files = [records, *(folder / name for name in (DEPS, PROGRAM_FILE, PMU_FILE)), *find_names(folder)]
        found = [finding for file in files if file.is_file() for finding in _one(file)]
        found += [] if (folder / DEPS).is_file() else [_missing(DEPS, "critical_path and the reports need it")]
        return strictly([*found, *_maps(folder)], strict)


def _one(path: Path) -> list[Finding]:
    read: Callable[[Path], list[Finding]]
    if path.name == PROGRAM_FILE:
        read = _nothing_more(read_program)
    elif path.suffix == ".csv":
        read = _nothing_more(read_counters)
    elif path.name.startswith("name_map"):
        read = _nothing_more(read_names)
    elif path.name.startswith("deps"):
        read = _deps
    elif "swimlane_records" in path.name or "perf_records" in path.name:
        read = _records
    else:
        raise ValueError(
            f"`path` must be named as the toolchain names its files ({RECORDS}, {DEPS}, name_map*.json, "
            f"{PROGRAM_FILE}, {PMU_FILE}); got {path.name}"
        )
    try:
        return read(path)
    except ArtifactError as error:
        return [error.finding]


def _records(path: Path) -> list[Finding]:
    return check_records(read_records(path), path.name)


def _deps(path: Path) -> list[Finding]:
    return check_deps(read_deps(path), path.name)


def _nothing_more(read: Callable[[Path], object]) -> Callable[[Path], list[Finding]]:
    def reading(path: Path) -> list[Finding]:
        read(path)
        return []

    return reading


def _maps(folder: Path) -> list[Finding]:
    maps = find_names(folder)
    if len(maps) == 1:
        return []
    if not maps:
        return [_missing("name_map*.json", "critical_path needs it; kernels are shown by number")]
    text = f"there must be one name map; got {len(maps)}: {', '.join(path.name for path in maps)}. None is used"
    return [Finding("several-names", "warning", maps[0].name, "", None, text)]


def _missing(name: str, why: str) -> Finding:
    return Finding("missing-file", "warning", name, "", None, f"is missing; {why}")
