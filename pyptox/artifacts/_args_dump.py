"""``args_dump/args_dump.json`` with ``args.bin``: the tensors that tasks were given and made, as a device dumped them.

A record names the task, whether the tensor is an input or an output, and when it was taken; the payload lies row by
row in ``args.bin``, little-endian, without the strides that it had on the device.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .._files import write_whole
from ._finding import ArtifactError
from ._json import Where, field, integers, load, records

FILE, PAYLOAD = "args_dump.json", "args.bin"
ROLES = ("input", "output", "inout")
STAGES = ("before_dispatch", "after_completion")
_FORMAT = {"type": "logical_contiguous", "byte_order": "little_endian"}
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (64, 32, 16, 8)]
_DTYPES = {name: np.dtype(name) for name in ("float64", "float32", "float16", "bool", *_INTEGERS)}
_DTYPES |= {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}


@dataclass(frozen=True)
class DumpedArg:
    """One argument of one task at one time.

    Attributes:
        task_id: ``ring << 32 | number``.
        func_ids: of its kernels; empty where they are not known.
        role: ``input``, ``output`` or ``inout``.
        stage: ``before_dispatch`` or ``after_completion``.
        index: its place among the arguments of the task; ``ambiguous`` where the runtime was not sure.
        value: the tensor; a number for a scalar; None where the payload was not kept.
        truncated, overwritten: the payload is a part of the tensor, or was reused before it was written.
        strides, offset: elements, as it lay on the device.
    """

    task_id: int
    role: str
    stage: str
    index: int
    value: np.ndarray | int | float | None
    func_ids: tuple[int, ...] = ()
    truncated: bool = False
    overwritten: bool = False
    ambiguous: bool = False
    strides: tuple[int, ...] | None = None
    offset: int = 0

    @property
    def whole(self) -> bool:
        """The value is all of the tensor as it was at that time."""
        return self.value is not None and not (self.truncated or self.overwritten or self.ambiguous)


@dataclass(frozen=True)
class ArgsDump:
    """All dumped arguments. ``dropped`` counts the records that the device had no room for."""

    args: tuple[DumpedArg, ...]
    run_dir: str = ""
    level: int = 3
    dropped: int = 0


def read_args_dump(path: str | os.PathLike[str]) -> ArgsDump:
    """Read ``args_dump.json`` and its payloads; ``path`` is the file, its folder, or the folder of the run.

    Raises:
        ArtifactError: a file is missing, cut short or damaged; the message names the key and the record.
    """
    file = _file(Path(path))
    content, where = load(file), Where(file.name)
    form = field(content, "bin_format", dict, where, default=_FORMAT)
    if form != _FORMAT:
        raise where.under("bin_format").error("layout", f"`bin_format` must be {_FORMAT}; got {form}")
    name = content.get("bin_file")
    payload = _payload(file, name, where) if name is not None else np.zeros(0, np.uint8)
    args = tuple(_arg(item, place, payload) for place, item in records(content, "args", where))
    total = field(content, "total_args", int, where, default=len(args))
    if total != len(args):
        raise where.under("total_args").error(
            "count", f"`total_args` is {total}, the file holds {len(args)}. Was the run cut short? Record it again"
        )
    dropped = sum(field(content, key, int, where, default=0) for key in ("dropped_records", "dropped_overwrite"))
    return ArgsDump(
        args,
        field(content, "run_dir", str, where, default=""),
        field(content, "dump_args_level", int, where, default=3),
        dropped,
    )


def _file(path: Path) -> Path:
    for candidate in (path, path / FILE, path / "args_dump" / FILE):
        if candidate.is_file():
            return candidate
    raise Where(FILE).error("missing-file", f"no {FILE} in {str(path)!r}. Give the folder of a run with args_dump/")


def _payload(file: Path, name: Any, where: Where) -> np.ndarray:
    path = file.parent / Path(str(name)).name
    if not path.is_file():
        raise where.under("bin_file").error("missing-file", f"the payload {path.name!r} is not beside {file.name}")
    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)


def _arg(item: Mapping[str, Any], where: Where, payload: np.ndarray) -> DumpedArg:
    role, stage = (_one_of(item, key, options, where) for key, options in (("role", ROLES), ("stage", STAGES)))
    text = field(item, "task_id", str, where)
    try:
        task = int(text, 16)
    except ValueError:
        raise where.under("task_id").error("type", f"`task_id` must be hexadecimal digits; got {text!r}") from None
    known = DumpedArg(
        task_id=task,
        role=role,
        stage=stage,
        index=field(item, "arg_index", int, where),
        value=None,
        func_ids=tuple(number for number in integers(item, "func_id", where) if number >= 0),
        truncated=field(item, "truncated", bool, where, default=False),
        overwritten=field(item, "overwritten", bool, where, default=False),
        ambiguous=field(item, "arg_index_ambiguous", bool, where, default=False),
    )
    if _one_of(item, "kind", ("tensor", "scalar"), where) == "scalar":
        value = item.get("value")
        return replace(known, value=value if isinstance(value, int | float) else None)
    shape = integers(item, "shape", where)
    return replace(
        known,
        value=_tensor(item, shape, known, where, payload),
        strides=integers(item, "strides", where) if "strides" in item else None,
        offset=field(item, "start_offset", int, where, default=0),
    )


def _one_of(item: Mapping[str, Any], key: str, options: Sequence[str], where: Where) -> str:
    text = field(item, key, str, where)
    if text not in options:
        raise where.under(key).error("value", f"`{key}` must be {' or '.join(options)}; got {text!r}")
    return text


def _tensor(
    item: Mapping[str, Any], shape: tuple[int, ...], known: DumpedArg, where: Where, payload: np.ndarray
) -> np.ndarray | None:
    dtype_name = field(item, "dtype", str, where)
    dtype = _DTYPES.get(str(_ALIASES.get(dtype_name, dtype_name)))
    if dtype is None:
        raise where.under("dtype").error("dtype", f"`dtype` must be one of {', '.join(_DTYPES)}; got {dtype_name!r}")
    start, size = field(item, "bin_offset", int, where), field(item, "bin_size", int, where)
    if known.truncated or known.overwritten or size == 0:
        return None
    wanted = math.prod(shape) * dtype.itemsize
    if size != wanted:
        raise where.under("bin_size").error("size", f"{dtype_name}{list(shape)} takes {wanted} bytes; got {size}")
    if start < 0 or start + size > payload.size:
        raise where.under("bin_offset").error(
            "payload",
            f"bytes {start} to {start + size} of {PAYLOAD} are missing; it has {payload.size}. Was it cut short?",
        )
    return np.frombuffer(payload[start : start + size].tobytes(), dtype).reshape(shape)


def write_args_dump(folder: str | os.PathLike[str], dump: ArgsDump) -> Path:
    """Write ``args_dump.json`` and ``args.bin`` into ``folder``, the payload first; gives the path of the first.

    >>> import tempfile
    >>> value = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_args_dump(folder, ArgsDump((DumpedArg(3, "output", "after_completion", 1, value),)))
    ...     read_args_dump(folder).args[0].value.tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    pieces: list[bytes] = []
    items, at = [], 0
    for arg in dump.args:
        payload = np.ascontiguousarray(arg.value).tobytes() if isinstance(arg.value, np.ndarray) else b""
        items.append(_record(arg, at, len(payload)))
        pieces.append(payload)
        at += len(payload)
    counts = {stage: sum(arg.stage == stage for arg in dump.args) for stage in STAGES}
    counts |= {f"{role}_args": sum(arg.role == role for arg in dump.args) for role in ROLES}
    content = {
        "run_dir": dump.run_dir,
        "bin_format": _FORMAT,
        "dump_args_level": dump.level,
        "total_args": len(dump.args),
        **counts,
        "truncated_args": sum(arg.truncated for arg in dump.args),
        "dropped_records": dump.dropped,
        "dropped_overwrite": 0,
        "bin_file": PAYLOAD if at else None,
        "args": items,
    }
    if at:
        write_whole(Path(folder) / PAYLOAD, pieces)
    write_whole(Path(folder) / FILE, json.dumps(content, indent=1) + "\n")
    return Path(folder) / FILE


def _record(arg: DumpedArg, start: int, size: int) -> dict[str, Any]:
    known: dict[str, Any] = {
        "task_id": f"0x{arg.task_id:016x}",
        "func_id": list(arg.func_ids) or [-1],
        "role": arg.role,
        "stage": arg.stage,
        "arg_index": arg.index,
    }
    if arg.ambiguous:
        known["arg_index_ambiguous"] = True
    if not isinstance(arg.value, np.ndarray):
        if arg.value is None:
            raise ArtifactError(Where(FILE).error("value", f"argument {arg.index} has no value to write").finding)
        return known | {"kind": "scalar", "value": arg.value}
    shape = arg.value.shape
    dense = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    strides = arg.strides if arg.strides is not None else dense
    return known | {
        "kind": "tensor",
        "dtype": str(arg.value.dtype),
        "shape": list(shape),
        "strides": list(strides),
        "start_offset": arg.offset,
        "is_contiguous": strides == dense,
        "truncated": arg.truncated,
        "overwritten": arg.overwritten,
        "bin_offset": start,
        "bin_size": size,
    }
