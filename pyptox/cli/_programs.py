"""From ``FILE.py:NAME size=value ...`` to a program and its sizes."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..program import Program


def program_at(place: str) -> Program:
    """The program ``NAME`` of the Python file ``FILE.py``."""
    file, colon, name = place.rpartition(":")
    if not colon or not file or not name:
        raise ValueError(f"`PROGRAM` must be FILE.py:NAME; got {place!r}. Try docs/programs/mlp.py:mlp")
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"`PROGRAM` must name a Python file; {file!r} is not there")
    spec = importlib.util.spec_from_file_location(f"pyptox_program_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"`PROGRAM` must name a Python file; got {file!r}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a file of the user's may raise
        raise ValueError(f"`PROGRAM` {file!r} cannot be read: {type(error).__name__}: {error}") from error
    found = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    if name not in found:
        raise ValueError(f"`PROGRAM` names {name!r}; {file!r} has {', '.join(found) or 'no program'}")
    return found[name]


def sizes_of(settings: Sequence[str]) -> dict[str, Any]:
    """``name=value`` pairs, integers."""
    sizes: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        try:
            sizes[name] = int(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ValueError(f"sizes of a program are name=integer; got {text!r}. Try tokens=16")
    return sizes
