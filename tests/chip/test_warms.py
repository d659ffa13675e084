"""Warms: streams, landing, contention, contexts, what evicts itself, and derivatives by warmed fractions."""

import dataclasses

import numpy as np
import pytest

from pyptox import PyptoxError, chip
from pyptox.chip._oracle import oracle
from pyptox.chip._run import run

NEXT_TO_NOTHING = {"complete_us": 2.0**-10, "dispatch_each_us": 2.0**-10}
FREE = chip.a2a3_schedule().replace(**dict.fromkeys(chip.a2a3_schedule().values(), 0.0) | NEXT_TO_NOTHING)
MB = 10**6
SDMA = chip.Sdma(byte_us=1e-6, hit_byte_us=1e-7, shared_byte_us=1.25e-6, startup_us=40.0, issue_us=5.0)
"""1 µs for a MB."""


def layer(before_us, sizes, *, share=1.0, resident=4.0, hbm=10.0, capacity=192 * MB):
    """A task on the vector cores, and then a task for each size that streams a region of so many MB."""
    count = len(sizes)
    memory = chip.Memory.of(
        [before_us, *[resident] * count], [0.0, *[hbm] * count], [0.0] * (count + 1),
        regions=[size * MB for size in sizes], uses=[[], *([(n, share)] for n in range(count))],
        together=[1, *[24] * count], capacity=capacity,
    )  # fmt: skip
    waits = [[], *([n] for n in range(count))]
    return chip.Workload.of(
        ["AIV", *["AIC"] * count], [1, *[24] * count], [before_us, *[10.0] * count], waits, memory=memory
    )


def warmed(work, *warms, hbm_byte_us=0.0, schedule=FREE, sdma=SDMA, **options):
    more, places = chip.with_warms(work, warms, hbm_byte_us=hbm_byte_us, sdma=sdma)
    timeline = chip.simulate(more, schedule=schedule, **options)
    return timeline, timeline.times.block[places].tolist()


def test_what_has_landed_half_a_block_after_the_start_is_found():
    def found(before_us):
        return warmed(layer(before_us, [100]), chip.Warm(None, ((0, 1.0),)))[1][1]

    assert found(200.0) == 4.0
    assert found(45.0) == pytest.approx(10.0 - 0.5 * 6.0, abs=0.01)
    assert found(0.0) == pytest.approx(10.0 - 0.05 * 6.0, abs=0.01)


def test_a_fraction_is_found_as_far_as_it_goes():
    assert warmed(layer(200.0, [100]), chip.Warm(None, ((0, 0.25),)))[1][1] == pytest.approx(8.5)


def test_regions_land_in_their_order():
    first, second = (warmed(layer(90.0, [90, 90]), chip.Warm(None, ((a, 1.0), (1 - a, 1.0)))) for a in (0, 1))
    assert first[1][1] == 4.0
    assert second[1][2] == 4.0
    assert first[1][2] > 9.0
    assert second[1][1] > 9.0


def test_a_set_larger_than_l2_evicts_itself():
    def saved(sizes):
        timeline, _ = warmed(layer(1000.0, sizes), chip.Warm(None, tuple((n, 1.0) for n in range(len(sizes)))))
        assert timeline.without_warms is not None
        return timeline.without_warms[0].makespan_us - timeline.makespan_us

    assert saved([64] * 3) == pytest.approx(18.0, abs=0.01)
    assert saved([64] * 4) == pytest.approx(0.0, abs=0.01)  # each is put out by the next before its use


def test_what_a_block_streams_is_slowed_by_a_warm_in_flight():
    work = layer(0.0, [100, 400])
    _, plain = warmed(work, hbm_byte_us=0.5e-6)
    _, slowed = warmed(work, chip.Warm(None, ((1, 0.9),)), hbm_byte_us=0.5e-6)
    assert (plain[1], slowed[1]) == (10.0, pytest.approx(15.0, abs=0.01))


def test_two_contexts_start_up_in_parallel_and_then_share_less_than_one():
    work = layer(1000.0, [100, 100])
    one, _ = warmed(work, chip.Warm(None, ((0, 1.0), (1, 1.0))))
    two, _ = warmed(work, chip.Warm(None, ((0, 1.0),), 0), chip.Warm(None, ((1, 1.0),), 1))
    assert [landing.lands_us for landing in one.landings] == pytest.approx([100.0, 200.0], abs=0.01)
    assert [landing.lands_us for landing in two.landings] == pytest.approx([290.0, 290.0], abs=0.01)


def test_what_a_task_has_read_is_passed_quickly():
    timeline, _ = warmed(layer(0.0, [100, 100]), chip.Warm(None, ((0, 1.0), (1, 1.0))))
    # it comes to its second region 10 µs after the first was read, with 4.7 MB by the middle of the second block
    assert timeline.times.block[3] == pytest.approx(10.0 - 0.047 * 6.0, abs=0.01)


def test_what_is_in_l2_already_streams_at_its_rate():
    work = layer(30.0, [100])
    timeline, block = warmed(work, chip.Warm(None, ((0, 1.0),)), repeated=True)
    (landing,) = timeline.landings
    assert (landing.lands_us, landing.before, block[1]) == (pytest.approx(10.0), 1.0, 4.0)
    assert "repeated" in timeline.mode
    assert "cold" in warmed(work)[0].mode


