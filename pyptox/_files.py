"""Files that are whole or not there: every result of this package is written through :func:`write_whole`."""

import os
import secrets
from collections.abc import Iterable
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
    draft = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # as the umask has it, like any new file
    try:
        with os.fdopen(handle, "wb") as file:
            if isinstance(content, str | bytes):
                content = [content.encode() if isinstance(content, str) else content]
            for piece in content:
                file.write(piece)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
