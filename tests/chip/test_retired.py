"""Edges of producers that have finished before the submission cost nothing."""

import numpy as np
import pytest

import pyptox as px
from pyptox import artifacts, chip
from pyptox import kernels as k
from pyptox import program as pp
from pyptox.chip._retired import _lapsed


@pp.program(sizes=lambda n=20: {"x": px.spec((16, 1024), "fp32"), "count": px.spec((n, 16), "fp32")})
def chain(x, count):
    """A residual stream on two buffers in turn, as programs of layers have it."""
    streams, value = [pp.empty(x.shape, "fp32") for _ in range(2)], x
    for n in pp.loop(range(count.shape[0])):
        value = pp.submit(k.residual_add, value, x, out=streams[n % 2], m=16, n=256)
    return value


@pytest.mark.parametrize("tasks", [20, 60])
def test_a_chain_on_two_buffers_grows_with_its_tasks_and_its_account_adds_up(tasks):
    timeline = chip.simulate(pp.graph(chain, n=tasks))
    parts = timeline.attribution()
    assert sum(parts.values()) == pytest.approx(timeline.makespan_us, rel=1e-9)
    assert parts["submit_edge_us"] < 0.05 * timeline.makespan_us
    each = timeline.makespan_us / tasks
    assert 0.9 < each / (chip.simulate(pp.graph(chain, n=10)).makespan_us / 10) < 1.1


def test_the_edges_that_cost_are_those_of_producers_still_at_work():
    timeline = chip.simulate(pp.graph(chain, n=60))
    work, times = timeline.workload, timeline.times
    begun = np.concatenate([[0.0], times.submitted[:-1]])
    lapsed = [sum(times.finish[p] <= begun[n] for p in preds) for n, preds in enumerate(work.waits)]
    assert work.lapsed is not None
    assert work.lapsed.tolist() == lapsed
    assert 0 < sum(lapsed) < work.edges.sum()


@pp.program(sizes=lambda n=20: {"x": px.spec((16, 1024), "fp32"), "count": px.spec((n, 16), "fp32")})
def open_chain(x, count):
    """The same in one scope."""
    streams, value = [pp.empty(x.shape, "fp32") for _ in range(2)], x
    for n in range(count.shape[0]):
        value = pp.submit(k.residual_add, value, x, out=streams[n % 2], m=16, n=256)
    return value


@pp.program(sizes=lambda n=20: {"x": px.spec((16, 1024), "fp32"), "count": px.spec((n, 16), "fp32")})
def outer(x, count):
    """What is made once, outside, and read in every turn; and what a turn makes for itself."""
    kept = pp.empty(x.shape, "fp32")
    kept = pp.submit(k.residual_add, x, x, out=kept, m=16, n=256)
    for _ in pp.loop(range(count.shape[0])):
        made = pp.submit(k.residual_add, kept, x, m=16, n=256)
        pp.submit(k.residual_add, made, x, out=x, m=16, n=256)
    return x


def test_a_producer_whose_scope_is_open_does_not_retire_however_long_it_is_finished():
    timeline = chip.simulate(pp.graph(outer, n=12), schedule=chip.a2a3_schedule().replace(submit_us=40.0))
    work, times = timeline.workload, timeline.times
    assert work.lapsed is not None
    readers = [n for n in range(work.tasks) if 1 in work.waits[n]]
    assert len(readers) == 12
    assert times.finish[1] < times.submitted[readers[2]]
    # it waits for what was made outside, for the last writer of x, which has not finished, and for those before that
    reader = readers[6]
    assert work.lapsed[reader] == len(work.waits[reader]) - 2 > 0


def test_in_a_scope_that_stays_open_nothing_retires():
    timeline = chip.simulate(pp.graph(open_chain, n=200))
    assert timeline.workload.lapsed is None
    assert timeline.attribution()["submit_edge_us"] > 0.3 * timeline.makespan_us


def test_plain_workloads_pay_for_every_edge():
    work = chip.Workload.of(["AIC", "AIC"], [1, 1], [0.0, 0.0], [[], [0]])
    assert chip.simulate(work).times.submitted.tolist()[1] == pytest.approx(2 * 0.46 + 0.18, abs=1e-3)


def test_a_change_is_simulated_with_its_own_edges():
    answer = chip.what_if(pp.graph(chain, n=30), [chip.SetConstant("submit_us", 30.0)])
    work = answer.after.workload
    assert work.lapsed is not None
    assert answer.before.workload.lapsed is not None
    assert work.lapsed.sum() > answer.before.workload.lapsed.sum()
    producers = [np.array(p, np.int64) for p in work.waits]
    assert _lapsed(work, producers, answer.after.times, answer.after.schedule).tolist() == work.lapsed.tolist()


def test_a_window_keeps_the_graph_small_and_what_is_simulated_the_same():
    every, window = pp.graph(chain, n=60), pp.graph(chain, n=60, retired_after=8)
    assert len(every.edges) > 900
    assert len(window.edges) < 60 * 8
    assert chip.simulate(window).makespan_us == pytest.approx(chip.simulate(every).makespan_us, rel=0.01)


def test_a_window_below_one_task_is_refused():
    with pytest.raises(px.PyptoxError, match="`retired_after` must be 1 or more"):
        pp.graph(chain, retired_after=0)


def test_a_simulated_run_leaves_the_edges_that_were_made():
    timeline = chip.simulate(pp.graph(chain, n=60))
    capture = artifacts.simulated_capture(timeline)
    assert capture.deps is not None
    assert timeline.graph is not None
    found = {(edge.pred, edge.succ) for edge in capture.deps.edges}
    every = {(edge.pred, edge.succ) for edge in timeline.graph.edges}
    assert len(found) < len(every)
    assert len(found) == int(timeline.workload.wired.sum())
    again = artifacts.replay(capture)
    assert again.simulated_us == pytest.approx(again.measured_us, abs=0.05)
