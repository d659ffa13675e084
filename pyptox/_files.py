"""Files that are whole or not there: every result of this package is written through :func:`write_whole`.

What is written lies beside its place as a draft, ``.NAME.TOKEN.tmp``, until it is whole. Who writes holds a lock on its
draft; one that nobody holds is of a process that was killed, and the next that writes to this place removes it.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Write ``content`` so that a reader finds the old file or the new one, never a part.

    Text is written as UTF-8; pieces of bytes one after the other.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "a.csv", "x,y")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('a.csv', 'x,y')]
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`path` must lie in a folder that exists; {str(path.parent)!r} does not")
    if path.is_dir():
        raise IsADirectoryError(f"`path` must name a file; {str(path)!r} is a folder")
    with drafted(path) as draft, draft.open("wb") as file:
        if isinstance(content, str | bytes):
            content = [content.encode() if isinstance(content, str) else content]
        for piece in content:
            file.write(piece)


@contextlib.contextmanager
def drafted(path: Path, folder: bool = False) -> Iterator[Path]:
    """An empty file, or folder, to fill; it becomes ``path`` at the end, or goes away when something is raised.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with drafted(Path(place) / "run", folder=True) as draft:
    ...         (draft / "a.txt").write_text("whole")
    ...     (Path(place) / "run" / "a.txt").read_text()
    5
    'whole'
    """
    _remove_left(path)
    draft, lock = _made(path, folder)
    try:
        yield draft
        os.replace(draft, path)
    except BaseException:
        _remove(draft)
        raise
    finally:
        os.close(lock)


def _made(path: Path, folder: bool) -> tuple[Path, int]:
    """A new draft, and what holds its lock."""
    while True:
        draft = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
        if folder:
            draft.mkdir()
        else:  # as the umask has it, like any new file
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        with contextlib.suppress(FileNotFoundError):  # another took it for one that was left, before it was locked
            lock = os.open(draft, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if draft.exists():
                return draft, lock
            os.close(lock)


def _remove_left(path: Path) -> None:
    """Remove the drafts of ``path`` that no process holds."""
    left = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.tmp")
    for draft in [entry for entry in path.parent.iterdir() if left.fullmatch(entry.name)]:
        with contextlib.suppress(OSError):  # held, gone meanwhile, or not ours to remove
            lock = os.open(draft, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(draft)
            finally:
                os.close(lock)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)
