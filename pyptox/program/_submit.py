"""What a program does: submit kernels, declare dependencies, open scopes."""

import contextlib
import contextvars
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._record import Recorder
from ..lang._types import Spec
from ._scope import Scopes
from ._task import INOUT, INPUT, OUTPUT, OUTPUT_EXISTING, Arg, Task
from ._tensor import Buffer, ProgramError, Tensor, dense_strides


class Recording:
    """Tasks and buffers as the program's function submits them."""

    def __init__(self, hardware: Hardware, site: str = "program"):
        self.hardware = hardware
        self.tasks: list[Task] = []
        self.buffers: list[Buffer] = []
        self.scopes = Scopes(site)

    def buffer(
        self, name: str, shape: Iterable[int], dtype: str, creator: int | None, manual_dep: bool = False
    ) -> Tensor:
        """A new buffer, whole."""
        return self._whole(Buffer(len(self.buffers), name, tuple(shape), dtype, creator, manual_dep))

    def argument(self, name: str, spec: Spec) -> Tensor:
        """The buffer of an argument of the program."""
        return self._whole(Buffer(len(self.buffers), name, spec.shape, spec.dtype, values=spec.values))

    def own(self, tensor: Any, what: str) -> Tensor:
        """``tensor``, or what :func:`no_dep` holds; it must be of this program.

        Raises:
            ProgramError: it is none, or another program's.
        """
        found = tensor.tensor if isinstance(tensor, NoDep) else tensor
        if not isinstance(found, Tensor):
            kind = type(found).__name__
            raise ProgramError(f"{what} expects a tensor of the program; got {found!r} ({kind})")
        number = found.buffer.number
        if not (number < len(self.buffers) and self.buffers[number] is found.buffer):
            raise ProgramError(
                f"{what} expects a tensor of this program; {found} was made while another was read. Make it an "
                "argument, or allocate it here"
            )
        return found

    def _whole(self, made: Buffer) -> Tensor:
        self.buffers.append(made)
        return Tensor(made, made.shape, dense_strides(made.shape), 0, made.creator)


_CURRENT: contextvars.ContextVar[Recording | None] = contextvars.ContextVar("pyptox_program", default=None)


def current() -> Recording:
    """The program that is being read."""
    recording = _CURRENT.get()
    if recording is None:
        raise ProgramError("`submit`, `dummy`, `empty` and `scope` belong inside a function marked @program")
    return recording


@contextlib.contextmanager
def recording_as(recording: Recording) -> Iterator[Recording]:
    """Within this context programs submit to ``recording``."""
    token = _CURRENT.set(recording)
    try:
        yield recording
    finally:
        _CURRENT.reset(token)


