"""What one measured row asks of the model, and how it is answered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..cost import Cost, Options, predict
from ..hardware import Hardware, preset
from ..lang._kernel import Kernel
from ..lang._types import Spec, spec

Row = Mapping[str, str]


class NotCovered(Exception):
    """A row that the model does not predict; the message is the reason."""


def on_die(hardware: Hardware, name: str) -> Hardware:
    """``hardware`` with the core counts, clock and L2 of another die, and its HBM as much slower or faster."""
    die = preset(name)
    try:
        given = preset(hardware.name)
    except ValueError:
        given = preset("a2a3")
    slower = die.times.hbm_us / given.times.hbm_us
    memory = {n: getattr(hardware.times, n) * slower for n in ("hbm_us", "refetch_us", "writeback_us")}
    numbers = {"clock_mhz": die.clock_mhz, "aic": die.counts.aic, "aiv": die.counts.aiv, "l2": die.sizes.l2}
    return hardware.replace(**numbers, **memory)


@dataclass(frozen=True)
class Problem:
    """A kernel, its tensors and configuration, and the measurement in ``unit`` (time in µs, a ratio in %)."""

    kernel: Kernel
    specs: Mapping[str, Spec]
    values: Mapping[str, Any]
    measured: float | None = None
    unit: str = "us"
    answer: Callable[["Problem", Cost, Hardware], float] = lambda problem, cost, hardware: float(cost.time_us)
    options: Options = field(default_factory=lambda: Options(warm=4))
    die: str | None = None  # the variant of the chip that was measured; None for the chip that is given
    assumed: tuple[str, ...] = ()  # what the row does not state
    absolute: bool = True  # False: only comparisons inside the row's group mean something

    def on(self, hardware: Hardware) -> Hardware:
        """``hardware`` as the measured die."""
        return hardware if self.die is None else on_die(hardware, self.die)

    def cost(self, hardware: Hardware) -> Cost:
        """The prediction on ``hardware``, as the measured die."""
        hardware = self.on(hardware)
        shapes = {name: s.shape for name, s in self.specs.items()}
        return predict(self.kernel, self.specs, shapes, dict(self.values), hardware, self.options)

    def predict(self, hardware: Hardware) -> tuple[float, bool]:
        """The number that the row states, predicted; and whether the configuration fits the chip."""
        cost = self.cost(hardware)
        return self.answer(self, cost, self.on(hardware)), bool(cost.legal)


class Question(Protocol):
    """What a measured row asks: :class:`Problem`, or one instruction."""

    @property
    def measured(self) -> float | None: ...
    @property
    def unit(self) -> str: ...
    @property
    def assumed(self) -> tuple[str, ...]: ...
    @property
    def absolute(self) -> bool: ...
    def predict(self, hardware: Hardware) -> tuple[float, bool]: ...


@dataclass(frozen=True)
class Source:
    """How one CSV file is read: a problem for a row, what a stated limit decides, what rows share, how a row names
    its outcome; and, where answers rest on rows of the file itself, what was taken from these and what others may show.
    """

    problem: Callable[[Row], Question]
    outcome: Callable[[Row, Hardware], str | None] = lambda row, hardware: None
    fill: Callable[[Sequence[Row]], list[Row]] = list
    measured: Callable[[Row], str | None] = lambda row: _stated_outcome(row)
    rests_on: str = ""


FAILED = ("compile_fail", "rejected", "runtime_fail")
"""Outcomes of a kernel that did not run."""


def _stated_outcome(row: Row) -> str | None:
    outcome = text(row, "outcome")
    return ("rejected" if outcome in FAILED else "ok") if outcome else None


def text(row: Row, name: str) -> str:
    """A column as text, empty when it is absent."""
    return (row.get(name) or "").strip()


def number(row: Row, name: str) -> float:
    """A column as a positive number.

    Raises:
        NotCovered: the column is absent, empty or not a positive number.
    """
    value = text(row, name)
    try:
        result = float(value)
    except ValueError:
        raise NotCovered(f"column `{name}` {'is empty' if not value else 'is not a number'}") from None
    if not 0 < result < float("inf"):
        raise NotCovered(f"column `{name}` is not a positive number")
    return result


def count(row: Row, name: str) -> int:
    """A column as a positive integer."""
    value = number(row, name)
    if value != int(value):
        raise NotCovered(f"column `{name}` is not an integer")
    return int(value)


def pair(row: Row, name: str) -> tuple[int, int]:
    """A column such as ``128x512 fp32`` as two sizes."""
    parts = text(row, name).split(" ")[0].lower().split("x")
    if len(parts) != 2 or not all(p.isdigit() and int(p) for p in parts):
        raise NotCovered(f"column `{name}` is not two sizes such as 128x512")
    return int(parts[0]), int(parts[1])


def product(
    kernel: Kernel,
    m: int,
    n: int,
    k: int,
    dtype: str,
    transposed: bool,
    layouts: tuple[str, str] = ("rows", "rows"),
) -> dict[str, Spec]:
    """Specs of a matmul kernel."""
    try:
        b = (n, k) if transposed else (k, n)
        return kernel.specs(spec((m, k), dtype, layout=layouts[0]), spec(b, dtype, layout=layouts[1]))
    except (ValueError, KeyError) as error:
        raise NotCovered(f"dtype or shape: {error}") from None
