"""Every block of a timeline, laid out: the same times as the machine's, and never two at once on a core."""

import itertools

import numpy as np
import pytest

import pyptox as px
from pyptox import chip
from pyptox.chip._workload import AIV, DUMMY, MIX


def _timeline(random_workload, seed):
    work, schedule, clusters = random_workload(seed)
    hardware = px.hardware.a2a3().replace(aic=clusters, aiv=2 * clusters)
    return chip.simulate(work, hardware=hardware, schedule=schedule)


@pytest.mark.parametrize("part", range(3))
def test_blocks_have_the_times_of_their_tasks(random_workload, part):
    for seed in range(20 * part, 20 * part + 20):
        t = _timeline(random_workload, seed)
        work, b = t.workload, t.layout.blocks
        for task in range(work.tasks):
            mine = b.task == task
            rows = 0 if work.shapes[task] >= DUMMY else work.blocks[task] * (3 if work.shapes[task] == MIX else 1)
            assert mine.sum() == rows
            if rows:
                assert b.start[mine].min() == t.times.start[task]
                assert b.end[mine].max() == t.times.end[task]
                assert b.finish[mine].max() == t.times.finish[task]
                assert b.dispatch[mine].min() >= t.times.dispatch[task]
        for before, after in itertools.pairwise((b.dispatch, b.receive, b.start, b.end, b.finish)):
            assert (before <= after).all()
        assert ((b.lane > 0) | (work.shapes[b.task] != AIV)).all()


def test_a_core_runs_one_block_at_a_time_and_a_thread_does_one_thing(random_workload):
    for seed in range(40):
        t = _timeline(random_workload, seed)
        b = t.layout.blocks
        order = np.lexsort((b.end, b.start, b.lane, b.cluster))
        same = (np.diff(b.cluster[order]) == 0) & (np.diff(b.lane[order]) == 0)
        assert (b.start[order][1:][same] >= b.end[order][:-1][same]).all()
        for one, two in itertools.pairwise(t.layout.served):
            assert one.thread != two.thread or two.start_us >= one.end_us - 1e-9


def test_threads_publish_and_retire_every_subtask(random_workload):
    for seed in range(20):
        t = _timeline(random_workload, seed)
        cores = {}
        for task, cluster, lane in zip(
            t.layout.blocks.task, t.layout.blocks.cluster, t.layout.blocks.lane, strict=True
        ):
            cores.setdefault(int(task), set()).add((int(cluster), int(lane)))
        for kind in ("dispatch", "complete"):
            served = {}
            for one in t.layout.served:
                if one.kind == kind:
                    served[one.task] = served.get(one.task, 0) + one.subtasks
            assert served == {task: len(used) for task, used in cores.items()}


def test_cores_and_threads_are_used_as_much_as_all_of_them_together(random_workload):
    for seed in range(30):
        t = _timeline(random_workload, seed)
        for kind, shares in t.each_utilisation.items():
            assert ((shares >= 0) & (shares <= 1 + 1e-9)).all()
            assert shares.mean() == pytest.approx(t.utilisation[kind], rel=1e-4, abs=1e-6), (seed, kind)


def test_nothing_to_lay_out():
    empty = chip.simulate(chip.Workload.of(["DUMMY"], [0], [0.0], [[]])).layout
    assert len(empty.blocks.task) == 0
    assert [(one.thread, one.kind) for one in empty.served] == [(0, "dummy")]
    nothing = chip.simulate(chip.Workload.of([], [], [], []))
    assert {kind: shares.sum() for kind, shares in nothing.each_utilisation.items()} == dict.fromkeys(
        ("AIC", "AIV", "scheduler"), 0
    )
