"""What-if: a kernel with another rounding, a wider cast or another split, its error and its predicted time."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import instance
from .._dtypes import dtype_of
from .._errors import PyptoxError
from .._rounding import Rounding
from ..cost._explain import explain
from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._reading import AbstractReading, Operation, current, reading_as
from ..lang._record import Recorder
from ..lang._types import Spec, Tile
from ._attribute import attribute
from ._compare import Report, compare
from ._emulate import KEPT, MODES, Emulator, is_cast
from ._gates import AbstractGate, judge, without_baseline
from ._walker import Site, _lines


@dataclass(frozen=True)
class Widen:
    """Leave out the casts at ``site``: what follows works on the type before. A :class:`Site`, or ``"file.py:12"``."""

    site: Site | str

    def __str__(self) -> str:
        return f"widen {self.site}"


@dataclass(frozen=True)
class Round:
    """Round by another mode at ``site``."""

    site: Site | str
    rounding: Rounding | str

    def __str__(self) -> str:
        return f"{Rounding(self.rounding).value} at {self.site}"


@dataclass(frozen=True)
class Configure:
    """Another configuration, such as ``Configure({"k": 512})`` or ``Configure({"splits": 8})``."""

    values: Mapping[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


Change = Widen | Round | Configure


@dataclass(frozen=True)
class Outcome:
    """A change: the relative 2-norm of the error and the predicted time, before and after."""

    change: str
    error_before: float
    error: float
    time_before_us: float
    time_us: float

    @property
    def error_share(self) -> float:
        """The change of the error, relative to before."""
        return self.error / self.error_before - 1.0 if self.error_before else 0.0 if not self.error else float("inf")

    @property
    def time_share(self) -> float:
        return self.time_us / self.time_before_us - 1.0

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"error_share": self.error_share, "time_share": self.time_share}

    def __str__(self) -> str:
        return (
            f"error {self.error:9.2e} ({self.error_share:+7.1%})   "
            f"time {self.time_us:9.2f} µs ({self.time_share:+6.1%})   {self.change}"
        )


def what_if(
    kernel: Kernel, *inputs: Any, changes: Iterable[Change], hardware: Hardware | None = None, **parameters: Any
) -> list[Outcome]:
    """The error and the predicted time of each change by itself, in the order given.

    A widened cast makes what follows wide: operands beside it count as being as wide, and an output is stored so.

    Args:
        kernel: a kernel.
        inputs: one array per input; a control input as ``px.control(values)``.
        changes: :class:`Widen`, :class:`Round` or :class:`Configure`.
        hardware: the chip whose time is predicted; :func:`pyptox.hardware.a2a3` by default.
        parameters: tile sizes and other parameters; defaults where left out.

    >>> import numpy as np, pyptox as px
    >>> x = np.random.default_rng(0).standard_normal((8, 256)).astype("bfloat16")
    >>> wide, away = what_if(px.kernels.softmax, x, changes=[Widen("_rows.py:46"), Round("_rows.py:46", "trunc")], m=8)
    >>> wide.error < 1e-6, wide.time_us != wide.time_before_us, away.error_share > 0.5, away.time_share
    (True, True, True, 0.0)
    """
    instance("kernel", kernel, Kernel, "a @kernel")
    if not isinstance(changes, Iterable) or isinstance(changes, str):
        raise PyptoxError(f"`changes` must be a list of changes; got {changes!r}. Try [Widen('file.py:12')]")
    changes = list(changes)
    for change in changes:
        instance("changes", change, (Widen, Round, Configure), "Widen, Round or Configure")
    chip = hardware or a2a3()
    values = kernel.configuration(parameters)
    before = Emulator(kernel, inputs, hardware, values)
    error, time = before.error(before.as_written), explain(kernel, before.specs, values, chip).time_us
    found = []
    for change in changes:
        new_error, new_time = error, time
        if isinstance(change, Configure):
            changed = kernel.configuration({**values, **change.values})
            other = Emulator(kernel, inputs, hardware, changed)
            new_error = other.error(other.as_written)
            new_time = explain(kernel, other.specs, changed, chip).time_us
        else:
            sites = sites_named(before.sites, change.site)
            if isinstance(change, Widen) and not all(dtype_of(site.after).floating for site in sites):
                raise PyptoxError(
                    f"`site` of Widen must be a cast to a float; {change.site} quantises to an integer, and there is "
                    "nothing wider to keep. Try Round, or a quantiser with finer scales"
                )
            mode = KEPT if isinstance(change, Widen) else _mode(change.rounding)
            new_error = before.error(before.outputs(dict.fromkeys(sites, mode)))
            if isinstance(change, Widen):
                new_time = time_widened(kernel, sites, before.specs, values, chip)
        found.append(Outcome(str(change), error, new_error, float(time), float(new_time)))
    return found


def sites_named(sites: Sequence[Site], wanted: Site | str) -> list[Site]:
    """The sites that ``wanted`` means: itself, or those at ``file.py:12``."""
    if isinstance(wanted, Site):
        found = [site for site in sites if site == wanted]
    else:
        found = [site for site in sites if wanted in (f"{site.file.rsplit('/', 1)[-1]}:{site.line}", site.where)]
    if not found:
        known = "; ".join(map(str, sites)) or "none"
        raise PyptoxError(f"`site` must be a cast that rounds; got {wanted}. The kernel has {known}")
    return found


# ------------------------------------------------------------------------------------------- the kernel with wide casts
class _Widened(AbstractReading):
    """Hands everything to ``inner``, but for the casts at ``sites``, and makes the types fit again."""

    def __init__(self, inner: AbstractReading, kernel_file: str, sites: frozenset[tuple]):
        self.inner, self.kernel_file, self.places = inner, kernel_file, sites
        self.sizes = inner.sizes

    def apply(self, operation: Operation, tiles: Sequence[Tile], attributes: dict[str, Any]) -> Any:
        if is_cast(operation) and tiles[0].dtype == attributes["dtype"]:
            return tiles[0]
        if is_cast(operation) and (*_lines(self.kernel_file), operation.name) in self.places:
            return tiles[0]
        widest = max((t.dtype for t in tiles if dtype_of(t.dtype).floating), key=_width, default=None)
        if widest is not None and not is_cast(operation):
            tiles = [dataclasses.replace(t, dtype=widest) if dtype_of(t.dtype).floating else t for t in tiles]
        tensor = attributes.get("tensor")
        if tensor is not None and operation.name in ("store", "store_rows") and tensor.dtype != tiles[0].dtype:
            attributes = attributes | {"tensor": dataclasses.replace(tensor, dtype=tiles[0].dtype)}
        return self.inner.apply(operation, tiles, attributes)

    def loop(self, count: Any, body: Callable, carry: Any, stages: Any) -> Any:
        return self.inner.loop(count, body, carry, stages)

    def when(self, count: Any, body: Callable, carry: Any) -> Any:
        return self.inner.when(count, body, carry)

    def grid(self, extents: Any, body: Callable, order: Any, uneven: bool) -> None:
        self.inner.grid(extents, body, order, uneven)

    def value(self, index: Any) -> Any:
        return self.inner.value(index)

    def row_slices(self, count: Any) -> None:
        self.inner.row_slices(count)

    def cdiv(self, a: Any, b: Any) -> Any:
        return self.inner.cdiv(a, b)

    def minimum(self, a: Any, b: Any) -> Any:
        return self.inner.minimum(a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        return self.inner.maximum(a, b)


def _width(dtype: str) -> tuple[int, float]:
    return dtype_of(dtype).bytes, -dtype_of(dtype).unit_roundoff


def widened(kernel: Kernel, sites: Iterable[Site]) -> Kernel:
    """``kernel`` without the casts at ``sites``: for its cost, its trace, and its values up to the last store."""
    file = kernel.function.__code__.co_filename
    places = frozenset((site.file, site.line, site.caller, site.operation) for site in sites)

    def function(*tensors: Any, **parameters: Any) -> None:
        with reading_as(_Widened(current(), file, places)):
            kernel.function(*tensors, **parameters)

    return dataclasses.replace(kernel, function=function, name=f"{kernel.name} widened")


def time_widened(
    kernel: Kernel, sites: Iterable[Site], specs: Mapping[str, Spec], values: Mapping[str, Any], chip: Hardware
) -> float:
    """The predicted time of :func:`widened`, µs: its outputs are of the types that it stores, in GM too."""
    wide = widened(kernel, sites)
    stored = {
        access.tensor.name: access.tensor.dtype
        for access in Recorder.of_integers(wide, specs, values, chip).accesses()
        if access.mode != "read"
    }
    typed = {name: dataclasses.replace(spec, dtype=stored.get(name, spec.dtype)) for name, spec in specs.items()}
    return float(explain(wide, typed, values, chip).time_us)


def _mode(rounding: Rounding | str) -> int:
    """The entry of a table for a rounding that is the same at every run."""
    try:
        return MODES.index(Rounding(rounding))
    except ValueError:
        known = ", ".join(mode.value for mode in MODES)
        given = rounding.value if isinstance(rounding, Rounding) else rounding
        raise PyptoxError(
            f"`rounding` of Round must be one of {known}; got {given!r}. For stochastic rounding see significant_digits"
        ) from None


# ------------------------------------------------------------------------------------------------ the fewest wide casts
Gate = AbstractGate | Mapping[str, AbstractGate] | Callable[[Report], bool]
"""A gate of this package, gates by output, or a function of the :class:`Report` that says whether it passes."""


@dataclass(frozen=True)
class Widening:
    """The fewest casts to widen so that a gate passes.

    Attributes:
        sites: these casts; empty where none is needed.
        passed: False where the gate fails with every cast widened.
        error_before, error: relative 2-norm of the error, as written and widened.
        time_before_us, time_us: predicted.
        tried: how many sets of casts were run.
        quantised: casts to integers, which are the quantisation itself and are not widened.
    """

    sites: tuple[Site, ...]
    passed: bool
    error_before: float
    error: float
    time_before_us: float
    time_us: float
    tried: int
    quantised: int = 0

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        if not self.passed:
            rest = f"; {self.quantised} casts to integers have nothing wider to keep" if self.quantised else ""
            return f"the gate fails even with every cast widened (error {self.error:.2e}){rest}"
        where = "no cast" if not self.sites else "; ".join(map(str, self.sites))
        return (
            f"widen {where}: error {self.error_before:.2e} to {self.error:.2e}, time {self.time_before_us:.2f} to "
            f"{self.time_us:.2f} µs; the smallest of {self.tried} sets that were run"
        )


LARGEST_SEARCH = 1 << 14
"""Sets of casts that are run at most."""


def fewest_widened(
    kernel: Kernel, *inputs: Any, gate: Gate, hardware: Hardware | None = None, **parameters: Any
) -> Widening:
    """The smallest set of casts to widen so that ``gate`` passes. Every smaller set was run, and fails.

    Sets of one size are tried in the order of the error that the attribution predicts to be left. Casts to integers
    stay: they are the quantisation, and hold nothing wider.

    Args:
        kernel: a kernel.
        inputs: one array per input; a control input as ``px.control(values)``.
        gate: judges the outputs against float64; :class:`VersusBaseline` has nothing to judge by here.
        hardware: the chip whose time is predicted.
        parameters: tile sizes and other parameters; defaults where left out.

    Raises:
        PyptoxError: the kernel has more sets of casts than :data:`LARGEST_SEARCH`.

    >>> import numpy as np, pyptox as px
    >>> from pyptox.precision import RelL2
    >>> x = np.random.default_rng(0).standard_normal((8, 256)).astype("bfloat16")
    >>> found = fewest_widened(px.kernels.softmax, x, gate=RelL2(1e-4))
    >>> found.passed, len(found.sites), found.tried
    (True, 1, 2)
    """
    instance("kernel", kernel, Kernel, "a @kernel")
    without_baseline(gate, "fewest_widened")
    chip = hardware or a2a3()
    values = kernel.configuration(parameters)
    emulator = Emulator(kernel, inputs, hardware, values)
    sites = [site for site in emulator.sites if dtype_of(site.after).floating]
    if 1 << len(sites) > LARGEST_SEARCH:
        raise PyptoxError(
            f"`kernel` has {len(sites)} casts, which is more sets than {LARGEST_SEARCH:,}; check its parts one by one"
        )
    shares = {share.site: share.share for share in attribute(kernel, *inputs, hardware=hardware, **values).shares}
    total, tried = sum(shares.values()), 0
    outputs, chosen, passed = emulator.as_written, (), False
    for size in range(len(sites) + 1):
        subsets = itertools.combinations(sites, size)
        for chosen in sorted(subsets, key=lambda some: abs(total - sum(shares.get(site, 0.0) for site in some))):
            outputs, tried = emulator.outputs(dict.fromkeys(chosen, KEPT)), tried + 1
            if passed := _passes(gate, kernel, outputs, emulator.reference):
                break
        if passed:
            break
    return Widening(
        tuple(chosen),
        passed,
        emulator.error(emulator.as_written),
        emulator.error(outputs),
        float(explain(kernel, emulator.specs, values, chip).time_us),
        time_widened(kernel, chosen, emulator.specs, values, chip),
        tried,
        len(emulator.sites) - len(sites),
    )


def _passes(gate: Gate, kernel: Kernel, outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> bool:
    got, expected = (dict(zip(kernel.outputs, some, strict=True)) for some in (outputs, reference))
    if callable(gate):
        return bool(gate(compare(got, expected)))
    return judge(gate, got, expected).passed
