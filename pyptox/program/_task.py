"""Tasks of a program and their arguments."""

from dataclasses import dataclass, field
from typing import Any

from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._tensor import Tensor

INPUT, OUTPUT, INOUT, OUTPUT_EXISTING = "INPUT", "OUTPUT", "INOUT", "OUTPUT_EXISTING"


@dataclass(frozen=True, eq=False)
class Arg:
    """One tensor of a task.

    Attributes:
        name: the kernel's name for it.
        tensor: what was handed over.
        direction: ``INPUT``, ``OUTPUT`` (the runtime allocates it), ``INOUT`` or ``OUTPUT_EXISTING``.
        no_dep: the tensor map is not asked about it.
    """

    name: str
    tensor: Tensor
    direction: str
    no_dep: bool = False

    @property
    def reads(self) -> bool:
        return self.direction in (INPUT, INOUT)

    @property
    def writes(self) -> bool:
        return self.direction != INPUT


@dataclass(frozen=True, eq=False)
class Task:
    """One submit.

    Attributes:
        number: its place in the order of submission.
        name: the kernel's, or the one given.
        kernel: None for a dummy and for an allocation.
        args: every tensor, inputs first.
        control: control inputs by name.
        control_from: those of them that are arguments of the program, which may run with other values.
        values: the kernel's configuration.
        blocks: of its grid; 0 without a kernel.
        shape: ``AIC``, ``AIV`` or ``MIX``; ``DUMMY`` and ``ALLOC`` without a kernel.
        scope: ``auto`` or ``manual``.
        depth: of the scope that it was submitted in.
        scope_number: of that scope.
        warms: of a warm the regions that it brings into L2, in order; a warm has no kernel.
        context: of a warm, which of the SDMA contexts streams it.
        deps: tasks that were declared, in order.
        early: it was submitted with ``allow_early_resolve``.
        sync_start: its blocks start together.
    """

    number: int
    name: str
    kernel: Kernel | None
    args: tuple[Arg, ...]
    control: dict[str, Spec] = field(default_factory=dict)
    control_from: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    blocks: int = 0
    shape: str = "DUMMY"
    scope: str = "auto"
    depth: int = 0
    deps: tuple[int, ...] = ()
    early: bool = False
    sync_start: bool = False
    scope_number: int = 0
    warms: tuple[Tensor, ...] = ()
    context: int = 0

    @property
    def label(self) -> str:
        """Number and name."""
        return f"t{self.number} {self.name}"

    def specs(self) -> dict[str, Spec]:
        """The spec of every tensor of the kernel."""
        assert self.kernel is not None
        given = {arg.name: arg.tensor.spec for arg in self.args} | self.control
        return self.kernel.specs(**{name: given[name] for name in self.kernel.inputs})


def adds(task: Task, arg: Arg, title: str) -> bool:
    """Whether a task adds its output ``title`` to what ``arg`` holds, instead of replacing it."""
    assert task.kernel is not None
    return arg.direction == INOUT and title not in task.kernel.in_place
