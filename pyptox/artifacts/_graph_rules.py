"""Rules of ``deps.json``."""

from collections.abc import Iterator

from ..chip._workload import MOST_BLOCKS
from ._deps import FILE, Deps, Edge, View, label
from ._finding import Finding

TYPES = frozenset(["INPUT", "OUTPUT", "INOUT", "OUTPUT_EXISTING", "UNKNOWN"])
_DTYPES_TEXT = "FLOAT32 FLOAT16 BFLOAT16 FLOAT64 INT64 INT32 INT16 INT8 INT4 UINT64 UINT32 UINT16 UINT8 BOOL"
DTYPES = frozenset(_DTYPES_TEXT.split(" "))
FLAGS = {
    "explicit": ("wait", "retain"),
    "creator": ("wait", "retain"),
    "tensormap": ("wait",),
}
"""Flags of an edge by its source."""

DIMENSIONS = 5


def check_deps(deps: Deps, file: str = FILE) -> list[Finding]:
    """Every rule that the graph alone breaks."""
    return [*_tasks(deps, file), *_tensors(deps, file), *_edges(deps, file), *_cycle(deps, file)]


def _tasks(deps: Deps, file: str) -> Iterator[Finding]:
    seen: set[int] = set()
    tensors = {tensor.tensor_id for tensor in deps.tensors}
    for n, task in enumerate(deps.tasks):

        def wrong(
            code: str, key: str, message: str, severity: str = "error", n: int = n, name: str = label(task.task_id)
        ) -> Finding:
            return Finding(code, severity, file, f"tasks[].{key}", n, f"{name}: {message}")

        if task.task_id in seen:
            yield wrong("duplicate-task", "task_id", "a task must be listed once; it was before")
        seen.add(task.task_id)
        if not 0 <= task.task_id < 2**64:
            yield wrong("type", "task_id", "must be an unsigned integer of 64 bits")
        if task.scope not in ("auto", "manual"):
            yield wrong("scope", "scope", f"must be auto or manual; got {task.scope!r}")
        if not 1 <= task.block_num <= MOST_BLOCKS:
            yield wrong("block-num", "block_num", f"must be 1 to {MOST_BLOCKS:,}; got {task.block_num}")
        if len(task.kernel_ids) != 3 or min(task.kernel_ids) < -1:
            yield wrong("kernel-ids", "kernel_ids", f"must be three ids, -1 for none; got {list(task.kernel_ids)}")
        for arg in task.args:
            if arg.type not in TYPES:
                message = f"argument {arg.index} must be of {', '.join(sorted(TYPES))}; got {arg.type!r}"
                yield wrong("arg-type", "args.type", message)
            if (arg.tensor_id is None) != (arg.view is None):
                yield wrong("arg-view", "args", f"argument {arg.index} must have a tensor and its view, or neither")
            if arg.view is not None:
                for code, key, message in _view(arg.view):
                    severity = "warning" if code == "dtype" else "error"
                    yield wrong(code, f"args.{key}", f"argument {arg.index} {message}", severity)
            if arg.tensor_id is not None and arg.tensor_id not in tensors:
                message = f"argument {arg.index}: tensor {arg.tensor_id} is not listed in `tensors`"
                yield wrong("unknown-tensor", "args.tensor_id", message, "warning")


def _view(view: View) -> Iterator[tuple[str, str, str]]:
    if len(view.shape) > DIMENSIONS:
        yield "dimensions", "shape", f"must have at most {DIMENSIONS} dimensions; got {len(view.shape)}"
    if len(view.strides) != len(view.shape):
        yield "dimensions", "strides", f"must have a stride for each of {len(view.shape)} dimensions"
    if any(stride <= 0 for stride in view.strides):
        yield "strides", "strides", f"must have strides above 0, in elements; got {list(view.strides)}"
    if any(size < 0 for size in view.shape):
        yield "shape", "shape", f"must have no negative size; got {list(view.shape)}"
    if view.dtype is not None and view.dtype not in DTYPES:
        yield "dtype", "dtype", f"has the dtype {view.dtype!r}, which is not known"


def _tensors(deps: Deps, file: str) -> Iterator[Finding]:
    seen: set[int] = set()
    for n, tensor in enumerate(deps.tensors):
        if tensor.tensor_id in seen:
            text = f"tensor {tensor.tensor_id} must be listed once; it was before"
            yield Finding("duplicate-tensor", "error", file, "tensors[].tensor_id", n, text)
        seen.add(tensor.tensor_id)
        if tensor.dtype not in DTYPES:
            yield Finding("dtype", "warning", file, "tensors[].dtype", n, f"the dtype {tensor.dtype!r} is not known")


