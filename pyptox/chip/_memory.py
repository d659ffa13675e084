"""What the blocks of a workload move, and the derivative of what a block takes.

Times are those of one block, or of the ``together`` blocks that are taken to run at once, in µs. With ``found``
the share of the task's traffic from HBM that L2 holds, a block alone on the chip takes

    alone = duration_us - found (duration_us - resident_us)

and each core asks for ``(1 - found) hbm_us / (n alone)`` of what HBM can supply, and for ``l2_us / (n alone)`` of what
L2 can, where ``n`` cores run these blocks. With ``H`` and ``L`` the sums of what all busy cores ask, a block takes

    max(alone, resident_us + (alone - resident_us) H, (1 - found) hbm_us H, l2_us L)

which is homogeneous of degree one in the four times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._errors import PyptoxError
from ._constants import on_grid
from ._record import FOUND, HBM_SHARE, L2_SHARE, Record
from ._warm import Warms

COLUMNS = ("resident_us", "hbm_us", "l2_us")


@dataclass(frozen=True, eq=False)
class Memory:
    """Rows of ``resident_us``, ``hbm_us``, ``l2_us`` and ``uses`` are tasks.

    Attributes:
        resident_us: what a block takes that finds everything in L2; the workload's ``duration_us`` is for one that
            finds nothing there.
        hbm_us: how long HBM takes for the blocks that run together, if they find nothing.
        l2_us: how long L2 takes for them.
        regions: bytes of every region of GM.
        uses: regions that a task reads or writes, in order, each with its share of the traffic from HBM (0 for what is
            only written). What is left of 1 always comes from HBM.
        together: blocks that the times of a task are for: as many as run at once.
        capacity: bytes of L2; the least recently used region goes first.
        warms: tasks that bring regions into L2 ahead of their use.
        passes: how often the task reads each byte of the regions that it uses: as often as it has blocks where each
            needs all of them, once where blocks share them out.
    """

    resident_us: np.ndarray
    hbm_us: np.ndarray
    l2_us: np.ndarray
    regions: np.ndarray
    uses: tuple[tuple[tuple[int, float], ...], ...]
    together: np.ndarray
    capacity: float
    warms: Warms | None = None
    passes: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(
        cls,
        resident_us: Sequence[float],
        hbm_us: Sequence[float],
        l2_us: Sequence[float],
        *,
        regions: Sequence[int] = (),
        uses: Sequence[Sequence[tuple[int, float]]] | None = None,
        together: Sequence[float] | None = None,
        capacity: float = 192 * 2**20,
        warms: Warms | None = None,
        passes: Sequence[Sequence[float]] | None = None,
    ) -> "Memory":
        """From plain lists; ``together`` and ``passes`` are 1 where left out.

        Raises:
            PyptoxError: times or sizes that are negative or not finite, an unknown region, or shares beyond 1.

        >>> Memory.of([8.0], [9.0], [2.0], regions=[2**20], uses=[[(0, 1.0)]]).regions.tolist()
        [1048576.0]
        """
        uses = [[] for _ in resident_us] if uses is None else uses
        for name, values in zip(COLUMNS, (resident_us, hbm_us, l2_us), strict=True):
            if not all(0 <= value < float("inf") for value in values):
                raise PyptoxError(f"`{name}` must be finite µs, not negative; got {min(values)!r} to {max(values)!r}")
        together = [1] * len(resident_us) if together is None else together
        if not all(1 <= blocks < float("inf") for blocks in together):
            raise PyptoxError(f"`together` must be 1 block or more for each task; got {list(together)}")
        if not all(0 < size < 2**50 for size in (*regions, capacity)):
            raise PyptoxError("`regions` and `capacity` must be bytes, more than 0")
        for task, each in enumerate(uses):
            if not all(0 <= region < len(regions) and 0 <= share <= 1 for region, share in each):
                raise PyptoxError(f"`uses` of task {task} must be (region, share) with known regions; got {list(each)}")
            if sum(share for _, share in each) > 1 + 1e-6:
                raise PyptoxError(f"`uses` of task {task} must have shares that add up to 1 at most")
        for task, each in enumerate(() if warms is None else warms.targets):
            if not all(0 <= region < len(regions) for region, _ in each) or (each and uses[task]):
                raise PyptoxError(f"`warms` of task {task} must name known regions, and the task use none itself")
        passes = [[1.0] * len(each) for each in uses] if passes is None else passes
        for task, (each, times) in enumerate(zip(uses, passes, strict=False)):
            if len(each) != len(times) or not all(1 <= many < float("inf") for many in times):
                raise PyptoxError(f"`passes` of task {task} must be 1 or more for each region; got {list(times)}")
        resident, hbm, l2 = (on_grid(values) for values in (resident_us, hbm_us, l2_us))
        kept = tuple(tuple((int(region), float(share)) for region, share in each) for each in uses)
        sizes, blocks = np.asarray(regions, np.float64), np.asarray(together, np.float64)
        often = tuple(tuple(map(float, each)) for each in passes)
        return cls(resident, hbm, l2, sizes, kept, blocks, float(capacity), warms, often)

    def columns(self) -> dict[str, Sequence]:
        """What has a row for every task."""
        columns: dict[str, Sequence] = {name: getattr(self, name) for name in (*COLUMNS, "uses", "together", "passes")}
        return columns if self.warms is None else columns | {"warms": self.warms.targets}

    def taken(self, rows: Sequence[int], scale: np.ndarray) -> "Memory":
        """Of copies of tasks, their times scaled; a scale of 0 is for a task without blocks."""
        index = np.asarray(rows, np.int64)
        resident, hbm, l2 = (on_grid(getattr(self, name)[index] * scale) for name in COLUMNS)
        uses = tuple(self.uses[row] if factor else () for row, factor in zip(rows, scale, strict=True))
        warms = None if self.warms is None else self.warms.taken(rows)
        passes = tuple(self.passes[row] if factor else () for row, factor in zip(rows, scale, strict=True))
        columns = {"resident_us": resident, "hbm_us": hbm, "l2_us": l2, "uses": uses, "warms": warms, "passes": passes}
        return replace(self, together=self.together[index], **columns)

    def least(self, duration_us: np.ndarray, repeated: bool) -> np.ndarray:
        """What a block of each task takes at least, whatever runs when, µs: only what no other task uses is cold.

        Args:
            duration_us: of the workload.
            repeated: a round before may have left everything.
        """
        users = np.zeros(len(self.regions), np.int64)
        for each in (*self.uses, *(() if self.warms is None else self.warms.targets)):
            users[[region for region, _ in each]] += 1
        found = [sum(share for region, share in each if repeated or users[region] > 1) for each in self.uses]
        return duration_us - on_grid((duration_us - self.resident_us) * np.minimum(found, 1.0))

    def distances(self, runs: np.ndarray, repeated: bool) -> np.ndarray:
        """Bytes that were used since each region was; infinite where nothing was yet.

        Args:
            runs: by task, whether it has blocks.
            repeated: after a round of the same tasks in the order of submission, else with nothing in L2.
        """
        last = np.full(len(self.regions), -1)
        if repeated:
            flat = [region for task in np.flatnonzero(runs) for region, _ in self.uses[task]]
            last[flat] = np.arange(len(flat))
        order = np.argsort(-last, kind="stable")
        since = np.empty(len(last))
        since[order] = np.cumsum(self.regions[order]) - self.regions[order]
        return np.where(last < 0, np.inf, since)


@dataclass(frozen=True, eq=False)
class Slopes:
    """Derivatives of a makespan by the times of every task, in the order of its rows."""

    duration_us: np.ndarray
    resident_us: np.ndarray
    hbm_us: np.ndarray
    l2_us: np.ndarray

    def along(self, duration_us: np.ndarray, memory: Memory | None) -> np.ndarray:
        """Derivative by ``duration_us`` where the times of the memory go along with it."""
        if memory is None:
            return self.duration_us
        parts = sum(getattr(self, name) * getattr(memory, name) for name in COLUMNS)
        rest = np.divide(parts, duration_us, out=np.zeros(len(duration_us)), where=duration_us > 0)
        return self.duration_us + rest


def ratios(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """How many times as large; 1 for tasks that took nothing, 0 for those that take nothing now."""
    return np.divide(after, before, out=np.ones(len(before)), where=before > 0)


def pulled_back(
    counts: np.ndarray, duration_us: np.ndarray, cores: np.ndarray, memory: Memory, record: Record
) -> Slopes:
    """From how often each task's blocks lie on the critical path to derivatives by what states their time.

    Args:
        counts: blocks on the path, by task.
        duration_us: of the workload.
        cores: of one block, by task.
        memory: of the workload.
        record: of the simulation.
    """
    found, (hbm, l2) = record.memory[:, FOUND], (record.memory[:, HBM_SHARE], record.memory[:, L2_SHARE])
    alone = duration_us - on_grid((duration_us - memory.resident_us) * found)
    missing, moved = alone - memory.resident_us, memory.hbm_us * (1.0 - found)
    bound = np.argmax([alone, memory.resident_us + missing * hbm, moved * hbm, memory.l2_us * l2], 0)
    by_bound = [np.where(bound == n, counts, 0.0).astype(np.float64) for n in range(4)]
    by_alone, by_resident = by_bound[0] + by_bound[1] * hbm, by_bound[1] * (1.0 - hbm)
    full = alone * memory.together * cores
    rate, each = (np.divide(1.0, x, out=np.zeros(len(x)), where=x > 0) for x in (full, alone))
    by_traffic = []
    for traffic, direct, by_share in (
        (moved, by_bound[2] * hbm, by_bound[1] * missing + by_bound[2] * moved),
        (memory.l2_us, by_bound[3] * l2, by_bound[3] * memory.l2_us),
    ):
        asked = by_share * record.beside[:, -1] * cores  # derivative by what a core of each task asks
        tasks = np.flatnonzero(by_share)
        beside = record.beside[tasks, :-1]
        parts = np.repeat(by_share[tasks], beside.shape[1]).reshape(beside.shape)
        np.add.at(asked, beside[beside >= 0], parts[beside >= 0])
        by_traffic.append(direct + asked * rate)
        by_alone -= asked * traffic * rate * each
    by_resident += by_alone * found
    return Slopes(by_alone * (1.0 - found), by_resident, by_traffic[0] * (1.0 - found), by_traffic[1])
