"""One vector instruction by itself: what ``vector_op_cycles.csv`` and ``instr_reference_cycles.csv`` state."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import lang as pl
from .._dtypes import dtype_of
from ..hardware import Hardware
from ..lang import _ops as cube_ops
from ..lang import _vector_ops as ops
from ..lang._reading import Operation, reading_as
from ..lang._record import Instruction, Recorder
from ..lang._types import Tensor, Tile
from ..lang.rules import RuleContext
from ._problem import NotCovered, Row, count, number, text

ROWS = 64
"""Rows at which a published slope and bias are compared."""

_OPERATIONS: dict[str, tuple[Operation, int, dict[str, Any]]] = {
    **{f"t{name[:3]}s": (operation, 1, {"value": 2.0}) for name, operation in ops._SCALAR.items()},
    **{f"t{name[:3]}": (operation, 2, {}) for name, operation in ops._BINARY.items()},
    "texp": (ops.exp, 1, {}),
    "tlog": (ops.log, 1, {}),
    "tsqrt": (ops.sqrt, 1, {}),
    "trsqrt": (ops.rsqrt, 1, {}),
    "tabs": (ops.absolute, 1, {}),
    "trowmax": (ops.row_max, 1, {}),
    "trowsum": (ops.row_sum, 1, {}),
    "tcolmax": (ops.column_max, 1, {}),
    "tcolsum": (ops.column_sum, 1, {}),
    "tcvt": (ops._cast_vec, 1, {"dtype": "fp16", "rounding": "rint"}),
    "trowexpand": (ops._row_expand, 1, {}),
}
_TYPES = {
    "float": "fp32", "half": "fp16", "int32_t": "int32", "int8_t": "int8", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16",
}  # fmt: skip
_SAME_WIDTH = {"int16_t": "fp16", "uint16_t": "fp16", "uint32_t": "int32", "uint8_t": "int8"}
"""Element types that the language does not have, and one of their width: what moves and repeats depends on that."""

PROFILED_HEAD = 6.0
"""Cycles of a cube instruction's head that this profiler counts; the rest lies between two instructions."""


@dataclass(frozen=True)
class InstructionProblem:
    """One instruction on ``rows x columns``, and its measured cycles."""

    name: str
    rows: int
    columns: int
    dtype: str
    measured: float
    unit: str = "cycles"
    assumed: tuple[str, ...] = ()
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """Cycles on one vector core; any size is legal."""
        operation, inputs, attributes = _OPERATIONS[self.name]
        shape = (self.rows, self.columns)
        if operation is ops._row_expand:
            shape, attributes = (self.rows, 1), {"columns": self.columns}
        tile = Tile(shape, shape, self.dtype, pl.Vec, None)
        with reading_as(Recorder(hardware.sizes, 1)):
            made = operation.infer(*(tile,) * inputs, **attributes)
        assert made is not None
        out = Tile(made.shape, made.valid, made.dtype, made.space, None)
        return _cycles(hardware, operation, (tile,) * inputs, out, attributes), True


def _cycles(hardware: Hardware, operation: Operation, tiles: tuple, out: Tile, attributes: dict[str, Any]) -> float:
    """Cycles of one instruction on a core that has L2 to itself."""
    node = Instruction(operation, tiles, out, attributes, ("", 0), 0, True, {})
    context = RuleContext(hardware.times, hardware.sizes, hardware.clock_mhz, 1, 1, 0.0)
    return float(sum(cycles for _, cycles in operation.cost(context, node)))


@dataclass(frozen=True)
class LoadProblem:
    """Loads of ``pieces`` tiles, one after the other, each of whole rows of its tensor."""

    pieces: int
    rows: int
    columns: int
    dtype: str
    space: pl.Space
    measured: float
    unit: str = "cycles"
    absolute: bool = True

    @property
    def assumed(self) -> tuple[str, ...]:
        return ("L2 holds the data", *(["each load is waited for"] if self.space is pl.Vec else []))

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """Cycles on one core; any size is legal."""
        shape = (self.rows, self.columns)
        out = Tile(shape, shape, self.dtype, self.space, None)
        attributes = {"tensor": Tensor("x", shape, self.dtype)}
        one = _cycles(hardware, cube_ops._load, (), out, attributes)
        return self.pieces * (one + (float(hardware.times.load_wait) if self.space is pl.Vec else 0.0)), True