class NoDep:
    """A tensor that the tensor map is not asked about, for one task; made by :func:`no_dep`."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor


def no_dep(tensor: Tensor) -> NoDep:
    """``tensor`` as an argument of one submit, without tensor-map edges for it; the creator edge stays."""
    return NoDep(tensor)


def empty(shape: Iterable[int], dtype: str, *, name: str = "empty", manual_dep: bool = False) -> Tensor:
    """Storage that the runtime allocates now: a task without a kernel, which the orchestrator completes itself.

    ``manual_dep`` keeps the tensor out of the tensor map for its whole life.
    """
    recording = current()
    number = len(recording.tasks)
    if not isinstance(shape, Iterable):
        raise ProgramError(f"`shape` of `empty` must be sizes, such as (16, 64); got {shape!r}")
    spec = Spec(tuple(shape), dtype)
    tensor = recording.buffer(name, spec.shape, spec.dtype, number, manual_dep)
    arg = Arg(name, tensor, OUTPUT)
    recording.tasks.append(Task(number, f"alloc {name}", None, (arg,), shape="ALLOC", **_placed(recording)))
    return tensor


def dummy(*, deps: Iterable[Task | Tensor], name: str = "dummy") -> Task:
    """A task without work that waits for ``deps``: one hop in place of many edges."""
    recording = current()
    task = Task(
        len(recording.tasks),
        name,
        None,
        (),
        deps=_tasks(deps, recording),
        **_placed(recording),
    )
    recording.tasks.append(task)
    return task


def submit(
    kernel: Kernel,
    *inputs: "Tensor | NoDep | Spec",
    out: "Tensor | NoDep | Mapping[str, Tensor | NoDep] | None" = None,
    deps: Iterable[Task | Tensor] = (),
    allow_early_resolve: bool = False,
    sync_start: bool = False,
    name: str | None = None,
    **values: Any,
) -> Any:
    """Submit one task.

    Args:
        kernel: what it runs.
        inputs: a tensor for each input of the kernel; for a control input ``px.control(values)``, or an argument of
            the program that is one.
        out: where the outputs go: a tensor, or tensors by name. Those left out are allocated by the runtime; an
            output that the kernel updates in place is the input that it starts as.
        deps: tasks, or what they returned, to wait for.
        allow_early_resolve: consumers may be staged before it has finished.
        sync_start: its blocks start together.
        name: instead of the kernel's.
        values: the kernel's configuration.

    Returns:
        The output tensor, or a tuple of them. Its ``task`` says which task wrote it.
    """
    recording = current()
    number = len(recording.tasks)
    if not isinstance(kernel, Kernel):
        raise ProgramError(
            f"`kernel` must be a kernel, such as px.kernels.matmul; got {kernel!r} ({type(kernel).__name__})"
        )
    if len(inputs) != len(kernel.inputs):
        raise ProgramError(
            f"`{kernel.name}` takes {len(kernel.inputs)} inputs ({', '.join(kernel.inputs)}); got {len(inputs)}"
        )
    control, passed, tensors, untracked = {}, {}, {}, set()
    for title, value in zip(kernel.inputs, inputs, strict=True):
        if isinstance(value, Spec) and value.values is not None:
            control[title] = value
            continue
        tensor = recording.own(value, f"`{title}` of `{kernel.name}`")
        if isinstance(value, NoDep):
            untracked.add(title)
        if tensor.buffer.values is not None:
            control[title], passed[title] = tensor.spec, tensor
        else:
            tensors[title] = tensor
    specs = kernel.specs(**{n: control[n] if n in control else tensors[n].spec for n in kernel.inputs})
    configuration = kernel.configuration(values)
    blocks, shape, added = _read(kernel, tuple(specs.items()), tuple(configuration.items()), recording.hardware)
    places = dict(out) if isinstance(out, Mapping) else {} if out is None else {next(iter(kernel.outputs)): out}
    unknown = [title for title in places if title not in kernel.outputs]
    if unknown:
        raise ProgramError(f"`out` has {', '.join(unknown)}; `{kernel.name}` writes {', '.join(kernel.outputs)}")

    updated = set(kernel.in_place.values())
    args = [Arg(n, t, INOUT if n in updated else INPUT, n in untracked) for n, t in tensors.items()]
    results = []
    for title in kernel.outputs:
        source = kernel.in_place.get(title)
        if source is not None:
            if title in places:
                raise ProgramError(
                    f"`{title}` of `{kernel.name}` is its input `{source}`, updated in place; leave `out` out"
                )
            results.append(tensors[source])
            continue
        place = places.get(title)
        spec = specs[title]
        if place is None:
            tensor, direction = (
                recording.buffer(f"{name or kernel.name}.{title}", spec.shape, spec.dtype, number),
                OUTPUT,
            )
        else:
            tensor, direction = recording.own(place, f"`out` of `{kernel.name}`"), OUTPUT_EXISTING
            if tensor.shape != spec.shape or tensor.dtype != spec.dtype:
                raise ProgramError(f"`{title}` of `{kernel.name}` must be {spec}; got {tensor}")
            if title in added:
                direction = INOUT  # an atomic add reads what is there
        args.append(Arg(title, tensor, direction, isinstance(place, NoDep)))
        results.append(tensor)
    recording.tasks.append(
        Task(
            number,
            name or kernel.name,
            kernel,
            tuple(args),
            control,
            passed,
            configuration,
            blocks,
            shape,
            deps=_tasks(deps, recording),
            early=allow_early_resolve,
            sync_start=sync_start,
            **_placed(recording),
        )
    )
    handles = tuple(Tensor(t.buffer, t.shape, t.strides, t.offset, number) for t in results)
    return handles[0] if len(handles) == 1 else handles


def _placed(recording: Recording) -> dict[str, Any]:
    """The scope that a task is submitted in."""
    scope = recording.scopes.current
    return {"scope": scope.mode, "depth": scope.depth, "scope_number": scope.number}


def _tasks(deps: Iterable[Task | Tensor], recording: Recording) -> tuple[int, ...]:
    if isinstance(deps, Task | Tensor | str) or not isinstance(deps, Iterable):
        raise ProgramError(f"`deps` must be a list of tasks, or of tensors that a task returned; got {deps!r}")
    numbers = []
    for dep in deps:
        number = dep.number if isinstance(dep, Task) else dep.task if isinstance(dep, Tensor) else None
        if number is None:
            raise ProgramError(f"`deps` expects tasks, or tensors that a task returned; got {dep!r}")
        if isinstance(dep, Tensor):
            recording.own(dep, "`deps`")
        elif not (number < len(recording.tasks) and recording.tasks[number] is dep):
            raise ProgramError(
                f"`deps` expects tasks of this program; {dep.label} was submitted while another was read"
            )
        numbers.append(number)
    return tuple(dict.fromkeys(numbers))


@functools.lru_cache(maxsize=1024)
def _read(
    kernel: Kernel, specs: tuple[tuple[str, Spec], ...], values: tuple[tuple[str, Any], ...], hardware: Hardware
) -> tuple[int, str, frozenset[str]]:
    """Blocks of the grid, the cores that they run on, and the outputs that the kernel adds to."""
    from ..cost._nest import Options, kind_of, options_for

    recorder = Recorder.of_integers(kernel, dict(specs), dict(values), hardware)
    blocks = int(np.prod([int(extent) for extent in recorder.extents]))
    kind = kind_of(kernel, dict(specs), options_for(kernel, Options(), dict(values)))
    return blocks, kind, frozenset(access.tensor.name for access in recorder.accesses() if access.mode == "add")
