"""The ``@kernel`` decorator: one function over tiles, with its parameters and outputs declared."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._errors import KernelError
from .._scalar import Scalar
from ._reading import AbstractReading, reading_as
from ._types import Spec, Tensor


class TileSizes:
    """The tile sizes of a kernel as attributes, ``tile.m``; ints, or traced scalars in the cost reading."""

    def __init__(self, sizes: Mapping[str, Scalar]):
        self._sizes = dict(sizes)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_sizes"][name]
        except KeyError:
            raise KernelError(
                f"`tile.{name}` is not declared; @kernel(tile={tuple(self.__dict__.get('_sizes', ()))})"
            ) from None


@dataclass(frozen=True)
class Parameter:
    """A tunable parameter of a kernel.

    ``kind`` is ``tile`` (a size in elements), ``int`` (a count between ``low`` and ``high``) or ``choice`` (one of
    ``options``, fixed at trace time).
    """

    name: str
    kind: str
    default: Any
    low: int = 1
    high: int = 1
    options: tuple = ()


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel: call its readings, or hand it to :func:`autotune.tune`.

    Attributes:
        name: the function's name.
        tensors: names of its tensor arguments, outputs last.
        outputs: for each output, a function of the input specs that gives its spec.
        parameters: tile sizes first, then counts and choices.
        tile: names of the tile sizes.
        in_place: for each output that starts as an input does, which it then overwrites, the input's name.
        sync: ``"manual"`` (hand-placed flags) or ``"auto"`` (automatic barriers between pipes) is a parameter of
            the readings, not of the kernel's text.
    """

    function: Callable
    name: str
    tensors: tuple[str, ...]
    outputs: Mapping[str, Callable[..., Spec]]
    parameters: tuple[Parameter, ...]
    tile: tuple[str, ...]
    in_place: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(name for name in self.tensors if name not in self.outputs)

    @property
    def numeric(self) -> tuple[str, ...]:
        """Parameters that the cost reading takes as traced numbers."""
        return tuple(p.name for p in self.parameters if p.kind != "choice")

    @property
    def choices(self) -> tuple[str, ...]:
        """Parameters that are fixed at trace time."""
        return tuple(p.name for p in self.parameters if p.kind == "choice")

    def specs(self, *args: Spec, **named: Spec) -> dict[str, Spec]:
        """The spec of every tensor, outputs included, from those of the inputs.

        Raises:
            KernelError: an input is missing, unknown, or its shape does not fit the others.
        """
        if len(args) > len(self.inputs):
            raise KernelError(f"`{self.name}` takes {len(self.inputs)} inputs ({', '.join(self.inputs)})")
        given = dict(zip(self.inputs, args, strict=False))
        for name, value in named.items():
            if name in given or name not in self.inputs:
                raise KernelError(f"`{name}` is not an input of `{self.name}`; inputs are {', '.join(self.inputs)}")
            given[name] = value
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise KernelError(f"`{self.name}` also needs a spec for {', '.join(missing)}: px.spec(shape, dtype)")
        for name, value in given.items():
            if not isinstance(value, Spec):
                raise KernelError(f"`{name}` expects px.spec(shape, dtype); got {type(value).__name__}")
        inputs = {name: given[name] for name in self.inputs}
        return inputs | {name: make(**inputs) for name, make in self.outputs.items()}

    def configuration(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults overridden by ``values``, checked by name and kind."""
        known = {p.name: p for p in self.parameters}
        for name in values:
            if name not in known:
                raise KernelError(f"`{name}` is not a parameter of `{self.name}`; it has {', '.join(known)}")
        result = {}
        for name, p in known.items():
            value = values.get(name, p.default)
            if p.kind == "choice":
                if value not in p.options:
                    raise KernelError(f"`{name}` must be one of {', '.join(map(str, p.options))}; got {value!r}")
            else:
                if isinstance(value, bool) or int(value) != value or value < p.low:
                    raise KernelError(f"`{name}` must be an integer of at least {p.low}; got {value!r}")
                value = int(value)
            result[name] = value
        return result

    def read(self, reading: AbstractReading, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Interpret the kernel's body under ``reading``."""
        arguments = {name: values[name] for name in values if name not in self.tile}
        if self.tile:
            arguments["tile"] = TileSizes({name: values[name] for name in self.tile})
        with reading_as(reading):
            self.function(*(tensors[name] for name in self.tensors), **arguments)

    def __repr__(self) -> str:
        return f"<pyptox kernel {self.name}({', '.join(self.tensors)})>"


def kernel(
    *,
    outputs: Mapping[str, Callable[..., Spec]],
    tile: Mapping[str, int] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    choices: Mapping[str, tuple] | None = None,
    in_place: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Callable[[Callable], Kernel]:
    """Declare a kernel.

    Args:
        outputs: for each output argument a function of the input specs (by name) that returns its spec.
        tile: the tile sizes and their defaults, ``{"m": 128, "n": 256, "k": 256}``; the function receives them as
            ``tile.m`` and so on.
        ranges: for each count parameter its smallest and largest value; its default is the function's.
        choices: for each parameter that is fixed at trace time its possible values; defaults are the function's.
        in_place: ``{"out": "cache"}`` for an output that is an input's memory: it starts as that input, and what is
            not stored stays. Other outputs start as zeros.
        name: the kernel's name; the function's where left out.

    The function takes tensors as positional arguments and parameters as keyword-only ones.
    """

    def decorate(function: Callable) -> Kernel:
        signature = inspect.signature(function).parameters.values()
        tensors = tuple(p.name for p in signature if p.kind is not p.KEYWORD_ONLY)
        sizes = dict(tile or {})
        parameters = [Parameter(name, "tile", default, 1, 1 << 20) for name, default in sizes.items()]
        for p in signature:
            if p.kind is not p.KEYWORD_ONLY or p.name == "tile":
                continue
            if p.default is p.empty:
                raise KernelError(f"parameter `{p.name}` of kernel `{function.__name__}` needs a default")
            if p.name in (ranges or {}):
                low, high = (ranges or {})[p.name]
                parameters.append(Parameter(p.name, "int", p.default, low, high))
            elif p.name in (choices or {}):
                parameters.append(Parameter(p.name, "choice", p.default, options=tuple((choices or {})[p.name])))
            else:
                raise KernelError(
                    f"parameter `{p.name}` of kernel `{function.__name__}` has neither a range nor choices; "
                    "declare it in @kernel(ranges=...) or @kernel(choices=...)"
                )
        unknown = [name for name in outputs if name not in tensors]
        if unknown:
            raise KernelError(f"`outputs` names {unknown}, which are not arguments of `{function.__name__}`")
        for output, source in (in_place or {}).items():
            if output not in outputs or source not in tensors or source in outputs:
                raise KernelError(f"`in_place` maps an output to an input; got {output!r} and {source!r}")
        made = Kernel(
            function,
            name or function.__name__,
            tensors,
            dict(outputs),
            tuple(parameters),
            tuple(sizes),
            dict(in_place or {}),
        )
        object.__setattr__(made, "__doc__", function.__doc__)
        return made

    return decorate