def _edges(deps: Deps, file: str) -> Iterator[Finding]:
    tasks = {task.task_id for task in deps.tasks}
    tensors = {tensor.tensor_id for tensor in deps.tensors}
    for n, edge in enumerate(deps.edges):
        name = f"{label(edge.pred)} → {label(edge.succ)}"
        for code, key, message, severity in _edge(edge, tasks, tensors):
            yield Finding(code, severity, file, f"edges[].{key}", n, f"{name}: {message}")


def _edge(edge: Edge, tasks: set[int], tensors: set[int]) -> Iterator[tuple[str, str, str, str]]:
    if edge.succ not in tasks:
        yield "unknown-succ", "succ", "`succ` is not listed in `tasks`", "error"
    if edge.pred not in tasks:
        yield "unknown-pred", "pred", "`pred` is not listed in `tasks`; taken for an allocation", "warning"
    if edge.pred == edge.succ:
        yield "self-edge", "succ", "a task cannot wait for itself", "error"
    if edge.source not in FLAGS:
        yield "source", "source", f"must be {', '.join(FLAGS)}; got {edge.source!r}", "error"
        return
    if not set(edge.flags) <= {"wait", "retain"} or len(set(edge.flags)) != len(edge.flags):
        yield "flags", "flags", f"must be some of wait, retain; got {list(edge.flags)}", "error"
    elif set(edge.flags) != set(FLAGS[edge.source]):
        message = f"a {edge.source} edge is recorded with {list(FLAGS[edge.source])}; got {list(edge.flags)}"
        yield "flags", "flags", message, "warning"
    mapped, declared = edge.source == "tensormap", edge.source == "explicit"
    if (edge.overlap is not None) != mapped or edge.overlap not in (None, "covered", "other"):
        message = f"must be covered or other on a tensormap edge, absent on others; got {edge.overlap!r}"
        yield "overlap", "overlap", message, "error"
    if (edge.arg == -1) != declared or edge.arg < -1:
        yield "arg", "arg", f"must be -1 on an explicit edge, an argument on others; got {edge.arg}", "error"
    if (edge.tensor_id is None or edge.consumer is None) != declared:
        message = "a creator or tensormap edge names its tensor and what the consumer covers; an explicit one does not"
        yield "edge-view", "tensor_id", message, "error"
    if (edge.producer is not None) != mapped:
        message = "a tensormap edge says what the producer covers; others do not"
        yield "edge-view", "producer_shape", message, "error"
    if edge.tensor_id is not None and edge.tensor_id not in tensors:
        message = f"tensor {edge.tensor_id} is not listed in `tensors`"
        yield "unknown-tensor", "tensor_id", message, "warning"
    for view, prefix in ((edge.consumer, "consumer_"), (edge.producer, "producer_")):
        for code, key, message in () if view is None else _view(view):
            yield code, prefix + key, message, "warning" if code == "dtype" else "error"


def _cycle(deps: Deps, file: str) -> Iterator[Finding]:
    """One finding with a cycle, where tasks wait for each other."""
    waits: dict[int, set[int]] = {}
    for edge in deps.edges:
        if edge.pred != edge.succ:
            waits.setdefault(edge.succ, set()).add(edge.pred)
            waits.setdefault(edge.pred, set())
    feeds: dict[int, list[int]] = {}
    for succ, preds in waits.items():
        for pred in preds:
            feeds.setdefault(pred, []).append(succ)
    left = {task: len(preds) for task, preds in waits.items()}
    free = [task for task, count in left.items() if not count]
    while free:
        task = free.pop()
        del left[task]
        for succ in feeds.get(task, ()):
            left[succ] -= 1
            if not left[succ]:
                free.append(succ)
    if not left:
        return
    walk = [next(iter(left))]
    while walk.count(walk[-1]) == 1:
        walk.append(next(pred for pred in waits[walk[-1]] if pred in left))
    ring = walk[walk.index(walk[-1]) :]
    number = next(n for n, edge in enumerate(deps.edges) if (edge.succ, edge.pred) == (ring[0], ring[1]))
    text = f"tasks wait for each other: {' → '.join(map(label, reversed(ring)))}"
    yield Finding("cycle", "error", file, "edges[]", number, text)
