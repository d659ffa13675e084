"""The commands about programs and runs: ``graph``, ``simulate``, ``what-if``, and ``explain`` of either."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._options import Caps, CaptureFolder, Chip, Json, Out, ProgramPlace, Repeated, Sizes, show

if TYPE_CHECKING:
    from .. import artifacts, chip, rings
    from .. import program as programs


def graph(
    program: ProgramPlace = None,
    sizes: Sizes = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print the graph for Graphviz.")] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Show a program's tasks and edges, and what is wrong with them; exit 1 if an ordering is missing."""
    from .. import program as programs

    if program is None:
        raise ValueError("`PROGRAM` must be FILE.py:NAME; got none. Try docs/programs/mlp.py:mlp")
    found = _graph_of(program, sizes)
    findings = {
        "missing orderings": programs.missing_orderings(found),
        "redundant edges": programs.redundant_edges(found),
        "false serialisation": programs.false_serialisation(found),
    }
    written = []
    if out is not None:
        from ..artifacts import write_graph

        written = write_graph(out, found)
    if as_json:
        show(found.to_dict() | {"findings": [vars(f) for group in findings.values() for f in group]}, True)
    elif dot:
        print(found.dot())
    else:
        print(found)
        for title, group in findings.items():
            print(f"\n{title}: {len(group)}" + "".join(f"\n  {finding}" for finding in group))
        _tell(written)
    raise typer.Exit(1 if findings["missing orderings"] else 0)


