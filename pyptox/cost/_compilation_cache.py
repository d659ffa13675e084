"""Compiled cost functions on disk, so that the next process starts from them.

JAX keeps a persistent cache for whoever configures one. Where nobody has, the compilations of this package alone
use a folder of the user's own; the settings are put back afterwards, so other code in the process is not affected.
Results never depend on it: an entry is found by the program and the compiler that it is for.
"""

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

_LOCK = threading.Lock()

_KEEP_ALL = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}


def cache_folder() -> Path:
    """Where compiled functions are kept: ``pyptox`` in the user's cache folder (``XDG_CACHE_HOME``, ``~/.cache``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyptox" / "compiled"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # entries are code: for this user alone
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _setting(name: str) -> Any:
    return getattr(jax.config, name)  # by name: the type of jax.config does not declare its settings


def _decided_by_user() -> bool:
    return _setting("jax_compilation_cache_dir") is not None or not _setting("jax_enable_compilation_cache")


@contextlib.contextmanager
def persistent() -> Iterator[None]:
    """Within this context compilations are looked up and kept on disk.

    Does nothing where the user has configured or disabled JAX's cache, or where the folder cannot be written.
    """
    with _LOCK:
        try:
            folder = cache_folder()
        except RuntimeError:  # no home folder
            folder = None
        if folder is None or _decided_by_user() or not _writable(folder):
            yield
            return
        before = {name: _setting(name) for name in _KEEP_ALL}
        for name, value in _KEEP_ALL.items():
            jax.config.update(name, value)
        compilation_cache.set_cache_dir(str(folder))
        try:
            with warnings.catch_warnings():
                # a broken entry or a full disk costs one compilation, and that is all the user would learn
                warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
                yield
        finally:
            jax.config.update("jax_compilation_cache_dir", None)
            compilation_cache.reset_cache()  # JAX would keep using the folder
            for name, value in before.items():
                jax.config.update(name, value)
