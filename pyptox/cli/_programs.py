"""From ``FILE.py:NAME size=value ...`` to a program and its sizes."""

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .._errors import PyptoxError
from ..hardware import Hardware
from ..program import Graph, Program, graph

Answer = TypeVar("Answer")


def program_at(place: str) -> Program:
    """The program ``NAME`` of the Python file ``FILE.py``."""
    file, colon, name = place.rpartition(":")
    if not colon or not name or not file.endswith(".py") or file == ".py":
        raise ValueError(f"`PROGRAM` must be FILE.py:NAME; got {place!r}. Try docs/programs/mlp.py:mlp")
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"`PROGRAM` must name a Python file; {file!r} is not there")
    spec = importlib.util.spec_from_file_location(f"pyptox_program_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"`PROGRAM` must name a Python file; got {file!r}")
    module = importlib.util.module_from_spec(spec)
    try:
        with _beside(path):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a file of the user's may raise
        lines = [step.lineno for step in traceback.extract_tb(error.__traceback__) if step.filename == spec.origin]
        at = f" (line {lines[-1]})" if lines else ""
        raise ValueError(f"`PROGRAM` {file!r} cannot be read: {type(error).__name__}: {error}{at}") from error
    found = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    if name not in found:
        raise ValueError(f"`PROGRAM` names {name!r}; {file!r} has {', '.join(found) or 'no program'}")
    return found[name]


def graph_at(place: str, settings: Sequence[str], hardware: Hardware | None = None) -> Graph:
    """The graph of the program at ``place`` in these sizes."""
    chosen = program_at(place)
    found = in_users_code(chosen, lambda: graph(chosen, hardware=hardware, **sizes_of(settings)))
    if not found.tasks:
        print(f"note: `{found.name}` has no tasks: it submits no kernel", file=sys.stderr)
    return found


def in_users_code(program: Program, read: Callable[[], Answer]) -> Answer:
    """``read()``; whatever the program's own file raises is an error that says where in it."""
    try:
        with _beside(Path(program.function.__code__.co_filename)):
            return read()
    except (Exception, SystemExit) as error:  # whatever a function of the user's may raise
        files = {f.__code__.co_filename for f in (program.function, program.sizes) if inspect.isfunction(f)}
        lines = [step for step in traceback.extract_tb(error.__traceback__) if step.filename in files]
        if not lines:
            raise
        kind = "" if isinstance(error, PyptoxError) else f"{type(error).__name__}: "
        raise ValueError(f"{lines[-1].filename}:{lines[-1].lineno}: {kind}{error}") from error


@contextlib.contextmanager
def _beside(file: Path) -> Iterator[None]:
    """Within this context modules in the folder of ``file`` can be imported, as when Python runs it."""
    before = sys.path[:]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        yield
    finally:
        sys.path[:] = before


def sizes_of(settings: Sequence[str]) -> dict[str, Any]:
    """``name=value`` pairs, integers that are not negative."""
    sizes: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if name in sizes:
            raise ValueError(f"`{name}` must be given once; got it again as {text!r}. Leave one out")
        try:
            sizes[name] = int(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ValueError(f"sizes of a program are name=integer; got {text!r}. Try tokens=16")
        if sizes[name] < 0:
            raise ValueError(f"`{name}` must not be negative; got {text!r}. Try {name}=16")
    return sizes
