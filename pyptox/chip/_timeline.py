"""What comes out of a simulation, and its readings."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..hardware import Hardware
from ..program._graph import Graph
from ._attribute import hardware_shares
from ._constants import CONSTANTS, Schedule
from ._machine import ELIGIBLE, EMPTIED, HEAD, READY, SLOT, THREAD, Record
from ._memory import Slopes, pulled_back
from ._oracle import Times
from ._path import Piece, Totals, Walk, totals
from ._workload import AIC, AIV, ALLOC, DUMMY, MIX, SHAPES, Workload

if TYPE_CHECKING:
    from ..rings import Run
    from ._blocks import Layout
    from ._landing import Landing
    from ._ring_waits import RingWait


@dataclass(frozen=True)
class StaticPath:
    """The longest chain of durations: what unlimited cores and a free scheduler would take.

    Attributes:
        time_us: sum of its durations.
        tasks: numbers, first to last.
    """

    time_us: float
    tasks: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Timeline:
    """When each task was submitted, ready, taken up, ran and was finished; times in µs from the first submission on.

    A task's ``start`` is that of its first block, its ``end`` that of its last; ``finish`` is when its consumers may
    go on.

    Attributes:
        workload: what ran.
        schedule: the scheduler's constants.
        clusters: cube cores, each with two vector cores.
        times: by task.
        record: what bound each event.
        graph: the program's graph, where there is one.
        hardware: the chip.
        repeated: L2 holds what a round before left, as in a benchmark of one step.
    """

    workload: Workload
    schedule: Schedule
    clusters: int
    times: Times
    record: Record
    hardware: Hardware
    graph: Graph | None = None
    repeated: bool = False

    @property
    def makespan_us(self) -> float:
        """The last finish."""
        return float(self.times.finish.max(initial=0.0))

    @property
    def mode(self) -> str:
        """What L2 holds at the beginning, in words."""
        return REPEATED if self.repeated else COLD

    @functools.cached_property
    def landings(self) -> "tuple[Landing, ...]":
        """What each warm brings, when it lands, and who needs it when; see :mod:`._landing`."""
        from ._landing import landings

        return landings(self)

    @functools.cached_property
    def without_warms(self) -> "tuple[Timeline, list[int]] | None":
        """The same tasks without their warms, and which of these tasks they are; None where there are none."""
        from ._placing import without_warms
        from ._retired import settled

        if self.workload.memory is None or self.workload.memory.warms is None:
            return None
        work, kept = without_warms(self.workload)
        work, times, record = settled(work, self.schedule, self.clusters, self.repeated)
        return Timeline(work, self.schedule, self.clusters, times, record, self.hardware, None, self.repeated), kept

    @functools.cached_property
    def stalls(self) -> np.ndarray:
        """How long each submission waited for its ring, µs."""
        from ._retired import stalls

        return stalls(self.workload, self.times, self.schedule)

    @functools.cached_property
    def ring_waits(self) -> "tuple[RingWait, ...]":
        """Submissions that waited for a ring: how long, for what, and which task pinned it (:mod:`._ring_waits`)."""
        from ._ring_waits import ring_waits

        return ring_waits(self)

    @functools.cached_property
    def rings(self) -> "Run | None":
        """The account of the rings: peaks, scope statistics, stalls by resource; None where no storage is stated."""
        from ._retired import replayed

        return None if self.workload.storage is None else replayed(self.workload, self.times, self.schedule)

    @property
    def work_us(self) -> dict[str, float]:
        """Busy time of all AIC and of all AIV cores together."""
        return self._work(self.times.block)

    def _work(self, block_us: np.ndarray) -> dict[str, float]:
        work = self.workload
        total = work.blocks * block_us
        mixed = float(total[work.shapes == MIX].sum())
        return {
            "AIC": float(total[work.shapes == AIC].sum()) + mixed,
            "AIV": float(total[work.shapes == AIV].sum()) + 2 * mixed,
        }

    @property
    def utilisation(self) -> dict[str, float]:
        """Share of the makespan that AIC cores, AIV cores, scheduler threads and the orchestrator work, 0 to 1.

        Of a scheduler thread only what it is charged for counts: taking up, publishing and retiring, not looking.
        """
        span = self.makespan_us or 1.0
        kinds = {"AIC": self.clusters, "AIV": 2 * self.clusters}
        shares = {kind: self.work_us[kind] / (span * count) for kind, count in kinds.items()}
        shares["scheduler"] = self._scheduler_us() / (span * self.schedule.threads)
        shares["orchestrator"] = (float(self.times.submitted.max(initial=0.0)) - float(self.stalls.sum())) / span
        return shares

    @property
    def each_utilisation(self) -> dict[str, np.ndarray]:
        """:attr:`utilisation` of each core and each scheduler thread by itself; AIV ``n`` is in cluster ``n // 2``."""
        span, blocks = self.makespan_us or 1.0, self.layout.blocks
        core = blocks.cluster * 3 + blocks.lane
        busy = np.bincount(core, blocks.end - blocks.start, 3 * self.clusters).reshape(self.clusters, 3)
        threads = [one.thread for one in self.layout.served]
        served = [one.end_us - one.start_us for one in self.layout.served]
        of_thread = np.bincount(np.array(threads, int), served, self.schedule.threads)
        return {"AIC": busy[:, 0] / span, "AIV": busy[:, 1:].ravel() / span, "scheduler": of_thread / span}

    def _scheduler_us(self) -> float:
        c, work = self.schedule.values(), self.workload
        amounts = self.record.dispatched[:, HEAD + 2 * self.clusters :] & 0xFFFFF
        wide = np.arange(2 * self.clusters)
        each = -(-self.clusters // self.schedule.threads)
        total = c["dummy_us"] * int((work.shapes == DUMMY).sum())
        for shape, weight, owned in ((MIX, 3, each), (AIC, 1, each), (AIV, 1, 2 * each)):
            used = amounts[work.shapes == shape] > 0
            threads = sum(int(used[:, wide // owned == t].any(1).sum()) for t in range(self.schedule.threads))
            total += threads * (c["dispatch_us"] + c["complete_us"])
            total += weight * int(used.sum()) * (c["dispatch_each_us"] + c["complete_each_us"])
        return total

    @property
    def bound(self) -> list[str]:
        """What each task's dispatch waited for last.

        ``submission`` or ``producer`` (it was not ready), ``ring`` (its submission had waited for one), ``scheduler``
        (no thread was free), ``core`` (no slot was open); of a staged task also ``publication`` (of its producers) and
        ``ready tasks``, which go first. Empty for an allocation.
        """
        names = {THREAD: "scheduler", SLOT: "core", ELIGIBLE: "publication", EMPTIED: "ready tasks"}
        result = []
        for number, shape in enumerate(self.workload.shapes):
            cause = int(self.record.dispatched[number, 0])
            if cause == READY:
                submitted = "ring" if self.stalls[number] > 0 else "submission"
                woken = submitted if self.record.woken[number] < 0 else "producer"
                result.append("" if shape == ALLOC else woken)
            else:
                result.append(names[cause])
        return result

    @property
    def staged(self) -> np.ndarray:
        """For each task whether early dispatch published it before its last producer was finished."""
        return self.times.dispatch < self.times.ready

    def gaps(self) -> dict[str, np.ndarray]:
        """Where the time before each task's first block goes, µs by task.

        ``ring``: its submission waited so long for a ring; later ones are late with it, at no charge of their own.
        ``detection``: from the last end of the producer that made it ready to that producer's finish; 0 where its
        submission did. ``queued``: from ready to taken up. ``pickup``: from taken up to the first start; for a staged
        task ``gate`` instead, from ready to the first start.
        """
        times, woken, staged = self.times, self.record.woken, self.staged
        late = (times.finish - times.end)[np.maximum(woken, 0)] if len(woken) else times.finish
        return {
            "ring": self.stalls,
            "detection": np.where(woken >= 0, late, 0.0),
            "queued": np.where(staged, 0.0, times.dispatch - times.ready),
            "pickup": np.where(staged, 0.0, times.start - times.dispatch),
            "gate": np.where(staged, times.start - times.ready, 0.0),
        }

    @functools.cached_property
    def _pieces(self) -> list[Piece]:
        walk = Walk(self.workload, self.schedule, self.clusters, self.times, self.record)
        return list(walk.back())[::-1]

    @functools.cached_property
    def layout(self) -> "Layout":
        """Every block with its core and its stamps, and what the scheduler threads did."""
        from ._blocks import layout

        return layout(self)

    def critical(self) -> list[Piece]:
        """The observed critical path, first to last: each piece starts where the one before it ends.

        They tile the makespan exactly.
        """
        return list(self._pieces)

    @functools.cached_property
    def _totals(self) -> Totals:
        return totals(self._pieces, self.workload.tasks)

    def gradient(self) -> tuple[dict[str, int], np.ndarray]:
        """Derivative of the makespan in every constant of the schedule, and in what every task's block took.

        Where two events tie it is that of one side. A change of the order in which tasks are taken up is a jump, which
        no derivative sees.

        Returns:
            ``(by constant, by task)``. Constants and ``times.block`` times these add up to the makespan, where no
            submission was measured.
        """
        return self._totals.constants, self._totals.durations

    def slopes(self) -> Slopes:
        """Derivative of the makespan by what states the time of each task's blocks (:mod:`._memory`).

        Which tasks run at the same time, and what a task finds in L2, is taken as it was.
        """
        counts, work = self.gradient()[1].astype(np.float64), self.workload
        if work.memory is None:
            nothing = np.zeros(work.tasks)
            return Slopes(counts, nothing, nothing, nothing)
        cores = np.where(work.shapes == MIX, 3, 1)
        return pulled_back(counts, work.duration_us, cores, work.memory, self.record)

    def fraction_slopes(self) -> np.ndarray:
        """Derivative of the makespan by the fraction of each region that a warm brings, µs.

        In the order of ``workload.memory.warms.fractions()``; empty without warms. It agrees with finite differences
        where the order of events does not change, nor what L2 puts out.
        """
        from ._fractions import fraction_slopes

        return fraction_slopes(self)

    def attribution(self) -> dict[str, float]:
        """Microseconds of the makespan by constant of the schedule, and by the blocks of each kind of task.

        They add up to the makespan.
        """
        constants, durations = self.gradient()
        parts = {
            name: n * value for (name, value), n in zip(self.schedule.values().items(), constants.values(), strict=True)
        }
        if self._totals.submitted is not None:
            parts[MEASURED] = float(self.times.submitted[self._totals.submitted])
        spent = durations * self.times.block
        for number in np.flatnonzero(durations):
            kind = self._kind(int(number))
            parts[kind] = parts.get(kind, 0.0) + float(spent[number])
        return parts

    def _kind(self, number: int) -> str:
        if self.graph is not None:
            return self.graph.tasks[number].name
        name, kind = self.workload.names[number], self.workload.kind(number)
        return SHAPES[self.workload.shapes[number]] if kind == name else kind.partition("[")[0]

    def by_hardware(self) -> dict[str, float]:
        """Microseconds of the blocks on the critical path by constant of the chip; empty without a graph.

        With the schedule's constants they add up to the makespan, but for rounding to the grid of times.
        """
        if self.graph is None:
            return {}
        return hardware_shares(self.graph, self.hardware, self.gradient()[1], self.times.block, self.record.memory)

    @property
    def limit(self) -> str:
        """The largest part of :meth:`attribution`, submission, dispatch and retirement each taken together."""
        constants, durations = self.gradient()
        values, parts = self.schedule.values(), dict[str, float]()
        for name, n in constants.items():
            label = _LABELS[name]
            parts[label] = parts.get(label, 0.0) + n * values[name]
        for kind, time in self.attribution().items():
            if kind not in CONSTANTS:
                parts[kind if kind == MEASURED else f"{kind} blocks"] = time
        return max(parts, key=parts.__getitem__) if durations.size else "none"

    def static_path(self) -> StaticPath:
        """The critical path with unlimited cores, where every block of a task runs at once."""
        return self._longest(self.times.block)

    def _longest(self, block_us: np.ndarray) -> StaticPath:
        work = self.workload
        reach, before = [0.0] * work.tasks, [-1] * work.tasks
        for task, preds in enumerate(work.waits):
            for pred in preds:
                if reach[pred] > reach[task] or before[task] < 0:
                    reach[task], before[task] = reach[pred], pred
            reach[task] += float(block_us[task])
        if not reach:
            return StaticPath(0.0, ())
        task = int(np.argmax(reach))
        chain = [task]
        while before[chain[-1]] >= 0:
            chain.append(before[chain[-1]])
        return StaticPath(reach[task], tuple(chain[::-1]))

    @property
    def bound_us(self) -> float:
        """What no order of these tasks beats: the larger of the longest chain and the work over the cores.

        Each block with nothing beside it but its own task's, and with all in L2 that another task uses too.
        """
        cores, least = {"AIC": self.clusters, "AIV": 2 * self.clusters}, self.times.block
        if self.workload.memory is not None:
            least = np.minimum(self.workload.memory.least(self.workload.duration_us, self.repeated), least)
        return max(self._longest(least).time_us, *(self._work(least)[kind] / n for kind, n in cores.items()))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        work, times = self.workload, self.times
        columns = {"submitted": times.submitted, "ready": times.ready, "dispatch": times.dispatch}
        columns |= {"start": times.start, "end": times.end, "finish": times.finish}
        static, gaps = self.static_path(), self.gaps()
        return {
            "hardware": self.hardware.name,
            "l2": self.mode,
            "makespan_us": self.makespan_us,
            "bound_us": self.bound_us,
            "limit": self.limit,
            "utilisation": self.utilisation,
            "rings": {
                "stall_us": float(self.stalls.sum()),
                "on_path_us": sum(wait.waited_us for wait in self.ring_waits if wait.on_path),
                "waits": [vars(wait) for wait in self.ring_waits],
            },
            "each_utilisation": {kind: shares.tolist() for kind, shares in self.each_utilisation.items()},
            "attribution": self.attribution(),
            "by_hardware": self.by_hardware(),
            "schedule": self.schedule.values() | {"threads": self.schedule.threads},
            "static_path": {"time_us": static.time_us, "tasks": list(static.tasks)},
            "critical": [vars(piece) for piece in self._pieces],
            "tasks": [
                {
                    "number": n,
                    "name": work.names[n],
                    "shape": SHAPES[work.shapes[n]],
                    "blocks": int(work.blocks[n]),
                    "block_us": float(times.block[n]),
                    "bound": bound,
                    "staged": bool(self.staged[n]),
                    **{f"{name}_us": float(column[n]) for name, column in columns.items()},
                    "gap_us": {name: float(gap[n]) for name, gap in gaps.items()},
                }
                for n, bound in enumerate(self.bound)
            ],
        }

    def __str__(self) -> str:
        work, times, span = self.workload, self.times, self.makespan_us or 1.0
        lines = [
            f"{'task':<28} {'shape':<5} {'blocks':>6} {'block µs':>9} {'ready':>9} {'dispatch':>9} {'start':>9} "
            f"{'end':>9} {'finish':>9}  waited for"
        ]
        staged = self.staged
        for n, bound in enumerate(self.bound):
            stamps = (times.ready[n], times.dispatch[n], times.start[n], times.end[n], times.finish[n])
            lines.append(
                f"{work.names[n]:<28} {SHAPES[work.shapes[n]]:<5} {work.blocks[n]:>6} {times.block[n]:>9.2f} "
                + " ".join(f"{stamp:>9.2f}" for stamp in stamps)
                + f"  {bound}"
                + (", staged" if staged[n] else "")
            )
        lines += ["", "utilisation  " + ", ".join(f"{name} {share:.1%}" for name, share in self.utilisation.items())]
        waits = {name: waited.sum() for name, waited in self.gaps().items() if waited.any()}
        lines.append("gaps         " + (", ".join(f"{name} {us:.2f} µs" for name, us in waits.items()) or "none"))
        lines += [] if work.memory is None else [f"L2           {self.mode}"]
        static = self.static_path()
        lines.append(
            f"bound        {self.bound_us:.2f} µs in any order; {self.makespan_us / self.bound_us - 1:.0%} above it"
            f"; static path {static.time_us:.2f} µs over {len(static.tasks)} tasks"
            if self.bound_us
            else "bound        0 µs"
        )
        lines.append(f"limit        {self.limit}")
        if self.stalls.any():
            waited = int(np.count_nonzero(self.stalls))
            lines.append(f"rings        {waited:,} submissions waited {self.stalls.sum():,.2f} µs for one")
        lines += ["", "of the makespan           µs   share"]
        for name, part in sorted(self.attribution().items(), key=lambda item: -item[1]):
            if part:
                lines.append(f"{name:<20} {part:>9.2f}  {part / span:>6.1%}")
        return "\n".join(lines)


COLD, REPEATED = "cold: a step inside a network", "repeated: a benchmark round that finds what the one before left"
"""What L2 holds at the beginning."""

MEASURED = "measured submission"
"""The part of a makespan before the submission that it began with, where submissions were measured."""

_LABELS = {
    "submit_us": "submission",
    "submit_edge_us": "submission",
    "dispatch_us": "dispatch",
    "dispatch_each_us": "dispatch",
    "complete_us": "retirement",
    "complete_each_us": "retirement",
    "dummy_us": "dummies",
    "doorbell_us": "start of blocks",
    "receive_us": "start of blocks",
    "first_us": "start of blocks",
    "fin_us": "FIN detection",
    "poll_us": "FIN detection",
    "switch_us": "start of blocks",
}
