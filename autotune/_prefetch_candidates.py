"""What a program could warm, and behind which tasks: weights that are cold at their use, and tasks by kind."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pyptox import chip
from pyptox._checks import text as text_of
from pyptox._errors import PyptoxError
from pyptox.chip import Timeline, Warm, Workload
from pyptox.chip._regions import Regions
from pyptox.program import Graph
from pyptox.program._tensor import dense_strides
from pyptox.program._warm import MOST_CONTEXTS

DUMMY = 3
LEAST = 1e-3
"""Share of the time that warming a weight could save at most and that is not worth a search."""


@dataclass(frozen=True)
class WarmCandidate:
    """Weights of one kind of task.

    Attributes:
        name: the task's kind, or that and the argument.
        uses: by occurrence the task and its regions.
        bytes: of one occurrence, on average.
        potential_us: what all blocks would save if they found all of it.
        found: the share that is there without a warm, on average.
    """

    name: str
    uses: tuple[tuple[int, tuple[int, ...]], ...]
    bytes: float
    potential_us: float
    found: float


@dataclass(frozen=True)
class WarmScope:
    """One warm, the same behind every occurrence of its anchor.

    Attributes:
        weights: names of candidates, in order.
        anchor: kind of task.
        contexts: over how many its weights go in turn.
    """

    weights: tuple[str, ...]
    anchor: str
    contexts: int = 1

    def __str__(self) -> str:
        split = "" if self.contexts == 1 else f"/{self.contexts}"
        return f"{','.join(self.weights)}@{self.anchor}{split}"


Choice = tuple[WarmScope, ...]
"""Warms of a program; none of them is a choice as well."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """What can be chosen.

    Attributes:
        base: the program without warms, simulated.
        weights: by name, in the order of their first use.
        anchors: numbers of the tasks of each kind.
        resident: weights that are found without a warm.
    """

    base: Timeline
    weights: dict[str, WarmCandidate]
    anchors: dict[str, tuple[int, ...]]
    resident: tuple[WarmCandidate, ...]

    def warms(self, choice: Iterable[WarmScope]) -> list[Warm]:
        """Each use is warmed behind the last anchor before it; what has none before it stays cold."""
        result = []
        for scope in choice:
            behind: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
            anchors = np.array(self.anchors[scope.anchor])
            for name in scope.weights:
                for task, regions in self.weights[name].uses:
                    place = int(np.searchsorted(anchors, task)) - 1
                    if place >= 0:
                        behind.setdefault(int(anchors[place]), []).append((name, regions))
            for anchor, mine in behind.items():
                for context in range(scope.contexts):
                    part = mine[context :: scope.contexts]
                    if part:
                        regions = tuple(dict.fromkeys(r for _, each in part for r in each))
                        brought = tuple((region, 1.0) for region in regions)
                        result.append(Warm(anchor, brought, context, len(part), f"warm {scope}"))
        return result

    def parse(self, text: str) -> Choice:
        """``wo_a,wo_b@q_b``: weights in order, behind which task; ``/2`` over two contexts, ``+`` before another warm.

        Raises:
            PyptoxError: an unknown name, another form, a number of contexts that there is not, or a weight that is
                named twice behind one anchor.
        """
        text_of("choices", text, "wo_a,wo_b@q_b")
        if text.strip() == "none":
            return ()
        scopes, seen = [], set[tuple[str, str]]()
        for part in text.split("+"):
            scope = self._scope(part.strip())
            for pair in ((name, scope.anchor) for name in scope.weights):
                if pair in seen:
                    raise PyptoxError(
                        f"a choice must name a weight once behind an anchor; got `{pair[0]}` twice behind "
                        f"`{pair[1]}` in {text!r}. Leave one out"
                    )
                seen.add(pair)
            scopes.append(scope)
        return tuple(scopes)

    def _scope(self, part: str) -> WarmScope:
        names, at, anchor = part.partition("@")
        anchor, slash, contexts = (each.strip() for each in anchor.partition("/"))
        weights = tuple(name.strip() for name in names.split(","))
        if not at or not all(weights):
            raise PyptoxError(f"a choice is WEIGHTS@ANCHOR, such as wo_a,wo_b@q_b; got {part!r}")
        if slash and not (contexts.isascii() and contexts.isdigit() and 1 <= int(contexts[:9]) <= MOST_CONTEXTS):
            raise PyptoxError(f"a choice is over 1 to {MOST_CONTEXTS} contexts, WEIGHTS@ANCHOR/2; got {part!r}")
        for name in weights:
            if name not in self.weights:
                raise PyptoxError(f"`{name}` cannot be warmed; {self._why_not(name)}")
        if anchor not in self.anchors:
            raise PyptoxError(f"`{anchor}` is no kind of task; there are {', '.join(self.anchors)}")
        return WarmScope(weights, anchor, int(contexts or 1))

    def _why_not(self, name: str) -> str:
        found = next((c for c in self.resident if c.name == name), None)
        if found is not None:
            return f"{found.found:.0%} of it is in L2 already at its use, or it is too small to matter"
        return f"there are {', '.join(self.weights) or 'no weights that are cold at their use'}"


def candidates(base: Timeline, graph: Graph | None) -> Candidates:
    """Of a program simulated without warms; ``graph``: what it is from, without its warms."""
    work, memory = base.workload, base.workload.memory
    if memory is None:
        raise PyptoxError("`what` must state what its blocks move; got a workload without `memory`")
    kinds = kinds_of(work)
    listed: dict[str, list[tuple[int, tuple[int, ...], float]]] = {}
    for name, task, regions, share in _uses(work, kinds) if graph is None else _uses_of(graph, work, kinds):
        listed.setdefault(name, []).append((task, regions, share))
    shares = {task: dict(memory.uses[task]) for task in range(work.tasks)}
    weights, resident = {}, []
    for name, uses in listed.items():
        size = float(np.mean([memory.regions[list(regions)].sum() for _, regions, _ in uses]))
        lacks = [
            (1 - base.record.memory[task, 0]) * sum(shares[task].get(r, 0.0) for r in regions)
            for task, regions, _ in uses
        ]
        saved = sum(
            lack * float(work.duration_us[task] - memory.resident_us[task])
            for lack, (task, _, _) in zip(lacks, uses, strict=True)
        )
        found = float(np.mean([base.record.memory[task, 0] for task, _, _ in uses]))
        one = WarmCandidate(name, tuple((task, regions) for task, regions, _ in uses), size, saved, found)
        if saved >= LEAST * base.makespan_us and size > 0:
            weights[name] = one
        else:
            resident.append(one)
    anchors: dict[str, list[int]] = {}
    for task in np.flatnonzero(work.shapes < DUMMY).tolist():
        anchors.setdefault(kinds[task], []).append(task)
    return Candidates(base, weights, {kind: tuple(of) for kind, of in anchors.items()}, tuple(resident))


def kinds_of(work: Workload) -> list[str]:
    """What each task is called: its name without number and layer; ``#2`` where blocks or bytes tell two apart."""
    memory = work.memory
    assert memory is not None
    known: dict[str, list[tuple]] = {}
    result = []
    for task in range(work.tasks):
        name = work.kind(task).partition("[")[0]
        sizes = tuple(sorted(float(memory.regions[r]) for r, share in memory.uses[task] if share > 0))
        key = int(work.shapes[task]), int(work.blocks[task]), sizes
        keys = known.setdefault(name, [])
        if key not in keys:
            keys.append(key)
        place = keys.index(key)
        result.append(name if place == 0 else f"{name}#{place + 1}")
    return result


