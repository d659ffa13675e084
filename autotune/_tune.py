"""``tune``: the model ranks every candidate, the full simulation decides among the best, float64 checks the winner."""

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import pyptox as px
from pyptox.cost import Cost, Options, cost_of, full_cycles, record
from pyptox.cost._batch import penalised
from pyptox.cost._machine import count_instructions
from pyptox.cost._nest import options_for
from pyptox.cost._occupancy import ON_CHIP
from pyptox.hardware import Hardware
from pyptox.lang import Kernel, Spec

from ._by_choice import by_choice
from ._constraint import EmptySpaceError
from ._default_space import default_space
from ._gate import passing
from ._progress import Progress
from ._result import Candidate, Result, hardware_hash
from ._resume import keyed, take_chunks, tell_trials, write_chunk, write_trials
from ._scorer import Scorer
from ._search._base import AbstractSearch
from ._search.exhaustive import Exhaustive
from ._search.funnel import Funnel
from ._search.gradient import Gradient
from ._search.local import Local
from ._search.random import Random
from ._space import Space
from ._store import Store

METHODS = ("auto", "exhaustive", "gradient", "funnel", "local", "random")
EXHAUSTIVE_LIMIT = 4_000_000
"""``auto`` searches a space of up to so many points exhaustively: a fraction of a second, and exact."""

EVALUATIONS = 2000
"""Budget of the other methods: half a percent of the largest default space of a matrix product."""

_ADVICE = (
    " (Mat, Left, Right, Vec: the tiles take more than that space holds; row: the innermost row of a tile is too"
    " short). A kernel that keeps whole rows on the chip cannot take long ones: take its tiled or online variant"
)

_FULL_SIMULATION = 200_000
_CHUNK = 1 << 16


