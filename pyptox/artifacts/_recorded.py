"""What a capture says of its tasks, as the simulator takes them: shapes, blocks, durations, submissions, order."""

import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np

from .._errors import PyptoxError
from ..chip import Schedule, Workload
from ..chip._workload import ALLOC, DUMMY, MIX, SHAPES
from ._capture import Capture
from ._deps import CORE_SLOTS, label
from ._graph import Waits, stamps, waits
from ._records import FILE

_AIC, _AIV = SHAPES.index("AIC"), SHAPES.index("AIV")


@dataclass(frozen=True, eq=False)
class Recorded:
    """A capture as a workload. One entry a part: a task, or those blocks of one that is held back that were published,
    and ended, one after another.

    Attributes:
        work: the workload, in the order of submission.
        clusters: that it ran on.
        task_id: whose part it is.
        ran: whether it has rows.
        held: whether it is held back to the moment at which it was measured to be taken up, because what it waited for
            is not in the capture. Nothing moves it to before that.
        dispatch_us, start_us, finish_us: measured first dispatch, first start and last finish, from the earliest stamp
            on; NaN without rows.
        timed: submissions are measured ones.
    """

    work: Workload
    clusters: int
    task_id: np.ndarray
    ran: np.ndarray
    held: np.ndarray
    dispatch_us: np.ndarray
    start_us: np.ndarray
    finish_us: np.ndarray
    timed: bool


def recorded(capture: Capture, schedule: Schedule) -> Recorded:
    """The workload of a capture; see :func:`pyptox.artifacts.replay` for what is assumed.

    Raises:
        PyptoxError: there is no row, or tasks wait for each other.
    """
    if not len(capture.records.blocks):
        raise PyptoxError(f"`capture` must hold task rows to replay; {FILE} has none")
    return _Reader(capture, schedule).result()


