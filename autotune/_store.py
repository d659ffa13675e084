"""Finished trials on disk: one line of JSON each, so that a killed run keeps what it finished."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

from pyptox._files import write_whole

from ._trial import Trial


@final
@dataclasses.dataclass(frozen=True)
class Store:
    """An append-only JSONL file of trials.

    `key` names what was tuned (kernel, shapes, dtypes, hardware); a store reads and writes only the trials
    of its key, so one file can serve many. One process writes at a time.

    >>> import tempfile
    >>> from autotune import Config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(pathlib.Path(folder) / "trials.jsonl", key="matmul 4096")
    ...     store.append(Trial(Config(tile_m=64), value=12.5))
    ...     [trial.value for trial in store.load()]
    [12.5]
    """

    path: pathlib.Path
    key: str = ""

    def append(self, trial: Trial) -> None:
        """Write one finished trial and flush it."""
        self.extend([trial])

    def extend(self, trials: Iterable[Trial]) -> None:
        """Write finished trials, one line each, and flush them."""
        self._write(trial.to_dict() for trial in trials)

    def note(self, content: Mapping[str, Any]) -> None:
        """Write one line that is not a trial, such as what a whole chunk came to."""
        self._write([{"note": dict(content)}])

    def notes(self) -> tuple[dict[str, Any], ...]:
        """The notes of this key, in order."""
        return tuple(record["note"] for record in self._own() if "note" in record)

    def _write(self, records: Iterable[Mapping[str, Any]]) -> None:
        lines = [
            json.dumps({"key": self.key, **record}, separators=(",", ":"), allow_nan=False) + "\n" for record in records
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            _mend(file)
            file.write("".join(lines).encode())

    def load(self) -> tuple[Trial, ...]:
        """The trials of this key in the order they finished; a last line cut short by a kill is left out."""
        return tuple(Trial.from_dict(record) for record in self._own() if "note" not in record)

    def _own(self) -> Iterator[dict[str, Any]]:
        if self.path.exists():
            yield from (record for key, record in self._records() if key == self.key)

    def _records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):
            try:
                record = json.loads(line)
                yield record.pop("key"), record
            except (ValueError, KeyError, AttributeError) as error:
                raise ValueError(
                    f"`path` {self.path} must hold one trial a line, line {number} is not one ({error}); "
                    "delete that line or name another file"
                ) from error


def _mend(file: Any) -> None:
    """Cut off a last line that a kill left without its end."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write `content` as JSON so that a reader finds the old file or the new one, never a part.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(pathlib.Path(folder) / "best.json", {"tile_m": 64})
    ...     (pathlib.Path(folder) / "best.json").read_text().split()
    ['{', '"tile_m":', '64', '}']
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
