"""Inputs and golden outputs in a folder: whole and of this kernel, or refused with what is wrong."""

import contextlib
import hashlib
import inspect
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import instance
from .._errors import PyptoxError
from .._files import drafted, write_whole
from .._safetensors import SafetensorsError, read, write
from ..cost._nest import instructions
from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._record import Recorder
from ..lang._types import Index, Spec, Tensor
from ..program import Arg, Graph

FORMAT = "pyptox.snapshot/1"
_FILES = ("inputs", "golden")


class SnapshotError(PyptoxError):
    """A snapshot is incomplete, damaged, or of something else."""


@dataclass(frozen=True)
class Snapshot:
    """What was saved: arrays by name, and the identity of what computed the golden outputs."""

    inputs: dict[str, np.ndarray]
    golden: dict[str, np.ndarray]
    identity: dict[str, Any]
    seed: int | None = None


def identity_of(
    what: Kernel | Graph,
    specs: Mapping[str, Spec] | None = None,
    values: Mapping[str, Any] | None = None,
    hardware: Hardware | None = None,
) -> dict[str, Any]:
    """What a golden output belongs to, as plain values: name, specs, choices, and a hash of what is computed.

    The hash covers the kernel's text and every instruction that a reading of it records, so that a change in a helper
    counts as well. Tile sizes and counts are left out: in float64 they change nothing, and one golden serves them all.
    A program's graph has the identity of each of its tasks.
    """
    if isinstance(what, Graph):
        tasks = [
            [t.number, identity_of(t.kernel, t.specs(), t.values, hardware) if t.kernel else None, *map(_wired, t.args)]
            for t in what.tasks
        ]
        arguments = {name: str(spec) for name, spec in what.arguments.items()}
        return {"name": what.name, "specs": arguments, "values": {}, "computes": _digest(tasks)}
    instance("what", what, Kernel, "a @kernel or the graph of a program")
    assert specs is not None
    chosen = {name: value for name, value in what.configuration(values or {}).items() if name in what.choices}
    recorder = Recorder.of_integers(what, specs, what.configuration(chosen), hardware or a2a3())
    assert recorder.walk is not None
    steps = [
        [n.operation.name, n.out and [n.out.dtype, *map(str, n.out.shape)], _plain(n.attributes)]
        for n in instructions([recorder.walk])
    ]
    return {
        "name": what.name,
        "specs": {n: str(s) if s.values is None else f"{s} {list(s.values)}" for n, s in specs.items()},
        "values": chosen,
        "computes": _digest([_source(what), steps]),
    }


def _wired(arg: Arg) -> list[Any]:
    tensor = arg.tensor
    return [arg.name, arg.direction, tensor.buffer.number, *map(str, (tensor.offset, tensor.shape, tensor.strides))]


