"""The ``@program`` decorator."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..hardware import Hardware, a2a3
from ..lang._types import Spec
from ._submit import Recording, recording_as
from ._tensor import ProgramError, Tensor


@dataclass(frozen=True, eq=False)
class Program:
    """A function that creates tensors and submits kernels. Read it with :func:`graph`, :func:`run`, :func:`reference`.

    Attributes:
        function: the function.
        name: its name.
        tensors: names of its arguments.
        sizes: gives the spec of every argument from named sizes, all with defaults; None when they are always given.
    """

    function: Callable
    name: str
    tensors: tuple[str, ...]
    sizes: Callable[..., Mapping[str, Spec]] | None = None

    def specs(self, *given: Spec, **sizes: Any) -> dict[str, Spec]:
        """The spec of every argument: as given, or from the program's named sizes.

        Raises:
            ProgramError: an argument is missing or unknown.
        """
        if given:
            wrong = [value for value in given if not isinstance(value, Spec)]
            if wrong:
                raise ProgramError(
                    f"`specs` of `{self.name}` must be specs, such as px.spec((16, 64)); got {wrong[0]!r}"
                )
            if len(given) != len(self.tensors) or sizes:
                raise ProgramError(
                    f"`{self.name}` takes {len(self.tensors)} specs ({', '.join(self.tensors)}); got {len(given)}"
                )
            return dict(zip(self.tensors, given, strict=True))
        if self.sizes is None:
            raise ProgramError(f"`{self.name}` names no sizes; give a spec for each of {', '.join(self.tensors)}")
        known = inspect.signature(self.sizes).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
        unknown = [name for name in sizes if name not in known and not open_ended]
        if unknown:
            raise ProgramError(f"`{', '.join(unknown)}` is not a size of `{self.name}`; it has {', '.join(known)}")
        needed = [
            p.name for p in known.values() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        missing = [name for name in needed if name not in sizes]
        if missing:
            raise ProgramError(
                f"`{missing[0]}` must be given: it is a size of `{self.name}` without a default. Try {missing[0]}=16"
            )
        found = self.sizes(**sizes)
        if not isinstance(found, Mapping) or not all(isinstance(spec, Spec) for spec in found.values()):
            raise ProgramError(f"the sizes of `{self.name}` must give a spec by argument; they give {found!r}")
        specs = dict(found)
        if specs.keys() != set(self.tensors):
            raise ProgramError(
                f"the sizes of `{self.name}` must give {', '.join(self.tensors)}; they give {', '.join(specs)}"
            )
        return {name: specs[name] for name in self.tensors}

    def record(
        self, specs: Mapping[str, Spec], hardware: Hardware | None = None
    ) -> tuple[Recording, tuple[Tensor, ...]]:
        """Everything that the function submits, and the tensors that it returns."""
        code = self.function.__code__
        recording = Recording(hardware or a2a3(), f"{Path(code.co_filename).name}:{code.co_firstlineno}")
        arguments = [recording.argument(n, specs[n]) for n in self.tensors]
        with recording_as(recording):
            result = self.function(*arguments)
        results = result if isinstance(result, tuple) else (result,)
        if not all(isinstance(tensor, Tensor) for tensor in results):
            raise ProgramError(f"`{self.name}` must return the tensors that it computes; got {result!r}")
        for tensor in results:
            recording.own(tensor, f"what `{self.name}` returns")
        return recording, results

    def __repr__(self) -> str:
        return f"<pyptox program {self.name}({', '.join(self.tensors)})>"


def program(function: Callable | None = None, *, sizes: Callable[..., Mapping[str, Spec]] | None = None) -> Any:
    """Mark a function that submits kernels.

    Args:
        function: takes one tensor for each argument, returns those that it computes.
        sizes: a function of named sizes with defaults that gives the spec of every argument.

    >>> import pyptox as px
    >>> from pyptox import program as pp
    >>> @pp.program(sizes=lambda m=16, k=64: {"x": px.spec((m, k), "bf16"), "w": px.spec((k, k), "bf16")})
    ... def twice(x, w):
    ...     return pp.submit(px.kernels.matmul, pp.submit(px.kernels.matmul, x, w), w)
    >>> [(edge.pred, edge.succ, edge.source) for edge in pp.graph(twice).edges]
    [(0, 1, 'creator')]
    """

    def wrap(function: Callable) -> Program:
        return Program(function, function.__name__, tuple(inspect.signature(function).parameters), sizes)

    return wrap(function) if function is not None else wrap
