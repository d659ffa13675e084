"""A reading of a kernel's values whose arithmetic can be exchanged, and that reverse mode can go through.

:class:`Walker` lowers loops to ``lax.scan`` with a static bound (trip counts that come from data are at most their
largest over the control inputs) and remembers which line of the kernel each operation is from. What a tile holds and
how an operation is carried out is a :class:`AbstractArithmetic`.
"""

import abc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..hardware import Hardware
from ..lang import _reading, _run
from ..lang._kernel import Kernel
from ..lang._reading import AbstractReading, Operation, Order, TileType, new_axes
from ..lang._record import Loop, Recorder
from ..lang._types import Axis, Index, Spec, Tile


@dataclass(frozen=True)
class Site:
    """A place in a kernel's text where something is rounded.

    Attributes:
        file, line: innermost line outside the language itself.
        operation: its name.
        before, after: element types of its first operand and of its result.
        caller: the kernel's own ``(file, line)`` from which a helper was called, None where it is the same.
    """

    file: str
    line: int
    operation: str
    before: str
    after: str
    caller: tuple[str, int] | None = None
    title: str = ""  # of a named tile

    @property
    def types(self) -> str:
        """``fp32→bf16``, or one name where they are the same."""
        return self.after if self.before == self.after else f"{self.before}→{self.after}"

    @property
    def where(self) -> str:
        """``file.py:12``, with the kernel's line behind it where that is another."""
        here = f"{self.file.rsplit('/', 1)[-1]}:{self.line}"
        return here if self.caller is None else f"{here} < {self.caller[0].rsplit('/', 1)[-1]}:{self.caller[1]}"

    def __str__(self) -> str:
        return f"{self.where} {self.operation} {self.types}"


class AbstractArithmetic(abc.ABC):
    """What tiles hold and how operations work on it."""

    @abc.abstractmethod
    def apply(
        self, walker: "Walker", operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any], made: Any
    ) -> Any:
        """The payload of the result; ``made`` is its :class:`TileType`, None where there is none."""

    @abc.abstractmethod
    def carried(self, tile: Tile) -> Tile:
        """``tile`` in the form that loops hand on, the same before and after every iteration."""

    @abc.abstractmethod
    def state(self) -> Any:
        """What an iteration leaves to the next besides tiles: the outputs so far."""

    @abc.abstractmethod
    def resume(self, state: Any) -> None:
        """Go on from ``state``."""