def _exact(kernel, specs, config, hardware, options) -> tuple[Candidate, Cost]:
    """One candidate by the accurate closed form, or the full simulation where it is short enough."""
    accurate = replace(options, warm=4, relaxed=False)
    cost = cost_of(kernel, specs, config, hardware, accurate)
    cycles = float(cost.cycles)
    if all(spec.values is None for spec in specs.values()):
        shapes = {name: spec.shape for name, spec in specs.items()}
        nest = record(kernel, specs, shapes, config, hardware, options_for(kernel, accurate, config))
        if not nest.recorder.uneven and count_instructions([nest.walk]) <= _FULL_SIMULATION:
            cycles = full_cycles(nest.walk) + float(cost.waves) * float(hardware.times.block)
            cycles = max(cycles, float(cost.hbm_cycles))
    time_us = float(hardware.times.launch_us) + cycles / float(hardware.clock_mhz)
    share = {pipe: float(busy) / cycles for pipe, busy in cost.busy.items()}
    pipe = max(share, key=lambda name: share[name])
    hbm = float(cost.moved["hbm"]) * float(hardware.times.hbm_us)
    where = " (HBM)" if pipe in ("MTE2", "MTE2V") and hbm > 0.5 * time_us else ""
    limit = f"{pipe}{where} {100 * min(share[pipe], 1.0):.0f} %"
    fill = {space: float(used) for space, used in cost.occupancy.items()}
    return Candidate(0, config, time_us, limit, fill, bool(cost.legal), ""), cost


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
    words = [n for n, p in space.parameters.items() if n in kernel.choices and p.values.dtype.kind not in "biuf"]
    relaxed = Options(2, options.sync, True, options.rules, None)

    def value_and_grad(points: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        size = len(next(iter(points.values())))
        columns = {n: np.asarray(points[n]) if n in points else np.full(size, v) for n, v in fixed.items()}
        for n in words:  # a search hands on positions of values that are no numbers
            columns[n] = space.parameters[n].values[columns[n].astype(int)]
        total, gradient = np.empty(size), {n: np.empty(size) for n in names}
        for at, part, chosen in by_choice(kernel, columns, relaxed):
            value, over, slopes, over_slopes = penalised(kernel, specs, part, hardware, names, chosen)
            # the penalty is in units of the cost itself: overflowing by 10 % costs as much as 30 % more time
            penalty = 1 + 3 * over
            total[at] = value * penalty
            for n in names:
                gradient[n][at] = slopes[n] * penalty + 3 * value * over_slopes[n]
        return total, gradient

    return value_and_grad


def tune(
    kernel: Kernel,
    *args: Spec,
    hardware: Hardware | str | None = None,
    space: Space | None = None,
    values: Mapping[str, Any] | None = None,
    method: str | AbstractSearch = "auto",
    seed: int = 0,
    evaluations: int | None = None,
    check: bool = True,
    gate: Any = None,
    distribution: str | Mapping[str, str] = "normal",
    sync: str = "manual",
    progress: Callable[[Progress], object] | None = None,
    store: Store | str | Path | None = None,
    **inputs: Spec,
) -> Result:
    """Find the fastest legal configuration of ``kernel`` on the given tensors, by the model.

    Args:
        kernel: a kernel, such as ``px.kernels.matmul``.
        args, inputs: a spec for each input, by position or by name.
        hardware: the chip or a preset's name; :func:`pyptox.hardware.a2a3` by default.
        space: the candidates; :func:`autotune.default_space` by default. It may hold a choice that is fixed when the
            cost is traced, such as ``preload=Choice(1, 2, 4)``: each of its values is compiled once.
        values: parameters that are held at a value, such as ``{"causal": True}``; what neither ``space`` nor
            ``values`` names is held at the kernel's default.
        method: ``exhaustive``, ``gradient``, ``funnel``, ``local``, ``random``, ``auto`` (exhaustive where the space
            allows it, else gradient), or a search of your own.
        seed: of the search and of the check's inputs.
        evaluations: budget of the methods that are not exhaustive; 2000 by default.
        check: compare the winner with float64 at the real reduction length.
        gate: what every finalist must pass, such as ``pyptox.precision.Ulp(max=1)``, or ``{output: gate}``; those that
            do not are dropped, the others carry their error (``result.pareto`` has the trade of time for error).
        distribution: of the inputs of the gate, as in :func:`pyptox.precision.sample_inputs`.
        sync: ``"manual"`` or ``"auto"`` barriers between pipes.
        progress: called with a :class:`Progress` after each scored batch.
        store: a JSONL file that finished work is appended to, so that a rerun goes on where a killed run stopped:
            every trial, or for exhaustive search the best few of each chunk of 65,536.

    Raises:
        EmptySpaceError: no candidate is legal; names the constraint that emptied the space.
        NoCandidatePassedError: no finalist passes ``gate``.
        ValueError: an unknown method, dtype or parameter.

    >>> import autotune, pyptox as px
    >>> a, b = px.spec((16, 512), "bf16"), px.spec((512, 1024), "bf16")
    >>> autotune.tune(px.kernels.matmul, a=a, b=b, check=False).best.config["m"]
    16
    """
    began = time.perf_counter()
    if isinstance(method, str) and method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}")
    hardware = px.hardware.preset(hardware) if isinstance(hardware, str) else hardware or px.hardware.a2a3()
    specs = kernel.specs(*args, **inputs)
    held = dict(values or {})
    fixed = kernel.configuration(held)
    space = space or default_space(kernel, specs, hardware, held)
    _check_arguments(kernel, space, held, seed, evaluations)
    if gate is not None:
        from pyptox.precision._inputs import drawable

        drawable(distribution, seed)
    options = Options(sync=sync)
    scorer = Scorer(kernel, specs, hardware, options, fixed)

    name = method if isinstance(method, str) else type(method).__name__.lower()
    if name == "auto":
        name = "exhaustive" if space.size <= EXHAUSTIVE_LIMIT else "gradient"
    budget = None if name == "exhaustive" else evaluations or EVALUATIONS
    chip_hash = hardware_hash(hardware)
    if store is not None:
        described = {
            "kernel": kernel.name,
            "source": _source(kernel),
            "hardware": chip_hash,
            "options": str(options),
            "fixed": fixed,
        }
        walls = [constraint.name for constraint in space.constraints]
        searched = name if isinstance(method, str) else repr(method)
        described |= {"space": f"{space.items} {walls}", "search": searched, "seed": seed}
        store = keyed(store, described, specs)
    interrupted, run = False, None
    try:
        first = take_chunks(store, space, scorer) if store is not None and name == "exhaustive" else 0
        searches: dict[str, Callable[[], AbstractSearch]] = {
            "exhaustive": lambda: Exhaustive(first=first),
            "gradient": lambda: Gradient(_relaxed_objective(kernel, specs, hardware, options, fixed, space)),
            "funnel": Funnel,
            "local": Local,
            "random": Random,
        }
        search = method if isinstance(method, AbstractSearch) else searches[name]()
        run = search.start(space, seed=seed, evaluations=budget)
        if store is not None and name != "exhaustive":
            tell_trials(store, space, run, scorer)
        total = space.size if budget is None else min(budget, space.size)
        while not run.done:
            index = run.ask_index(_CHUNK)
            times, wall = scorer(space.at(index))
            run.tell_index(index, times)
            if store is not None and name == "exhaustive":
                write_chunk(store, space, index, times, wall)
            elif store is not None:
                write_trials(store, space, index, times, wall, seed)
            if progress is not None:
                progress(Progress(scorer.count, total, scorer.best_us))
    except KeyboardInterrupt:
        interrupted = True
        if not scorer.count:
            raise
    relaxed = run.relaxed if run is not None else 0
    finalists = scorer.finalists()
    if not finalists:
        screened = space.census().rejected if space.constraints and space.size <= EXHAUSTIVE_LIMIT else {}
        raise EmptySpaceError(space.size, screened | scorer.rejected, _ADVICE)
    exact = [_exact(kernel, specs, config, hardware, options) for config in finalists]
    by_default = _exact(kernel, specs, fixed, hardware, options)
    default = replace(by_default[0], rank=-1, note="default")
    if default.legal and fixed not in finalists:
        exact.append(by_default)  # a search that saw little must not lose to what was there before it
    gated = None
    if gate is not None:
        tried = len(exact)
        exact, gated = passing(kernel, specs, exact, gate, hardware, seed, distribution)
        scorer.rejected["gate"] = tried - len(exact)
    order = sorted(range(len(exact)), key=lambda n: (exact[n][0].time_us, sum(exact[n][0].occupancy.values())))
    best_time = exact[order[0]][0].time_us
    # the simplest among equals: the least on-chip memory within a thousandth of the best
    equals = [n for n in order if exact[n][0].time_us <= 1.001 * best_time]
    winner = min(equals, key=lambda n: sum(exact[n][0].occupancy.values()))
    order.remove(winner)
    ranked = [exact[n][0] for n in (winner, *order)]
    candidates = tuple(replace(c, rank=rank, note="") for rank, c in enumerate(ranked))
    bound = float(exact[winner][1].bound_us)
    report = gated[winner] if gated is not None else None
    if check and gated is None:
        from pyptox.precision import TooLargeError
        from pyptox.precision import check as compare

        try:
            report = _check_dict(compare(kernel, specs, candidates[0].config, hardware, seed=seed))
        except TooLargeError as error:  # the search is not lost with it
            report = {"passed": None, "summary": str(error)}
    return Result(
        kernel=kernel.name,
        specs={n: str(specs[n]) for n in kernel.inputs},
        hardware=hardware.name,
        hardware_hash=chip_hash,
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
        limits={s.value: float(getattr(hardware.sizes, s.size_name)) for s in ON_CHIP},
        controls={n: rows for n in kernel.inputs if (rows := specs[n].values) is not None},
        sync=sync,
    )


