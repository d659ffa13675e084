"""One vector instruction by itself: what ``vector_op_cycles.csv`` and ``instr_reference_cycles.csv`` state."""

import re
from dataclasses import dataclass
from typing import Any

from .. import lang as pl
from ..hardware import Hardware
from ..lang import _vector_ops as ops
from ..lang._reading import Operation, reading_as
from ..lang._record import Instruction, Recorder
from ..lang._types import Tile
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
_TYPES = {"float": "fp32", "half": "fp16", "int32_t": "int32", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16"}


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
        node = Instruction(operation, (tile,) * inputs, out, attributes, ("", 0), 0, True, {})
        context = RuleContext(hardware.times, hardware.sizes, hardware.clock_mhz, 1, 1, 0.0)
        return float(sum(cycles for _, cycles in operation.cost(context, node))), True


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


def reference_problem(row: Row) -> InstructionProblem:
    """One profiled instruction."""
    name = _known(text(row, "test"))
    stated = dict(re.findall(r"(\w+)=([\w:]+)", text(row, "params")))
    kind = _TYPES.get(stated.get("T") or stated.get("SrcT") or "")
    if kind is None:
        raise NotCovered("its element type is not in the model")
    sizes = [stated.get(a) or stated.get(b) for a, b in (("rows", "row"), ("cols", "col"))]
    if not all(size and size.isdigit() for size in sizes):
        raise NotCovered("its rows or columns are not stated")
    return InstructionProblem(name, int(sizes[0] or 0), int(sizes[1] or 0), kind, number(row, "reference_cycles"))
