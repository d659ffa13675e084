"""``check``: a kernel, a program or a device's dump beside its golden."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from ..cost._verify import verify
from ..hardware import Hardware, preset
from ..precision import (
    Examination,
    attribute,
    attribute_program,
    examine,
    examine_program,
    gates_named,
    identity_of,
    intermediates,
    load,
    walk,
    walk_float64,
)
from ..precision._examine import drawn_or_kept
from ..precision._inputs import drawable
from ..precision._snapshot import require_empty
from ..program import Graph
from ._options import Problem, show
from ._programs import graph_at, in_users_code, program_at


@dataclass(frozen=True)
class Asked:
    """The options that kernels and programs share."""

    hardware: str
    seed: int
    gate: Sequence[str]
    distribution: str
    save: Path | None
    replay: Path | None
    attribute: bool
    walk: bool
    as_json: bool

    @property
    def examination(self) -> dict[str, Any]:
        """The keywords of :func:`examine` and :func:`examine_program`."""
        chosen = {"distribution": self.distribution, "save_to": self.save, "replay": self.replay}
        return chosen | {"gate": gates_named(self.gate), "seed": self.seed}

    def refuse(self) -> None:
        """Raise for an option that no configuration could be examined with, as an examination would."""
        gates_named(self.gate)
        drawable(self.distribution, self.seed)
        drawn_or_kept(self.replay, self.distribution, self.seed)
        if self.replay is not None:
            load(self.replay)
        if self.save is not None:
            require_empty(self.save)


def check_kernel(problem: Problem, asked: Asked) -> None:
    """One configuration of a kernel."""
    kernel, specs, values = problem
    chip = preset(asked.hardware)
    _answer(
        [verify(*problem, chip)],
        lambda: examine(kernel, specs, values, chip, **asked.examination),
        lambda found: attribute(kernel, *found.inputs, hardware=chip, **found.values),
        lambda found: intermediates(kernel, *found.inputs, hardware=chip, **found.values),
        asked,
    )


def check_program(place: str, sizes: Sequence[str], asked: Asked) -> None:
    """A program: every kernel of it is verified, and what it returns is compared."""
    chip, program = preset(asked.hardware), program_at(place)
    recorded = graph_at(place, sizes, chip)
    _answer(
        _verified(recorded, chip),
        lambda: in_users_code(program, lambda: examine_program(program, recorded.arguments, chip, **asked.examination)),
        lambda found: attribute_program(program, *found.inputs, hardware=chip),
        lambda found: walk_float64(program, *found.inputs, gate=gates_named(asked.gate), hardware=chip),
        asked,
    )


def check_capture(place: str, sizes: Sequence[str], folder: Path, asked: Asked) -> None:
    """What a device dumped of a program, task by task, beside the emulated golden."""
    from ..artifacts import arguments_of, dumped_stages, read_args_dump

    if asked.attribute or asked.save is not None or asked.distribution != "normal" or asked.seed:
        raise ValueError(
            "`--attribute`, --save, --distribution and --seed need no dump; got one with --capture. Leave it out"
        )
    chip, program = preset(asked.hardware), program_at(place)
    recorded, dump = graph_at(place, sizes, chip), read_args_dump(folder)
    kept = load(asked.replay, identity_of(recorded, hardware=chip)).inputs if asked.replay is not None else {}
    arrays = arguments_of(dump, recorded, kept)
    found = walk(program, *arrays, candidate=dumped_stages(dump, recorded), gate=gates_named(asked.gate), hardware=chip)
    if asked.as_json:
        show({"passed": found.passed, "walk": found.to_dict()}, True)
    else:
        print("passed" if found.passed else "FAILED")
        print(found)
    if not found.passed:
        raise typer.Exit(1)


def _verified(recorded: Graph, chip: Hardware) -> list[Any]:
    """What was verified of each distinct task."""
    problems = {}
    for task in recorded.tasks:
        if task.kernel is not None:
            specs = task.specs()
            problems.setdefault((task.kernel, tuple(specs.items()), tuple(task.values.items())), (specs, task.values))
    return [verify(key[0], specs, values, chip) for key, (specs, values) in problems.items()]


def _answer(
    verified: Sequence[Any],
    run: Callable[[], Examination],
    blame: Callable[[Examination], Any],
    walk_of: Callable[[Examination], Any],
    asked: Asked,
) -> None:
    """Examine what fits the chip, and show everything; exit with 1 where something failed."""
    fits = all(v.passed for v in verified)
    if not fits:
        asked.refuse()
    found = run() if fits else None
    passed = found is not None and found.passed
    more = {}
    if found is not None:
        more |= {"attribution": blame(found)} if asked.attribute else {}
        more |= {"walk": walk_of(found)} if asked.walk else {}
    if asked.as_json:
        said = [v.to_dict() for v in verified]
        content = {"passed": passed, "verification": said[0] if len(said) == 1 else said}
        content |= {"precision": found.to_dict() if found else None}
        show(content | {name: part.to_dict() for name, part in more.items()}, True)
    else:
        print("passed" if passed else "FAILED")
        for v in verified if len(verified) == 1 else [v for v in verified if not v.passed]:
            print(v)
        print(found or "float64 check skipped: the configuration does not fit the chip")
        for part in more.values():
            print(part)
    if not passed:
        raise typer.Exit(1)
