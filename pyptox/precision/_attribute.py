"""Where a kernel's error comes from: a signed share of it for every line that rounds.

The error of the outputs, ``c - r`` for stored values c and float64 ones r, is measured by one number: a weighted sum
``L = sum(w (c - r))``. With the weights of :func:`along_error`, the default, L is the relative 2-norm of the error.
The shadow of :mod:`pyptox.precision._shadow` runs from r to c as theta goes from 0 to 1, so

    ``L = integral of sum over lines of dL / dtheta_line``,

and the derivatives half-way, by one backward pass, are each line's share: exact to second order in the errors
(midpoint rule). Their sum over the observed L is the self-check. It fails where values change by a jump on the way,
at ties of an arg-max or a top-k, and where errors are so large that no expansion holds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import PyptoxError
from .._float64 import float64_scope
from ..cost._compilation_cache import persistent
from ..hardware import Hardware
from ..lang import _run
from ..lang._kernel import Kernel
from ._norm import norm
from ._shadow import shadow_of
from ._walker import Site

TOLERANCE = 0.05
"""How far the sum of shares may be from the observed error before first order counts as failed."""

Functional = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], list[np.ndarray]]
"""``functional(candidate, reference) -> weights``, one array for each output, float64; what is summed is
``weights (candidate - reference)``."""


def _norm(array: np.ndarray) -> float:
    return norm(array) or 1.0


def along_error(candidate: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Weights along the error itself: the sum is its relative 2-norm; of several outputs, the root of their squares."""
    errors = [(c - r) / _norm(r) for c, r in zip(candidate, reference, strict=True)]
    total = _norm(np.asarray([np.linalg.norm(error) for error in errors]))
    return [error / (_norm(r) * total) for error, r in zip(errors, reference, strict=True)]


