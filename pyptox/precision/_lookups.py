"""Which integer inputs of a kernel are places in another tensor, and how many places there are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._record import Instruction, Loop, Recorder
from ..lang._types import Buffer, Index, LookupTerm, Spec


class _Uses:
    """For each tensor of places, by column of it where columns differ (-1: all): places there are, and if written."""

    def __init__(self) -> None:
        self.extents: dict[tuple[str, int], int] = {}
        self.written: set[str] = set()
        self._loaded: dict[Buffer, frozenset[str]] = {}

    def follow(self, nodes: list) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                self.follow(node.first)
            else:
                self._instruction(node)

    def _instruction(self, node: Instruction) -> None:
        tensor = node.attributes.get("tensor")
        sources = frozenset().union(*(self._loaded.get(tile.payload, frozenset()) for tile in node.tiles))
        if tensor is not None:
            offsets, shape = node.attributes["offsets"], node.attributes.get("shape")
            for axis, offset in enumerate(offsets):
                for variable, _ in offset.terms if isinstance(offset, Index) else ():
                    if isinstance(variable, LookupTerm):
                        size = int(shape[axis]) if shape is not None else 1
                        last = variable.offsets[-1]
                        column = last if isinstance(last, int) else -1
                        self._use(variable.tensor, column, int(tensor.shape[axis]) - size + 1, node.out is None)
            if node.by_row:
                for name in self._loaded.get(node.tiles[-1].payload, ()):
                    self._use(name, -1, int(tensor.shape[0]), node.out is None)
            elif node.out is not None and tensor.dtype == "int32":
                sources = frozenset({tensor.name})
        if node.out is not None and node.out.dtype == "int32":
            self._loaded[node.out.payload] = sources

    def _use(self, name: str, column: int, extent: int, written: bool) -> None:
        key = name, column
        self.extents[key] = min(self.extents.get(key, extent), max(extent, 1))
        if written:
            self.written.add(name)


def places_of(
    kernel: Kernel, specs: Mapping[str, Spec], generator: np.random.Generator, hardware: Hardware | None = None
) -> dict[str, np.ndarray]:
    """Places within range for every input that is looked up with; all different where a kernel writes to them.

    A tensor whose last axis holds numbers of different kinds, page and row say, has each in its own range. Where there
    are fewer places than entries, those left over are -1, which names none.
    """
    values: dict[str, Any] = kernel.configuration({})
    recorder = Recorder.of_integers(kernel, specs, values, hardware or a2a3())
    assert recorder.walk is not None
    uses = _Uses()
    uses.follow(recorder.walk.first)
    found: dict[str, np.ndarray] = {}
    for (name, column), extent in uses.extents.items():
        shape = specs[name].shape
        part = shape if column < 0 else shape[:-1]
        made = _drawn(generator, part, extent, name in uses.written)
        if column < 0:
            found[name] = made
        else:
            found.setdefault(name, np.zeros(shape, np.int32))[..., column] = made
    return found


def _drawn(generator: np.random.Generator, shape: tuple[int, ...], extent: int, distinct: bool) -> np.ndarray:
    size = int(np.prod(shape))
    if not distinct:
        return generator.integers(0, extent, shape, dtype=np.int32)
    numbers = np.full(size, -1, np.int32)
    count = min(size, extent)
    numbers[:count] = generator.choice(extent, count, replace=False)
    return generator.permutation(numbers).reshape(shape)
