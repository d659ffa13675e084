"""``deps.json``: the tasks of a program, their tensors, and the edges that the runtime made."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import write_whole
from ._json import Where, field, integers, load, number_text, records, texts

FILE = "deps.json"
CORE_SLOTS = ("aic", "aiv", "aiv")
"""Core type of each of the three kernel slots of a task."""


def label(task_id: int) -> str:
    """A task as people write it.

    >>> label(5), label(2 << 32 | 7)
    ('t5', 'r2t7')
    """
    ring, number = task_id >> 32, task_id & 0xFFFFFFFF
    return f"r{ring}t{number}" if ring else f"t{number}"


@dataclass(frozen=True)
class View:
    """The part of a buffer that an argument covers; offset and strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start_offset: int = 0
    dtype: str | None = None


@dataclass(frozen=True)
class Argument:
    """One argument of a task; ``type`` is INPUT, OUTPUT, INOUT, OUTPUT_EXISTING or UNKNOWN."""

    index: int
    type: str
    tensor_id: int | None = None
    view: View | None = None


@dataclass(frozen=True)
class Task:
    """One submitted task.

    Attributes:
        task_id: ``ring << 32 | number``.
        kernel_ids: the kernel on the AIC and on each AIV of a cluster; -1 where none.
        block_num: blocks of the task; each runs once on every active slot.
        scope: ``auto`` or ``manual``.
        early_dispatch: its consumers may be staged before it is complete.
    """

    task_id: int
    kernel_ids: tuple[int, ...] = (-1, -1, -1)
    block_num: int = 1
    scope: str = "auto"
    early_dispatch: bool = False
    args: tuple[Argument, ...] = ()

    @property
    def rows(self) -> int:
        """Task rows that a whole capture has of it: blocks x active kernel slots; 0 for a dummy or an allocation."""
        return self.block_num * sum(kernel >= 0 for kernel in self.kernel_ids)

    def kernel(self, core_type: str) -> int:
        """The ``func_id`` that it runs on a core of this type; -1 where none.

        >>> Task(0, (-1, 3, -1)).kernel("aiv")
        3
        """
        return next(
            (k for k, slot in zip(self.kernel_ids, CORE_SLOTS, strict=False) if slot == core_type and k >= 0), -1
        )


@dataclass(frozen=True)
class Tensor:
    """One version of a buffer."""

    tensor_id: int
    buffer_addr: str
    version: int
    dtype: str
    buffer_numel: int


@dataclass(frozen=True)
class Edge:
    """``succ`` waits for ``pred``.

    Attributes:
        arg: the argument of ``succ`` that caused it; -1 where it was declared.
        source: ``explicit``, ``creator`` or ``tensormap``.
        flags: of ``wait`` (readiness) and ``retain`` (memory).
        overlap: ``covered`` or ``other``, of a tensormap edge.
        consumer, producer: what each side covers of the tensor.
    """

    pred: int
    succ: int
    arg: int = -1
    source: str = "explicit"
    flags: tuple[str, ...] = ("wait", "retain")
    overlap: str | None = None
    tensor_id: int | None = None
    consumer: View | None = None
    producer: View | None = None