def _check_arguments(kernel: Kernel, space: Space, held: Mapping[str, Any], seed: Any, evaluations: Any) -> None:
    """Raise for what no search could make sense of."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be a non-negative integer; got {seed!r}")
    if evaluations is not None and (isinstance(evaluations, bool) or not isinstance(evaluations, int)):
        raise ValueError(f"`evaluations` must be an integer; got {evaluations!r}")
    if evaluations is not None and evaluations < 1:
        raise ValueError(f"`evaluations` must be at least 1; got {evaluations}. Leave it out for {EVALUATIONS:,}")
    declared = {p.name: p for p in kernel.parameters}
    unknown = [name for name in space.parameters if name not in declared]
    if unknown:
        raise ValueError(
            f"`space` has {', '.join(unknown)}, which `{kernel.name}` does not; it has {', '.join(declared)}"
        )
    both = [name for name in space.parameters if name in held]
    if both:
        raise ValueError(f"`values` and `space` both have {', '.join(both)}; leave one out")
    for name, parameter in space.parameters.items():
        values, wanted = parameter.values, declared[name]
        if wanted.kind == "choice":
            if not set(values.tolist()) <= set(wanted.options):
                options = ", ".join(map(repr, wanted.options))
                raise ValueError(f"`{name}` of `space` must hold some of {options}; got {parameter}. Try Choice")
            continue
        whole = values.dtype.kind in "iu"
        if not whole or values.min() < wanted.low or values.max() > wanted.high:
            raise ValueError(
                f"`{name}` of `space` must hold integers from {wanted.low} to {wanted.high}; got {parameter}. "
                "Try Multiple(16, 512, 16) for a tile, Integer(1, 4) for a count"
            )


def _source(kernel: Kernel) -> str:
    """The kernel's text, so that stored trials of another version of it are not taken for this one's."""
    try:
        return inspect.getsource(kernel.function)
    except (OSError, TypeError):
        return ""


def _check_dict(report: Any) -> dict[str, Any]:
    content = report.to_dict()
    content.setdefault("summary", str(report).strip().splitlines()[0])
    return content