class Walker(AbstractReading):
    """Interprets a kernel by an arithmetic.

    Args:
        kernel: whose lines are reported.
        low: the run reading that indices and trip counts are taken from.
        arithmetic: what is done with tiles.
        bounds: the largest trip count of each loop whose count comes from data, by its place in the nest.
        remember: recompute blocks in the backward pass, instead of keeping their tiles.
    """

    def __init__(
        self,
        kernel: Kernel,
        low: "_run._Run",
        arithmetic: AbstractArithmetic,
        bounds: Mapping[tuple[int, ...], int],
        recompute: bool = False,
    ):
        self.kernel, self.low, self.arithmetic, self.bounds = kernel, low, arithmetic, bounds
        self.sizes, self.recompute = low.sizes, recompute
        self.place: list[int] = [0]  # of the next loop in the nest

    def value(self, index: Index):
        return self.low.value(index)

    def cdiv(self, a, b):
        return self.low.cdiv(a, b)

    def minimum(self, a, b):
        return self.low.minimum(a, b)

    def apply(self, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any]) -> Any:
        made = operation.infer(*tiles, **attributes)
        if isinstance(made, TileType):
            valid = tuple(jnp.asarray(size, jnp.int32) for size in made.valid)
            made = TileType(made.shape, (valid[0], valid[1]), made.dtype, made.space)
        payload = self.arithmetic.apply(self, operation, tiles, attributes, made)
        return None if made is None else Tile(made.shape, made.valid, made.dtype, made.space, payload)

    def loop(self, count, body, carry, stages):
        axis = Axis("loop", "loop")
        index = Index(((axis, 1),), 0)
        carry = jax.tree_util.tree_map(
            lambda leaf: jnp.asarray(leaf, jnp.int32) if isinstance(leaf, int) else leaf, carry
        )
        static = isinstance(count, int | np.integer)
        bound = int(count) if static else self.bounds[tuple(self.place)]

        def step(number, tiles):
            self.low.values[axis] = number
            return self._carried(body(index, tiles))

        return self._scan(bound, None if static else count, step, self._carried(carry))

    def grid(self, extents, body, order: Order, uneven: bool) -> None:
        extents = [int(extent) for extent in extents]
        axes = new_axes(len(extents))

        def step(number, nothing):
            for axis, coordinate in zip(axes, _run.block_coordinates(number, extents, order), strict=True):
                self.low.values[axis] = coordinate
            body(*(Index(((axis, 1),), 0) for axis in axes))
            return nothing

        self._scan(int(np.prod(extents)), None, step, (), recompute=self.recompute)

    def _scan(self, bound: int, count: Any, body: Callable, carry: Any, recompute: bool = False) -> Any:
        """``body(number, carry)`` for every number below ``count``, or ``bound`` without one."""
        values = dict(self.low.values)

        def iterate(number, state):
            self.place.append(0)
            tiles, outputs = state
            self.arithmetic.resume(outputs)
            tiles = body(number, tiles)
            self.place.pop()
            return tiles, self.arithmetic.state()

        iterate = jax.checkpoint(iterate, prevent_cse=False) if recompute else iterate

        def step(state, number):
            if count is None:
                return iterate(number, state), None
            return jax.lax.cond(
                number < jnp.asarray(count, jnp.int32), iterate, lambda _, state: state, number, state
            ), None

        state = (carry, self.arithmetic.state())
        (carry, outputs), _ = jax.lax.scan(step, state, jnp.arange(bound, dtype=jnp.int32))
        self.low.values.clear()  # in place: another reading may share them
        self.low.values.update(values)
        self.arithmetic.resume(outputs)
        self.place[-1] += 1
        return carry

    def _carried(self, carry: Any) -> Any:
        def is_tile(leaf: Any) -> bool:
            return isinstance(leaf, Tile)

        return jax.tree_util.tree_map(
            lambda leaf: self.arithmetic.carried(leaf) if is_tile(leaf) else leaf, carry, is_leaf=is_tile
        )

    def site(self, operation: Operation, tiles: Sequence[Tile], attributes: Mapping[str, Any], made: Any) -> Site:
        """Where the operation that is being applied stands."""
        after = attributes["tensor"].dtype if made is None else made.dtype
        file, line, caller = _lines(self.kernel.function.__code__.co_filename)
        title = attributes.get("title", "")
        return Site(file, line, operation.name, tiles[0].dtype if tiles else after, after, caller, title)


_HIDDEN = (_reading._LANG_FILES + "/", __file__.rsplit("/", 1)[0] + "/", jax.__file__.rsplit("/", 1)[0] + "/")


def _lines(kernel_file: str) -> tuple[str, int, tuple[str, int] | None]:
    """The innermost line outside the language, and the innermost one in the kernel's file where that is another."""
    frame = sys._getframe(1)
    innermost: tuple[str, int] | None = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_HIDDEN):
            innermost = innermost or (name, frame.f_lineno)
            if name == kernel_file:
                here = (name, frame.f_lineno)
                return innermost[0], innermost[1], None if here == innermost else here
        elif innermost is not None and name.startswith(_HIDDEN[0]) and frame.f_code.co_name == "read":
            break  # where the kernel was called
        frame = frame.f_back
    file, line = innermost or ("", 0)
    return file, line, None


def trip_bounds(
    kernel: Kernel, specs: Mapping[str, Spec], values: Mapping[str, Any], hardware: Hardware
) -> dict[tuple[int, ...], int]:
    """The largest trip count of every loop, by its place in the nest."""
    recorder = Recorder.of_integers(kernel, specs, values, hardware)
    bounds: dict[tuple[int, ...], int] = {}

    def visit(nodes: list, place: tuple[int, ...]) -> None:
        for number, loop in enumerate(node for node in nodes if isinstance(node, Loop)):
            here = (*place, number)
            bounds[here] = max(bounds.get(here, 0), int(loop.count))
            visit(loop.first, here)
            visit(loop.last, here)

    # trip counts that depend on data or on the block differ along the first axis of the grid
    for group in range(int(recorder.extents[0]) if recorder.alone else 1):
        recorder = Recorder.of_integers(kernel, specs, values, hardware, group)
        assert recorder.walk is not None
        visit(recorder.walk.first, (0,))
        visit(recorder.walk.last, (0,))
    return bounds


def instruction_count(kernel: Kernel, specs: Mapping[str, Spec], values: Mapping[str, Any], hardware: Hardware) -> int:
    """At least as many as a kernel's text has operations."""
    recorder = Recorder.of_integers(kernel, specs, values, hardware)

    def count(nodes: list) -> int:
        return sum(1 if not isinstance(node, Loop) else count(node.first) + count(node.last) for node in nodes)

    return count(recorder.nodes)
