"""A progress bar on stderr for long runs."""

import contextlib
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
