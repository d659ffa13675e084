"""A compiled function of one chunk of candidates, run over any number of them on every core.

A chunk is small enough for the caches of one core, which is also too small for XLA to divide: Python threads take
turns at the chunks instead. The results of a chunk are rows of one array, since each array that crosses into Python
costs as much time as thousands of candidates.
"""

import functools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._compilation_cache import persistent
from ._fusion import BARRIERS_HOLD


@dataclass(frozen=True)
class Chunked:
    """``function(columns, *others)`` for ``chunk`` candidates, compiled; built by :func:`compile_chunked`."""

    function: Callable
    chunk: int
    structure: Any  # of the results, and the shape (candidates aside) and type of each
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[Any, ...]

    def __call__(self, columns: Mapping[str, np.ndarray], *others: Any) -> Any:
        """The results for all candidates; the last axis of each is that of ``columns``."""
        count, chunk = len(next(iter(columns.values()))), self.chunk
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        rows = np.empty((sum(sizes), count), np.float32)

        def run(start: int) -> None:
            part = {name: _padded(column[start : start + chunk], chunk) for name, column in columns.items()}
            result = np.asarray(self.function(part, *others))
            rows[:, start : start + chunk] = result[:, : min(chunk, count - start)]

        if count <= chunk:
            run(0)
        else:
            for _ in _threads().map(run, range(0, count, chunk)):
                pass
        parts = np.split(rows, np.cumsum(sizes)[:-1])
        return self.structure.unflatten(
            part.reshape(*shape, count).astype(dtype, copy=False)
            for part, shape, dtype in zip(parts, self.shapes, self.types, strict=True)
        )


def compile_chunked(function: Callable, columns: Mapping[str, np.ndarray], *others: Any) -> Chunked:
    """Compile ``function`` for chunks of the length of ``columns``.

    Its results have the candidates on their last axis, and hold what float32 can: floats, flags, small integers.
    """
    chunk = len(next(iter(columns.values())))
    described: list[tuple] = []

    def stacked(*arguments: Any) -> Any:
        leaves, structure = jax.tree_util.tree_flatten(function(*arguments))
        described.append((structure, tuple(x.shape[:-1] for x in leaves), tuple(x.dtype for x in leaves)))
        # barriers: a kernel that computed every row would choose between them for each number
        return jnp.concatenate([jax.lax.optimization_barrier(x.astype(jnp.float32).reshape(-1, chunk)) for x in leaves])

    options = {**BARRIERS_HOLD, **_CPU_OPTIONS} if jax.default_backend() == "cpu" else None
    lowered = jax.jit(stacked, compiler_options=options).lower(columns, *others)
    with persistent():
        return Chunked(lowered.compile(), chunk, *described[-1])


_CPU_OPTIONS = {
    "xla_cpu_prefer_vector_width": 512,  # XLA's own default is 256 bits on every CPU
    "xla_cpu_enable_concurrency_optimized_scheduler": False,  # the schedule that keeps fewest values alive, for caches
}


def _padded(column: np.ndarray, size: int) -> np.ndarray:
    return column if len(column) == size else np.pad(column, (0, size - len(column)), mode="edge")


@functools.cache
def _threads() -> ThreadPoolExecutor:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return ThreadPoolExecutor(len(affinity(0)) if affinity else os.cpu_count() or 1, "pyptox-cost")