@dataclass(frozen=True)
class CubeProblem:
    """One cube instruction, ``m x k`` times ``k x n``."""

    m: int
    k: int
    n: int
    dtype: str
    measured: float
    unit: str = "cycles"
    assumed: tuple[str, ...] = (f"{PROFILED_HEAD:g} cycles of the head",)
    absolute: bool = True

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """Cycles on one cube core; any size is legal."""
        sides = ((self.m, self.k), pl.Left), ((self.k, self.n), pl.Right), ((self.m, self.n), pl.Acc)
        tiles = tuple(Tile(shape, shape, self.dtype, space, None) for shape, space in sides)
        return _cycles(hardware.replace(cube_head=PROFILED_HEAD), cube_ops._mad, tiles, tiles[2], {}), True


def _known(name: str) -> str:
    name = name.lower()
    if name not in _OPERATIONS:
        raise NotCovered(f"the language has no operation like {name.upper()}")
    return name


def table_problem(row: Row) -> InstructionProblem:
    """A row of slope and bias, at ``ROWS`` rows."""
    name = _known(text(row, "op"))
    dtype, columns = text(row, "dtype"), text(row, "cols")
    columns = 64 if columns == "*" else count(row, "cols")
    dtype = _TYPES.get("fp32" if dtype == "any" else dtype)
    if dtype is None:
        raise NotCovered(f"dtype {text(row, 'dtype')} is not in the model")
    cycles = number(row, "slope_cycles_per_element") * ROWS * columns + float(text(row, "bias_cycles") or 0)
    return InstructionProblem(name, ROWS, columns, dtype, cycles, assumed=(f"{ROWS} rows",))


def reference_problem(row: Row) -> InstructionProblem | LoadProblem | CubeProblem:
    """One profiled instruction."""
    stated = dict(re.findall(r"(\w+)=([\w:]+)", text(row, "params")))
    written = stated.get("T") or stated.get("SrcT") or stated.get("AType") or ""
    kind = _TYPES.get(written) or _SAME_WIDTH.get(written)
    made = {"tload": _load, "tloadconv": _load_fractals, "tmatmul": _product}.get(text(row, "test").lower())
    name = "" if made else _known(text(row, "test"))
    if kind is None:
        raise NotCovered("its element type is not in the model")
    if made:
        return made(row, stated, kind)
    sizes = [stated.get(a) or stated.get(b) for a, b in (("rows", "row"), ("cols", "col"))]
    if not all(size and size.isdigit() for size in sizes):
        raise NotCovered("its rows or columns are not stated")
    return InstructionProblem(name, int(sizes[0] or 0), int(sizes[1] or 0), kind, number(row, "reference_cycles"))


def _sizes(stated: Mapping[str, str], *names: str) -> list[int]:
    """The parameters of these names, all positive integers."""
    values = [stated.get(name, "") for name in names]
    if not all(value.isdigit() and int(value) for value in values):
        raise NotCovered(f"its {', '.join(names)} are not all stated")
    return [int(value) for value in values]


def _load(row: Row, stated: Mapping[str, str], dtype: str) -> LoadProblem:
    """A tile whose rows three outer dimensions share: one piece for each of their positions."""
    if "gRows" in stated or "gCols" not in stated:
        raise NotCovered("a column-major tensor, of which the parameters do not say how much moves")
    *outer, columns, rows = _sizes(stated, "gShape0", "gShape1", "gShape2", "gCols", "kTRows")
    pieces = outer[0] * outer[1] * outer[2]
    if rows % pieces:
        raise NotCovered("the outer dimensions do not divide the rows of its tile")
    return LoadProblem(pieces, rows // pieces, columns, dtype, pl.Vec, number(row, "reference_cycles"))


def _load_fractals(row: Row, stated: Mapping[str, str], dtype: str) -> LoadProblem:
    """An image in columns of one fractal's bytes (NC1HWC0), whole: one run of bytes."""
    if not stated.get("L", "").endswith("NC1HWC0"):
        raise NotCovered("a layout that the model does not have")
    n, c1, h, w = _sizes(stated, "N", "C1", "H", "W")
    columns = int(32 // dtype_of(dtype).bytes)
    return LoadProblem(1, 1, n * c1 * h * w * columns, dtype, pl.Mat, number(row, "reference_cycles"))


def _product(row: Row, stated: Mapping[str, str], dtype: str) -> CubeProblem:
    m, k, n = _sizes(stated, "validM", "validK", "validN")
    return CubeProblem(m, k, n, dtype, number(row, "reference_cycles"))
