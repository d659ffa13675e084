"""The run and reference readings of a program: its values, in any order that the graph permits."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._checks import instance
from .._dtypes import dtype_of
from .._float64 import collected, float64_scope, widened
from ..hardware import Hardware
from ..lang._apart import jitted_apart
from ..lang._run import _lookup, spec_of_array
from ..lang._types import Spec
from ._graph import Graph, graph
from ._program import Program
from ._task import OUTPUT, adds
from ._tensor import ProgramError


def run(
    program: Program,
    *arrays: Any,
    order: Sequence[int] | None = None,
    donate: Sequence[str] = (),
    whole: bool = True,
    hardware: Hardware | None = None,
) -> Any:
    """What the program returns, in the stored types.

    Args:
        program: a program.
        arrays: one for each of its arguments; ``px.control(values)`` for a control input. Other values of it are no
            reason to compile again.
        order: the tasks in the order in which they take effect; that of submission by default.
        donate: arguments whose memory the results may take, a cache that is updated in place say; these arrays are
            gone afterwards.
        whole: jitted as a whole; or else task by task, which compiles a kernel once for all tasks alike: sooner for
            many tasks, slower afterwards, and nothing is donated.
        hardware: the chip whose staging limits apply.

    Raises:
        ProgramError: the order leaves a task out, or runs one before what it waits for.
    """
    instance("program", program, Program, "a function marked @program")
    instance("order", order, (Sequence, type(None)), "the numbers of the tasks in another order")
    instance("hardware", hardware, (Hardware, type(None)), "a chip, such as px.hardware.a2a3()")
    specs = tuple(_specs(program, arrays))
    kinds = tuple(s if s.values is None else replace(s, values=(0,) * len(s.values)) for s in specs)
    order = None if order is None else tuple(order)
    function, check = _compiled(program, kinds, order, _places(program, donate), whole, hardware)
    check(specs)
    results = function(*map(_array, arrays))
    return results[0] if len(results) == 1 else results


def jitted(
    program: Program,
    specs: tuple[Spec, ...],
    order: tuple[int, ...] | None = None,
    hardware: Hardware | None = None,
) -> Callable[..., tuple]:
    """The program on arguments of these specs, its tasks in ``order``; compiled at the first call."""
    return _compiled(program, specs, order, (), True, hardware)[0]


@functools.lru_cache(maxsize=64)
def _compiled(
    program: Program,
    specs: tuple[Spec, ...],
    order: tuple[int, ...] | None,
    donate: tuple[int, ...],
    whole: bool,
    hardware: Hardware | None,
) -> tuple[Callable[..., tuple], Callable[[Sequence[Spec]], None]]:
    """The program on arguments of these specs, its tasks in ``order``; compiled at the first call.

    Second, a check of other control values.
    """
    recorded = graph(program, *specs, hardware=hardware)
    order = tuple(range(len(recorded.tasks))) if order is None else _permitted(recorded, order)

    def function(*values: Any) -> tuple:
        return _execute(recorded, values, order, hardware, False)

    if whole:
        function = jitted_apart(function, donate)
    return function, functools.partial(_check_control, recorded)


def _places(program: Program, names: Sequence[str]) -> tuple[int, ...]:
    unknown = [name for name in names if name not in program.tensors]
    if unknown:
        raise ProgramError(f"`donate` names {unknown}; the arguments of `{program.name}` are {program.tensors}")
    return tuple(sorted(program.tensors.index(name) for name in names))


def _check_control(graph: Graph, specs: Sequence[Spec]) -> None:
    """Ask every kernel about the control inputs that it is given."""
    asked = set()
    for task in graph.tasks:
        if task.kernel is None or not task.control_from:
            continue
        own = task.specs()
        for name, tensor in task.control_from.items():
            given = specs[tensor.buffer.number].values
            assert given is not None
            own[name] = replace(tensor.spec, values=tuple(given[n] for n in tensor.elements().reshape(-1)))
        inputs = tuple((name, own[name]) for name in task.kernel.inputs)
        if (task.kernel, inputs) not in asked:
            asked.add((task.kernel, inputs))
            task.kernel.specs(**dict(inputs))


def reference(program: Program, *arrays: Any, hardware: Hardware | None = None) -> Any:
    """What the program returns in float64, its casts removed; NumPy arrays."""
    instance("program", program, Program, "a function marked @program")
    recorded = graph(program, *_specs(program, arrays), hardware=hardware)
    wide = [widened(name, _array(array)) for name, array in zip(program.tensors, arrays, strict=True)]
    with float64_scope():
        results = _execute(recorded, wide, range(len(recorded.tasks)), hardware, True)
        results = collected([f"result {number}" for number in range(len(results))], results)
    return results[0] if len(results) == 1 else results


def orders(graph: Graph, count: int, seed: int = 0) -> Iterator[tuple[int, ...]]:
    """Orders that the graph permits, drawn at random: the ones that a race shows itself in."""
    rng, waits = np.random.default_rng(seed), graph.waits()
    for _ in range(count):
        left = [len(preds) for preds in waits]
        after: list[list[int]] = [[] for _ in waits]
        for task, preds in enumerate(waits):
            for pred in preds:
                after[pred].append(task)
        ready, order = [task for task, preds in enumerate(left) if not preds], []
        while ready:
            task = ready.pop(int(rng.integers(len(ready))))
            order.append(task)
            for follower in after[task]:
                left[follower] -= 1
                if not left[follower]:
                    ready.append(follower)
        yield tuple(order)


def _specs(program: Program, arrays: Sequence[Any]) -> list[Spec]:
    instance("program", program, Program, "an @program")
    if len(arrays) != len(program.tensors):
        raise ProgramError(
            f"`{program.name}` takes {len(program.tensors)} arrays ({', '.join(program.tensors)}); got {len(arrays)}"
        )
    return [_spec(program, name, array) for name, array in zip(program.tensors, arrays, strict=True)]


def _spec(program: Program, name: str, array: Any) -> Spec:
    """The spec of one argument, which has values."""
    if isinstance(array, Spec):
        if array.values is None:
            raise ProgramError(f"`{name}` of `{program.name}` must be an array, or px.control(values); got {array}")
        return array
    return spec_of_array(program.name, name, array, ProgramError)


def _array(given: Any) -> Any:
    return np.asarray(given.values, np.int32) if isinstance(given, Spec) else given


def _permitted(graph: Graph, order: tuple[int, ...]) -> tuple[int, ...]:
    if sorted(order) != list(range(len(graph.tasks))):
        raise ProgramError(f"`order` must hold each of the {len(graph.tasks)} tasks once")
    place = {task: position for position, task in enumerate(order)}
    for task, preds in enumerate(graph.waits()):
        late = [pred for pred in preds if place[pred] > place[task]]
        if late:
            raise ProgramError(
                f"`order` runs {graph.tasks[task].label} before {graph.tasks[late[0]].label}, which it waits for"
            )
    return order


def _execute(
    graph: Graph, arrays: Sequence[Any], order: Sequence[int], hardware: Hardware | None, float64: bool
) -> tuple:
    contents: dict[int, Any] = {}
    for buffer in graph.buffers:
        if buffer.creator is None:
            contents[buffer.number] = jnp.asarray(arrays[buffer.number])
        else:
            kind = jnp.dtype(jnp.float64) if float64 and buffer.dtype not in ("int32",) else dtype_of(buffer.dtype).jax
            contents[buffer.number] = jnp.zeros(buffer.shape, kind)
    for number in order:
        task = graph.tasks[number]
        if task.kernel is None:
            continue
        kernel = task.kernel
        args = {arg.name: arg for arg in task.args}
        inputs = [
            task.control_from[name].read(contents[task.control_from[name].buffer.number])
            if name in task.control_from
            else np.asarray(task.control[name].values, np.int32)
            if name in task.control
            else args[name].tensor.read(contents[args[name].tensor.buffer.number])
            for name in kernel.inputs
        ]
        outputs = _lookup(kernel, task.specs(), task.values, hardware, float64)(*inputs)
        for title, value in zip(kernel.outputs, outputs, strict=True):
            arg = args[kernel.in_place.get(title, title)]
            tensor = arg.tensor
            before = contents[tensor.buffer.number]
            if adds(task, arg, title):
                value = tensor.read(before) + value
            contents[tensor.buffer.number] = (
                value if arg.direction == OUTPUT else tensor.write(before, value.astype(before.dtype))
            )
    return tuple(tensor.read(contents[tensor.buffer.number]) for tensor in graph.results)
