"""What the blocks of a workload move, and the derivative of what a block takes.

Times are those of one block, or of one round of a task's blocks (as many as there are cores), in µs. With ``found``
the share of the task's traffic from HBM that L2 holds, a block alone on the chip takes

    alone = duration_us - found (duration_us - resident_us)

and its task asks ``(1 - found) hbm_us / alone`` of what HBM can supply, ``l2_us / alone`` of what L2 can. With ``H``
and ``L`` the sums of what all running tasks ask, this one among them, it takes

    max(alone, (1 - found) hbm_us H, l2_us L)

which is homogeneous of degree one in the four times.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._errors import PyptoxError
from ._constants import on_grid
from ._record import FOUND, HBM_SHARE, L2_SHARE, MIDDLE, ORDINAL

COLUMNS = ("resident_us", "hbm_us", "l2_us")


@dataclass(frozen=True, eq=False)
class Memory:
    """Rows of ``resident_us``, ``hbm_us``, ``l2_us`` and ``uses`` are tasks.

    Attributes:
        resident_us: what a block takes that finds everything in L2; the workload's ``duration_us`` is for one that
            finds nothing there.
        hbm_us: how long HBM takes for one round of blocks that find nothing.
        l2_us: how long L2 takes for one round.
        regions: bytes of every region of GM.
        uses: regions that a task reads or writes, in order, each with its share of the traffic from HBM (0 for what is
            only written). What is left of 1 always comes from HBM.
        capacity: bytes of L2; the least recently used region goes first.
    """

    resident_us: np.ndarray
    hbm_us: np.ndarray
    l2_us: np.ndarray
    regions: np.ndarray
    uses: tuple[tuple[tuple[int, float], ...], ...]
    capacity: float

    @classmethod
    def of(
        cls,
        resident_us: Sequence[float],
        hbm_us: Sequence[float],
        l2_us: Sequence[float],
        *,
        regions: Sequence[int] = (),
        uses: Sequence[Sequence[tuple[int, float]]] | None = None,
        capacity: float = 192 * 2**20,
    ) -> "Memory":
        """From plain lists.

        Raises:
            PyptoxError: times or sizes that are negative or not finite, an unknown region, or shares beyond 1.

        >>> Memory.of([8.0], [9.0], [2.0], regions=[2**20], uses=[[(0, 1.0)]]).regions.tolist()
        [1048576.0]
        """
        uses = [[] for _ in resident_us] if uses is None else uses
        for name, values in zip(COLUMNS, (resident_us, hbm_us, l2_us), strict=True):
            if not all(0 <= value < float("inf") for value in values):
                raise PyptoxError(f"`{name}` must be finite µs, not negative; got {min(values)!r} to {max(values)!r}")
        if not all(0 < size < 2**50 for size in (*regions, capacity)):
            raise PyptoxError("`regions` and `capacity` must be bytes, more than 0")
        for task, each in enumerate(uses):
            if not all(0 <= region < len(regions) and 0 <= share <= 1 for region, share in each):
                raise PyptoxError(f"`uses` of task {task} must be (region, share) with known regions; got {list(each)}")
            if sum(share for _, share in each) > 1 + 1e-6:
                raise PyptoxError(f"`uses` of task {task} must have shares that add up to 1 at most")
        times = (on_grid(values) for values in (resident_us, hbm_us, l2_us))
        kept = tuple(tuple((int(region), float(share)) for region, share in each) for each in uses)
        return cls(*times, np.asarray(regions, np.float64), kept, float(capacity))

    def columns(self) -> dict[str, Sequence]:
        """What has a row for every task."""
        return {name: getattr(self, name) for name in (*COLUMNS, "uses")}

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


def pulled_back(counts: np.ndarray, duration_us: np.ndarray, end: np.ndarray, memory: Memory, kept: np.ndarray) -> Slopes:
    """From how often each task's blocks lie on the critical path to derivatives by what states their time.

    Args:
        counts: blocks on the path, by task.
        duration_us: of the workload.
        end: last ends, µs.
        memory: of the workload.
        kept: the record's ``memory``.
    """
    found = kept[:, FOUND]
    alone = duration_us - on_grid((duration_us - memory.resident_us) * found)
    moved = memory.hbm_us * (1.0 - found)
    times = [alone, moved * kept[:, HBM_SHARE], memory.l2_us * kept[:, L2_SHARE]]
    bound = np.argmax(times, 0)
    by_alone = np.where(bound == 0, counts, 0.0).astype(np.float64)
    demands = []
    for number, (traffic, share) in enumerate(((moved, kept[:, HBM_SHARE]), (memory.l2_us, kept[:, L2_SHARE])), 1):
        mine = np.where(bound == number, counts, 0.0)
        asked = np.zeros(len(counts))  # derivative by what each task asks
        for task in np.flatnonzero(mine):
            together = (kept[:, ORDINAL] < kept[task, ORDINAL]) & (end > kept[task, MIDDLE])
            together[task] = True
            asked[together] += mine[task] * traffic[task]
        rate = np.divide(1.0, alone, out=np.zeros(len(alone)), where=alone > 0)
        by_alone -= asked * traffic * rate**2
        demands.append(mine * share + asked * rate)
    return Slopes(by_alone * (1.0 - found), by_alone * found, demands[0] * (1.0 - found), demands[1])
