"""``name_map*.json`` and ``dispatch_program.json``: what kernels and programs are called."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as member
from pathlib import Path

from .._files import write_whole
from ._json import Where, digits, field, load

PROGRAM_FILE = "dispatch_program.json"


@dataclass(frozen=True)
class NameMap:
    """Names by ``func_id``; ``level`` is 2 (one program) or 3 (one of several)."""

    names: Mapping[int, str] = member(default_factory=dict)
    level: int = 2
    orchestrator_name: str | None = None


def read_names(path: str | os.PathLike[str]) -> NameMap:
    """Read a ``name_map*.json``.

    Raises:
        ArtifactError: a key is missing, or an id is no integer.
    """
    path = Path(path)
    content, where = load(path), Where(path.name)
    names: dict[int, str] = {}
    given = field(content, "callable_id_to_name", dict, where)
    for text in given:
        place = where.under("callable_id_to_name")
        names[digits(text, place, 2**63)] = field(given, text, str, place)
    level = field(content, "level", int, where)
    if level not in (2, 3):
        raise where.under("level").error("level", f"`level` must be 2 or 3; got {level}")
    return NameMap(names, level, field(content, "orchestrator_name", str, where, default=None))


def write_names(path: str | os.PathLike[str], names: NameMap) -> None:
    """Write a ``name_map*.json``, whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_names(f"{folder}/name_map.json", NameMap({0: "q_proj"}))
    ...     read_names(f"{folder}/name_map.json").names
    {0: 'q_proj'}
    """
    content = {
        "level": names.level,
        "orchestrator_name": names.orchestrator_name,
        "callable_id_to_name": {str(func_id): name for func_id, name in names.names.items()},
    }
    write_whole(path, json.dumps(content, indent=2) + "\n")


def read_program(path: str | os.PathLike[str]) -> str:
    """The program name that a ``dispatch_program.json`` holds."""
    path = Path(path)
    return field(load(path), "program", str, Where(path.name))


def write_program(path: str | os.PathLike[str], program: str) -> None:
    """Write a ``dispatch_program.json``, whole or not at all."""
    write_whole(path, json.dumps({"program": program}) + "\n")
