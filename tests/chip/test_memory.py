"""Blocks that share HBM and L2, and what a task finds in L2."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import pyptox as px
from pyptox import PyptoxError, chip
from pyptox import program as pp
from pyptox.chip._costs import filled
from pyptox.chip._memory import COLUMNS
from pyptox.chip._run import run
from pyptox.cost import cost_of

MIB = 2**20
FREE = chip.a2a3_schedule().replace(**dict.fromkeys(chip.a2a3_schedule().values(), 0.0) | {"complete_us": 2.0**-10})


def tasks(shapes, blocks, duration, waits, **memory):
    """A workload whose scheduler costs next to nothing."""
    moves = {"resident_us": duration, "hbm_us": [0.0] * len(shapes), "l2_us": [0.0] * len(shapes)} | memory
    columns = [moves.pop(name) for name in COLUMNS]
    given = chip.Memory.of(*columns, **{"together": [48 if s == "AIV" else 24 for s in shapes]} | moves)
    return chip.Workload.of(shapes, blocks, duration, waits, memory=given)


def block_us(work, **options):
    return chip.simulate(work, schedule=FREE, **options).times.block.tolist()


@pytest.mark.parametrize("way", ["hbm_us", "l2_us"])
def test_two_streams_at_the_same_time_share_the_bandwidth(way):
    work = tasks(["AIC", "AIV"], [24, 48], [10.0, 10.0], [[], []], **{way: [10.0, 10.0]})
    assert block_us(work) == [10.0, pytest.approx(20.0)]


def test_a_stream_after_another_has_the_bandwidth_to_itself():
    work = tasks(["AIC", "AIV"], [24, 48], [10.0, 10.0], [[], [0]], hbm_us=[10.0, 10.0])
    assert block_us(work) == [10.0, 10.0]


def test_tasks_that_share_the_cores_ask_no_more_than_one_that_has_them_all():
    work = tasks(["AIC", "AIC"], [12, 12], [10.0, 10.0], [[], []], hbm_us=[10.0, 10.0])
    alone = block_us(tasks(["AIC"], [24], [10.0], [[]], hbm_us=[10.0]))
    assert (block_us(work)[0], alone) == (10.0, [10.0])


def test_a_block_that_waits_for_hbm_is_slower_by_that_part():
    work = tasks(
        ["AIC", "AIV"], [24, 48], [10.0, 10.0], [[], []], resident_us=[10.0, 6.0], hbm_us=[10.0, 4.0]
    )  # fmt: skip
    assert block_us(work) == [10.0, pytest.approx(6.0 + 4.0 * 1.4)]


def test_blocks_that_compute_longer_than_they_stream_are_not_slower():
    work = tasks(["AIC", "AIV"], [24, 48], [10.0, 10.0], [[], []], hbm_us=[9.0, 1.0])
    assert block_us(work) == [10.0, 10.0]


def test_what_an_earlier_task_has_used_is_found():
    work = tasks(
        ["AIC", "AIC"], [24, 24], [10.0, 10.0], [[], [0]],
        resident_us=[4.0, 4.0], regions=[MIB], uses=[[(0, 0.0)], [(0, 1.0)]],
    )  # fmt: skip
    assert block_us(work) == [10.0, 4.0]


def test_what_is_found_asks_nothing_of_hbm():
    work = tasks(
        ["AIC", "AIV", "AIC"], [24, 48, 24], [10.0, 10.0, 10.0], [[], [0], [0]],
        resident_us=[10.0, 10.0, 9.0], hbm_us=[10.0, 10.0, 10.0], regions=[MIB], uses=[[(0, 0.5)], [], [(0, 1.0)]],
    )  # fmt: skip
    assert block_us(work) == [10.0, 10.0, 9.0]


def test_a_region_is_found_as_far_as_it_fits_beside_what_was_used_since():
    def third(size):
        work = tasks(
            ["AIC"] * 3, [24] * 3, [10.0] * 3, [[], [0], [1]],
            resident_us=[0.0] * 3, regions=[100 * MIB, size * MIB], uses=[[(0, 1.0)], [(1, 1.0)], [(0, 1.0)]],
        )  # fmt: skip
        return block_us(work)[2]

    assert third(92) == 0.0
    assert third(142) == 5.0
    assert third(192) == third(400) == 10.0


def test_a_round_after_another_finds_what_that_left_unless_the_set_is_too_large():
    def layers(size):
        count = 6
        return tasks(
            ["AIC"] * count, [24] * count, [10.0] * count, [[n - 1] if n else [] for n in range(count)],
            resident_us=[6.0] * count, regions=[size * MIB] * count, uses=[[(n, 1.0)] for n in range(count)],
        )  # fmt: skip

    small, large = layers(16), layers(64)
    assert block_us(small) == [10.0] * 6
    assert block_us(small, repeated=True) == [6.0] * 6
    assert block_us(large, repeated=True) == [10.0] * 6


def test_an_early_consumer_uses_its_regions_when_it_is_staged():
    work = tasks(
        ["AIC", "AIV", "AIC"], [12, 12, 12], [50.0, 10.0, 10.0], [[], [0], [1]],
        resident_us=[50.0, 2.0, 2.0], regions=[MIB], uses=[[], [(0, 1.0)], [(0, 1.0)]],
    )  # fmt: skip
    work = dataclasses.replace(work, early=np.array([True, False, False]))
    assert block_us(work) == [50.0, 10.0, 2.0]


def _scaled(work, factor):
    return work.with_durations(factor * work.duration_us)


def test_a_makespan_is_homogeneous_in_constants_and_the_times_of_blocks(random_workload):
    for seed in range(20):
        work, schedule, clusters = random_workload(seed, memory=True)
        twice = schedule.replace(**{name: 2 * value for name, value in schedule.values().items()})
        once = run(work, schedule, clusters)[0].finish.max()
        assert run(_scaled(work, 2.0), twice, clusters)[0].finish.max() == pytest.approx(2 * once, abs=1e-3)


def test_attribution_still_sums_to_the_makespan_and_slopes_to_the_blocks(random_workload):
    slowed = 0
    for seed in range(30):
        work, schedule, clusters = random_workload(seed, memory=True)
        t = chip.simulate(work, schedule=schedule, hardware=px.hardware.a2a3().replace(aic=clusters, aiv=2 * clusters))
        assert sum(t.attribution().values()) == pytest.approx(t.makespan_us, abs=1e-6)
        slopes, memory = t.slopes(), t.workload.memory
        assert memory is not None
        total = slopes.duration_us @ work.duration_us
        total += sum(getattr(slopes, name) @ getattr(memory, name) for name in COLUMNS)
        assert total == pytest.approx(t.gradient()[1] @ t.times.block, rel=1e-5)
        slowed += int((t.times.block > work.duration_us).sum())
    assert slowed > 50


def test_slopes_agree_with_finite_differences(random_workload):
    step, checked, wrong = 2.0**-8, 0, 0
    for seed in range(12):
        work, schedule, clusters = random_workload(seed, tasks=30, ties=False, memory=True)
        t = chip.simulate(work, schedule=schedule, hardware=px.hardware.a2a3().replace(aic=clusters, aiv=2 * clusters))
        slopes = t.slopes()
        for name in ("duration_us", *COLUMNS):
            slope = getattr(slopes, name)
            for task in np.argsort(-np.abs(slope))[:3]:
                ends = []
                for sign in (-1, 1):
                    moved = sign * step * (np.arange(work.tasks) == task)
                    if name == "duration_us":
                        changed = dataclasses.replace(work, duration_us=work.duration_us + moved)
                    else:
                        memory = dataclasses.replace(work.memory, **{name: getattr(work.memory, name) + moved})
                        changed = dataclasses.replace(work, memory=memory)
                    ends.append(run(changed, schedule, clusters)[0].finish.max())
                left, right = (t.makespan_us - ends[0]) / step, (ends[1] - t.makespan_us) / step
                if abs(left - right) > 0.02 * max(abs(left), abs(right), 0.1):  # a kink
                    continue
                checked += 1
                wrong += abs((left + right) / 2 - slope[task]) > 0.02 * max(abs(slope[task]), 0.1)
    assert checked > 60
    assert wrong <= 0.02 * checked


def _product(n):
    @pp.program(sizes=lambda: {"x": px.spec((16, 4096), "bf16"), "w": px.spec((4096, n), "bf16")})
    def product(x, w):
        return pp.submit(px.kernels.matmul, x, w, name="p", m=16, n=256, k=256)

    return product


def test_a_kernel_alone_takes_what_the_cost_model_says_however_full_its_last_wave_is():
    machine, spans = px.hardware.a2a3(), []
    for blocks in (12, 24, 25, 32, 47, 48, 49):
        graph = pp.graph(_product(256 * blocks))
        task = graph.tasks[0]
        assert task.kernel is not None
        alone = cost_of(task.kernel, task.specs(), task.values, machine)
        t = chip.simulate(graph, hardware=machine, schedule=FREE)
        expected = float(alone.time_us) - float(machine.times.launch_us)
        assert t.makespan_us == pytest.approx(expected, rel=0.01), blocks
        spans.append(t.makespan_us)
    assert spans == sorted(spans)


def test_a_last_wave_that_others_fill_up_has_no_more_of_the_bandwidth():
    def graph_of(again):
        @pp.program(sizes=lambda: {"x": px.spec((16, 4096), "bf16"), "w": px.spec((4096, 256 * 34), "bf16")})
        def two(x, w):
            first = pp.submit(px.kernels.matmul, x, w, name="p", m=16, n=256, k=256)
            if again == "behind":
                return pp.submit(px.kernels.matmul, x, w, name="q", m=16, n=256, k=256, deps=[first])
            return first, pp.submit(px.kernels.matmul, x, w, name="q", m=16, n=256, k=256)

        return pp.graph(two)

    machine = px.hardware.a2a3()
    assert filled(graph_of("beside"), machine).tolist() == [True, False]
    assert filled(graph_of("behind"), machine).tolist() == [False, False]
    beside, behind = (chip.workload(graph_of(where), machine) for where in ("beside", "behind"))
    whole = chip.workload(pp.graph(_product(256 * 48)), machine)
    assert beside.duration_us[0] == pytest.approx(whole.duration_us[0], rel=0.05)  # as in two whole waves
    assert behind.duration_us[0] == beside.duration_us[1] < 0.85 * beside.duration_us[0]
    # HBM never moves more than it can: no wave of 24 blocks is shorter than what 24 of a full wave take
    t = chip.simulate(graph_of("beside"), hardware=machine, schedule=FREE)
    assert t.times.block[0] >= 0.95 * whole.duration_us[0]


def test_a_programs_tasks_find_what_the_ones_before_have_made():
    from pyptox.cli._programs import program_at

    graph = pp.graph(program_at("docs/programs/mlp.py:mlp"), tokens=64)
    work = chip.workload(graph, px.hardware.a2a3())
    assert work.memory is not None
    t, again = chip.simulate(graph), chip.simulate(graph, repeated=True)
    down = next(n for n, task in enumerate(graph.tasks) if task.name == "down")
    assert t.times.block[down] < work.duration_us[down]
    assert again.times.block[down] < t.times.block[down]
    assert again.makespan_us < t.makespan_us
    scheduled = sum(part for name, part in t.attribution().items() if name in t.schedule.values())
    assert scheduled + sum(t.by_hardware().values()) == pytest.approx(t.makespan_us, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resident_us": [-1.0]}, "`resident_us`"),
        ({"regions": [0]}, "`regions`"),
        ({"uses": [[(1, 0.5)]]}, "`uses` of task 0"),
        ({"uses": [[(0, 0.6), (0, 0.6)]]}, "add up to 1"),
        ({"uses": [[], []]}, "`uses`"),
        ({"passes": [[0.5]]}, "`passes` of task 0 must be 1 or more"),
        ({"uses": [[(0, 0.5)]], "passes": [[]]}, "`passes` of task 0"),
    ],
)
def test_bad_memory_is_refused(change, message):
    given = {"regions": [MIB]} | change
    with pytest.raises(PyptoxError, match=message):
        tasks(["AIC"], [1], [1.0], [[]], **given)


def test_blocks_of_small_tasks_are_as_slow_as_those_of_one_large_one():
    def block_us(tasks: int) -> float:
        def product(x, w):
            out = pp.empty((16, 24 * 256), "fp32", name="out")
            width = 24 * 256 // tasks
            for at in range(0, 24 * 256, width):
                here = slice(at, at + width)
                tile: dict[str, Any] = {"m": 16, "n": 256, "k": 128, "stages": 2}
                pp.submit(px.kernels.matmul_wide, x, w[:, here], out=out[:, here], name="product", **tile)
            return out

        specs = px.spec((16, 5120), "bf16"), px.spec((5120, 24 * 256), "bf16")
        graph = pp.graph(pp.Program(product, "product", ("x", "w")), *specs)
        schedule = chip.a2a3_schedule().replace(
            submit_us=0.0, submit_edge_us=0.0, dispatch_each_us=0.0, dispatch_us=0.0
        )
        return float(chip.simulate(graph, schedule=schedule).times.block[-1])

    # of L2's link a block of a task of one is priced the whole, and it finds `x`, which the first task has read
    assert block_us(24) == pytest.approx(block_us(1), rel=0.2)
    assert block_us(24) > 1.5 * block_us(1) / 2
