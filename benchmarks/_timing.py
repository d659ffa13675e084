"""Wall time of a call."""

import time
from collections.abc import Callable
from typing import Any


def seconds(function: Callable[[], Any], repeats: int = 1) -> float:
    """The least of ``repeats`` times."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)
