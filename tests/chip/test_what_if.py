"""Changes to programs, as values: each does what it says, they compose, and nothing else moves."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyptox as px
from pyptox import PyptoxError, chip
from pyptox import program as pp
from pyptox.cli._programs import program_at

MLP = Path(__file__).parents[2] / "docs" / "programs" / "mlp.py"
NAMES = ["t0 norm", "t1 gate", "t2 up", "t3 swiglu", "t4 down"]


def _block(**changes):
    lists = {
        "shapes": ["AIV", "AIC", "AIC", "AIV", "AIC"],
        "blocks": [8, 24, 24, 24, 24],
        "duration_us": [5.0, 30.0, 31.0, 8.0, 40.0],
        "waits": [[], [0], [0], [1, 2], [3]],
        "names": NAMES,
    }
    return chip.Workload.of(**lists | changes)


def _rebuilt(result):
    """After the changes, by name: what each waits for."""
    work = result.after.workload
    return {name: {work.names[p] for p in work.waits[n]} for n, name in enumerate(work.names)}


def test_no_change_changes_nothing():
    result = chip.what_if(_block(), [])
    assert result.saved_us == 0.0
    assert all(move.start_shift_us == move.finish_shift_us == 0.0 for move in result.moves())


def test_without_an_edge_the_consumer_starts_when_it_would_without():
    result = chip.what_if(_block(), [chip.RemoveEdge("norm", "up")])
    other = chip.simulate(_block(waits=[[], [0], [], [1, 2], [3]]))
    np.testing.assert_array_equal(result.after.times.finish, other.times.finish)
    moved = {move.name: move.start_shift_us for move in result.moves()}
    assert moved["t2 up"] < 0


def test_a_flagged_producer_lets_its_consumer_be_staged():
    result = chip.what_if(_block(), [chip.FlagProducer("gate"), chip.FlagProducer("up")])
    assert result.staged() == ([], ["t3 swiglu"])
    assert result.saved_us > 0
    np.testing.assert_array_equal(
        result.after.times.finish, chip.simulate(_block(early=[False, True, True, False, False])).times.finish
    )
    back = chip.what_if(result.after, [chip.FlagProducer("up", flag=False)])
    assert back.staged() == (["t3 swiglu"], [])


def test_a_dummy_is_one_hop_and_keeps_a_task_from_being_staged():
    flags = [chip.FlagProducer("gate"), chip.FlagProducer("up")]
    result = chip.what_if(_block(), [*flags, chip.AddDummy("swiglu")])
    waits = _rebuilt(result)
    assert waits["t3 swiglu"] == {"t3* dummy"}
    assert waits["t3* dummy"] == {"t1 gate", "t2 up"}
    assert result.staged()[1] == []
    work = result.after.workload
    dummy = work.names.index("t3* dummy")
    assert work.edges[[dummy, dummy + 1]].tolist() == [2, 1]
    assert result.after.times.ready[dummy + 1] == result.after.times.finish[dummy]
    assert result.origin[dummy] == ()


def test_parts_of_a_task_share_its_blocks():
    result = chip.what_if(_block(), [chip.Split("up", 3)])
    work, waits = result.after.workload, _rebuilt(result)
    parts = [n for n, of in enumerate(result.origin) if of == (2,)]
    assert work.blocks[parts].tolist() == [8, 8, 8]
    assert waits["t3 swiglu"] == {"t1 gate", "t2 up[0]", "t2 up[1]", "t2 up[2]"}
    assert all(waits[work.names[n]] == {"t0 norm"} for n in parts)
    again = chip.what_if(result.after, [chip.SetDuration("up", 1.0)])
    assert (again.after.workload.duration_us[parts] == 1.0).all()


def test_merged_tasks_are_one_with_all_their_blocks():
    result = chip.what_if(_block(), [chip.Merge(("gate", "up"))])
    work, waits = result.after.workload, _rebuilt(result)
    merged = work.names.index("t1 gate+up")
    assert (work.blocks[merged], work.duration_us[merged]) == (48, 30.5)
    assert waits["t1 gate+up"] == {"t0 norm"}
    assert waits["t3 swiglu"] == {"t1 gate+up"}
    assert result.origin[merged] == (1, 2)
    assert {move.name for move in result.moves()} == set(NAMES)


def test_the_same_work_in_other_blocks():
    result = chip.what_if(_block(), [chip.SetBlocks("down", 48)])
    work = result.after.workload
    assert (work.blocks[4], work.duration_us[4]) == (48, 20.0)
    assert result.after.work_us == result.before.work_us


def test_constants_and_cores():
    result = chip.what_if(_block(), [chip.SetConstant("complete_us", 0.0), chip.SetCores(12)])
    hardware = px.hardware.a2a3().replace(aic=12, aiv=24)
    schedule = chip.a2a3_schedule().replace(complete_us=0.0)
    expected = chip.simulate(_block(), hardware=hardware, schedule=schedule)
    np.testing.assert_array_equal(result.after.times.finish, expected.times.finish)
    assert chip.what_if(_block(), [chip.SetConstant("threads", 1)]).after.schedule.threads == 1


def test_a_constant_of_the_chip_changes_a_programs_blocks():
    graph = pp.graph(program_at(f"{MLP}:mlp"), tokens=16)
    hardware = px.hardware.a2a3()
    slower = hardware.replace(hbm_us=2 * float(hardware.times.hbm_us))
    result = chip.what_if(graph, [chip.SetConstant("hbm_us", 2 * float(hardware.times.hbm_us))])
    expected = chip.simulate(graph, hardware=slower)
    np.testing.assert_allclose(result.after.times.finish, expected.times.finish, atol=1e-4)
    assert result.saved_us < 0
    assert json.dumps(result.to_dict())
    assert "SetConstant" in str(result)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (chip.FlagProducer("gat"), r"`task` must name a task; got 'gat'. Try gate"),
        (chip.RemoveEdge("gate", "up"), "up does not wait for gate"),
        (chip.AddEdge("down", "norm"), "must not make tasks wait for each other"),
        (chip.AddDummy("norm"), "t0 norm does not"),
        (chip.Split("up", 1), "`parts` must be 2 or more"),
        (chip.Split("norm", 9), "must not exceed the blocks"),
        (chip.Merge(("gate",)), "two tasks or more"),
        (chip.Merge(("gate", "norm")), "one kind of core; got AIC, AIV"),
        (chip.Merge(("gate", "down")), "wait for each other"),
        (chip.SetBlocks("up", 0), "`blocks` must be 1 to"),
        (chip.SetDuration("up", -1.0), "`duration_us` must be a finite number"),
        (chip.SetCores(0), "`aic` must be at least 1"),
        (chip.SetConstant("poll", 1.0), "`poll` is no constant of the schedule or the chip. Try poll_us"),
        (chip.SetConstant("aic", 3), "SetCores"),
        (chip.SetConstant("hbm_us", 1.0), "it needs a program"),
        (chip.SetConstant("poll_us", -1.0), "not negative"),
    ],
)
def test_what_cannot_be_changed_is_refused(edit, message):
    with pytest.raises(ValueError, match=message):
        chip.what_if(_block(), [edit])


def test_measured_submissions_stay():
    work = _block(submitted_us=[0.0, 1.0, 2.0, 3.0, 90.0])
    result = chip.what_if(work, [chip.AddDummy("swiglu")])
    assert result.after.times.submitted.tolist() == [0.0, 1.0, 2.0, 3.0, 3.0, 90.0]
    with pytest.raises(PyptoxError, match="submissions are measured ones"):
        chip.what_if(work, [chip.SetConstant("submit_us", 1.0)])


def _weights(n, parts):
    """One product, or several of its columns each, from 32 blocks."""

    @pp.program(sizes=lambda: {"x": px.spec((16, 4096), "bf16"), "w": px.spec((4096, n), "bf16")})
    def products(x, w):
        columns = [w[:, part * n // parts : (part + 1) * n // parts] for part in range(parts)]
        return tuple(pp.submit(px.kernels.matmul, x, c, name="p", m=16, n=256, k=256) for c in columns)

    return chip.simulate(pp.graph(products))


@pytest.mark.parametrize("parts", [2, 4])
def test_a_split_task_is_as_slow_as_a_program_that_is_written_so(parts):
    whole, written = _weights(8192, 1), _weights(8192, parts)
    result = chip.what_if(whole, [chip.Split("p", parts)])
    assert result.after_us == pytest.approx(written.makespan_us, rel=0.1)
    memory, start = result.after.workload.memory, whole.workload.memory
    assert memory is not None
    assert start is not None
    assert memory.regions.sum() == start.regions.sum()
    assert len(memory.regions) == len(start.regions) + 2 * (parts - 1)  # weights and outputs; all need the whole input
    shared = set.intersection(*({region for region, _ in each} for each in memory.uses))
    assert memory.regions[list(shared)].tolist() == [16 * 4096 * 2]


def test_consumers_of_a_split_task_read_all_parts_of_what_it_makes():
    memory = chip.Memory.of(
        [5.0, 5.0], [5.0, 5.0], [1.0, 1.0], regions=[1000, 600], uses=[[(0, 0.0)], [(0, 0.5), (1, 0.5)]]
    )
    work = chip.Workload.of(["AIC", "AIC"], [4, 4], [9.0, 9.0], [[], [0]], memory=memory, names=["t0 a", "t1 b"])
    split = chip.what_if(work, [chip.Split("a", 2)]).after.workload.memory
    assert split is not None
    assert split.regions.tolist() == [500.0, 600.0, 500.0]
    assert split.uses == (((0, 0.0),), ((2, 0.0),), ((0, 0.25), (2, 0.25), (1, 0.5)))
    both = chip.what_if(work, [chip.Split("a", 2), chip.Split("b", 2)]).after.workload.memory
    assert both is not None
    assert both.regions.sum() == memory.regions.sum()


@pytest.mark.parametrize("part", range(2))
def test_no_order_beats_the_bound(random_workload, part):
    for seed in range(30 * part, 30 * part + 30):
        work, schedule, _ = random_workload(seed, tasks=16, memory=True)
        bound = chip.simulate(work, schedule=schedule).bound_us
        for pred, succ in ((0, 9), (3, 12), (5, 15)):
            try:
                other = chip.what_if(work, [chip.AddEdge(f"t{pred}", f"t{succ}")], schedule=schedule)
            except PyptoxError:  # it waits already, or cannot
                continue
            assert other.after_us >= bound - 1e-6


def _edits(draw, count):
    name = st.integers(0, count - 1).map(lambda n: f"t{n}")
    pairs = st.tuples(name, name)
    kinds = st.one_of(
        st.builds(chip.FlagProducer, name),
        st.builds(chip.AddDummy, name),
        st.builds(chip.Split, name, st.integers(2, 3)),
        st.builds(chip.Merge, pairs),
        pairs.map(lambda p: chip.RemoveEdge(*p)),
        pairs.map(lambda p: chip.AddEdge(*p)),
        st.builds(chip.SetBlocks, name, st.integers(1, 30)),
    )
    return draw(st.lists(kinds, max_size=4))


@given(st.data(), st.integers(0, 300))
@settings(deadline=None, max_examples=40)
def test_whatever_is_changed_no_schedule_beats_its_bounds(random_workload, data, seed):
    work, schedule, _ = random_workload(2 + 12 * (seed // 12), tasks=20)
    before = chip.simulate(work, schedule=schedule)
    for edit in _edits(data.draw, 20):
        try:
            result = chip.what_if(before, [edit])
        except PyptoxError:  # such as a kernel-less task, or a ring
            continue
        t = result.after
        assert t.makespan_us >= t.bound_us
        for task, preds in enumerate(t.workload.waits):
            assert all(t.times.start[task] >= t.times.finish[p] for p in preds)
        kept = sorted(n for of in result.origin for n in of)
        assert set(kept) == set(range(before.workload.tasks))
        total = sum(t.attribution().values())
        assert total == pytest.approx(t.makespan_us, abs=1e-6)
        if not isinstance(edit, chip.SetBlocks):
            assert t.workload.blocks.sum() == before.workload.blocks.sum()