class _Reader:
    def __init__(self, capture: Capture, schedule: Schedule):
        self.capture, self.records, self.schedule = capture, capture.records, schedule
        self.whole = capture.whole
        self.found: Waits = waits(self.records, capture.deps)
        self.ids = list(self.found.index)
        self.tasks = [(self.found.index[task.task_id], task) for task in (capture.deps.tasks if capture.deps else ())]
        types = np.array(self.records.core_types)
        self.vector = (types == "aiv")[self.records.blocks.core_id]
        self.clusters = _clusters(types, self.records.blocks.core_id, self.whole)
        self.mixed, self.slots = self._slots()
        self.ran, self.held = self._taking_part()

    def _slots(self) -> tuple[np.ndarray, np.ndarray]:
        """Which tasks use both kinds of core, and how many AIVs a block of those has."""
        rows = [np.bincount(self.found.task[mine], minlength=len(self.ids)) for mine in (~self.vector, self.vector)]
        mixed, slots = (rows[0] > 0) & (rows[1] > 0), np.ones(len(self.ids), np.int64)
        for place, task in self.tasks:
            used = [slot for kernel, slot in zip(task.kernel_ids, CORE_SLOTS, strict=True) if kernel >= 0]
            mixed[place] |= len(set(used)) == 2
            slots[place] = max(used.count("aiv"), 1) if mixed[place] else 1
        return mixed, slots

    def _taking_part(self) -> tuple[np.ndarray, np.ndarray]:
        """Tasks with rows, and those of them whose inputs are not known."""
        ran = self.found.rows > 0
        return ran, ran & ~self.found.known & (not self.whole)

    def _parts(self) -> np.ndarray:
        """The part of each row: its task's, or of a held task those published, and ended, one after another.

        Rows follow each other where a scheduler thread could not have retired and published another in between.
        """
        c, at, us = self.schedule.values(), stamps(self.records), 1e6 / self.records.clock_hz
        turn = c["dispatch_us"] + c["dispatch_each_us"] + c["complete_us"] + c["complete_each_us"]
        part = self.found.task
        held = self.held[part]
        for moments in (at.dispatch * us, at.end * us):
            order = np.lexsort((moments, part))
            later = held[order][1:] & (np.diff(moments[order]) > turn)
            new = np.concatenate([[0], np.cumsum((np.diff(part[order]) > 0) | later)])
            part = np.empty_like(part)
            part[order] = new
        return part

    def result(self) -> Recorded:
        at, us = stamps(self.records), 1e6 / self.records.clock_hz
        part = self._parts()
        count = int(part.max()) + 1
        of = np.zeros(count, np.int64)
        of[part] = self.found.task
        first = {name: _least(part, getattr(at, name) * us, count) for name in ("dispatch", "start")}
        finish = -_least(part, -at.finish * us, count)
        shapes, blocks, duration = self._work(part, of, (at.end - at.start) * us)
        # tasks without a kernel come behind those with rows
        fed = np.zeros(len(self.ids), bool)
        fed[self.found.succ] = True
        bare = np.array([p for p, t in self.tasks if not t.rows and (self.whole or self.found.known[p])], np.int64)
        nothing = np.full(len(bare), np.nan)
        of, ran = np.concatenate([of, bare]), np.concatenate([np.ones(count, bool), np.zeros(len(bare), bool)])
        shapes = np.concatenate([shapes, np.where(fed[bare], DUMMY, ALLOC)])
        blocks = np.concatenate([blocks, np.zeros(len(bare), np.int64)])
        duration = np.concatenate([duration, np.zeros(len(bare))])
        dispatch, start, finish = (np.concatenate([x, nothing]) for x in (first["dispatch"], first["start"], finish))
        held = self.held[of] & ran
        order, moments, preds = self._order(of, shapes, np.where(held, self._taken(shapes, dispatch), 0.0), dispatch)
        flagged = {self.ids[place] for place, task in self.tasks if task.early_dispatch}
        task_id = [self.ids[task] for task in of.tolist()]
        timed = len(self.records.submits) > 0 or not self.whole
        work = Workload.of(
            [SHAPES[shape] for shape in shapes[order]],
            blocks[order].tolist(),
            duration[order].tolist(),
            preds,
            early=[task_id[n] in flagged for n in order],
            names=self._names([task_id[n] for n in order]),
            submitted_us=moments[order].tolist() if timed else None,
        )
        columns = (column[order] for column in (np.array(task_id, np.uint64), ran, held, dispatch, start, finish))
        return Recorded(work, self.clusters, *columns, timed=timed)

    def _names(self, task_id: list[int]) -> list[str]:
        """Of each part: its task's, and which part where a task has several."""
        count, parts, names = Counter(task_id), Counter[int](), []
        for task in task_id:
            part = f"[{parts[task]}]" if count[task] > 1 else ""
            names.append(f"{label(task)} {self.capture.name(task)}{part}")
            parts[task] += 1
        return names

    def _work(self, part: np.ndarray, of: np.ndarray, took: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shape, blocks and duration of each part."""
        rows, mean, longest = (np.zeros((2, len(of))) for _ in range(3))
        for kind, mine in enumerate((~self.vector, self.vector)):
            rows[kind] = np.bincount(part[mine], minlength=len(of))
            mean[kind] = np.bincount(part[mine], took[mine], len(of)) / np.maximum(rows[kind], 1)
            np.maximum.at(longest[kind], part[mine], took[mine])
        mixed = self.mixed[of]
        rows[1] = np.where(mixed, np.ceil(rows[1] / self.slots[of]), rows[1])
        blocks = rows.max(0).astype(np.int64)
        shapes = np.where(mixed, MIX, np.where(rows[0] > 0, _AIC, _AIV))
        at_once = blocks <= self.clusters * np.where(shapes == _AIV, 2, 1)
        return shapes, blocks, np.where(at_once & ~self.held[of], longest.max(0), mean.max(0))

    def _taken(self, shapes: np.ndarray, dispatch: np.ndarray) -> np.ndarray:
        """When a part was taken up, for its first block to be published at ``dispatch``."""
        each = float(self.schedule.dispatch_each_us) * np.where(shapes == MIX, 3, 1)
        return np.maximum(np.nan_to_num(dispatch) - float(self.schedule.dispatch_us) - each, 0.0)

    def _order(
        self, of: np.ndarray, shapes: np.ndarray, held_to: np.ndarray, dispatch: np.ndarray
    ) -> tuple[list[int], np.ndarray, list[list[int]]]:
        """The parts, each after what it waits for; when each is submitted; what each waits for, by place.

        A part is submitted no earlier than what it waits for, since it could not go on before: moments never fall.
        """
        moments = np.maximum(self._submitted()[of], held_to)
        members: list[list[int]] = [[] for _ in self.ids]
        for n, task in enumerate(of.tolist()):
            members[task].append(n)
        edges = self.capture.deps.edges if self.capture.deps else ()
        index = self.found.index
        pairs = {(index[edge.pred], index[edge.succ]) for edge in edges if "wait" in edge.flags}
        before: list[list[int]] = [[] for _ in of]
        after: list[list[int]] = [[] for _ in of]
        for pred, succ in sorted(pairs):
            for n in members[succ]:
                before[n] += members[pred]
            for n in members[pred]:
                after[n] += members[succ]
        listing = {place: n for n, (place, _) in enumerate(self.tasks)}
        first = np.nan_to_num(dispatch)
        rank = [(listing.get(task, len(self.ids)), float(first[n]), n) for n, task in enumerate(of.tolist())]
        left = [len(preds) for preds in before]
        ready = [(float(moments[n]), rank[n]) for n, waiting in enumerate(left) if not waiting]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            moment, (*_, n) = heapq.heappop(ready)
            order.append(n)
            for succ in after[n]:
                left[succ] -= 1
                moments[succ] = max(moments[succ], moment)
                if not left[succ]:
                    heapq.heappush(ready, (float(moments[succ]), rank[succ]))
        if len(order) < len(of):
            raise PyptoxError("`capture` has tasks that wait for each other; `pyptox capture DIR` names them")
        place = {n: at for at, n in enumerate(order)}
        waiting = [[] if shapes[n] == ALLOC else [place[p] for p in before[n]] for n in order]
        return order, moments, waiting

    def _submitted(self) -> np.ndarray:
        """The end of each task's measured submission, µs; 0 where it is not recorded."""
        submits, result = self.records.submits, np.zeros(len(self.ids))
        for task_id, end in zip(submits.task_id.tolist(), self.records.us(submits.end).tolist(), strict=True):
            if task_id in self.found.index:
                result[self.found.index[task_id]] = end
        return result


def _clusters(types: np.ndarray, used: np.ndarray, whole: bool) -> int:
    """All of the chip's, or of a partial capture those with a row."""
    cube = types == "aic"
    if whole:
        return int(cube.sum())
    place = np.zeros(len(types), np.int64)
    place[cube], place[~cube] = np.arange(cube.sum()), np.arange((~cube).sum()) // 2
    return len(np.unique(place[used]))


def _least(of: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    result = np.full(count, np.inf)
    np.minimum.at(result, of, values)
    return result
