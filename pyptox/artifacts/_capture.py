"""A whole directory of a run: records, graph, names, and what is missing."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import _deps as deps_file
from . import _records as records_file
from ._deps import Deps, Task, label, read_deps
from ._finding import damage
from ._names import PROGRAM_FILE, NameMap, read_names, read_program
from ._records import read_records
from ._tables import Records

if TYPE_CHECKING:
    from .. import pmu

PMU_FILE = "pmu.csv"


@dataclass(frozen=True)
class Capture:
    """What a directory holds of one run.

    Attributes:
        folder: the directory.
        records: of the swimlane.
        deps: the graph; None where the file is missing.
        names: kernel names; None where there is no name map, or more than one.
        program: from ``dispatch_program.json``; None where the file is missing.
        pmu: counters of the same run; None where the file is missing.
        files: names of the files by kind: records, deps, names, program, pmu.
        missing: what is not there, and what that leaves open.
    """

    folder: Path
    records: Records
    deps: Deps | None = None
    names: NameMap | None = None
    program: str | None = None
    pmu: "pmu.Capture | None" = None
    files: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def func_id(self, task_id: int, core_type: str) -> int:
        """The kernel that a task runs on a core of this type; -1 where not known."""
        task = self._tasks.get(task_id)
        return -1 if task is None else task.kernel(core_type)

    def name(self, task_id: int, core_type: str = "") -> str:
        """Name of a task's kernel on a core of this type; of its first kernel without one."""
        task = self._tasks.get(task_id)
        if task is None:
            return "task"
        kernels = [task.kernel(core_type)] if core_type else [kernel for kernel in task.kernel_ids if kernel >= 0]
        kernel = kernels[0] if kernels else -1
        if kernel < 0:
            return "dummy" if not task.rows else "task"
        names = self.names.names if self.names else {}
        return names.get(kernel, f"func_{kernel}_{core_type}" if core_type else f"func_{kernel}")

    def label(self, task_id: int, core_type: str = "") -> str:
        """``name(rXtY)``, with ``_spmd`` for a task of several blocks."""
        task = self._tasks.get(task_id)
        spmd = "_spmd" if task is not None and task.block_num > 1 else ""
        return f"{self.name(task_id, core_type)}{spmd}({label(task_id)})"

    @cached_property
    def whole(self) -> bool:
        """The graph lists every task that has rows, and every row of its tasks is there."""
        return whole(self.records, self.deps)

    @cached_property
    def _tasks(self) -> dict[int, Task]:
        return {task.task_id: task for task in (self.deps.tasks if self.deps else ())}


def find_records(folder: Path) -> Path | None:
    """The records file of a directory, by its present or an older name."""
    names = (records_file.FILE, *records_file.LEGACY_FILES)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def find_names(folder: Path) -> list[Path]:
    """Every name map of a directory."""
    return sorted(path for path in folder.glob("name_map*.json") if path.is_file())


def read_capture(folder: str | os.PathLike[str]) -> Capture:
    """Read a directory. Only the records are needed; a partial capture says what it lacks.

    Raises:
        FileNotFoundError: no such directory, or no records in it.
        ArtifactError: a file in it is damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"`DIR` must be a folder of a run; {str(folder)!r} is not a folder")
    found = find_records(folder)
    if found is None:
        below = sorted(
            path.parent for depth in ("*", "*/*", "*/*/*") for path in folder.glob(f"{depth}/{records_file.FILE}")
        )
        hint = f"Try {str(below[0])!r}" if below else "Try the dfx_outputs folder of a run"
        raise FileNotFoundError(f"`DIR` must hold {records_file.FILE}; {str(folder)!r} does not. {hint}")
    records = read_records(found)
    missing: list[str] = []
    files = {"records": found.name}
    deps = names = program = None
    if (folder / deps_file.FILE).is_file():
        deps, files["deps"] = read_deps(folder / deps_file.FILE), deps_file.FILE
    else:
        missing.append(f"{deps_file.FILE}: what tasks waited for is not known")
    maps = find_names(folder)
    if len(maps) == 1:
        names, files["names"] = read_names(maps[0]), maps[0].name
    else:
        why = f"{len(maps)} of them ({', '.join(path.name for path in maps)}), none is used" if maps else "none"
        missing.append(f"name_map*.json: {why}; kernels are shown by number")
    if (folder / PROGRAM_FILE).is_file():
        program, files["program"] = read_program(folder / PROGRAM_FILE), PROGRAM_FILE
    counters = None
    if (folder / PMU_FILE).is_file():
        counters, files["pmu"] = read_counters(folder / PMU_FILE), PMU_FILE
    missing += _partial(records, deps)
    return Capture(folder, records, deps, names, program, counters, files, tuple(missing))


def read_counters(path: Path) -> "pmu.Capture":
    """Read a ``pmu.csv``; damage is an :class:`ArtifactError`, as in the other files of a run."""
    from .. import pmu

    try:
        return pmu.read(path)
    except ValueError as error:
        raise damage("pmu", path.name, "", None, str(error).removeprefix(f"{path}: ")) from None


def whole(records: Records, deps: Deps | None) -> bool:
    """The graph lists every task that has rows, and every row of its tasks is there."""
    if deps is None:
        return False
    ids, rows = np.unique(records.blocks.task_id, return_counts=True)
    return dict(zip(ids.tolist(), rows.tolist(), strict=True)) == {t.task_id: t.rows for t in deps.tasks if t.rows}


def _partial(records: Records, deps: Deps | None) -> list[str]:
    missing = []
    seen = set(np.unique(records.blocks.task_id).tolist())
    if deps is not None:
        tasks = {task.task_id: task for task in deps.tasks}
        silent = sum(task.rows > 0 and name not in seen for name, task in tasks.items())
        unlisted = len(seen - tasks.keys())
        if silent:
            missing.append(f"rows of {silent} of {len(tasks)} tasks in {deps_file.FILE}: those cores were not recorded")
        if unlisted:
            missing.append(f"{unlisted} of {len(seen)} tasks with rows in {deps_file.FILE}: their inputs are not known")
    cores = len(np.unique(records.blocks.core_id))
    if cores < len(records.core_types) and not whole(records, deps):
        missing.append(f"rows of {len(records.core_types) - cores} of {len(records.core_types)} cores")
    what = {2: "dispatch and finish stamps", 3: "scheduler phases", 4: "submits"}
    missing += [f"{text}: recorded from level {level}" for level, text in what.items() if records.level < level]
    return missing
