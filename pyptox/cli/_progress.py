"""A progress bar on stderr for long runs."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[Any], None] | None]:
    """A callback for ``autotune.tune(progress=...)``; None where nothing is to be ``shown``.

    >>> with progress_bar(shown=False) as progress:
    ...     progress is None
    True
    """
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tuning", total=None)

        def update(progress: Any) -> None:
            bar.update(task, completed=progress.scored, total=progress.total, description=str(progress))

        yield update


@contextlib.contextmanager
def stopped_between_batches(callback: Callable[[Any], None] | None) -> Iterator[Callable[[Any], None]]:
    """Ctrl-C takes effect where a batch ends and ``callback`` is called, never inside compiled code.

    A second Ctrl-C takes effect at once.
    """
    pressed: list[int] = []

    def press(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        print("stopping after this batch; Ctrl-C again stops at once", file=sys.stderr)

    def update(progress: Any) -> None:
        if callback is not None:
            callback(progress)
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield update
    finally:
        signal.signal(signal.SIGINT, before)