Use = tuple[str, int, tuple[int, ...], float]


def _uses(work: Workload, kinds: Sequence[str]) -> Iterable[Use]:
    """Of a workload: what a task reads and no task writes."""
    memory = work.memory
    assert memory is not None
    written = {region for each in memory.uses for region, share in each if share == 0}
    for task, each in enumerate(memory.uses):
        regions = tuple(region for region, share in each if share > 0 and region not in written)
        if regions:
            yield kinds[task], task, regions, 1.0


def _uses_of(graph: Graph, work: Workload, kinds: Sequence[str]) -> Iterable[Use]:
    """Of a program: arguments, or parts of them without gaps, that no task writes."""
    regions, written = Regions(graph), set()
    memory = work.memory
    assert memory is not None
    for task in graph.tasks:
        written |= {r for arg in task.args if arg.writes for r in regions._of(arg.tensor)}
    kernels = [task for task in graph.tasks if not task.warms]
    for number, task in enumerate(kernels):
        for arg in task.args:
            tensor = arg.tensor
            flat = all(
                size == 1 or a == b
                for size, a, b in zip(tensor.shape, tensor.strides, dense_strides(tensor.shape), strict=True)
            )
            mine = tuple(regions._of(tensor))
            if arg.reads and flat and tensor.buffer.creator is None and not written & set(mine):
                yield f"{kinds[number]}.{arg.name}", number, mine, 1.0


def simulated(found: Candidates, choice: Choice, hardware, sdma: chip.Sdma | None) -> tuple[Timeline, list[int]]:
    """The program with a choice, and where its own tasks are in it."""
    base = found.base
    work, places = chip.with_warms(
        base.workload, found.warms(choice), hbm_byte_us=float(hardware.times.hbm_us), sdma=sdma
    )
    return chip.simulate(work, hardware=hardware, schedule=base.schedule, repeated=base.repeated), places