@dataclass(frozen=True)
class Deps:
    """A dependency graph. Tasks that the file leaves out may still be ends of edges."""

    tasks: tuple[Task, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    edges: tuple[Edge, ...] = ()


def read_deps(path: str | os.PathLike[str]) -> Deps:
    """Read a ``deps.json``.

    Raises:
        ArtifactError: a key is missing or of another type; the message names it and the record.
    """
    path = Path(path)
    content, where = load(path), Where(path.name)
    return Deps(
        tasks=tuple(_task(item, place) for place, item in records(content, "tasks", where)),
        tensors=tuple(_tensor(item, place) for place, item in records(content, "tensors", where, default=[])),
        edges=tuple(_edge(item, place) for place, item in records(content, "edges", where)),
    )


def write_deps(path: str | os.PathLike[str], deps: Deps) -> None:
    """Write a ``deps.json``, whole or not at all; a value that breaks a rule is refused.

    >>> import tempfile
    >>> graph = Deps((Task(0, (4, -1, -1)), Task(1, (-1, 5, -1))), (), (Edge(0, 1),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_deps(f"{folder}/deps.json", graph)
    ...     read_deps(f"{folder}/deps.json") == graph
    True
    """
    from ._graph_rules import check_deps
    from ._rules import refuse

    path = Path(path)
    refuse(check_deps(deps, path.name))
    content = {
        "tasks": [_task_json(task) for task in deps.tasks],
        "tensors": [
            {
                "tensor_id": str(tensor.tensor_id),
                "buffer_addr": tensor.buffer_addr,
                "version": tensor.version,
                "dtype": tensor.dtype,
                "buffer_numel": str(tensor.buffer_numel),
            }
            for tensor in deps.tensors
        ],
        "edges": [_edge_json(edge) for edge in deps.edges],
    }
    write_whole(path, json.dumps(content) + "\n")


def _task(item: Mapping[str, Any], where: Where) -> Task:
    kernels = integers(item, "kernel_ids", where)
    if len(kernels) != len(CORE_SLOTS):
        raise where.under("kernel_ids").error("type", f"`kernel_ids` must be [aic, aiv0, aiv1]; got {len(kernels)} ids")
    args = []
    for number, arg in enumerate(field(item, "args", list, where, default=[])):
        place = where.under("args")
        if not isinstance(arg, dict):
            raise place.error("type", f"argument {number} must be an object")
        tensor = "tensor_id" in arg
        args.append(
            Argument(
                index=field(arg, "idx", int, place),
                type=field(arg, "type", str, place),
                tensor_id=number_text(arg, "tensor_id", place) if tensor else None,
                view=_view(arg, "", place, True) if tensor else None,
            )
        )
    return Task(
        task_id=number_text(item, "task_id", where),
        kernel_ids=kernels,
        block_num=field(item, "block_num", int, where),
        scope=field(item, "scope", str, where, default="auto"),
        early_dispatch=field(item, "early_dispatch", bool, where, default=False),
        args=tuple(args),
    )


def _tensor(item: Mapping[str, Any], where: Where) -> Tensor:
    return Tensor(
        tensor_id=number_text(item, "tensor_id", where),
        buffer_addr=field(item, "buffer_addr", str, where),
        version=field(item, "version", int, where),
        dtype=field(item, "dtype", str, where),
        buffer_numel=number_text(item, "buffer_numel", where),
    )


def _edge(item: Mapping[str, Any], where: Where) -> Edge:
    return Edge(
        pred=number_text(item, "pred", where),
        succ=number_text(item, "succ", where),
        arg=field(item, "arg", int, where),
        source=field(item, "source", str, where),
        flags=texts(item, "flags", where),
        overlap=field(item, "overlap", str, where, default=None),
        tensor_id=number_text(item, "tensor_id", where) if "tensor_id" in item else None,
        consumer=_view(item, "consumer_", where, True) if "consumer_shape" in item else None,
        producer=_view(item, "producer_", where, False) if "producer_shape" in item else None,
    )


def _view(item: Mapping[str, Any], prefix: str, where: Where, typed: bool) -> View:
    return View(
        shape=integers(item, f"{prefix}shape", where),
        strides=integers(item, f"{prefix}strides", where),
        start_offset=number_text(item, f"{prefix}start_offset", where),
        dtype=field(item, f"{prefix}dtype", str, where) if typed else None,
    )


def _view_json(view: View | None, prefix: str = "") -> dict[str, Any]:
    if view is None:
        return {}
    dtype = {} if view.dtype is None else {f"{prefix}dtype": view.dtype}
    return dtype | {
        f"{prefix}shape": list(view.shape),
        f"{prefix}start_offset": str(view.start_offset),
        f"{prefix}strides": list(view.strides),
    }


def _tensor_json(tensor_id: int | None) -> dict[str, Any]:
    return {} if tensor_id is None else {"tensor_id": str(tensor_id)}


def _task_json(task: Task) -> dict[str, Any]:
    return {
        "task_id": str(task.task_id),
        "scope": task.scope,
        "early_dispatch": task.early_dispatch,
        "kernel_ids": list(task.kernel_ids),
        "block_num": task.block_num,
        "args": [
            {"idx": arg.index, "type": arg.type} | _tensor_json(arg.tensor_id) | _view_json(arg.view)
            for arg in task.args
        ],
    }


def _edge_json(edge: Edge) -> dict[str, Any]:
    content: dict[str, Any] = {"pred": str(edge.pred), "succ": str(edge.succ), "arg": edge.arg, "source": edge.source}
    content["flags"] = list(edge.flags)
    content |= {} if edge.overlap is None else {"overlap": edge.overlap}
    content |= _tensor_json(edge.tensor_id) | _view_json(edge.consumer, "consumer_")
    return content | _view_json(edge.producer, "producer_")
