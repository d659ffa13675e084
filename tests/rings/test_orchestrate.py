"""Rings over time against an event loop with real buffers, block by block."""

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyptox import rings
from pyptox._errors import PyptoxError
from pyptox.program import Scope
from pyptox.rings import Limits, Submissions


def times(work: Submissions, seed: int) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 200, work.count).astype(float).tolist(), rng.integers(0, 5, work.count).astype(
        float
    ).tolist()


def tight(work: Submissions, seed: int) -> Limits:
    """Capacities near the smallest that pass, some below."""
    rng, least = np.random.default_rng(seed), rings.smallest(work).limits
    heap = [max(1024, h + 1024 * int(rng.integers(-2, 6))) for h in least.heap]
    window = [
        max(2, w * int(rng.choice([1, 1, 2]))) if rng.random() < 0.9 else max(2, w // 2) for w in least.task_window
    ]
    pool = [max(1, p + int(rng.integers(-1, 4))) for p in least.dep_pool]
    entries = max(1, least.tensormap + int(rng.integers(-1, 4)))
    return Limits().replace(heap=heap, task_window=window, dep_pool=pool, tensormap=entries)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_submissions_wait_as_in_an_event_loop_with_real_buffers(random_submissions, event_loop, seed):
    work = random_submissions(seed)
    limits, (service, cost) = tight(work, seed), times(work, seed)
    expected, run = event_loop(work, service, cost, limits), rings.orchestrate(work, service, cost, limits)
    count = len(expected.submitted)
    assert (run.deadlock.task if run.deadlock else None) == expected.stuck
    if run.deadlock is not None:
        assert run.deadlock.resource in expected.lacking
    np.testing.assert_array_equal(run.submitted[:count], expected.submitted)
    np.testing.assert_array_equal(run.finish[:count], expected.finish)
    assert list(run.peak["task_window"]) == expected.slots
    assert list(run.late) == expected.late
    assert np.isnan(run.submitted[count:]).all()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_larger_capacities_never_hold_less_than_they_need(random_submissions, seed):
    work = random_submissions(seed)
    service, cost = times(work, seed)
    free = rings.orchestrate(work, service, cost, rings.unlimited())
    least = rings.orchestrate(work, service, cost, rings.smallest(work).limits)
    assert free.stall_us == 0
    assert least.deadlock is None
    for name in ("heap", "task_window", "dep_pool"):
        for ring in range(4):
            assert least.peak[name][ring] <= getattr(least.limits, name)[ring]
    exact = rings.orchestrate(work, service, cost, dataclasses.replace(rings.unlimited(), heap=tuple(
        max(1024, safe, peak * 2) for safe, peak in zip(rings.smallest(work).safe_heap, free.peak["heap"], strict=True)
    )))  # fmt: skip
    np.testing.assert_array_equal(exact.submitted, free.submitted)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_statistics_are_of_the_boundaries(random_submissions, seed):
    work = random_submissions(seed)
    service, cost = times(work, seed)
    run = rings.orchestrate(work, service, cost)
    visits = run.stats.visits()
    assert len(visits) == len(work.scopes)
    assert all(v.complete for v in visits)
    for ring in range(4):
        # the root is first on ring 0; on another ring nothing is allocated outside its outermost scopes
        outer = [v for v in visits if v.ring == ring and v.depth == ring]
        assert sum(v.allocated.heap for v in outer) == work.bytes[work.on(ring)].sum()
        assert sum(v.allocated.task_window for v in outer) == len(work.on(ring))
        assert sum(v.allocated.dep_pool for v in outer) == work.fanin[work.on(ring)].sum()
    for peak in run.stats.peaks():
        assert peak.held <= run.peak[peak.resource][peak.ring] <= peak.high_water
    for visit in visits:
        assert visit.live_at_exit.heap <= visit.high_water.heap


def test_a_task_that_runs_too_long_is_taken_for_a_deadlock():
    scopes = [Scope(0, "auto", 0, "p.py:1", 0, 4)]
    scopes += [Scope(n + 1, "auto", 1, "p.py:2", n, n + 1) for n in range(4)]
    work = Submissions.of([4096] * 4, scopes=scopes)
    limits = Limits().replace(heap=8192)
    assert rings.deadlock(work, limits) is None
    assert rings.orchestrate(work, [499_000.0] * 4, [1.0] * 4, limits).deadlock is None
    found = rings.orchestrate(work, [501_000.0] * 4, [1.0] * 4, limits).deadlock
    assert found is not None
    assert (found.code, found.cause, found.task, found.after_us) == (2, "slow reader", 2, 500_000.0)
    assert "t0" in found.what


def test_a_reader_after_the_end_of_the_scope_is_named():
    scopes = [Scope(0, "auto", 0, "p.py:1", 0, 3), Scope(1, "auto", 1, "p.py:2", 0, 1)]
    work = Submissions.of([1024, 0, 0], scopes=scopes, waits=[[], [], [0]])
    assert rings.orchestrate(work, [1.0, 1.0, 1.0], [5.0] * 3).late == ((0, 2),)
    assert rings.orchestrate(work, [100.0, 1.0, 1.0], [5.0] * 3).late == ()  # still running: kept for its reader


def test_times_must_be_one_for_each_task():
    work = Submissions.of([1024] * 3)
    with pytest.raises(PyptoxError, match="`service_us` must be a finite time"):
        rings.orchestrate(work, [1.0] * 2, [1.0] * 3)
    with pytest.raises(PyptoxError, match="`cost_us`"):
        rings.orchestrate(work, [1.0] * 3, [1.0, -1.0, 1.0])


def test_a_hundred_thousand_tasks_under_pressure(random_submissions):
    begin = time.perf_counter()
    work = random_submissions(1, count=100_000)
    built = time.perf_counter() - begin
    service, cost = times(work, 1)
    limits = rings.smallest(work).limits
    run = rings.orchestrate(work, service, cost, limits)
    taken = time.perf_counter() - begin - built
    assert run.deadlock is None
    assert taken < 20, taken


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_parts_add_up_and_slopes_are_those_of_finite_differences(random_submissions, seed):
    work, rng = random_submissions(seed), np.random.default_rng(seed)
    service, cost = rng.exponential(50.0, work.count), rng.exponential(2.0, work.count)
    limits = rings.smallest(work).limits
    run = rings.orchestrate(work, service, cost, limits)
    assert sum(run.attribution().values()) == pytest.approx(run.time_us, rel=1e-9)
    by_service, by_cost = run.gradient()
    assert by_service @ service + by_cost @ cost == pytest.approx(run.time_us, rel=1e-9)
    for task in rng.integers(0, work.count, 3):
        for change, slope in ((service, by_service[task]), (cost, by_cost[task])):
            step = 1e-6
            change[task] += step
            after = rings.orchestrate(work, service, cost, limits).time_us
            change[task] -= step
            assert (after - run.time_us) / step == pytest.approx(slope, abs=1e-3)