def simulate(
    program: ProgramPlace = None,
    sizes: Sizes = None,
    capture: CaptureFolder = None,
    caps: Caps = None,
    repeated: Repeated = False,
    hardware: Chip = "a2a3",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Simulate a program, or the tasks of a run with their measured durations, on the chip.

    With PYPTO_BENCH=1 a program is also run, jitted, on the local JAX device, in PYPTO_BENCH_ROUNDS timed rounds.
    """
    from ._programs import in_users_code, program_at
    from ._rounds import asked, rounds_asked_for

    if capture is not None:
        not_with_capture(repeated)
        if asked():
            raise ValueError("`PYPTO_BENCH` times a program; got it with --capture. Unset it, or give PROGRAM")
        _of_a_program(caps)
        answer = _replay_of(capture, program, hardware)
        return _answer(answer, answer.timeline, out, as_json, step_us=answer.simulated_us)
    timeline = _timeline_of(program, sizes, hardware, repeated, caps)
    chosen = program_at(_required(program))
    rounds = in_users_code(chosen, lambda: rounds_asked_for(chosen, sizes or []))
    more = {"program": timeline.graph.name if timeline.graph else None}
    _answer(timeline, timeline, out, as_json, more | ({} if rounds is None else {"rounds": rounds.to_dict()}))
    if rounds is not None and not as_json:
        print(rounds)
    return None


def explain_program(
    place: str,
    sizes: Sequence[str] | None,
    hardware: str,
    repeated: bool,
    caps: Sequence[str] | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """What the makespan of a program is made of."""
    from .. import chip

    answer = chip.explain(_timeline_of(place, sizes, hardware, repeated, caps))
    _answer(answer, answer.timeline, out, as_json)


def explain_capture(folder: Path, out: Path | None, as_json: bool) -> None:
    """Critical path and gaps of a run, from its measured stamps alone."""
    from .. import artifacts

    answer = artifacts.report(artifacts.read_capture(folder))
    written = artifacts.write_capture(out, answer.capture) if out is not None else []
    show(answer, as_json)
    if not as_json:
        _tell(written)


def what_if(
    program: ProgramPlace = None,
    sizes: Sizes = None,
    capture: CaptureFolder = None,
    early: Annotated[list[str] | None, typer.Option("--early-dispatch", help="Flag a producer.")] = None,
    no_early: Annotated[list[str] | None, typer.Option("--no-early-dispatch", help="Take its flag away.")] = None,
    dummy: Annotated[list[str] | None, typer.Option(help="Put a dummy between a task and its producers.")] = None,
    remove_edge: Annotated[list[str] | None, typer.Option(help="PRED,SUCC: no longer wait.")] = None,
    add_edge: Annotated[list[str] | None, typer.Option(help="PRED,SUCC: wait too.")] = None,
    merge: Annotated[list[str] | None, typer.Option(help="A,B,...: make one task of several.")] = None,
    split: Annotated[list[str] | None, typer.Option(help="NAME=PARTS: make several tasks of one.")] = None,
    blocks: Annotated[list[str] | None, typer.Option(help="NAME=BLOCKS: cut the same work otherwise.")] = None,
    duration: Annotated[list[str] | None, typer.Option(help="NAME=US: of one block.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cube cores, each with two vector cores.")] = None,
    caps: Caps = None,
    constants: Annotated[list[str] | None, typer.Option("--set", help="CONSTANT=VALUE, schedule or chip.")] = None,
    repeated: Repeated = False,
    hardware: Chip = "a2a3",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Change a program or a run, and simulate again: what moves, and what it saves.

    Tasks are named by kernel (every task of that name), by number (t3), or by both. Changes are made in the order of
    the options above, --caps first.
    """
    from .. import chip

    limits = _limits_of(caps)
    edits: list[chip.AbstractEdit] = [] if limits is None else [chip.SetRings(limits)]
    edits += [chip.FlagProducer(name) for name in early or []]
    edits += [chip.FlagProducer(name, flag=False) for name in no_early or []]
    edits += [chip.AddDummy(name) for name in dummy or []]
    edits += [chip.RemoveEdge(*_pair(text, "--remove-edge")) for text in remove_edge or []]
    edits += [chip.AddEdge(*_pair(text, "--add-edge")) for text in add_edge or []]
    edits += [chip.Merge(tuple(text.split(","))) for text in merge or []]
    edits += [chip.Split(*_setting(text, "--split", int)) for text in split or []]
    edits += [chip.SetBlocks(*_setting(text, "--blocks", int)) for text in blocks or []]
    edits += [chip.SetDuration(*_setting(text, "--duration", float)) for text in duration or []]
    edits += [] if cores is None else [chip.SetCores(_cores(cores, hardware))]
    edits += [chip.SetConstant(*_setting(text, "--set", float)) for text in constants or []]
    if not edits:
        raise ValueError("`what-if` needs a change; got none. Try --early-dispatch NAME, or --help for the others")
    if capture is not None:
        _of_a_program(caps)
        not_with_capture(repeated)
        replay = _replay_of(capture, program, hardware)
        notes = [*(f"missing: {text}" for text in replay.capture.missing), *(f"assumed: {t}" for t in replay.assumed)]
        notes = [*replay.broken, *notes]
        replay.require_an_answer(edits)
        answer = chip.what_if(replay.timeline, edits, from_us=replay.from_us)
    else:
        notes, answer = [], chip.what_if(_timeline_of(program, sizes, hardware, repeated), edits)
    if out is not None:
        notes.append("no pmu.csv: counters are predicted for a program's own tasks, not for changed ones")
    _answer(answer, answer.after, out, as_json, {"notes": notes}, notes, step_us=answer.after_us)


def _required(place: str | None) -> str:
    if place is None:
        raise ValueError("`PROGRAM` must be FILE.py:NAME, or --capture a folder of a run; got neither")
    return place


def _graph_of(place: str | None, sizes: Sequence[str] | None, hardware: Any = None) -> "programs.Graph":
    from ._programs import graph_at

    return graph_at(_required(place), sizes or [], hardware)


def _limits_of(caps: Sequence[str] | None) -> "rings.Limits | None":
    from ..rings import parse_limits

    return parse_limits(part for text in caps for part in text.split()) if caps else None


def _of_a_program(caps: Sequence[str] | None) -> None:
    if caps:
        raise ValueError(f"`--caps` belongs to a program; got {caps[0]!r} with --capture, whose waits are measured")


def not_with_capture(repeated: bool) -> None:
    """A recorded run has its own durations, whatever L2 held."""
    if repeated:
        raise ValueError("`--repeated` belongs to a program; got it with --capture, whose durations are measured")


def _timeline_of(
    place: str | None,
    sizes: Sequence[str] | None,
    hardware: str,
    repeated: bool = False,
    caps: Sequence[str] | None = None,
) -> "chip.Timeline":
    from .. import chip
    from ..hardware import preset

    machine = preset(hardware)
    graph, limits = _graph_of(place, sizes, machine), _limits_of(caps)
    return chip.simulate(graph, hardware=machine, repeated=repeated, rings=limits)


def _replay_of(folder: Path, program: str | None, hardware: str) -> "artifacts.Replay":
    from .. import artifacts
    from ..hardware import preset

    if program is not None:
        raise ValueError(f"`PROGRAM` and --capture exclude each other; got {program!r} too. Leave one out")
    return artifacts.replay(artifacts.read_capture(folder), hardware=preset(hardware))


def _answer(
    answer: Any,
    timeline: "chip.Timeline",
    out: Path | None,
    as_json: bool,
    more: dict[str, Any] | None = None,
    notes: Sequence[str] = (),
    step_us: float | None = None,
) -> None:
    """Show an answer, with the predicted time on a line of its own, and write the timeline's files.

    The predicted time is the timeline's from the first submission on, or ``step_us``.
    """
    written = []
    if out is not None:
        from ..artifacts import write_simulation

        written = write_simulation(out, timeline)
    if as_json:
        return show(answer.to_dict() | (more or {}), True)
    print(answer)
    for note in notes:
        print(note)
    print(f"\n[MODEL] step_us={timeline.makespan_us if step_us is None else step_us:.3f}")
    return _tell(written)


def _tell(written: Sequence[Path]) -> None:
    if written:
        print("written: " + ", ".join(map(str, written)))


def _cores(count: int, hardware: str) -> int:
    """A number of cube cores that the chip has."""
    from ..hardware import preset

    there = int(preset(hardware).counts.aic)
    if not 1 <= count <= there:
        raise ValueError(f"`--cores` must be 1 to {there}, the cube cores of {hardware}; got {count}")
    return count


def _pair(text: str, option: str) -> tuple[str, str]:
    pred, comma, succ = text.partition(",")
    if not (comma and pred and succ):
        raise ValueError(f"`{option}` must be PRED,SUCC; got {text!r}")
    return pred, succ


def _setting(text: str, option: str, kind: Callable[[str], Any]) -> tuple[str, Any]:
    name, equals, value = text.rpartition("=")
    try:
        if equals and name:
            return name, kind(value)
    except ValueError:
        pass
    number = "an integer" if kind is int else "a number"
    raise ValueError(f"`{option}` must be NAME=VALUE with {number}; got {text!r}")
