"""Commands. Bad input is a message and exit code 2, never a traceback; ``check`` that fails exits with 1."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from .._errors import PyptoxError
from ._options import (
    Caps,
    CaptureFolder,
    Chip,
    Dtype,
    Groups,
    Inputs,
    Json,
    K,
    KernelName,
    KernelOptions,
    KernelOrProgram,
    M,
    N,
    Out,
    Problem,
    Repeated,
    Seed,
    Sizes,
    Sync,
    about_a_kernel,
    is_a_place,
    perhaps_about_a_kernel,
    show,
)
from ._simulations import explain_capture, explain_program, graph, not_with_capture, simulate, what_if

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"pyptox {__version__}")
        raise typer.Exit


@app.callback()
def pyptox(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Predict, explain, check and tune tiled kernels on accelerators."""


@app.command()
def tune(
    kernel: KernelName,
    m: M = 0,
    n: N = 0,
    k: K = 0,
    dtype: Dtype = "bf16",
    inputs: Inputs = None,
    method: Annotated[str, typer.Option(help="auto, exhaustive, gradient, funnel, local or random.")] = "auto",
    seed: Seed = 0,
    hardware: Chip = "a2a3",
    sync: Sync = "manual",
    groups: Groups = 8,
    as_json: Json = False,
    save: Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Compare the answer with float64.")] = True,
    evaluations: Annotated[int | None, typer.Option(help="Budget of a method that is not exhaustive.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Hold a parameter, name=value.")] = None,
    search: Annotated[list[str] | None, typer.Option(help="A choice to search too, such as preload.")] = None,
    gate: Annotated[
        list[str] | None, typer.Option(help="What every finalist must pass, ulp:max=1 say; repeat for several.")
    ] = None,
    distribution: Annotated[str, typer.Option(help="Of the gate's inputs, as in check.")] = "normal",
    store: Annotated[Path | None, typer.Option(help="Keep finished trials in this file; a rerun resumes.")] = None,
    batch: Annotated[int, typer.Option(help="Requests, of qwen3-14b.")] = 16,
    context: Annotated[int, typer.Option(help="Keys of each request, of qwen3-14b.")] = 3338,
    variant: Annotated[str, typer.Option(help="Start of qwen3-14b; its fastest published step by default.")] = "",
) -> None:
    """Find the fastest tile sizes; of qwen3-14b, those of all kernels of a decode layer together."""
    from ._decode import MODEL, tune_layer

    if kernel == MODEL:
        given = m, n, k, inputs, settings, search, gate, store
        if any(given) or method != "auto":
            raise ValueError(f"`tune {MODEL}` takes no shape, method, --set, --search, --gate or --store; leave it out")
        return tune_layer(dtype, batch, context, variant, hardware, seed, evaluations, save, check, as_json)

    import autotune

    from ..hardware import preset
    from ..precision import gates_named
    from ._arguments import given_values, kernel_named, searched_choices, specs_of
    from ._progress import progress_bar, stopped_between_batches

    chosen = kernel_named(kernel)
    specs = specs_of(chosen, m, k, n, dtype, groups, inputs or [])
    held = given_values(chosen, "", None, settings or [])
    chip, space = preset(hardware), None
    if search:
        choices = {name: autotune.Choice(*options) for name, options in searched_choices(chosen, search).items()}
        space = autotune.Space(**autotune.default_space(chosen, specs, chip, held).parameters, **choices)
    shown = not as_json and sys.stderr.isatty()
    with progress_bar(shown=shown) as bar, stopped_between_batches(bar) as progress:
        result = autotune.tune(
            chosen,
            *(specs[name] for name in chosen.inputs),
            hardware=chip,
            space=space,
            values=held,
            method=method,
            seed=seed,
            evaluations=evaluations,
            check=check,
            gate=gates_named(gate) if gate else None,
            distribution=distribution,
            sync=sync,
            progress=progress,
            store=store,
        )
    if save is not None:
        result.save(save)
    return show(result, as_json)


