"""A kernel recorded for one configuration, with traffic and costs filled in."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._errors import KernelError
from .._scalar import Scalar, cdiv, minimum, where
from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._record import Instruction, Loop, Recorder, tensors_with_shapes
from ..lang._types import Spec
from ..lang.rules import CUBE_PIPES, VECTOR_PIPES, RuleContext
from ._traffic import Transfer, transfers

Rule = Callable[[RuleContext, Instruction], list]


@dataclass(frozen=True)
class Options:
    """What is fixed when a cost reading is traced.

    Attributes:
        warm: iterations simulated in each loop before its period is taken (2 fast, 4 accurate).
        sync: ``"manual"`` for hand-placed flags, ``"auto"`` for automatic barriers: each instruction that depends
            on another pipe then pays one barrier.
        relaxed: exact values with a straight-through slope for roundings (:func:`pyptox._scalar.relaxed`).
        rules: ``(operation name, rule)`` pairs that replace built-in cost rules.
        cores: cores to use; None for all of the chip.
        choices: values of the parameters that are fixed at trace time, as ``(name, value)`` pairs.
        dirty: share of L2 that holds modified lines of an earlier kernel at the start, 0 to 1: each must be written
            back to make room. 1 after a benchmark has flushed L2 by writing.
        resident: tensors of which an earlier kernel left a share in L2, as ``(name, share)`` pairs.
        lanes: room for so many cores where blocks that differ are handed out under a trace.
        full: the last wave is as full as the others, by blocks of other kernels: it has no more of the bandwidth.
    """

    warm: int = 2
    sync: str = "manual"
    relaxed: bool = False
    rules: tuple[tuple[str, Rule], ...] = ()
    cores: int | None = None
    choices: tuple[tuple[str, Any], ...] = ()
    dirty: float = 0.0
    resident: tuple[tuple[str, float], ...] = ()
    lanes: int = 64
    full: bool = False

    def __post_init__(self) -> None:
        if self.sync not in ("manual", "auto"):
            raise ValueError(f"`sync` must be 'manual' or 'auto'; got {self.sync!r}")
        if self.warm < 2:
            raise ValueError(f"`warm` must be at least 2, to see a period; got {self.warm}")


ACCURATE = Options(warm=4)
"""For single configurations."""


def options_for(kernel: Kernel, options: Options, values: Mapping[str, Any]) -> Options:
    """``options`` with the fixed choices of a configuration."""
    chosen = tuple((name, values[name]) for name in kernel.choices if name in values)
    return dataclasses.replace(options, choices=chosen) if chosen else options


@dataclass
class Nest:
    """A recorded kernel with its costs filled in, for everything that looks inside a prediction."""

    recorder: Recorder
    kind: str
    active: Scalar
    traffic: dict[int, Transfer]

    @property
    def walk(self) -> Loop:
        assert self.recorder.walk is not None
        return self.recorder.walk


def instructions(nodes: list):
    """Every instruction of a nest, in text order, first and last reading of each loop."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from instructions(node.first)
            if node.last is not node.first:
                yield from instructions(node.last)
        else:
            yield node


@functools.lru_cache(maxsize=512)
def resource_kind(kernel: Kernel, tensors: tuple[tuple[str, str, bool, int], ...], choices: tuple) -> str:
    """``AIC``, ``AIV`` or ``MIX``: which cores a kernel's pipes belong to. Found by reading it on small shapes."""
    chip = a2a3()
    specs = {name: Spec((64,) * rank, dtype, (1,) * 64 if control else None) for name, dtype, control, rank in tensors}
    values = kernel.configuration(dict(choices))
    recorder = Recorder.of_integers(kernel, specs, values, chip)
    context = RuleContext(chip.times, chip.sizes, chip.clock_mhz, 1, 1, 0.0)
    assert recorder.walk is not None
    pipes = {p for node in instructions([recorder.walk]) for p, _ in node.operation.cost(context, node)}
    cube, vector = bool(pipes & CUBE_PIPES), bool(pipes & VECTOR_PIPES)
    return "MIX" if cube and vector else "AIV" if vector else "AIC"


def kind_of(kernel: Kernel, specs: Mapping[str, Spec], options: Options) -> str:
    """The core kind of a kernel on tensors of these types."""
    described = tuple((n, s.dtype, s.values is not None, len(s.shape)) for n, s in specs.items())
    return resource_kind(kernel, described, options.choices)


def record(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    shapes: Mapping[str, tuple],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options,
    data: Mapping[tuple[str, str], Scalar] | None = None,
    position: Scalar = 0,
    longest: Mapping[int, Transfer] | None = None,
) -> Nest:
    """Read the kernel and fill in traffic and costs.

    ``specs`` gives element types and ranks; sizes come from ``shapes``, which may be traced. Of an uneven grid the
    block at ``position`` is read; ``longest`` is the traffic at its first one.
    """
    kind = kind_of(kernel, specs, options)
    cores = hardware.cores(kind) if options.cores is None else options.cores
    recorder = Recorder(hardware.sizes, cores, data, position)
    kernel.read(recorder, tensors_with_shapes(kernel, specs, shapes), values)
    if recorder.walk is None:
        raise KernelError(f"kernel `{kernel.name}` must call pl.grid")
    active = minimum(recorder.blocks, cores)
    traffic = transfers(recorder, hardware.sizes, active, longest, dict(options.resident))
    # fewer cores run in the last wave
    rest = active if options.full else recorder.blocks - (cdiv(recorder.blocks, cores) - 1) * cores
    rules = dict(options.rules)
    split = recorder.vector_split = 2 if kind == "MIX" else 1
    slices = recorder.vector_slices
    contexts: dict[tuple[int, bool], RuleContext] = {}
    producers: dict[int, str] = {}
    read = [(node, False) for node in instructions(recorder.walk.first)]
    if recorder.walk.last is not recorder.walk.first:
        read += [(node, True) for node in instructions(recorder.walk.last)]
    for node, last in read:
        miss, first = (traffic[node.key].miss, traffic[node.key].first) if node.key in traffic else (0.0, 0.0)
        together = rest if last else active
        context = contexts.setdefault(
            (node.key, last),
            RuleContext(hardware.times, hardware.sizes, hardware.clock_mhz, together, split, miss, first, slices),
        )
        rule: Rule = rules.get(node.operation.name) or node.operation.cost
        node.costs = list(rule(context, node))
        if options.sync == "auto" and node.costs:
            pipe = node.costs[0][0]
            crosses = any(producers.get(b.number, pipe) != pipe for b in node.reads) or not node.reads
            if crosses:
                node.stall = _barrier(node, hardware)
        if node.writes is not None and node.costs:
            producers[node.writes.number] = node.costs[-1][0]
    return Nest(recorder, kind, active, traffic)


def _barrier(node: Instruction, hardware: Hardware) -> Scalar:
    """What an automatic barrier costs an instruction.

    It keeps a pipe from running ahead. Where a tile has one slot the pipes take turns anyway, and it costs nothing:
    so the single-buffered rows of the published sweep say.
    """
    buffer = node.writes if node.fresh else node.reads[0]
    stages = 1 if buffer is None or buffer.loop is None else buffer.loop.stages
    return where(stages > 1, hardware.times.barrier, 0.0)