def mean_error(candidate: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Equal weights: the sum is the signed mean error, the bias, over all outputs."""
    count = sum(r.size for r in reference)
    return [np.full(r.shape, 1.0 / count) for r in reference]


def element(*index: int, output: int = 0) -> Functional:
    """The weight one at one element of an output: the sum is its error."""

    def weights(candidate: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> list[np.ndarray]:
        made = [np.zeros(r.shape) for r in reference]
        try:
            made[output][index] = 1.0
        except IndexError:
            shapes = ", ".join(str(r.shape) for r in reference)
            raise PyptoxError(
                f"`element` must be inside the outputs, of shapes {shapes}; got {index} of output {output}"
            ) from None
        return made

    return weights


@dataclass(frozen=True)
class Share:
    """What one line adds to the error.

    Attributes:
        site: the line, operation and types.
        share: signed, in units of the functional; shares add up to the error to first order.
        rms, largest: of its own rounding errors, absolute.
        elements: how many results it rounded.
        task: of a program, its number and name.
    """

    site: Site
    share: float
    rms: float
    largest: float
    elements: int
    task: str = ""

    @property
    def where(self) -> str:
        return f"{self.task} {self.site.where}".strip()

    def to_dict(self) -> dict[str, Any]:
        site = asdict(self.site) | {"types": self.site.types}
        return site | {name: getattr(self, name) for name in ("task", "share", "rms", "largest", "elements")}


@dataclass(frozen=True)
class Attribution:
    """The error of a kernel's or program's outputs, line by line.

    Attributes:
        name: of the kernel or program.
        shares: largest magnitude first.
        observed: the error that was observed, in units of the functional.
        flips: decisions that came out otherwise in float64 (``line: how many elements``).
        finite: every output is finite where its float64 value is.
        unequal_integers: elements of int32 outputs, which no weight is given to, that differ from float64.
        not_finite: elements that are NaN or infinite, stored or in float64: they have no error to share out.
    """

    name: str
    shares: tuple[Share, ...]
    observed: float
    flips: Mapping[str, int]
    finite: bool
    unequal_integers: int
    outputs: tuple[np.ndarray, ...]
    reference: tuple[np.ndarray, ...]
    not_finite: int = 0

    @property
    def total(self) -> float:
        """The sum of the shares."""
        return float(sum(share.share for share in self.shares))

    @property
    def ratio(self) -> float:
        """The sum of the shares over the observed error: 1 where first order holds. 1 for no error at all."""
        if self.observed == 0.0:
            return 1.0 if self.total == 0.0 else float("inf")
        return self.total / self.observed

    @property
    def exact(self) -> bool:
        """Stored values and float64 agree in every element."""
        return self.observed == 0.0 and self.finite and not self.unequal_integers and not self.not_finite

    @property
    def problems(self) -> list[str]:
        """Why the shares should not be believed; empty when they may be."""
        found = []
        if not self.finite:
            found.append("an output is not finite where float64 is: an overflow has no first order")
        if self.not_finite:
            count = sum(array.size for array in self.outputs)
            found.append(
                f"{self.not_finite:,} of {count:,} elements are NaN or infinite: they are left out of the error"
            )
        if self.not_finite and not math.isfinite(self.total):
            found.append("the shares are not finite either: what is NaN or infinite inside has no first order")
        elif not abs(self.ratio - 1.0) <= TOLERANCE:
            found.append(f"the shares add up to {self.ratio:.3f} of the error: first order does not hold")
        found += [f"{count:,} decisions at {where} differ from float64" for where, count in self.flips.items()]
        return found

    @property
    def holds(self) -> bool:
        """First order explains the error."""
        return not self.problems

    def by_line(self) -> dict[tuple[str, int], float]:
        """Shares added up over the operations of a line, largest magnitude first."""
        sums: dict[tuple[str, int], float] = {}
        for share in self.shares:
            key = share.site.file, share.site.line
            sums[key] = sums.get(key, 0.0) + share.share
        return dict(sorted(sums.items(), key=lambda item: -abs(item[1])))

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "observed": self.observed,
            "total": self.total,
            "ratio": self.ratio if math.isfinite(self.ratio) else None,
            "holds": self.holds,
            "exact": self.exact,
            "problems": self.problems,
            "unequal_integers": self.unequal_integers,
            "not_finite": self.not_finite,
            "shares": [share.to_dict() for share in self.shares],
        }

    def table(self, rows: int = 12) -> str:
        """The largest shares, one a line, with their part of the error and what is explained so far."""
        if self.exact:
            return "exact: stored values and float64 agree in every element"
        scale, lines, sofar = self.observed or 1.0, [], 0.0
        lines.append(f"{'share':>9} {'of error':>9} {'sum':>8}  {'rms':>8}  where")
        adding = [share for share in self.shares if share.share]
        for share in adding[:rows]:
            sofar += share.share
            part = f"{share.share:9.2e} {share.share / scale:9.1%} {sofar / scale:8.1%}  {share.rms:8.1e}"
            lines.append(f"{part}  {share.where}  {share.site.operation} {share.site.types}")
        rest, idle = adding[rows:], len(self.shares) - len(adding)
        if rest:
            lines.append(f"{sum(share.share for share in rest):9.2e}  in {len(rest)} further places")
        if idle:  # a constant that masks, say: what it rounds reaches no output
            lines.append(f"{0:9.0f}  in {idle} places whose rounding reaches no output")
        return "\n".join(lines)

    def __str__(self) -> str:
        verdict = "first order holds" if self.holds else "NOT TO BE RELIED ON"
        count = sum(array.size for array in self.outputs)
        if self.not_finite and self.not_finite >= count:
            return f"{self.name}: no output is finite, there is no error to share out; {verdict}"
        of = f" in the {count - self.not_finite:,} finite elements" if self.not_finite else ""
        head = f"{self.name}: error {self.observed:.3e}{of}, shares add up to {self.ratio:.4f} of it; {verdict}"
        return "\n".join([head, *(f"  {problem}" for problem in self.problems), self.table()])


def shares_of(
    sites: Mapping[Site, int], slopes: np.ndarray, statistics: np.ndarray, task: str = ""
) -> tuple[list[Share], dict[str, int]]:
    """Shares and flips from the two passes of one kernel."""
    shares, flips = [], {}
    for site, number in sites.items():
        if site.title:
            continue
        squares, count, largest, flipped = (float(x) for x in statistics[number])
        if flipped:
            flips[f"{task} {site.where}".strip()] = int(flipped)
        if count:
            rms = (squares / count) ** 0.5
            shares.append(Share(site, float(slopes[number]), rms, largest, int(count), task))
    return shares, flips


def made_of(
    name: str,
    shares: Sequence[Share],
    flips: Mapping[str, int],
    low: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    weights: Sequence[np.ndarray],
) -> Attribution:
    """The report, from shares, both outputs and the weights of the functional."""
    wide = [np.asarray(c).astype(np.float64) for c in low]
    finite = all(bool((np.isfinite(c) | ~np.isfinite(r)).all()) for c, r in zip(wide, reference, strict=True))
    with np.errstate(invalid="ignore"):
        observed = sum(
            float(np.sum(np.where(w == 0, 0.0, w * (c - r)))) for w, c, r in _triples(weights, wide, reference)
        )
    unequal = sum(int(np.sum(c != r)) for c, r, a in _triples(wide, reference, low) if a.dtype == np.int32)
    lost = sum(int(np.sum(~(np.isfinite(c) & np.isfinite(r)))) for c, r in zip(wide, reference, strict=True))
    ordered = tuple(sorted(shares, key=lambda share: -abs(share.share)))
    return Attribution(name, ordered, observed, dict(flips), finite, unequal, tuple(low), tuple(reference), lost)


def _triples(*arrays: Sequence[np.ndarray]) -> Any:
    return zip(*arrays, strict=True)


def weights_of(functional: Functional, low: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The functional's weights for the outputs that are not int32; zero where a value is not finite."""
    chosen = [n for n, c in enumerate(low) if c.dtype != np.int32]
    wide = [np.asarray(low[n]).astype(np.float64) for n in chosen]
    ideal = [reference[n] for n in chosen]
    usable = [np.isfinite(c) & np.isfinite(r) for c, r in zip(wide, ideal, strict=True)]
    wide = [np.where(u, c, 0.0) for u, c in zip(usable, wide, strict=True)]
    ideal = [np.where(u, r, 0.0) for u, r in zip(usable, ideal, strict=True)]
    weights = [np.zeros(r.shape) for r in reference]
    if chosen:
        for n, made, u in zip(chosen, _weights(functional(wide, ideal), ideal), usable, strict=True):
            weights[n] = np.where(u, made, 0.0)
    return weights


def _weights(made: Any, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a functional gave, as one array of weights for each output."""
    shapes = [output.shape for output in outputs]
    expected = f"`functional` must give one array of finite weights for each output, of shapes {shapes}"
    if not isinstance(made, list | tuple) or len(made) != len(outputs):
        raise PyptoxError(f"{expected}; got {made!r}")
    try:
        arrays = [np.asarray(weight, np.float64) for weight in made]
    except (TypeError, ValueError):
        raise PyptoxError(f"{expected}; got {made!r}") from None
    if [array.shape for array in arrays] != shapes:
        raise PyptoxError(f"{expected}; got shapes {[array.shape for array in arrays]}")
    if not all(np.isfinite(array).all() for array in arrays):
        raise PyptoxError(f"{expected}; got some that are NaN or infinite")
    return arrays


def attribute(
    kernel: Kernel,
    *inputs: Any,
    functional: Functional = along_error,
    hardware: Hardware | None = None,
    **parameters: Any,
) -> Attribution:
    """A signed share of the output error for every operation and cast of ``kernel``.

    Iterations of a loop and blocks of the grid are summed per line. Indices (int32 outputs) have no error to share
    out: they are equal to float64's or counted as ``unequal_integers`` and ``flips``.

    Args:
        kernel: a kernel.
        inputs: one array per input; a control input as ``px.control(values)``.
        functional: what one number is made of the output error: :func:`along_error`, :func:`mean_error`,
            :func:`element`, or a function of your own.
        hardware: the chip whose staging limits apply.
        parameters: tile sizes and other parameters; defaults where left out.

    Returns:
        An :class:`Attribution`; ``holds`` is False where its shares should not be believed, and ``problems`` says why.

    >>> import numpy as np, pyptox as px
    >>> x = np.random.default_rng(0).standard_normal((8, 256)).astype("bfloat16")
    >>> report = attribute(px.kernels.softmax, x)
    >>> report.holds, report.shares[0].site.types, 0.99 < report.ratio < 1.01
    (True, 'fp32→bf16', True)
    """
    if not callable(functional):
        raise PyptoxError(
            f"`functional` must be a function of (candidate, reference); got {functional!r}. Try mean_error"
        )
    arrays, specs = _run._arrays_and_specs(kernel, inputs)
    named = dict(zip(kernel.inputs, arrays, strict=True))
    with persistent(), float64_scope():
        shadow = shadow_of(kernel, specs, parameters, frozenset(), hardware)
        given = {name: jnp.asarray(array) for name, array in named.items()}
        low, ideal, statistics = shadow.forward(given, {}, jnp.zeros(shadow.capacity, jnp.float64))
        low = [np.asarray(array) for array in low]
        reference = [np.asarray(array) for array in ideal]
        weights = weights_of(functional, low, reference)
        half = jnp.full(shadow.capacity, 0.5, jnp.float64)
        slopes, _ = shadow.pull(given, {}, half, tuple(jnp.asarray(w) for w in weights))
        shares, flips = shares_of(shadow.sites, np.asarray(slopes), np.asarray(statistics))
    return made_of(kernel.name, shares, flips, low, reference, weights)
