"""``precision.csv``: mismatches and pass rates by depth, and what quantisation costs, at reduced width."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..hardware import Hardware
from ..precision import compare, quantize
from ._layer_stack import CONTEXT, DEEPEST, HEADS, SIZE, WIDTH, beyond
from ._problem import NotCovered, Row, count, text

_STACK = (
    f"hidden {WIDTH} of 5120 ({HEADS} heads of {SIZE})",
    f"context {CONTEXT}, the mean of lengths up to 4096",
    "uniform random weights and caches",
    "bf16 between layers",
    "golden is plain JAX that narrows where the tiles do",
)
_TOLERANCE = 5e-3
"""Of the three-tier gate, which states none: its row of 10 layers equals that of the series at this tolerance."""


@dataclass(frozen=True)
class Figure:
    """A figure that is computed here; counts of rare mismatches are compared inside their group only."""

    measured: float
    unit: str
    assumed: tuple[str, ...]
    absolute: bool
    compute: Callable[[], float]

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        return self.compute(), True


def problem(row: Row) -> Figure:
    """Mismatches or pass rate after so many layers, or the error of a quantised product."""
    group, quantity = text(row, "group"), text(row, "quantity")
    if group == "qwen_three_tier" or group.startswith("qwen_bf16_growth"):
        return _depth(row, quantity)
    if "INT8" in text(row, "model") and "per-row amax" in text(row, "condition"):
        return Figure(
            _middle(row),
            "%",
            ("normal activations and weights", "K = 1024", "weights per channel"),
            True,
            _int8_product,
        )
    raise NotCovered("the weights and inputs of that model are not published")


def _depth(row: Row, quantity: str) -> Figure:
    layers = count(row, "layers")
    if layers > DEEPEST:
        raise NotCovered(f"more than {DEEPEST} layers")
    rtol, atol = (_number(row, name, _TOLERANCE) for name in ("rtol", "atol"))
    assumed = _STACK if text(row, "rtol") else (*_STACK, f"tolerance {_TOLERANCE:g}")
    if quantity.startswith("mismatched"):
        elements = re.search(r"of (\d+)", quantity)
        if elements is None:
            raise NotCovered("column `quantity` does not say of how many elements")
        of = int(elements.group(1))
        return Figure(_number(row, "value"), "elements", assumed, False, lambda: of * beyond(layers, rtol, atol))
    if quantity == "pass rate":
        return Figure(_number(row, "value"), "fraction", assumed, True, lambda: 1.0 - beyond(layers, rtol, atol))
    raise NotCovered(f"quantity {quantity!r}")


def _number(row: Row, name: str, otherwise: float | None = None) -> float:
    """A column as a number, 0 included."""
    value = text(row, name)
    if not value and otherwise is not None:
        return otherwise
    try:
        result = float(value)
    except ValueError:
        raise NotCovered(f"column `{name}` is not a number") from None
    if not np.isfinite(result) or result < 0:
        raise NotCovered(f"column `{name}` is not a number of at least 0")
    return result


def _middle(row: Row) -> float:
    """The middle of a column ``value`` such as ``0.9-1.2``."""
    ends = text(row, "value").split("-")
    try:
        result = sum(map(float, ends)) / len(ends)
    except ValueError:
        raise NotCovered("column `value` is not a number or a range") from None
    if not result > 0:
        raise NotCovered("column `value` is not positive")
    return result


@functools.lru_cache(maxsize=1)
def _int8_product() -> float:
    """Relative L2 of a product of int8 by int8, activations scaled per token and weights per channel; percent."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape, np.float32) for shape in ((64, 1024), (1024, 256)))
    rounded = [
        np.asarray(quantize(x, per=per).dequantize()).astype(np.float64) for x, per in ((a, "token"), (b, "channel"))
    ]
    truth = a.astype(np.float64) @ b.astype(np.float64)
    return 100.0 * compare(rounded[0] @ rounded[1], truth).leaves[0].relative_l2
