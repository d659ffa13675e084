"""Options that commands share, and how those about one kernel become its problem."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

KernelName = Annotated[str, typer.Argument(metavar="KERNEL", help="Such as matmul, flash_attention, rms_norm.")]
KernelOrProgram = Annotated[
    str | None, typer.Argument(metavar="[KERNEL|PROGRAM]", help="Such as matmul, or FILE.py:NAME of an @program.")
]
M = Annotated[int, typer.Option("--m", help="Rows of the output.")]
K = Annotated[int, typer.Option("--k", help="Length of the reduction, or head size of attention.")]
N = Annotated[int, typer.Option("--n", help="Columns of the output.")]
Dtype = Annotated[str, typer.Option("--dtype", help="bf16, fp16, fp32 or int8.")]
Chip = Annotated[str, typer.Option("--hardware", help="a2a3, 910B1 to 910B4, or a5.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Tile = Annotated[str, typer.Option("--tile", help="Tile sizes, m=16,n=256,k=256.")]
Stages = Annotated[int | None, typer.Option("--stages", help="Slots of the pipeline.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Another parameter, name=value.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="A tensor, q=16x8x5x128 or q=16x8x5x128:fp16; data of a control input, lengths=40,7."),
]
Sync = Annotated[str, typer.Option("--sync", help="manual or auto.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the search and of the inputs.")]
Groups = Annotated[int, typer.Option("--groups", help="Groups of grouped_matmul; heads of attention.")]
ProgramPlace = Annotated[str | None, typer.Argument(metavar="[PROGRAM]", help="FILE.py:NAME of an @program.")]
Sizes = Annotated[list[str] | None, typer.Argument(metavar="[SIZE=VALUE]...", help="Sizes of the program.")]
Repeated = Annotated[
    bool, typer.Option("--repeated", help="L2 holds what a round before left, as in a benchmark of one step.")
]
CaptureFolder = Annotated[Path | None, typer.Option("--capture", metavar="DIR", help="Folder of a run instead.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the files of the run to this folder.")]
Caps = Annotated[
    list[str] | None,
    typer.Option(
        "--caps", help="Capacities, heap=1GiB or task_window=16384,16384,16384,131072; one number serves all rings."
    ),
]

Problem = tuple[Any, dict[str, Any], dict[str, Any]]
"""A kernel, the spec of every tensor, and its configuration."""


def is_a_place(text: str) -> bool:
    """Whether ``text`` is meant for a name in a file, well or badly spelt: no kernel of the library is called so.

    >>> [is_a_place(text) for text in ("mlp.py:mlp", "mlp.py", "README.md:x", "top_k_groups(8)", "convert('a:b')")]
    [True, True, True, False, False]
    """
    name = text.partition("(")[0]
    return any(mark in name for mark in (":", "/", "\\")) or name.endswith(".py")


def problem_of(
    kernel: KernelName,
    m: M = 0,
    n: N = 0,
    k: K = 0,
    dtype: Dtype = "bf16",
    inputs: Inputs = None,
    groups: Groups = 8,
    tile: Tile = "",
    stages: Stages = None,
    settings: Settings = None,
) -> Problem:
    """The problem that a command is asked about."""
    from ._arguments import given_values, kernel_named, specs_of

    chosen = kernel_named(kernel)
    specs = specs_of(chosen, m, k, n, dtype, groups, inputs or [])
    return chosen, specs, chosen.configuration(given_values(chosen, tile, stages, settings or []))


_NAMES = tuple(inspect.signature(problem_of).parameters)

SPELT = {"inputs": "--input", "settings": "--set"}
"""Options that may be repeated; the others are called as their parameters."""


@dataclass(frozen=True)
class KernelOptions:
    """What :func:`problem_of` takes besides the kernel, as it was given."""

    given: Mapping[str, Any]

    def problem(self, kernel: str) -> Problem:
        """The problem of a kernel with these options."""
        return problem_of(kernel, **self.given)

    def refuse(self, kind: str, also: Mapping[str, Any] | None = None) -> None:
        """Raise where one of them is given with something else than a kernel, or one of ``also`` is true."""
        asked = inspect.signature(problem_of).parameters
        changed = [name for name, value in self.given.items() if value != asked[name].default and value != []]
        idle = [SPELT.get(name, f"--{name}") for name in changed]
        idle += [name for name, value in (also or {}).items() if value]
        if idle:
            raise ValueError(f"`{idle[0]}` belongs to a kernel; got it with {kind}. Leave it out")


def about_a_kernel(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose ``problem`` is given by the options of :func:`problem_of`."""
    return _spread(command, "problem", lambda given: problem_of(**given), _NAMES)


def perhaps_about_a_kernel(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose ``options`` are those of :func:`problem_of`, for what may be a kernel."""
    return _spread(command, "options", KernelOptions, _NAMES[1:])


def _spread(
    command: Callable[..., None], argument: str, made_of: Callable[[dict[str, Any]], Any], names: Sequence[str]
) -> Callable[..., None]:
    """A command with these parameters of :func:`problem_of` in the place of ``argument``, which is made of them."""
    asked = [inspect.signature(problem_of).parameters[name] for name in names]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(**{argument: made_of({name: given.pop(name) for name in names})}, **given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += asked if name == argument else [parameter]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def show(result: Any, as_json: bool) -> None:
    """Print an answer, as text or as one JSON object."""
    print(json.dumps(result if isinstance(result, dict) else result.to_dict()) if as_json else result)
