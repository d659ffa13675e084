"""A program's graph as ``deps.json`` holds it: task ids by ring, tensors by address, views in elements."""

import math
from collections import Counter
from collections.abc import Sequence

from .._dtypes import dtype_of
from ..program._graph import Edge as GraphEdge
from ..program._graph import Graph, overlap
from ..program._task import INOUT, OUTPUT_EXISTING, Arg
from ..program._task import Task as Submitted
from ..program._tensor import Tensor as ProgramTensor
from ._deps import Argument, Deps, Edge, Task, Tensor, View
from ._names import NameMap

RINGS = 4
ALIGNMENT = 1024
"""Bytes that the heap aligns an allocation to."""

BASE = 1 << 32
"""Address of the first buffer."""

_NAMES = {"bf16": "BFLOAT16", "fp16": "FLOAT16", "fp32": "FLOAT32", "int8": "INT8", "int32": "INT32"}


def task_ids(graph: Graph) -> list[int]:
    """``ring << 32 | number`` of every task: the ring of its scope's depth, and a count of each ring's own."""
    counts: Counter[int] = Counter()
    ids = []
    for task in graph.tasks:
        ring = min(task.depth, RINGS - 1)
        ids.append(ring << 32 | counts[ring])
        counts[ring] += 1
    return ids


def kernel_slots(kinds: Sequence[str], shapes: Sequence[str]) -> tuple[NameMap, list[tuple[int, ...]]]:
    """Names by ``func_id``, and the kernel slots of tasks of these kinds; a MIX task has a kernel for each core type.

    >>> kernel_slots(["up", "attention", "up", "join"], ["AIC", "MIX", "AIC", "DUMMY"])[1]
    [(0, -1, -1), (1, 2, 2), (0, -1, -1), (-1, -1, -1)]
    """
    known: dict[tuple[str, str], tuple[int, ...]] = {}
    names: dict[int, str] = {}
    slots = []
    for kind, shape in zip(kinds, shapes, strict=True):
        if (kind, shape) not in known:
            n = len(names)
            forms = {"AIC": (n, -1, -1), "AIV": (-1, n, -1), "MIX": (n, n + 1, n + 1)}
            known[kind, shape] = forms.get(shape, (-1, -1, -1))
            names |= {func: kind for func in known[kind, shape] if func >= 0}
        slots.append(known[kind, shape])
    return NameMap(names), slots


def program_deps(graph: Graph, kernels: Sequence[tuple[int, ...]]) -> Deps:
    """The graph with the kernel slots of each task."""
    ids, addresses = task_ids(graph), _addresses(graph)
    hashes = {number: _hash(address) for number, address in addresses.items()}
    tensors = tuple(
        Tensor(hashes[b.number], hex(addresses[b.number]), 0, _NAMES[dtype_of(b.dtype).name], math.prod(b.shape))
        for b in graph.buffers
    )
    tasks = tuple(
        Task(
            ids[task.number],
            tuple(kernels[task.number]),
            max(task.blocks, 1),
            task.scope,
            task.early,
            tuple(
                Argument(n, arg.direction, hashes[arg.tensor.buffer.number], _view(arg.tensor))
                for n, arg in enumerate(task.args)
            ),
        )
        for task in graph.tasks
    )
    return Deps(tasks, tensors, tuple(_edge(edge, graph, ids, hashes) for edge in graph.edges))


def _addresses(graph: Graph) -> dict[int, int]:
    addresses, at = {}, BASE
    for buffer in graph.buffers:
        addresses[buffer.number] = at
        size = math.prod(buffer.shape) * dtype_of(buffer.dtype).bytes
        at += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
    return addresses


def _hash(address: int, version: int = 0) -> int:
    """FNV-1a of 64 bits over the address (8 bytes) and the version (4 bytes), as the runtime names tensors."""
    value = 0xCBF29CE484222325
    for byte in address.to_bytes(8, "little") + version.to_bytes(4, "little"):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def _view(tensor: ProgramTensor, typed: bool = True) -> View:
    dtype = _NAMES[dtype_of(tensor.dtype).name] if typed else None
    return View(tensor.shape, tensor.strides, tensor.offset, dtype)


def _edge(edge: GraphEdge, graph: Graph, ids: Sequence[int], hashes: dict[int, int]) -> Edge:
    pred, succ = ids[edge.pred], ids[edge.succ]
    if edge.source == "explicit":
        return Edge(pred, succ)
    arg = graph.tasks[edge.succ].args[edge.arg]
    written = _written(graph.tasks[edge.pred], arg) if edge.source == "tensormap" else None
    return Edge(
        pred,
        succ,
        edge.arg,
        edge.source,
        edge.flags,
        edge.overlap,
        hashes[arg.tensor.buffer.number],
        _view(arg.tensor),
        None if written is None else _view(written, typed=False),
    )


def _written(task: Submitted, arg: Arg) -> ProgramTensor:
    """What a tensor-map edge found of its producer."""
    return next(
        other.tensor
        for other in task.args
        if other.direction in (INOUT, OUTPUT_EXISTING)
        and other.tensor.buffer is arg.tensor.buffer
        and overlap(arg.tensor, other.tensor) is not None
    )
