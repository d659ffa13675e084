"""``tune``: the model ranks every candidate, the full simulation decides among the best, float64 checks the winner."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import pyptox as px
from pyptox.cost import Cost, Options, evaluate, full_cycles, predict, record
from pyptox.cost._batch import options_for, penalised
from pyptox.cost._machine import count_instructions
from pyptox.cost._occupancy import HARD
from pyptox.hardware import Hardware
from pyptox.lang import Kernel, Spec

from ._constraint import EmptySpaceError
from ._default_space import default_space
from ._result import Candidate, Result, hardware_hash
from ._search._base import AbstractSearch, minimise
from ._search.exhaustive import Exhaustive
from ._search.funnel import Funnel
from ._search.gradient import Gradient
from ._search.local import Local
from ._search.random import Random
from ._space import Space

METHODS = ("auto", "exhaustive", "gradient", "funnel", "local", "random")
EXHAUSTIVE_LIMIT = 4_000_000
"""``auto`` searches a space of up to so many points exhaustively: a fraction of a second, and exact."""

EVALUATIONS = 2000
"""Budget of the other methods: half a percent of the largest default space of a matrix product."""

_FULL_SIMULATION = 200_000
_FINALISTS = 12


class _Scorer:
    """Predicted µs of candidates, with ``inf`` for illegal ones; counts rejections and keeps the best seen."""

    def __init__(self, kernel: Kernel, specs: Mapping[str, Spec], hardware: Hardware, options: Options, fixed: dict):
        self.kernel, self.specs, self.hardware, self.options, self.fixed = (
            kernel,
            specs,
            hardware,
            options,
            fixed,
        )
        self.rejected: dict[str, int] = {}
        self.count = 0
        self.columns: list[dict[str, np.ndarray]] = []
        self.times: list[np.ndarray] = []

    def __call__(self, points: Mapping[str, Any]) -> np.ndarray:
        size = len(next(iter(points.values())))
        columns = {n: np.asarray(points[n]) if n in points else np.full(size, v) for n, v in self.fixed.items()}
        cost = evaluate(self.kernel, self.specs, columns, self.hardware, self.options)
        legal = self._legal(cost)
        times = np.where(legal, cost.time_us, np.inf)
        keep = np.argsort(times, kind="stable")[: 4 * _FINALISTS] if size > 4 * _FINALISTS else np.arange(size)
        self.columns.append({n: c[keep] for n, c in columns.items()})
        self.times.append(times[keep])
        self.count += size
        return times

    def _legal(self, cost: Cost) -> np.ndarray:
        legal = np.ones(len(cost.time_us), bool)
        sizes = self.hardware.sizes
        walls = [(s.value, cost.occupancy[s.value] <= float(getattr(sizes, s.size_name))) for s in HARD]
        for name, inside in [*walls, ("row", cost.row >= float(sizes.min_row))]:
            self.rejected[name] = self.rejected.get(name, 0) + int(np.sum(legal & ~inside))
            legal &= inside
        return legal

    def finalists(self) -> list[dict[str, int]]:
        """The best candidates seen, best first; of those with equal predictions the first in the space."""
        times = np.concatenate(self.times)
        columns = {n: np.concatenate([c[n] for c in self.columns]) for n in self.columns[0]}
        order = [n for n in np.argsort(times, kind="stable") if np.isfinite(times[n])]
        seen: dict[float, dict[str, int]] = {}
        for n in order:
            config = {name: int(column[n]) for name, column in columns.items()}
            seen.setdefault(float(f"{times[n]:.6g}"), config)
            if len(seen) >= _FINALISTS:
                break
        return list(seen.values())


def _exact(kernel, specs, config, hardware, options, rank, note="") -> tuple[Candidate, Cost]:
    """One candidate by the accurate closed form, or the full simulation where it is short enough."""
    shapes = {name: spec.shape for name, spec in specs.items()}
    accurate = Options(4, options.sync, False, options.rules, options.cores, options.choices)
    control = {n: np.asarray(s.values, np.float32) for n, s in specs.items() if s.values is not None}
    cost = predict(kernel, specs, shapes, config, hardware, accurate, control)
    cycles = float(cost.cycles)
    if not control:
        nest = record(kernel, specs, shapes, config, hardware, accurate)
        if count_instructions([nest.walk]) <= _FULL_SIMULATION:
            cycles = full_cycles(nest.walk) + float(cost.waves) * float(hardware.times.block)
    time_us = float(hardware.times.launch_us) + cycles / float(hardware.clock_mhz)
    share = {pipe: float(busy) / cycles for pipe, busy in cost.busy.items()}
    pipe = max(share, key=lambda name: share[name])
    hbm = float(cost.moved["hbm"]) * float(hardware.times.hbm_us)
    where = " (HBM)" if pipe in ("MTE2", "MTE2V") and hbm > 0.5 * time_us else ""
    limit = f"{pipe}{where} {100 * min(share[pipe], 1.0):.0f} %"
    fill = {space: float(used) for space, used in cost.occupancy.items()}
    return Candidate(rank, config, time_us, limit, fill, bool(cost.legal), note), cost


def _relaxed_objective(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    hardware: Hardware,
    options: Options,
    fixed: Mapping[str, Any],
    space: Space,
) -> Callable[[Mapping[str, Any]], tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Relaxed time and its slopes, penalised where a space overflows; ``fixed`` fills in what ``space`` leaves out."""
    names = tuple(n for n, p in space.parameters.items() if p.relaxable and n in kernel.numeric)
    relaxed = Options(2, options.sync, True, options.rules, None, options.choices)

    def value_and_grad(points: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        size = len(next(iter(points.values())))
        columns = {n: points[n] if n in points else np.full(size, v) for n, v in fixed.items()}
        value, over, slopes, over_slopes = penalised(kernel, specs, columns, hardware, names, relaxed)
        # the penalty is in units of the cost itself: overflowing by 10 % costs as much as 30 % more time
        penalty = 1 + 3 * over
        return value * penalty, {n: slopes[n] * penalty + 3 * value * over_slopes[n] for n in names}

    return value_and_grad


def tune(
    kernel: Kernel,
    *args: Spec,
    hardware: Hardware | None = None,
    space: Space | None = None,
    method: str | AbstractSearch = "auto",
    seed: int = 0,
    evaluations: int | None = None,
    check: bool = True,
    sync: str = "manual",
    progress: Callable[[int], None] | None = None,
    **inputs: Spec,
) -> Result:
    """Find the fastest legal configuration of ``kernel`` on the given tensors, by the model.

    Args:
        kernel: a kernel, such as ``px.kernels.matmul``.
        args, inputs: a spec for each input, by position or by name.
        hardware: the chip; :func:`pyptox.hardware.a2a3` by default.
        space: the candidates; :func:`autotune.default_space` by default.
        method: ``exhaustive``, ``gradient``, ``funnel``, ``local``, ``random``, ``auto`` (exhaustive where the space
            allows it, else gradient), or a search of your own.
        seed: of the search and of the check's inputs.
        evaluations: budget of the methods that are not exhaustive; 2000 by default.
        check: compare the winner with float64 at the real reduction length.
        sync: ``"manual"`` or ``"auto"`` barriers between pipes.
        progress: called with the number of candidates scored so far.

    Raises:
        EmptySpaceError: no candidate is legal; names the constraint that emptied the space.
        ValueError: an unknown method, dtype or parameter.

    >>> import autotune, pyptox as px
    >>> a, b = px.spec((16, 512), "bf16"), px.spec((512, 1024), "bf16")
    >>> autotune.tune(px.kernels.matmul, a=a, b=b, check=False).best.config["m"]
    16
    """
    began = time.perf_counter()
    if isinstance(method, str) and method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}")
    hardware = hardware or px.hardware.a2a3()
    specs = kernel.specs(*args, **inputs)
    space = space or default_space(kernel, specs, hardware)
    unknown = [n for n in space.parameters if n not in {p.name for p in kernel.parameters}]
    if unknown:
        known = ", ".join(p.name for p in kernel.parameters)
        raise ValueError(f"`space` has {', '.join(unknown)}, which `{kernel.name}` does not; it has {known}")
    defaults = kernel.configuration({})
    options = options_for(kernel, Options(sync=sync), defaults)
    fixed = {n: defaults[n] for n in kernel.numeric}
    scorer = _Scorer(kernel, specs, hardware, options, fixed)

    def score(points: Mapping[str, Any]) -> np.ndarray:
        times = scorer(points)
        if progress is not None:
            progress(scorer.count)
        return times

    name = method if isinstance(method, str) else type(method).__name__.lower()
    if name == "auto":
        name = "exhaustive" if space.size <= EXHAUSTIVE_LIMIT else "gradient"
    searches: dict[str, Callable[[], AbstractSearch]] = {
        "exhaustive": Exhaustive,
        "gradient": lambda: Gradient(_relaxed_objective(kernel, specs, hardware, options, fixed, space)),
        "funnel": Funnel,
        "local": Local,
        "random": Random,
    }
    search = method if isinstance(method, AbstractSearch) else searches[name]()
    budget = None if name == "exhaustive" else evaluations or EVALUATIONS
    relaxed, interrupted = 0, False
    try:
        found = minimise(score, space, search, seed=seed, evaluations=budget)
        relaxed = found.relaxed
    except KeyboardInterrupt:
        interrupted = True
        if not scorer.times:
            raise
    finalists = scorer.finalists() if scorer.times else []
    if not finalists:
        raise EmptySpaceError(space.size, scorer.rejected or {"evaluations": space.size})
    exact = [_exact(kernel, specs, config, hardware, options, 0) for config in finalists]
    order = sorted(range(len(exact)), key=lambda n: (exact[n][0].time_us, sum(exact[n][0].occupancy.values())))
    best_time = exact[order[0]][0].time_us
    # the simplest among equals: the least on-chip memory within a thousandth of the best
    equals = [n for n in order if exact[n][0].time_us <= 1.001 * best_time]
    winner = min(equals, key=lambda n: sum(exact[n][0].occupancy.values()))
    order.remove(winner)
    ranked = [exact[n][0] for n in (winner, *order)]
    candidates = tuple(Candidate(r, c.config, c.time_us, c.limit, c.occupancy) for r, c in enumerate(ranked))
    default, _ = _exact(kernel, specs, fixed, hardware, options, -1, "default")
    bound = float(exact[winner][1].bound_us)
    report = None
    if check:
        from pyptox.precision import check as compare

        report = _check_dict(compare(kernel, specs, candidates[0].config, hardware, seed=seed))
    return Result(
        kernel=kernel.name,
        specs={n: str(specs[n]) for n in kernel.inputs},
        hardware=hardware.name,
        hardware_hash=hardware_hash(hardware),
        basis=hardware.basis,
        method=name,
        seed=seed,
        evaluations=scorer.count,
        relaxed_evaluations=relaxed,
        seconds=time.perf_counter() - began,
        space_size=space.size,
        best=candidates[0],
        default=default,
        candidates=candidates,
        rejected=scorer.rejected,
        bound_us=bound,
        gap=candidates[0].time_us / bound - 1.0,
        interrupted=interrupted,
        check=report,
        limits={s: float(getattr(hardware.sizes, s.lower())) for s in ("Mat", "Left", "Right", "Acc", "Vec")},
    )


def _check_dict(report: Any) -> dict[str, Any]:
    content = report.to_dict()
    content.setdefault("summary", str(report).strip().splitlines()[0])
    return content