def test_a_warm_holds_a_vector_core_a_region():
    timeline, _ = warmed(layer(200.0, [10, 10]), chip.Warm(None, ((0, 1.0), (1, 1.0))))
    assert timeline.times.block[0] == 2 * SDMA.issue_us


def test_warmed_blocks_approach_and_never_beat_their_resident_time(random_workload):
    for seed in range(40):
        work, schedule, clusters = random_workload(seed, tasks=30, memory=True, warms=True)
        block = oracle(work, schedule, clusters).block
        assert (block >= np.minimum(work.memory.resident_us, work.duration_us) - 1e-5).all()


def test_taking_warms_out_gives_the_program_back():
    work = layer(50.0, [10, 20])
    more, _ = chip.with_warms(work, [chip.Warm(0, ((0, 1.0),)), chip.Warm(None, ((1, 1.0),))], hbm_byte_us=0.0)
    less, kept = chip.without_warms(more)
    assert more.names == ("warm", "t0", "warm", "t1", "t2")
    assert kept == [1, 3, 4]
    assert less.memory is not None
    assert work.memory is not None
    assert (less.waits, less.names, less.memory.uses) == (work.waits, work.names, work.memory.uses)
    assert chip.simulate(less).makespan_us == chip.simulate(work).makespan_us


def test_effects_are_what_blocks_save_and_a_warm_spends():
    timeline, _ = warmed(layer(200.0, [100, 100]), chip.Warm(None, ((0, 1.0),)))
    effects = {effect.task: (effect.saved_us, effect.spent_us) for effect in chip.explain(timeline).warms}
    assert effects == {0: (0.0, 5.0), 2: (6.0, 0.0)}


def test_attribution_sums_to_the_makespan_with_warms(random_workload):
    for seed in range(0, 30, 3):
        work, schedule, clusters = random_workload(seed, tasks=40, memory=True, warms=True)
        times, record = run(work, schedule, clusters)
        chip_ = chip.simulate(work).hardware.replace(aic=clusters, aiv=2 * clusters)
        timeline = chip.Timeline(work, schedule, clusters, times, record, chip_)
        assert sum(timeline.attribution().values()) == pytest.approx(timeline.makespan_us, abs=1e-6)


def test_slopes_by_fractions_agree_with_finite_differences(random_workload):
    checked, wrong, step = 0, 0, 2.0**-9
    for seed in (*range(7008, 7011), *range(7020, 7023), *range(7032, 7035), *range(7044, 7047)):
        work, schedule, clusters = random_workload(seed, tasks=50, ties=False, memory=True, warms=True)
        times, record = run(work, schedule, clusters)
        timeline = chip.Timeline(work, schedule, clusters, times, record, chip.simulate(layer(1.0, [1])).hardware)
        slopes, fractions = timeline.fraction_slopes(), work.memory.warms.fractions()
        for place in np.argsort(-np.abs(slopes))[:3]:
            if not step < fractions[place] < 1 - step:
                continue
            ends = []
            for sign in (-1, 1):
                moved = work.memory.warms.with_fractions(fractions + sign * step * (np.arange(len(fractions)) == place))
                memory = dataclasses.replace(work.memory, warms=moved)
                ends.append(oracle(dataclasses.replace(work, memory=memory), schedule, clusters).finish.max())
            middle = times.finish.max()
            sides = [(middle - ends[0]) / step, (ends[1] - middle) / step]
            if abs(sides[0] - sides[1]) < 1e-2 * max(map(abs, sides)) and abs(sides[0]) > 1e-2:  # no kink in between
                checked += 1
                wrong += int(abs(slopes[place] - np.mean(sides)) > 0.02 * abs(np.mean(sides)))
    assert checked >= 8
    assert wrong == 0


def test_what_no_warm_can_be_is_refused():
    work = layer(1.0, [1])
    with pytest.raises(PyptoxError, match="`anchor` must be a task"):
        chip.with_warms(work, [chip.Warm(7, ((0, 1.0),))], hbm_byte_us=0.0)
    with pytest.raises(PyptoxError, match="must be 0 to 1"):
        chip.Warms.of([[(0, 1.5)]])
    with pytest.raises(PyptoxError, match="`context` must be 0 to 3"):
        chip.Warms.of([[(0, 1.0)]], context=[4])
    with pytest.raises(PyptoxError, match="contexts gain nothing together"):
        chip.Sdma(shared_byte_us=1e-9)
    with pytest.raises(PyptoxError, match="must state what its blocks move"):
        chip.with_warms(chip.Workload.of(["AIC"], [1], [1.0], [[]]), [], hbm_byte_us=0.0)


@pytest.mark.parametrize("fractions", [[1.1] * 3, [-0.1] * 3, [np.nan] * 3, [0.5] * 2, [0.5] * 4, 0.5])
def test_fractions_are_one_for_each_region_and_none_beyond_it(fractions):
    warms = chip.Warms.of([[(0, 1.0), (1, 0.5)], [], [(2, 0.25)]])
    assert warms.with_fractions([0.0, 1.0, 0.5]).fractions().tolist() == [0.0, 1.0, 0.5]
    with pytest.raises(PyptoxError, match="`fractions` must be 3 numbers from 0 to 1"):
        warms.with_fractions(fractions)
