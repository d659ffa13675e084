"""Bounded fusion: where a traced cost keeps intermediate values, and where it may compute them again.

The graph of a cost is a few thousand elementwise operations on one vector of candidates. Left to itself XLA fuses
them into one loop for each value it keeps, repeats shared operands in every one of those loops, and, past about two
thousand operations a loop, takes minutes to compile; without fusion every operation goes through memory. Here the
graph is cut first: duplicate equations are merged, and of the values with several uses those are kept that are
cheaper to store than to repeat. An optimization barrier marks each of them, so that every kernel ends there.

The cuts change neither the operations nor their order, hence no result. Barriers have derivatives, so a cut
function is differentiated like any other and its tangents are cut in the same places.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

BARRIERS_HOLD = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""Compiler options under which barriers last until kernels are formed; by default the CPU backend drops them."""

_FREE = frozenset({"broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "stop_gradient", "copy"})
_SLOW = frozenset(
    {"div", "exp", "log", "log1p", "sqrt", "rsqrt", "pow", "tanh", "logistic", "rem", "integer_pow", "ceil_of_ratio"}
)
_FAST = frozenset(
    {"abs", "add", "add_any", "and", "ceil", "clamp", "eq", "floor", "ge", "gt", "is_finite", "le", "lt", "max", "min"}
    | {"mul", "ne", "neg", "not", "or", "population_count", "round", "select_n", "shift_left", "sign", "sub", "xor"}
    | {"shift_right_arithmetic", "shift_right_logical"}
)
_ELEMENTWISE = _FREE | _SLOW | _FAST
_SLOW_WEIGHT = 4


@dataclass(frozen=True)
class _Step:
    """One equation after inlining; operands and results are value numbers, or literals."""

    equation: Any
    operands: tuple[Any, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class _Graph:
    inputs: tuple[int, ...]
    constants: dict[int, Any]
    steps: list[_Step]
    outputs: tuple[Any, ...]
    shapes: list[tuple[int, ...]]  # by value number


KEEP = 10
"""What it costs to keep a value, in elementwise operations."""

LARGEST = 1400
"""Most operations of one kernel: the fewer kernels the faster, until LLVM takes minutes for one."""

LARGEST_WITH_TANGENT, LARGEST_OF_SMALL, SMALL_GRAPH = 400, 1300, 2500
"""The same in a function that is differentiated, whose kernels grow by their tangents, and in one with fewer operations
in all and no reductions. One of 1,400 with its tangent is past what LLVM takes well."""


def bounded(
    function: Callable, *arguments: Any, keep: int = KEEP, largest: int | None = None, differentiated: bool = False
) -> Callable:
    """``function`` with its duplicate work merged and its fusion bounded.

    Args:
        function: maps pytrees of arrays to a pytree of arrays.
        arguments: examples of its arguments; tracers will do.
        keep: what it costs to keep a value.
        largest: most operations of one kernel; None for what suits the graph.
        differentiated: the caller takes its derivative.

    Returns:
        A function of the same arguments. Compile it under :data:`BARRIERS_HOLD`.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    graph = _flattened(closed)
    if largest is None:
        small = len(graph.steps) <= SMALL_GRAPH and all(s.equation.primitive.name in _ELEMENTWISE for s in graph.steps)
        with_tangent = LARGEST_OF_SMALL if small else LARGEST_WITH_TANGENT
        largest = with_tangent if differentiated else LARGEST
    kept = _kept(graph, keep, largest)
    structure = jax.tree_util.tree_structure(shape)

    def cut(*arguments: Any) -> Any:
        values = dict(zip(graph.inputs, jax.tree_util.tree_leaves(arguments), strict=True)) | graph.constants
        for step in graph.steps:
            operands = [x.val if isinstance(x, Literal) else values[x] for x in step.operands]
            results = _apply(step.equation, operands)
            for number, result in zip(step.results, results, strict=True):
                values[number] = jax.lax.optimization_barrier(result) if number in kept else result
        return structure.unflatten([x.val if isinstance(x, Literal) else values[x] for x in graph.outputs])

    return cut


def _apply(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    primitive = equation.primitive
    functions, parameters = (), primitive.get_bind_params(equation.params)
    if isinstance(parameters, tuple):  # in some versions of JAX the functions of a call come apart
        functions, parameters = parameters
    results = primitive.bind(*functions, *operands, **parameters)
    return results if primitive.multiple_results else [results]


# ------------------------------------------------------------------------------------------- from jaxpr to steps
def _flattened(closed: ClosedJaxpr) -> _Graph:
    """Calls inlined, equal equations merged, unused ones dropped."""
    shapes: list[tuple[int, ...]] = []
    constants: dict[int, Any] = {}
    steps: list[_Step] = []
    seen: dict[Any, tuple[int, ...]] = {}

    def number(shape: tuple[int, ...]) -> int:
        shapes.append(tuple(shape))
        return len(shapes) - 1

    def constant(value: Any) -> int:
        constants[number(np.shape(value))] = value
        return len(shapes) - 1

    def run(jaxpr: Any, consts: Sequence[int], operands: Sequence[Any]) -> list[Any]:
        values = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, operands, strict=True))

        def read(variable: Any) -> Any:
            return variable if isinstance(variable, Literal) else values[variable]

        for equation in jaxpr.eqns:
            operands = tuple(read(v) for v in equation.invars)
            inner = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
            if inner is not None:
                results = run(inner.jaxpr, [constant(c) for c in inner.consts], operands)
            else:
                key = _key(equation, operands)
                results = _same(equation, operands, shapes) or (seen.get(key) if key is not None else None)
                if results is None:
                    results = tuple(number(v.aval.shape) for v in equation.outvars)
                    steps.append(_Step(equation, operands, results))
                    if key is not None:
                        seen[key] = results
            values.update(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    inputs = tuple(number(v.aval.shape) for v in closed.jaxpr.invars)
    outputs = tuple(run(closed.jaxpr, [constant(c) for c in closed.consts], inputs))
    live = {x for x in outputs if isinstance(x, int)}
    used = []
    for step in reversed(steps):
        if not live.isdisjoint(step.results):
            used.append(step)
            live.update(x for x in step.operands if isinstance(x, int))
    return _Graph(inputs, constants, used[::-1], outputs, shapes)


_NEUTRAL = {"mul": 1.0, "div": 1.0, "add": 0.0, "sub": 0.0}


def _same(equation: Any, operands: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The operand that an equation only hands on: a product with one, a sum with zero."""
    neutral = _NEUTRAL.get(equation.primitive.name)
    if neutral is None:
        return None
    for position in (1,) if equation.primitive.name in ("sub", "div") else (1, 0):
        literal, other = _literal(operands[position]), operands[1 - position]
        if literal is not None and literal.ndim == 0 and float(literal) == neutral and isinstance(other, int):
            return (other,) if shapes[other] == tuple(equation.outvars[0].aval.shape) else None
    return None


def _key(equation: Any, operands: Sequence[Any]) -> Any:
    """Equal for equations with equal results; None where that cannot be told."""
    if equation.primitive.name not in _ELEMENTWISE:
        return None
    names = tuple(
        ("literal", str(x.aval), value.tobytes()) if (value := _literal(x)) is not None else x for x in operands
    )
    # the representation tells 1 from 1.0 and True, which are equal keys
    return equation.primitive, names, repr(sorted(equation.params.items(), key=lambda item: item[0]))


def _literal(operand: Any) -> np.ndarray | None:
    return np.asarray(operand.val) if isinstance(operand, Literal) else None


# ------------------------------------------------------------------------------------------------ what to keep
def _kept(graph: _Graph, keep: int, largest: int) -> set[int]:
    """Numbers of the values that end a kernel.

    Starts from every value with several uses, when nothing is computed twice, and lets go of values as long as
    what their users then repeat is less than ``keep``. The operations of a kernel are a set of bits, one an equation.
    """
    steps = graph.steps
    maker = {number: at for at, step in enumerate(steps) for number in step.results}
    # values without a candidate axis are computed once a call and are never worth a kernel of their own
    single = [all(not graph.shapes[number] for number in step.results) for step in steps]
    fused = [step.equation.primitive.name in _ELEMENTWISE for step in steps]
    operands = [
        {maker[x] for x in step.operands if isinstance(x, int) and x in maker and not single[maker[x]]}
        for step in steps
    ]
    users: list[list[int]] = [[] for _ in steps]
    for at, step in enumerate(operands):
        for operand in () if single[at] else step:
            users[operand].append(at)
    returned = {maker[x] for x in graph.outputs if isinstance(x, int) and x in maker}
    ends = [
        not single[at] and (at in returned or not fused[at] or len(users[at]) != 1 or not fused[users[at][0]])
        for at in range(len(steps))
    ]

    slow = sum(1 << at for at, s in enumerate(steps) if s.equation.primitive.name in _SLOW)
    free = sum(1 << at for at, s in enumerate(steps) if s.equation.primitive.name in _FREE)

    def size(work: int) -> int:
        slower = (_SLOW_WEIGHT - 1) * (work & slow).bit_count()
        return work.bit_count() + slower - (work & free).bit_count()

    work: list[int] = [0] * len(steps)  # equations that the kernel of a value computes
    reads: list[set[int]] = [set() for _ in steps]  # kept values that it loads
    for at in range(len(steps)):
        if single[at]:
            continue
        work[at] = 1 << at
        for operand in operands[at]:
            if ends[operand]:
                reads[at].add(operand)
            else:
                work[at] |= work[operand]
                reads[at] |= reads[operand]
    readers: dict[int, set[int]] = {at: set() for at, end in enumerate(ends) if end}
    for at in readers:
        for operand in reads[at]:
            readers[operand].add(at)

    def gain(at: int) -> int:
        """Operations saved when ``at`` is repeated by its readers instead of kept."""
        saved = size(work[at]) + keep
        for reader in readers[at]:
            joint = size(work[reader] | work[at])
            saved -= joint - size(work[reader])
            if saved < 0 or joint > largest:
                return -1
        return saved

    free_to_go = [at for at in readers if fused[at] and at not in returned and all(fused[r] for r in readers[at])]
    changed = True
    while changed:
        changed = False
        for at in sorted(free_to_go, key=lambda at: size(work[at]) * len(readers[at])):
            if gain(at) < 0:
                continue
            for reader in readers[at]:
                work[reader] |= work[at]
                reads[reader] = (reads[reader] - {at}) | reads[at]
            for operand in reads[at]:
                readers[operand] = (readers[operand] - {at}) | readers[at]
            free_to_go.remove(at)
            changed = True
            del readers[at]
    return {number for at in readers if users[at] for number in steps[at].results}
