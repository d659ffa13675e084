"""From a matrix of timestamps to a partition, the collective's diagnostics, and findings."""

from dataclasses import dataclass
from typing import Any

from ._collective import Collective, collective
from ._findings import Finding, inspect_epochs, inspect_rows, newest_generation
from ._layout import STAMPS, Layout, stamps_of
from ._masks import Mask, Slots, slots_in
from ._partition import Partition, partition

EVIDENCE = "rank 4 of 4: instrumentation inside the kernel, which changes what it measures"


@dataclass(frozen=True)
class Task:
    """A task's own bounds ``M0`` and ``M1``, in cycles of the clock that the cores stamp with.

    ``epoch`` is what its clock counts from; None where unknown.
    """

    start: int
    end: int
    epoch: int | None = None

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"`task` must end after it starts; got {self.start} to {self.end}")


@dataclass(frozen=True)
class Profile:
    """One round of a kernel, taken apart.

    Attributes:
        partition: the task's pieces, exact in integer cycles.
        collective: diagnostics of the collective; None where the kernel has none.
        findings: reasons not to trust it; empty is good.
        counted: how many cores each boundary was reduced over.
        generation: the generation that rows had to carry; None where they carry none.
        unchecked: what the layout or the arguments leave unchecked.
        uninstrumented: cycles of the kernel without probes, to stand beside ``partition.span``; the two are not
            subtracted, since a probe also shifts what the cores wait for.
        slots: how slots are numbered, where it is known.
    """

    partition: Partition
    collective: Collective | None
    findings: tuple[Finding, ...]
    counted: dict[str, int]
    generation: int | None
    unchecked: tuple[str, ...]
    uninstrumented: int | None = None
    slots: Slots | None = None

    @property
    def passed(self) -> bool:
        """No findings, and the identity holds."""
        return not self.findings and self.partition.exact

    @property
    def envelope(self) -> tuple[int, int]:
        """``(E, F)``, absolute cycles: what :func:`compare` takes."""
        at = {b.symbol: b.cycle for b in self.partition.boundaries}
        if "E" not in at or "F" not in at:
            raise ValueError("`profile` must have an entry and a body done; no active core has written both this round")
        return at["E"], at["F"]

    def to_dict(self) -> dict[str, Any]:
        """Everything; cycles are integers."""
        return {
            "passed": self.passed,
            "partition": self.partition.to_dict(),
            "collective": self.collective.to_dict() if self.collective else None,
            "findings": [finding.to_dict() for finding in self.findings],
            "counted": dict(self.counted),
            "generation": self.generation,
            "unchecked": list(self.unchecked),
            "envelope": {"instrumented": self.partition.span, "uninstrumented": self.uninstrumented},
            "evidence": EVIDENCE,
        }

    def __str__(self) -> str:
        lines = [str(self.partition)]
        if self.slots is not None:
            setters = [f"{b.symbol} {self.slots.name(b.slot)}" for b in self.partition.boundaries if b.slot is not None]
            lines += [f"set by {', '.join(setters)}"] * bool(setters)
        lines.append("cores  " + ", ".join(f"{name} {n}" for name, n in self.counted.items()))
        if self.collective is not None:
            lines += ["", str(self.collective)]
        if self.uninstrumented is not None:
            lines += ["", f"envelope with probes {self.partition.span:,}, without {self.uninstrumented:,} cycles"]
        lines += ["", *(f"finding  {finding}" for finding in self.findings)]
        if not self.findings:
            lines.append("no findings")
        lines += [f"not checked: {what}" for what in self.unchecked]
        lines.append(f"evidence {EVIDENCE}")
        return "\n".join(lines)


