"""What holds for every graph, shape, flag and chip."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyptox as px
from pyptox import chip

CONSTANTS = list(chip.a2a3_schedule().values())


@st.composite
def simulations(draw, most: int = 24):
    """A timeline of any tasks on any chip."""
    count = draw(st.integers(1, most))
    clusters, threads = draw(st.sampled_from([(24, 3), (3, 2)]))  # each has to be compiled
    shapes = draw(st.lists(st.sampled_from(["MIX", "AIC", "AIV", "DUMMY", "ALLOC"]), min_size=count, max_size=count))
    kernel = [shape not in ("DUMMY", "ALLOC") for shape in shapes]
    waits = [
        [] if shape == "ALLOC" or not n else draw(st.lists(st.integers(0, n - 1), max_size=3))
        for n, shape in enumerate(shapes)
    ]
    blocks = [draw(st.integers(1, 60)) if k else 0 for k in kernel]
    durations = [draw(st.floats(0, 200)) if k else 0.0 for k in kernel]
    early = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    cores = [clusters * (2 if shape == "AIV" else 1) for shape in shapes]
    together = [draw(st.booleans()) and n <= limit for n, limit in zip(blocks, cores, strict=True)]
    work = chip.Workload.of(shapes, blocks, durations, waits, early=early, sync_start=together)
    numbers = draw(st.lists(st.floats(0, 5), min_size=len(CONSTANTS), max_size=len(CONSTANTS)))
    schedule = chip.a2a3_schedule().replace(**dict(zip(CONSTANTS, numbers, strict=True)))
    schedule = schedule.replace(threads=threads)
    hardware = px.hardware.a2a3().replace(aic=clusters, aiv=2 * clusters)
    return chip.simulate(work, hardware=hardware, schedule=schedule)


@given(simulations())
@settings(deadline=None, max_examples=120)
def test_no_schedule_beats_its_bounds_or_starts_before_its_inputs(t):
    cores = {"AIC": t.clusters, "AIV": 2 * t.clusters}
    assert t.makespan_us >= max(t.static_path().time_us, *(t.work_us[kind] / n for kind, n in cores.items())) - 1e-9
    for task, preds in enumerate(t.workload.waits):
        assert all(t.times.start[task] >= t.times.finish[p] for p in preds)


@given(simulations())
@settings(deadline=None, max_examples=60)
def test_path_and_attribution_add_up_to_the_makespan(t):
    pieces = t.critical()
    assert sum(piece.end_us - piece.start_us for piece in pieces) == pytest.approx(t.makespan_us, abs=1e-4)
    assert all(a.end_us == b.start_us for a, b in itertools.pairwise(pieces))
    found = chip.explain(t)
    total = sum(found.by_constant.values()) + sum(found.by_task.values())
    assert total == pytest.approx(t.makespan_us, abs=1e-4)


@given(simulations())
@settings(deadline=None, max_examples=60)
def test_blocks_fill_the_cores_that_there_are(t):
    b = t.layout.blocks
    assert (b.cluster < t.clusters).all()
    per_task = np.bincount(b.task[b.lane == 0], minlength=t.workload.tasks)
    cube = t.workload.shapes < 2
    np.testing.assert_array_equal(per_task[cube], t.workload.blocks[cube])
    for task in np.unique(b.task):
        mine = b.task == task
        # exact but for a step of the grid a block, where nothing takes any time
        assert b.start[mine].min() == pytest.approx(t.times.start[task], abs=1e-4)
        assert b.finish[mine].max() == pytest.approx(t.times.finish[task], abs=1e-4)