@app.command()
@perhaps_about_a_kernel
def explain(
    options: KernelOptions,
    what: KernelOrProgram = None,
    sizes: Sizes = None,
    sync: Sync = "manual",
    hardware: Chip = "a2a3",
    capture: CaptureFolder = None,
    caps: Caps = None,
    repeated: Repeated = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Say what one configuration of a kernel, a program or a recorded run costs, and why.

    A recorded run is explained from its measured stamps alone, as by capture; simulate and what-if --capture simulate
    it. Exit 1 when its files break a rule.
    """
    if (what is None) == (capture is None):
        raise ValueError("`explain` needs a kernel, a program (FILE.py:NAME) or --capture DIR, one of them")
    if what is None or is_a_place(what):
        kind = "a recorded run" if what is None else f"the program {what}, whose sizes are NAME=VALUE"
        options.refuse(kind, {"--sync": sync != "manual"})
    if caps and (what is None or not is_a_place(what)):
        raise ValueError(f"`--caps` belongs to a program; got {caps[0]!r} without one. Leave it out")
    if capture is not None:
        if sizes:
            raise ValueError(f"`SIZE=VALUE` belongs to a program; got {sizes[0]!r} with --capture. Leave it out")
        not_with_capture(repeated, hardware)
        return explain_capture(capture, out, as_json)
    assert what is not None
    if is_a_place(what):
        return explain_program(what, sizes, hardware, repeated, caps, out, as_json)
    from ..cost import Options
    from ..cost._explain import explain as explain_cost
    from ..hardware import preset

    if sizes or out is not None or repeated:
        raise ValueError(
            f"`SIZE=VALUE`, --repeated and --out belong to a program; {what!r} is a kernel, which takes --m, --k, --n"
        )
    return show(explain_cost(*options.problem(what), preset(hardware), Options(warm=4, sync=sync)), as_json)


@app.command()
@perhaps_about_a_kernel
def check(
    options: KernelOptions,
    what: KernelOrProgram = None,
    sizes: Sizes = None,
    seed: Seed = 0,
    hardware: Chip = "a2a3",
    gate: Annotated[
        list[str] | None, typer.Option(help="What must hold, allclose:rtol=1e-2 or ulp:max=1; repeat for several.")
    ] = None,
    distribution: Annotated[
        str, typer.Option(help="Of the inputs: normal, outliers, ties, ..., or FILE.safetensors:NAME.")
    ] = "normal",
    save: Annotated[Path | None, typer.Option(help="Keep inputs and float64 outputs in this new folder.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Take inputs and float64 outputs from this folder.")] = None,
    attribute: Annotated[bool, typer.Option("--attribute", help="Say which lines the error comes from.")] = False,
    walk: Annotated[
        bool,
        typer.Option("--walk", help="Name the first task, or named tile, that is bad though its inputs are good."),
    ] = False,
    capture: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Hold a program's args_dump of a device against the emulated golden instead."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a kernel's configuration or a program and compare its values with float64; exit 1 if either fails."""
    from ._check import Asked, check_capture, check_kernel, check_program

    if what is None:
        raise ValueError("`check` needs a kernel or a program (FILE.py:NAME); got none. Try softmax --m 16 --n 64")
    asked = Asked(hardware, seed, gate or [], distribution, save, replay, attribute, walk, as_json)
    if not is_a_place(what):
        if sizes or capture is not None:
            raise ValueError(
                f"`SIZE=VALUE` and --capture belong to a program; {what!r} is a kernel, which takes --m, --k, --n"
            )
        return check_kernel(options.problem(what), asked)
    options.refuse(f"the program {what}, whose sizes are NAME=VALUE")
    return (
        check_program(what, sizes or [], asked) if capture is None else check_capture(what, sizes or [], capture, asked)
    )


def _reads_as(name: str, value: float) -> str:
    if name.endswith("_us") and name != "launch_us":
        return f"{1e-3 / value:,.0f} GB/s" if value else "0"
    if name.endswith("_byte"):
        return f"{1 / value:,.1f} B/cycle" if value else "0"
    units = {"launch_us": "µs", "clock_mhz": "MHz", "aic": "cores", "aiv": "cores"}
    units |= dict.fromkeys(("mat", "left", "right", "acc", "vec", "l2"), "KiB")
    units |= dict.fromkeys(("line", "fractal_bytes", "page", "min_row", "repeat"), "bytes")
    units |= {"fractal_rows": "elements", "fp32_passes": "passes", "cross_slots": "slots"}
    units |= {"l2_usable": "of L2", "l2_ramp": "of usable L2", "load_stride": "cycles a byte"}
    unit = units.get(name, "cycles")
    return f"{value / 1024 if unit == 'KiB' else value:,g} {unit}"


@app.command()
@about_a_kernel
def trace(
    problem: Problem,
    sync: Sync = "manual",
    hardware: Chip = "a2a3",
    out: Annotated[Path, typer.Option(help="Folder for the trace, metrics and summary.")] = Path("build_output/trace"),
    compare: Annotated[Path | None, typer.Option(help="A trace of msprof or Perf-Sim to show beside.")] = None,
    what_if: Annotated[bool, typer.Option("--what-if/--no-what-if", help="Simulate the neighbours too.")] = True,
    as_json: Json = False,
) -> None:
    """Simulate one core instruction by instruction; write a Chrome trace. Exit 1 if the workload is degenerate."""
    from .. import trace as tracing
    from ..cost import Options
    from ..hardware import preset

    chip, options = preset(hardware), Options(warm=4, sync=sync)
    measured = tracing.read_lanes(compare) if compare is not None else {}
    result = tracing.trace(*problem, chip, options)
    changes = tracing.what_if(*problem, chip, options) if what_if and result.complete else []
    files = tracing.write(result, out)
    if as_json:
        content = result.to_dict() | {"files": {name: str(path) for name, path in files.items()}, "measured": measured}
        show(content | {"what_if": [vars(change) for change in changes]}, True)
    else:
        print(result)
        if measured:
            print("\n" + tracing.side_by_side(result, measured))
        if changes:
            print("\n" + "\n".join(["what if:", *(f"  {change}" for change in changes[:8])]))
        print("\nwritten: " + ", ".join(map(str, files.values())))
    raise typer.Exit(1 if result.degenerate else 0)


@app.command()
def hardware(
    name: Annotated[str | None, typer.Argument(help="A chip; all presets where left out.")] = None,
    as_json: Json = False,
) -> None:
    """Show the numbers of a chip and where each is from."""
    from rich.console import Console
    from rich.table import Table

    from ..hardware import PRESETS, preset

    if name is None:
        chips = {short: preset(short) for short in PRESETS}
        rows = {
            short: {"aic": c.counts.aic, "clock_mhz": c.clock_mhz, "fp16_tflops": c.peak_tflops("fp16")}
            for short, c in chips.items()
        }
        if as_json:
            return show(rows, True)
        for short, row in rows.items():
            cores, clock = row["aic"], row["clock_mhz"]
            print(f"{short:<6} {cores} cores, {clock:g} MHz, {row['fp16_tflops']:.0f} Tflop/s fp16")
        return None
    chip = preset(name)
    numbers = {key: float(value) for key, value in chip.flat().items()}
    if as_json:
        return show({"name": chip.name, "basis": chip.basis, "numbers": numbers, "sources": dict(chip.sources)}, True)
    table = Table("number", "value", "source", title=f"{chip.name}: {chip.basis}", title_justify="left")
    for key, value in numbers.items():
        table.add_row(key, _reads_as(key, value), chip.sources.get(key, ""))
    Console().print(table)
    return None


@app.command()
def validate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of measured rows.")],
    save: Annotated[
        Path | None, typer.Option("--json", help="Write one object for each row to this file, as a list; - prints it.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="A file of the folder, scheduling; repeat for several.")
    ] = None,
    hardware: Chip = "a2a3",
) -> None:
    """Compare predictions with measured rows."""
    from .. import validation
    from ..hardware import preset

    report = validation.validate(directory, preset(hardware), only or ())
    if save is not None and str(save) == "-":
        print(report.document())
        return
    if save is not None:
        report.save(save)
    print(report)


@app.command()
def phases(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Stamps, .npy or .csv; core slots x 8 words.")],
    active: Annotated[str, typer.Option(help="Cores that run: all, none, aic, aiv, 0-3,8 or 0xff.")] = "",
    producers: Annotated[str, typer.Option(help="Cores that produce; the active ones by default.")] = "",
    arrivals: Annotated[str, typer.Option(help="Cores that arrive at the collective.")] = "",
    releases: Annotated[str, typer.Option(help="Cores that it releases.")] = "",
    bodies: Annotated[str, typer.Option(help="Cores that run the body after it.")] = "",
    task: Annotated[list[str] | None, typer.Option(help="The task's own START,END; once a round.")] = None,
    generation: Annotated[int | None, typer.Option(help="What fresh rows carry; the newest by default.")] = None,
    words: Annotated[str, typer.Option(help="Names of the 8 words, entry,produced,arrival,release,done,...")] = "",
    aic: Annotated[int | None, typer.Option(help="Cube cores: slots are numbered as in a mixed kernel.")] = None,
    aiv_per_aic: Annotated[int, typer.Option(help="Vector cores of each cube core.")] = 2,
    uninstrumented: Annotated[int | None, typer.Option(help="Cycles of the kernel without probes.")] = None,
    split: Annotated[list[Path] | None, typer.Option(help="Stamps of one task of the split variant; repeat.")] = None,
    as_json: Json = False,
) -> None:
    """Take a multi-core kernel apart by its cores' timestamps; exit 1 when they cannot be trusted."""
    from ..phases import Slots, report

    masks = {"active": active, "producers": producers, "arrivals": arrivals, "releases": releases, "bodies": bodies}
    result = report(
        files,
        masks=masks,
        tasks=task or [],
        generation=generation,
        words=words,
        uninstrumented=uninstrumented,
        slots=None if aic is None else Slots(aic, aiv_per_aic),
        split=split or [],
    )
    show(result, as_json)
    if not result.passed:
        raise typer.Exit(1)


@app.command()
@about_a_kernel
def pmu(
    problem: Problem,
    sync: Sync = "manual",
    hardware: Chip = "a2a3",
    event: Annotated[int | None, typer.Option(help="Event type; that of --compare, or 2 (busy cycles).")] = None,
    func: Annotated[int | None, typer.Option(help="The kernel's func_id; needed where a capture has several.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the prediction to this pmu.csv.")] = None,
    compare: Annotated[Path | None, typer.Option(help="A measured pmu.csv to set beside it.")] = None,
    as_json: Json = False,
) -> None:
    """Predict the hardware counters of one configuration, and set measured ones beside them."""
    from ..cost import Options
    from ..hardware import preset
    from ..pmu import survey

    options = Options(warm=4, sync=sync)
    result = survey(*problem, preset(hardware), options, event_type=event, func_id=func, capture=compare)
    if out is not None:
        result.save(out)
    show(result, as_json)


@app.command()
def capture(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run, such as dfx_outputs.")],
    strict: Annotated[bool, typer.Option("--strict", help="What the strictest reader refuses is an error.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write merged_swimlane.json into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Check the files of a run and say where its time went; exit 1 when they break a rule."""
    from ..artifacts import read_capture, report, write_swimlane

    result = report(read_capture(directory), strict=strict)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_swimlane(out / "merged_swimlane.json", replace(result.capture, records=result.records))
    show(result, as_json)
    if out is not None and not as_json:
        print(f"written: {out / 'merged_swimlane.json'}")
    if not result.passed:
        raise typer.Exit(1)


for command in (graph, simulate, what_if):
    app.command()(command)


@app.command()
def rings(
    program: Annotated[
        str | None, typer.Argument(metavar="[PROGRAM]", help="FILE.py:NAME of a function marked @program.")
    ] = None,
    sizes: Annotated[list[str] | None, typer.Argument(metavar="[SIZE=VALUE]...", help="Sizes of the program.")] = None,
    caps: Caps = None,
    solve: Annotated[
        bool, typer.Option("--solve", help="Find the smallest capacities and the scopes for them.")
    ] = False,
    memory: Annotated[str | None, typer.Option(help="With --solve: memory for the four heaps, 20GiB.")] = None,
    added_time: Annotated[
        float | None, typer.Option(help="With --solve: share of the time that rings may add; 0.05.")
    ] = None,
    capture: Annotated[
        Path | None, typer.Option(help="A scope_stats.jsonl, or the folder of a run, in place of a program.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the scope statistics to this scope_stats.jsonl.")] = None,
    chart: Annotated[bool, typer.Option("--chart", help="Show how full each heap is over time.")] = False,
    hardware: Chip = "a2a3",
    as_json: Json = False,
) -> None:
    """Say how full a program's rings get, whether it passes, and what is the least that does; exit 1 if it does not."""
    from ..hardware import preset
    from ._rings import ring_stats, rings_of

    if capture is not None:
        given = {"PROGRAM": program, "--caps": caps, "--solve": solve or None, "--memory": memory}
        given |= {"--added-time": added_time, "--hardware": None if hardware == "a2a3" else hardware}
        result, passed = ring_stats(capture, [name for name, value in given.items() if value is not None])
    else:
        result, passed = rings_of(program, sizes or [], caps or [], preset(hardware), solve, memory, added_time)
    if out is not None:
        from ..artifacts import write_scope_stats

        write_scope_stats(out, result.stats)
    if as_json:
        show(result.to_dict(), True)
    else:
        print(result)
        if chart:
            print(f"\n{result.chart()}")
    if not passed:
        raise typer.Exit(1)


@app.command()
def prefetch(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="FILE.py:NAME, or decode_step: a coarse DeepSeek V4.")
    ],
    sizes: Annotated[list[str] | None, typer.Argument(metavar="[SIZE=VALUE]...", help="Sizes of the program.")] = None,
    choice: Annotated[
        list[str] | None,
        typer.Option(
            help="Price this one: WEIGHTS@ANCHOR, wo_a,wo_b@q_b; /2 over two contexts, + before another warm."
        ),
    ] = None,
    budget: Annotated[int, typer.Option(help="Choices that the search prices at most.")] = 200,
    repeated: Repeated = False,
    hardware: Chip = "a2a3",
    as_json: Json = False,
) -> None:
    """Say which weights to warm in L2, behind which task and in which order, or price a given choice."""
    import autotune

    from ..hardware import preset
    from ._programs import in_users_code, program_at, sizes_of

    chip = preset(hardware)
    if program == "decode_step":
        from ..validation._decode_layers import decode_step

        if sizes:
            raise ValueError(f"`decode_step` has no sizes; got {' '.join(sizes)}")
        result = autotune.prefetch(
            decode_step(chip).work, choices=choice, budget=budget, repeated=repeated, hardware=chip
        )
    else:
        chosen, given = program_at(program), sizes_of(sizes or [])
        options: dict[str, Any] = {"choices": choice, "budget": budget, "repeated": repeated, "hardware": chip}
        result = in_users_code(chosen, lambda: autotune.prefetch(chosen, **options, **given))
    if as_json:
        show(result.to_dict(), True)
    else:
        print(result)


@app.command()
def bench(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="qwen3-14b.")],
    batch: Annotated[int, typer.Option(help="Requests.")] = 16,
    context: Annotated[int, typer.Option(help="Keys of each request, the new one included.")] = 3338,
    layers: Annotated[int, typer.Option(help="Layers of the model.")] = 0,
    variant: Annotated[str, typer.Option(help="A step of the ladder.")] = "device-sampling",
    config: Annotated[Path | None, typer.Option(help="A JSON file of a variant, instead of --variant.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of another model of the family: its shape and, timed, its weights.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="bf16 or a8w8.")] = "bf16",
    ladder: Annotated[bool, typer.Option("--ladder", help="Every step of the ladder, as a case study.")] = False,
    decode_steps: Annotated[int, typer.Option(help="Autoregressive steps, one more key at each.")] = 1,
    out: Out = None,
    hardware: Chip = "a2a3",
    as_json: Json = False,
) -> None:
    """Predict a decode step; with PYPTO_BENCH=1 also time it on this machine.

    PYPTO_BENCH_ROUNDS (100) rounds are timed after PYPTO_BENCH_WARMUP (5) others; PYPTO_BENCH_RAW=1 prints every
    sample.
    """
    from ._decode import Asked, bench_growing, bench_ladder, bench_step

    asked = Asked.of(model, variant, config, layers, dtype, batch, context, hardware, checkpoint)
    if sum((ladder, decode_steps != 1, out is not None)) > 1:
        raise ValueError("`--ladder`, `--decode-steps` and `--out` exclude each other; got more than one")
    if ladder:
        if variant != "device-sampling" or config is not None:
            raise ValueError("`--ladder` is of every variant; got --variant or --config too. Leave it out")
        return bench_ladder(asked, as_json)
    if decode_steps != 1:
        return bench_growing(asked, decode_steps, as_json)
    return bench_step(asked, out, as_json)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``pyptox``."""
    try:
        code = app(args=arguments, prog_name="pyptox", standalone_mode=False)
    except _UsageError as error:
        sys.exit(_refused(error))
    except typer.Abort:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except (PyptoxError, ValueError, OSError, ModuleNotFoundError) as error:
        given = sys.argv[1:] if arguments is None else arguments
        print(f"error: {_option_of(error, given)}{error}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, PyptoxError) else 2)
    sys.exit(code or 0)


_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""What typer raises for a command line that it cannot read."""


def _refused(error: Any) -> int:
    """Say in one line what is wrong with a command line, or show the help where there is nothing else to say."""
    message, context = error.format_message().strip(), error.ctx
    if "\n" in message or not message:  # no command: the message is the help itself
        print(message, file=sys.stderr)
    else:
        advice = f"Try {context.command_path} --help" if context is not None else ""
        print(f"error: {message}{' ' if message[-1] in '.?!' else '. '}{advice}".strip(), file=sys.stderr)
    return error.exit_code


def _option_of(error: Exception, arguments: Sequence[str]) -> str:
    """``--out: `` where the file that an error is about was given with ``--out``, nothing where none was."""
    if not isinstance(error, OSError):
        return ""
    about = {str(path) for path in (error.filename, error.filename2) if path}
    for option, value in itertools.pairwise([part for text in arguments for part in text.split("=", 1)]):
        near = {value, str(Path(value).parent), *map(str, Path(value).parents)}
        mine = about & near or any(Path(path).is_relative_to(value) for path in about)
        if option.startswith("--") and value and (mine or any(repr(path) in str(error) for path in near - {".", "/"})):
            return f"`{option} {value}`: "
    return ""