def profile(
    matrix: Any,
    *,
    active: Mask | None = None,
    producers: Mask | None = None,
    arrivals: Mask | None = None,
    releases: Mask | None = None,
    bodies: Mask | None = None,
    task: Task | None = None,
    generation: int | None = None,
    layout: Layout = Layout(),  # noqa: B008  (frozen)
    uninstrumented: int | None = None,
    slots: Slots | None = None,
) -> Profile:
    """Take one round of a kernel apart.

    ``E = min entry, R = max produced, B = max arrival, A = min release, F = max done``, each over its own cores.

    Args:
        matrix: integer stamps, core slots x 8 words, cycles.
        active: cores that run the kernel; all slots by default.
        producers, arrivals, releases, bodies: cores that take part in each phase; the active ones by default. An empty
            mask says that the kernel does not have the phase; its boundary is then absent.
        task: the task's own bounds, which extend the partition to ``M0`` and ``M1``.
        generation: what rows of this round carry; the newest in the matrix by default.
        layout: which word is what.
        uninstrumented: cycles of the kernel without probes, shown beside the span.
        slots: how slots are numbered, to name cores.

    Raises:
        ValueError: no integer matrix of 8 words, a mask beyond its slots, or no active core.

    >>> result = profile([[10, 20, 21, 40, 50, 0, 0, 7], [11, 33, 35, 41, 47, 0, 0, 7]])
    >>> [piece.cycles for piece in result.partition.pieces], result.partition.span
    ([23, 2, 5, 10], 40)
    >>> result.collective.arrival_skew, result.passed
    (14, True)
    """
    array = stamps_of(matrix)
    count = array.shape[0]
    if slots is not None and slots.count != count:
        raise ValueError(
            f"`slots` must number the matrix's {count} rows; got {slots.aic} AIC with {slots.aiv_per_aic} AIV each, "
            f"which makes {slots.count}"
        )
    running = slots_in(active, count, "active")
    if not running:
        raise ValueError("`active` must name at least one core; got none. Leave it out to count all slots")
    given = {"produced": producers, "arrival": arrivals, "release": releases, "done": bodies}
    names = {"produced": "producers", "arrival": "arrivals", "release": "releases", "done": "bodies"}
    masks = {"entry": running}
    masks |= {k: running if m is None else slots_in(m, count, names[k]) for k, m in given.items()}
    rows = layout.rows(array)
    expected = newest_generation(rows, running) if generation is None else generation
    findings, stamps = inspect_rows(rows, masks, expected)
    findings += inspect_epochs(rows, list(stamps["entry"]), task.epoch if task else None)
    cut = partition(stamps, (task.start, task.end) if task else None)
    return Profile(
        partition=cut,
        collective=collective(stamps["arrival"], stamps["release"]),
        findings=(*findings, *_order(cut)),
        counted={name: len(stamps[name]) for name in STAMPS},
        generation=expected,
        unchecked=_unchecked(layout, generation, task),
        uninstrumented=uninstrumented,
        slots=slots,
    )


def _order(cut: Partition) -> list[Finding]:
    """Boundaries that run backwards. Against the task's bounds that means another clock; inside, a wrong mask too."""
    found = []
    for piece in cut.pieces:
        if piece.cycles >= 0:
            continue
        if piece.start == "M0" or piece.end == "M1":
            message = (
                f"{piece.end} is {-piece.cycles:,} cycles before {piece.start}: task and cores use different clocks"
            )
            found.append(Finding("epoch", None, message))
        else:
            message = f"{piece.end} is {-piece.cycles:,} cycles before {piece.start}: a mask or a clock is wrong"
            found.append(Finding("order", None, message))
    return found


def _unchecked(layout: Layout, generation: int | None, task: Task | None) -> tuple[str, ...]:
    notes = []
    if "generation" not in layout.words:
        notes.append("stale rows (the layout has no generation word)")
    elif generation is None:
        notes.append("whether the newest generation is this round's (none was given)")
    if "epoch" not in layout.words:
        notes.append("epochs of the cores (the layout has no epoch word)")
    if task is None:
        notes.append("the task's own bounds (none were given)")
    return tuple(notes)