def _source(kernel: Kernel) -> str:
    try:
        return inspect.getsource(kernel.function)
    except (OSError, TypeError):
        return ""


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """An attribute of an instruction without what differs from reading to reading."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, Tensor):
        return value.name
    if isinstance(value, Index):
        return [[getattr(variable, "name", str(type(variable))), str(by)] for variable, by in value.terms] + [
            str(value.constant)
        ]
    return value if isinstance(value, str | int | float | bool | None) else str(getattr(value, "value", type(value)))


def require_empty(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SnapshotError(f"`folder` must be new or empty; {str(folder)!r} is not. Remove it, or name another")


def save(
    folder: str | os.PathLike[str],
    inputs: Mapping[str, Any],
    golden: Mapping[str, Any],
    identity: Mapping[str, Any],
    seed: int | None = None,
) -> None:
    """Write a snapshot; the folder appears with everything in it, or not at all.

    Args:
        folder: does not exist yet, or is empty.
        inputs, golden: arrays by name, bit for bit.
        identity: of :func:`identity_of`.
        seed: of the inputs, for the record.

    Raises:
        SnapshotError: the folder holds something.
    """
    folder = Path(folder)
    require_empty(folder)
    with _draft(folder) as draft:
        described = {}
        for title, arrays in zip(_FILES, (inputs, golden), strict=True):
            path = draft / f"{title}.safetensors"
            write(path, {name: np.asarray(array) for name, array in arrays.items()})
            described[title] = {"names": list(arrays), "sha256": _hash(path)}
        manifest = {"format": FORMAT, "identity": dict(identity), "seed": seed, "files": described}
        write_whole(draft / "snapshot.json", json.dumps(manifest, indent=1) + "\n")


@contextlib.contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """The folder while it is being filled."""
    with contextlib.ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            draft = stack.enter_context(drafted(folder, folder=True))
        except OSError as error:
            raise SnapshotError(
                f"`folder` must be where files can be made; {str(folder)!r}: {error.strerror}"
            ) from None
        yield draft


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load(folder: str | os.PathLike[str], identity: Mapping[str, Any] | None = None) -> Snapshot:
    """Read a snapshot, bit for bit as it was saved.

    Args:
        folder: of :func:`save`.
        identity: what it must be of; anything where left out.

    Raises:
        SnapshotError: no snapshot, files or arrays that are missing or renamed, bytes that changed, or another kernel,
            shape, configuration or text. The message says which.
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    missing = [f"{title}.safetensors" for title in _FILES if not (folder / f"{title}.safetensors").is_file()]
    if missing:
        raise SnapshotError(f"`folder` {str(folder)!r} is incomplete: {', '.join(missing)} missing")
    if identity is not None:
        _check_identity(folder, manifest["identity"], identity)
    arrays = {}
    for title in _FILES:
        path, described = folder / f"{title}.safetensors", manifest["files"][title]
        try:
            tensors = read(path)
        except SafetensorsError as error:
            raise SnapshotError(f"`folder` {str(folder)!r} is damaged: {error}") from error
        absent = [name for name in described["names"] if name not in tensors]
        extra = [name for name in tensors if name not in described["names"]]
        if absent or extra:
            found = (("missing", absent), ("unknown", extra))
            said = "; ".join(f"{word} {', '.join(names)}" for word, names in found if names)
            raise SnapshotError(f"{path.name} of `folder` {str(folder)!r} has other arrays than were saved: {said}")
        if _hash(path) != described["sha256"]:
            raise SnapshotError(f"{path.name} of `folder` {str(folder)!r} changed since it was saved: its hash differs")
        arrays[title] = {name: tensors[name] for name in described["names"]}
    return Snapshot(arrays["inputs"], arrays["golden"], manifest["identity"], manifest["seed"])


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "snapshot.json"
    if not path.is_file():
        raise SnapshotError(f"`folder` must hold a snapshot; {str(folder)!r} has no snapshot.json")
    try:
        manifest = json.loads(path.read_text())
        files = [manifest["files"][title] for title in _FILES]
        right = [isinstance(f["names"], list) and isinstance(f["sha256"], str) for f in files]
        if not all(right) or manifest["format"] != FORMAT or not isinstance(manifest["identity"], dict):
            raise ValueError(manifest["format"])
        manifest.setdefault("seed", None)
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{path.name} of `folder` {str(folder)!r} is damaged, or not of format {FORMAT}") from error
    return manifest


def _check_identity(folder: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    wanted = json.loads(json.dumps(dict(wanted)))
    for field, words in (
        ("name", "was saved of"),
        ("specs", "was saved for the tensors"),
        ("values", "was saved with"),
        ("computes", "was saved of another text or other instructions, hash"),
    ):
        if saved.get(field) != wanted.get(field):
            raise SnapshotError(
                f"`folder` {str(folder)!r} {words} {_said(saved.get(field))}; expected {_said(wanted.get(field))}. "
                "Save a new one"
            )


def _said(value: Any) -> str:
    return (
        ", ".join(f"{key} {part}" for key, part in value.items()) or "nothing"
        if isinstance(value, Mapping)
        else str(value)
    )
