"""Options that several commands share, and how a command shows its answer."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

KernelName = Annotated[str, typer.Argument(metavar="KERNEL", help="Such as matmul, flash_attention, rms_norm.")]
M = Annotated[int, typer.Option("--m", help="Rows of the output.")]
K = Annotated[int, typer.Option("--k", help="Length of the reduction, or head size of attention.")]
N = Annotated[int, typer.Option("--n", help="Columns of the output.")]
Dtype = Annotated[str, typer.Option("--dtype", help="bf16, fp16, fp32 or int8.")]
Chip = Annotated[str, typer.Option("--hardware", help="a2a3, 910B1 to 910B4, or a5.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Tile = Annotated[str, typer.Option("--tile", help="Tile sizes, m=16,n=256,k=256.")]
Stages = Annotated[int | None, typer.Option("--stages", help="Slots of the pipeline.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Another parameter, name=value.")]
Sync = Annotated[str, typer.Option("--sync", help="manual or auto.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the search and of the inputs.")]
Groups = Annotated[int, typer.Option("--groups", help="Groups of grouped_matmul; heads of attention.")]
ProgramPlace = Annotated[str | None, typer.Argument(metavar="[PROGRAM]", help="FILE.py:NAME of an @program.")]
Sizes = Annotated[list[str] | None, typer.Argument(metavar="[SIZE=VALUE]...", help="Sizes of the program.")]
CaptureFolder = Annotated[Path | None, typer.Option("--capture", metavar="DIR", help="Folder of a run instead.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the files of the run to this folder.")]


def show(result: Any, as_json: bool) -> None:
    """Print an answer, as text or as one JSON object."""
    print(json.dumps(result if isinstance(result, dict) else result.to_dict()) if as_json else result)
