"""What a capture says from its stamps: counted by hand, counted again by plain loops, and exact on random runs."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyptox import artifacts
from pyptox.artifacts import Blocks, Deps, Edge, Records, Submits, Task

seeds = st.integers(0, 2**32)
TICK = 0.02  # µs
SUBSET = "qwen3_decode_layer_a2a3_subset"


def records_of(rows, submits=(), level: int = 4) -> Records:
    """Rows of (task, core, receive, start, end, dispatch, finish); two cube cores and two vector cores."""
    task, core, *stamps = np.array(rows, np.int64).T
    reg = np.arange(1, len(rows) + 1)
    blocks = Blocks(task.astype(np.uint64), core, reg, *stamps)
    names, begin, end = np.array(submits, np.int64).reshape(-1, 3).T
    zeros = np.zeros(len(names), np.int64)
    made = Submits(zeros, np.arange(len(names)), names.astype(np.uint64), begin, end)
    phases = artifacts.Phases(*[np.zeros(0)] * 9, *[np.zeros((0, 3))] * 2)
    return Records(level, 50_000_000, ("aic", "aic", "aiv", "aiv"), blocks, phases, made)


def ticks(values) -> list:
    return [None if np.isnan(value) else round(value / TICK) for value in values]


# Core 0 runs task 1, then task 3, which waits for tasks 1 and 2; core 1 runs task 2.
ROWS = [
    # task, core, receive, start, end, dispatch, finish
    (1, 0, 1010, 1020, 1100, 1000, 1110),
    (2, 1, 1015, 1030, 1200, 1005, 1230),
    (3, 0, 1260, 1270, 1300, 1250, 1320),
]
GRAPH = Deps((Task(1, (0, -1, -1)), Task(2, (0, -1, -1)), Task(3, (0, -1, -1))), (), (Edge(1, 3), Edge(2, 3)))


def test_gaps_by_hand() -> None:
    found = artifacts.gaps(records_of(ROWS), GRAPH)
    assert ticks(found.pickup_us) == [10, 10, 10]
    assert ticks(found.setup_us) == [10, 15, 10]
    assert ticks(found.kernel_us) == [80, 170, 30]
    assert ticks(found.fin_us) == [10, 30, 20]
    assert ticks(found.before_us) == [None, None, 170]
    assert found.previous.tolist() == [-1, -1, 0]
    third = {cause: ticks(values)[2] for cause, values in found.causes_us.items()}
    assert third == {
        "submit": 0,
        "producer": 100,  # task 1 ended at 1100, task 2 at 1200
        "fin": 30,  # seen at 1230
        "undispatched": 20,  # dispatched at 1250
        "unknown": 0,
        "pickup": 10,
        "gate": 0,
        "setup": 10,
    }


def test_path_by_hand() -> None:
    path = artifacts.observed_path(records_of(ROWS), GRAPH)
    pieces = [(piece.cause, piece.task_id, piece.end - piece.start) for piece in path.pieces]
    assert pieces == [
        ("undispatched", 2, 5),  # from the first dispatch of all to its own
        ("pickup", 2, 10),
        ("setup", 2, 15),
        ("kernel", 2, 170),
        ("fin", 2, 30),
        ("undispatched", 3, 20),
        ("pickup", 3, 10),
        ("setup", 3, 10),
        ("kernel", 3, 30),
        ("fin", 3, 20),
    ]
    assert path.cycles == 320
    assert path.us == pytest.approx(artifacts.makespan_us(records_of(ROWS)))
    assert path.by_cause()["kernel"] == pytest.approx(200 * TICK)


def test_utilisation_by_hand() -> None:
    assert artifacts.utilisation(records_of(ROWS)) == {0: 110 / 320, 1: 170 / 320}


def test_the_path_through_a_core() -> None:
    rows = [*ROWS[:2], (3, 1, 1202, 1210, 1300, 1150, 1320)]
    graph = replace(GRAPH, edges=(Edge(1, 3),))
    path = artifacts.observed_path(records_of(rows), graph)
    assert [(p.cause, p.task_id, p.end - p.start) for p in path.pieces][-4:] == [
        ("pickup", 3, 2),  # the core was busy until 1200
        ("setup", 3, 8),
        ("kernel", 3, 90),
        ("fin", 3, 20),
    ]
    assert path.pieces[-5].cause == "kernel"


def test_a_late_submit_and_a_gate() -> None:
    late = artifacts.gaps(records_of(ROWS, [(3, 1200, 1240)]), GRAPH)
    third = {cause: ticks(values)[2] for cause, values in late.causes_us.items()}
    assert (third["submit"], third["undispatched"], sum(third.values())) == (140, 10, 170)
    rows = [*ROWS[:2], (3, 0, 1245, 1270, 1300, 1150, 1320)]
    gated = artifacts.gaps(records_of(rows), GRAPH)
    third = {cause: ticks(values)[2] for cause, values in gated.causes_us.items()}
    assert (third["producer"], third["fin"], third["gate"], third["setup"]) == (100, 30, 15, 25)
    assert third["pickup"] == third["undispatched"] == 0


def test_what_is_not_known_is_called_so() -> None:
    for graph in (None, Deps((*GRAPH.tasks, Task(4, (0, -1, -1))), (), (*GRAPH.edges, Edge(4, 3)))):
        found = artifacts.gaps(records_of(ROWS), graph)
        causes = {cause: ticks(values)[2] for cause, values in found.causes_us.items()}
        assert causes["undispatched"] == 0
        assert causes["unknown"] == (150 if graph is None else 20)
    alone = artifacts.gaps(records_of([(*row[:5], 0, 0) for row in ROWS], level=1))
    assert np.isnan(alone.pickup_us).all()
    assert np.isnan(alone.fin_us).all()


def test_a_dummy_passes_on_what_it_waited_for() -> None:
    graph = Deps((*GRAPH.tasks, Task(4), Task(5)), (), (Edge(1, 3), Edge(2, 4), Edge(4, 5), Edge(5, 3)))
    direct = artifacts.gaps(records_of(ROWS), GRAPH)
    through = artifacts.gaps(records_of(ROWS), graph)
    assert all(np.array_equal(direct.causes_us[c], through.causes_us[c], equal_nan=True) for c in artifacts.CAUSES)
    assert artifacts.observed_path(records_of(ROWS), graph) == artifacts.observed_path(records_of(ROWS), GRAPH)


# ------------------------------------------------------------------------------------------------ early dispatch


def consumer(rows, **flags):
    """The verdict on task 3, with `early_dispatch` of tasks 1 and 2."""
    tasks = tuple(replace(task, early_dispatch=flags.get(f"t{task.task_id}", True)) for task in GRAPH.tasks)
    found = artifacts.early_dispatch(records_of(rows), replace(GRAPH, tasks=tasks))
    assert [one.task_id for one in found] == [3]
    return found[0]


@pytest.mark.parametrize(
    ("dispatch", "early"), [(1227, True), (1228, False), (1229, False), (1230, False), (1100, True)]
)
def test_two_ticks_of_tolerance(dispatch, early) -> None:
    one = consumer([*ROWS[:2], (3, 0, 1260, 1270, 1300, dispatch, 1320)])
    assert (one.verdict, one.early) == (("full", 1) if early else ("none", 0))
    assert one.eligible == one.early


def test_full_partial_and_none() -> None:
    blocks = [(3, core, 1260, 1270, 1300, dispatch, 1320) for core, dispatch in ((0, 1150), (2, 1200), (3, 1240))]
    assert consumer([*ROWS[:2], *blocks[:2]]).verdict == "full"
    assert consumer([*ROWS[:2], *blocks]).verdict == "partial"
    assert consumer([*ROWS[:2], blocks[2]]).verdict == "none"


def test_flags_that_allow_it() -> None:
    rows = [*ROWS[:2], (3, 0, 1260, 1270, 1300, 1150, 1320)]  # task 1 is complete, task 2 is not
    assert consumer(rows, t1=False).eligible == 1
    assert (consumer(rows, t2=False).early, consumer(rows, t2=False).eligible) == (1, 0)
    rows = [*ROWS[:2], (2, 3, 1165, 1170, 1200, 1160, 1230), (3, 0, 1260, 1270, 1300, 1150, 1320)]
    assert consumer(rows).eligible == 0  # a block of task 2 was published later


def test_allocations_and_dummies() -> None:
    rows = [*ROWS[:2], (3, 0, 1260, 1270, 1300, 1150, 1320)]
    tasks = tuple(replace(task, early_dispatch=True) for task in GRAPH.tasks)
    for extra, edges, eligible in [
        ((Task(4),), (Edge(4, 3),), 1),  # an allocation
        ((Task(4),), (Edge(2, 4), Edge(4, 3)), 0),  # a dummy
        ((), (Edge(4, 3),), 1),  # not listed: taken for an allocation
    ]:
        graph = Deps((*tasks, *extra), (), (*GRAPH.edges, *edges))
        one = next(o for o in artifacts.early_dispatch(records_of(rows), graph) if o.task_id == 3)
        assert (one.early, one.eligible) == (1, eligible)
    with pytest.raises(ValueError, match="level 2"):
        artifacts.early_dispatch(records_of(rows, level=1), GRAPH)


# ------------------------------------------------------------------------------------------------- random runs


@given(seeds)
@settings(deadline=None, max_examples=60)
def test_pieces_tile_the_makespan(random_run, seed) -> None:
    records, deps = random_run(seed)
    whole = artifacts.makespan_us(records)
    for run in (records, records.at_level(2), records.at_level(1)):
        for graph in (deps, None, replace(deps, edges=deps.edges[::2]), replace(deps, tasks=deps.tasks[::2])):
            path = artifacts.observed_path(run, graph)
            pieces = path.pieces
            assert all(one.end == two.start for one, two in pairwise(pieces))
            assert all(piece.start < piece.end for piece in pieces)
            assert path.us == pytest.approx(artifacts.makespan_us(run), abs=1e-9)
            found = artifacts.gaps(run, graph)
            assert np.allclose(sum(found.causes_us.values()), found.before_us, equal_nan=True)
            assert all(np.nanmin(values, initial=0.0) >= 0 for values in found.causes_us.values())
    us = 1e6 / records.clock_hz
    assert whole == pytest.approx((records.blocks.finish.max() - records.blocks.dispatch.min()) * us)


@given(seeds, st.data())
@settings(deadline=None, max_examples=40)
def test_stamps_that_make_no_sense_still_tile(random_run, seed, data) -> None:
    records, deps = random_run(seed, tasks=6)
    rng = np.random.default_rng(data.draw(seeds))
    blocks = {name: rng.integers(1, 1000, len(records.blocks)) for name in ("dispatch", "receive", "start", "finish")}
    blocks["end"] = blocks["start"] + rng.integers(0, 100, len(records.blocks))
    records = replace(records, blocks=replace(records.blocks, **blocks))
    path = artifacts.observed_path(records, deps)
    assert path.us == pytest.approx(artifacts.makespan_us(records), abs=1e-9)
    assert all(one.end == two.start for one, two in pairwise(path.pieces))


@given(seeds)
@settings(deadline=None, max_examples=40)
def test_early_dispatch_agrees_with_a_direct_count(random_run, seed) -> None:
    records, deps = random_run(seed)
    table = records.table
    rows = [{name: table[name][n].item() for name in table} for n in range(len(records.blocks))]
    expected = {}
    for task in deps.tasks:
        preds = {edge.pred for edge in deps.edges if edge.succ == task.task_id}
        finishes = [row["finish_cycles"] for row in rows if row["task_id"] in preds]
        mine = [row["dispatch_cycles"] for row in rows if row["task_id"] == task.task_id]
        if mine and finishes:
            early = sum(dispatch + 2 < max(finishes) for dispatch in mine)
            expected[task.task_id] = "none" if not early else "full" if early == len(mine) else "partial"
    assert {one.task_id: one.verdict for one in artifacts.early_dispatch(records, deps)} == expected


# --------------------------------------------------------------------------------------------- the real subset


def test_the_real_capture_agrees_with_a_direct_count(shared) -> None:
    capture = artifacts.read_capture(shared / "captures" / SUBSET)
    records, deps = capture.records, capture.deps
    assert deps is not None
    result = artifacts.report(capture)
    assert result.passed
    assert result.makespan_us == pytest.approx(848.50)
    assert result.path.us == pytest.approx(result.makespan_us, abs=1e-9)
    gaps, busy, last = [], {}, {}
    columns = (getattr(records.blocks, name).tolist() for name in ("core_id", "start", "end"))
    for core, start, end in sorted(zip(*columns, strict=True)):
        if core in last:
            gaps.append((start - last[core]) * TICK)
        last[core] = end
        busy[core] = busy.get(core, 0) + (end - start) * TICK
    answer = result.to_dict()
    assert answer["intervals_us"]["gap_before"]["count"] == len(gaps) == 105
    assert answer["intervals_us"]["gap_before"]["mean"] == pytest.approx(np.mean(gaps))
    assert sum(answer["gap_causes_us"].values()) == pytest.approx(sum(gaps))
    assert result.utilisation == pytest.approx({core: us / 848.50 for core, us in busy.items()})
    assert np.mean(list(result.utilisation.values())) == pytest.approx(0.83, abs=0.005)
    fin = (records.blocks.finish - records.blocks.end) * TICK
    assert (
        answer["intervals_us"]["end_finish"]["p50"] == pytest.approx(np.median(fin)) == pytest.approx(2.27, abs=0.005)
    )
    finish = {}
    for task, stamp in zip(records.blocks.task_id.tolist(), records.blocks.finish.tolist(), strict=True):
        finish[task] = max(stamp, finish.get(task, 0))
    pairs = {(edge.pred, edge.succ) for edge in deps.edges if {edge.pred, edge.succ} <= finish.keys()}
    assert len(result.early) == len({succ for _, succ in pairs})
    assert "the graph" in str(result)
