"""A kernel's stored values against the same kernel in float64, with a bound that says what to expect.

The bound of an element is what rounding, operation by operation, may have made of it (:mod:`pyptox.precision._bound`),
and at least half a unit in the last place of the output. An integer output is rounded from what float64 says, saturated
to its type, and exact where that is whole.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._checks import instance
from .._dtypes import dtype_of
from .._errors import PyptoxError
from .._float64 import widened
from .._rounding import cast
from ..hardware import Hardware, a2a3
from ..lang._kernel import Kernel
from ..lang._record import Recorder
from ..lang._run import reference, run
from ..lang._types import Spec
from ._bound import Place, bounded, narrowed_carries
from ._chunks import spacing_of
from ._inputs import sample_inputs
from ._norm import relative_norm
from ._shrink import reduction_length, shrink

LARGEST = 1 << 28
"""Elements of all tensors that are compared at most: about 5 GiB with both readings."""


class TooLargeError(PyptoxError):
    """The part of a problem that keeps its reduction is too large to compute here."""


@dataclass(frozen=True)
class PrecisionReport:
    """How far a kernel's values are from float64.

    Attributes:
        compared: the specs that were compared: all of a reduction, part of a large output.
        max_abs: largest absolute error, at ``index`` with values ``got`` and ``expected``.
        relative_l2: ``|got - expected| / |expected|`` in the 2-norm.
        max_ulp: largest error in units in the last place of the output's dtype.
        exact: elements equal to the rounded float64 value, of ``elements``.
        bound: the bound at the element that comes nearest to it; ``bound_share`` is the largest error
            over its bound.
        reduction: the longest axis that is summed over.
        passed: every element within its bound.
        narrowed: where a loop rounds what it carries to a narrow type, which buys no tolerance.
    """

    kernel: str
    compared: dict[str, str]
    dtype: str
    reduction: int
    max_abs: float
    index: tuple[int, ...]
    got: float
    expected: float
    relative_l2: float
    max_ulp: float
    exact: int
    elements: int
    bound: float
    bound_share: float
    seed: int
    passed: bool
    narrowed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "summary": self.summary}

    @property
    def summary(self) -> str:
        """The verdict in a few words."""
        if self.passed and self.bound == 0.0:
            return f"exact in all {self.elements:,} elements"
        word = "within" if self.passed else "beyond"
        text = f"{word} what rounding may cost ({self.bound_share:.2%} of it)"
        if not math.isfinite(self.got) and math.isfinite(self.expected):
            largest = float(jnp.finfo(dtype_of(self.dtype).jax).max)
            text = f"not finite where float64 is; the largest {self.dtype} is {largest:.3g}"
        if self.narrowed:
            text += f"; {', '.join(self.narrowed)} narrows what a loop carries, which buys no tolerance"
        return text

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {spec}" for name, spec in self.compared.items())
        return (
            f"float64 check {'passed' if self.passed else 'FAILED'}: {self.summary}\n"
            f"max abs error {self.max_abs:.3g} at {self.index} (got {self.got:.6g}, float64 "
            f"{self.expected:.6g}), "
            f"relative L2 {self.relative_l2:.2e}, {self.max_ulp:.1f} ulp at most, "
            f"{self.exact:,} of {self.elements:,} equal to the rounded float64\n"
            f"compared {shapes}; seed {self.seed}"
        )


def _store_tile(recorder: Recorder) -> tuple[int, int]:
    """Rows and columns of the largest output tile."""
    stores = [access.shape for access in recorder.accesses() if access.mode != "read"]
    rows = max((int(shape[-2]) for shape in stores if len(shape) > 1), default=1)
    return rows, max((int(shape[-1]) for shape in stores), default=1)


def _with_edge(size: int, tile: int) -> int:
    """One whole tile and the ragged edge of ``size``, or two tiles where there is no edge."""
    return min(size, tile + (size % tile or tile))


def check(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware | None = None,
    seed: int = 0,
    *,
    rows: int | None = None,
    columns: int | None = None,
) -> PrecisionReport:
    """Compare :func:`pyptox.run` with :func:`pyptox.reference` on seeded inputs.

    Reductions keep their full length. A large output is compared in part: ``rows`` and ``columns`` of it, by
    default one whole tile and the ragged edge on each axis.

    Raises:
        TooLargeError: even that part has more than ``LARGEST`` elements.

    Args:
        kernel: a kernel.
        specs: every tensor's spec, from :meth:`pyptox.Kernel.specs`.
        values: tile sizes and other parameters; defaults where left out.
        hardware: the chip whose staging limits apply; :func:`pyptox.hardware.a2a3` by default.
        seed: of the inputs.
        rows, columns: at most so many of the output.

    >>> import pyptox as px
    >>> specs = px.kernels.matmul.specs(px.spec((5, 100), "int8"), px.spec((100, 33), "int8"))
    >>> check(px.kernels.matmul, specs, {"m": 16, "n": 32, "k": 32}).max_abs
    0.0
    """
    chip = hardware or a2a3()
    values, specs = compared(kernel, specs, values, chip, rows, columns)
    inputs = sample_inputs(kernel, specs, seed)
    got = _tuple(run(kernel, *inputs, hardware=chip, **values))
    expected, bound = golden_and_bound(kernel, specs, values, chip, inputs)
    return bound_report(kernel, specs, got, expected, bound, seed)


def compared(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    chip: Hardware,
    rows: int | None = None,
    columns: int | None = None,
) -> tuple[dict[str, Any], dict[str, Spec]]:
    """The whole configuration, and the specs of the part of a problem that is compared; as in :func:`check`."""
    instance("kernel", kernel, Kernel, "a @kernel")
    values = kernel.configuration(values)
    tile = _store_tile(Recorder.of_integers(kernel, specs, values, chip))
    shape: tuple[int, ...] = specs[next(iter(kernel.outputs))].shape
    rows = _with_edge(shape[-2] if len(shape) > 1 else 1, tile[0]) if rows is None else rows
    columns = _with_edge(shape[len(shape) - 1], tile[1]) if columns is None else columns
    for name, number in (("rows", rows), ("columns", columns)):
        if number < 1:
            raise ValueError(f"`{name}` must be at least 1; got {number}")
    specs = shrink(kernel, specs, rows, columns)
    elements = sum(math.prod(spec.shape) for spec in specs.values())
    if elements > LARGEST:
        raise TooLargeError(
            f"`specs` of a comparison with float64 must hold at most {LARGEST:,} elements; {kernel.name} still has "
            f"{elements:,} with {rows} rows and {columns} columns of its output. Try fewer rows or columns, or a "
            "shorter reduction"
        )
    return values, specs


@dataclass(frozen=True)
class Bound:
    """How large the error of each output may be, and the places whose narrowing buys nothing."""

    errors: tuple[np.ndarray, ...]
    narrowed: tuple[Place, ...] = ()


def golden_and_bound(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    chip: Hardware,
    inputs: Sequence[Any],
    errors: Mapping[str, Any] | None = None,
) -> tuple[tuple[np.ndarray, ...], Bound]:
    """The float64 outputs, as :func:`golden_of` has them, and the bound of what rounding may make of them."""
    given = {
        name: np.asarray(array.values, np.int32) if isinstance(array, Spec) else widened(name, array)
        for name, array in zip(kernel.inputs, inputs, strict=True)
    }
    narrowed = tuple(narrowed_carries(kernel, specs, values, chip))
    made, bound = bounded(kernel, specs, values, chip, given, errors, narrowed)
    return _saturated(kernel, specs, made), Bound(bound, narrowed)


def bound_report(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    got: Sequence[Any],
    expected: Sequence[Any],
    bound: Bound,
    seed: int,
) -> PrecisionReport:
    """The output that comes nearest to its bound, or exceeds it most."""
    shown, length = {n: str(spec) for n, spec in specs.items()}, reduction_length(kernel, specs)
    kinds = [specs[name].dtype for name in kernel.outputs]
    return nearest_report(kernel.name, shown, kinds, got, expected, bound, length, seed)


def nearest_report(
    name: str,
    shown: dict[str, str],
    dtypes: Sequence[str],
    got: Sequence[Any],
    expected: Sequence[Any],
    bound: Bound,
    length: int,
    seed: int,
) -> PrecisionReport:
    """:func:`bound_report` of outputs of these types, of a kernel or a program."""
    places = tuple(f"{file.rsplit('/', 1)[-1]}:{line}" for file, line in bound.narrowed)
    reports = [
        _compare(name, shown, dtype, g, e, b, length, seed, places)
        for dtype, g, e, b in zip(dtypes, got, expected, bound.errors, strict=True)
    ]
    return max(reports, key=lambda report: (not report.passed, report.bound_share))


def _tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def golden_of(kernel: Kernel, specs: Mapping[str, Spec], *inputs: Any, hardware: Hardware, **values: Any) -> tuple:
    """The float64 outputs as a tuple; narrow integers saturate, as the casts that make them do."""
    return _saturated(kernel, specs, _tuple(reference(kernel, *inputs, hardware=hardware, **values)))


def _saturated(kernel: Kernel, specs: Mapping[str, Spec], made: tuple) -> tuple:
    kinds = [dtype_of(specs[name].dtype) for name in kernel.outputs]
    limits = [np.iinfo(k.jax) if k.name == "int8" else None for k in kinds]
    return tuple(m if i is None else np.clip(m, i.min, i.max) for m, i in zip(made, limits, strict=True))


def _compare(
    name: str,
    shown: dict[str, str],
    dtype: str,
    got: Any,
    expected: np.ndarray,
    accumulated: np.ndarray,
    length: int,
    seed: int,
    narrowed: tuple[str, ...],
) -> PrecisionReport:
    floating = dtype_of(dtype).floating
    stored = np.asarray(got)
    with np.errstate(over="ignore", invalid="ignore"):  # beyond the largest value, and NaN
        rounded = np.asarray(cast(expected, dtype, saturate=False)).astype(np.float64)
        wide = stored.astype(np.float64)
        error, apart = np.abs(wide - expected), np.abs(wide - rounded)
    apart = np.where(wide == rounded, 0.0, np.where(np.isfinite(apart), apart, np.inf))
    error = np.where(np.isfinite(error), error, np.inf)
    ulp = spacing_of(stored.dtype).at(np.abs(expected))
    bound = np.maximum(accumulated, 0.5 * ulp)
    if not floating:  # what is whole and comes less than half off rounds back to itself; casts add the other half
        bound = np.where((expected == np.round(expected)) & (accumulated < 1.0), 0.0, bound)
    share = np.divide(error, bound, out=np.where(error > 0, np.inf, 0.0), where=bound > 0)
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    nearest = np.unravel_index(int(np.argmax(share)), share.shape)
    return PrecisionReport(
        kernel=name,
        compared=shown,
        dtype=dtype,
        reduction=length,
        max_abs=float(error[worst]),
        index=tuple(int(i) for i in worst),
        got=float(wide[worst]),
        expected=float(expected[worst]),
        relative_l2=relative_norm(error, expected),
        max_ulp=float(np.max(apart / ulp)),
        exact=int(np.sum(wide == rounded)),
        elements=int(error.size),
        bound=float(bound[nearest]),
        bound_share=float(share[nearest]),
        seed=seed,
        narrowed=narrowed,
        passed=bool((error <= bound).all()),
    )
