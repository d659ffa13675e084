"""Weights in the safetensors format: a JSON header of names, types, shapes and places, then the bytes.

Reading maps the file into memory: nothing is copied, and a file larger than memory can be read. Source of the layout:
the format's description in huggingface/safetensors; its own reader refuses what is refused here.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ._errors import PyptoxError
from ._files import write_whole

_TYPES = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_LARGEST_HEADER = 100_000_000
"""Bytes; as in the format's own reader."""


class SafetensorsError(PyptoxError):
    """A file is not what the format, or its own header, says."""


def read(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a file by name, in the order of their bytes: read-only arrays mapped into memory.

    Raises:
        SafetensorsError: a truncated or overlong file, a header that is no JSON, an unknown element type, a shape that
            disagrees with its bytes, or tensors that overlap or leave a gap. The message names file and tensor.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "a.safetensors", {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    ...     read(Path(folder) / "a.safetensors")["x"].tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    path = Path(path)
    if not path.is_file():
        raise SafetensorsError(f"`path` must name a safetensors file; {str(path)!r} is not there")
    header, start = _header(path)
    size = path.stat().st_size - start
    data = np.memmap(path, np.uint8, "r", start, (size,)) if size else np.zeros(0, np.uint8)
    places = sorted(((*_place(path, name, entry), name) for name, entry in header.items()), key=lambda place: place[:2])
    result, reached = {}, 0
    for begin, end, dtype, shape, name in places:
        if begin != reached:
            raise SafetensorsError(f"`{name}` in {path.name} begins at byte {begin} of the data; expected {reached}")
        if end > size:
            raise SafetensorsError(
                f"{path.name} is truncated: `{name}` ends at byte {end} of the data, and the file holds {size}. "
                "Copy or download it again"
            )
        result[name] = data[begin:end].view(dtype).reshape(shape)
        reached = end
    if reached != size:
        raise SafetensorsError(f"{path.name} holds {size} bytes of data; its header accounts for {reached}")
    return result


def write(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write ``tensors`` in order, and ``metadata`` of strings; the file is whole or not there.

    Raises:
        SafetensorsError: an element type that the format does not have.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts, begin = [], 0
    for name, value in tensors.items():
        array = np.asarray(value, order="C")
        dtype = array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype
        if dtype not in _NAMES:
            raise SafetensorsError(f"`{name}` must have a type of {', '.join(_TYPES)}; got {array.dtype}")
        raw = array.astype(dtype, copy=False).reshape(-1).view(np.uint8)
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, begin + raw.nbytes],
        }
        parts.append(raw.data)
        begin += raw.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data is aligned
    write_whole(path, [len(text).to_bytes(8, "little"), text, *parts])


def read_folder(folder: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint: those of ``model.safetensors``, or of all files that its index names.

    Raises:
        SafetensorsError: neither is there, a file of the index is missing, or holds other tensors than the index says.
    """
    folder = Path(folder)
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if not index.is_file():
        if not single.is_file():
            raise SafetensorsError(f"`{folder}` must hold {single.name} or {index.name}; it has neither")
        return read(single)
    try:
        where = json.loads(index.read_text())["weight_map"]
        files = sorted(set(where.values()))
        if any(Path(file).name != file for file in files):
            raise ValueError("a file outside the folder")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SafetensorsError(f"{index.name} must hold a `weight_map` of tensor names to files beside it") from error
    shards = {file: read(folder / file) for file in files}
    for name, file in where.items():
        if name not in shards[file]:
            raise SafetensorsError(f"`{name}` must be in {file}, says {index.name}; it is not")
    return {name: shards[file][name] for name, file in where.items()}


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The entries of the tensors, and where the data starts."""
    total = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if total < 8 or length > min(total - 8, _LARGEST_HEADER):
            raise SafetensorsError(
                f"{path.name} is truncated or no safetensors file: its header would be {length} bytes"
            )
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise SafetensorsError(f"the header of {path.name} is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise SafetensorsError(f"the header of {path.name} must be a JSON object; got {type(header).__name__}")
    header.pop("__metadata__", None)
    return header, 8 + length


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name appears twice")
    return result


def _place(path: Path, name: str, entry: Any) -> tuple[int, int, np.dtype, tuple[int, ...]]:
    """First byte, one past the last, type and shape of a tensor."""
    try:
        kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (*shape, begin, end)):
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise SafetensorsError(f"`{name}` in {path.name} needs dtype, shape and data_offsets; got {entry!r}") from error
    if kind not in _TYPES:
        raise SafetensorsError(f"`{name}` in {path.name} must have a type of {', '.join(_TYPES)}; got {kind!r}")
    needed = math.prod(shape) * _TYPES[kind].itemsize
    if end - begin != needed:
        raise SafetensorsError(
            f"`{name}` in {path.name} is {kind}{list(shape)}, {needed} bytes; its data_offsets hold {end - begin}"
        )
    return begin, end, _TYPES[kind], shape
