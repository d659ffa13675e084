"""The jitted machine equals the rules in plain Python, and each rule gives the times that it says."""

import dataclasses
from dataclasses import fields

import numpy as np
import pytest

from pyptox import PyptoxError, chip
from pyptox.chip._constants import on_grid
from pyptox.chip._machine import compiled
from pyptox.chip._oracle import oracle
from pyptox.chip._run import bucket, run
from pyptox.hardware import a2a3

SCHEDULE = chip.a2a3_schedule().replace(first_us=0.0, fin_us=0.0)
C = SCHEDULE.values()
FLIGHT = C["doorbell_us"] + C["receive_us"]


def both(work, schedule=SCHEDULE, clusters=24, repeated=False):
    """Times by the machine, after comparing them with the oracle's."""
    expected = oracle(work, schedule, clusters, repeated)
    times, record = run(work, schedule, clusters, repeated)
    for field in fields(expected):
        np.testing.assert_array_equal(getattr(times, field.name), getattr(expected, field.name), field.name)
    return times, record


@pytest.mark.parametrize("part", range(6))
def test_the_machine_equals_the_oracle(random_workload, part):
    for seed in range(40 * part, 40 * part + 40):
        both(*random_workload(seed))


@pytest.mark.parametrize("part", range(3))
def test_the_machine_equals_the_oracle_where_blocks_share_memory(random_workload, part):
    for seed in range(40 * part, 40 * part + 40):
        both(*random_workload(seed, memory=True), repeated=seed % 2 == 0)


def test_the_machine_equals_the_oracle_with_warms(random_workload):
    found = 0
    for seed in (*range(7008, 7011), *range(7020, 7023), *range(7014, 7017), *range(7026, 7029)):
        work, schedule, clusters = random_workload(seed, tasks=50, memory=True, warms=True)
        record = both(work, schedule, clusters, repeated=seed % 2 == 0)[1]
        without = dataclasses.replace(work, memory=dataclasses.replace(work.memory, warms=None))
        other = run(without, schedule, clusters, seed % 2 == 0)[1]
        found += int((record.memory[:, :2] != other.memory[:, :2]).any(1).sum())
    assert found > 50


@pytest.mark.slow
def test_the_machine_equals_the_oracle_on_many_graphs(random_workload):
    for seed in range(1000, 3000):
        both(*random_workload(seed, memory=seed % 2 == 0, warms=seed % 4 == 0))


def test_the_machine_equals_the_oracle_on_a_large_graph(random_workload):
    both(*random_workload(3, tasks=1500, ties=False))


def test_one_compilation_serves_graphs_of_one_size(random_workload):
    before = compiled.cache_info().misses
    for seed in (*range(5004, 5006), *range(5016, 5018)):
        work, schedule, _ = random_workload(seed, tasks=40, ties=False)
        run(work, schedule, 24)
    assert compiled.cache_info().misses <= before + 1


def test_more_tasks_in_flight_than_the_table_holds_are_simulated_again(random_workload):
    work, schedule, clusters = random_workload(7, tasks=60)
    small, _ = run(work, schedule, clusters, flight=8)
    large, _ = run(work, schedule, clusters)
    np.testing.assert_array_equal(small.finish, large.finish)


def test_nothing_happens_without_tasks():
    assert chip.simulate(chip.Workload.of([], [], [], [])).makespan_us == 0.0


def test_submissions_cost_a_base_and_an_amount_for_each_producer():
    work = chip.Workload.of(["AIC"] * 4, [1] * 4, [1.0] * 4, [[], [], [0, 1], [0, 1, 2]])
    steps = np.diff(both(work)[0].submitted, prepend=0.0)
    base, edge = C["submit_us"], C["submit_edge_us"]
    assert steps.tolist() == [base, base, base + 2 * edge, base + 3 * edge]


def test_one_block_goes_through_every_step():
    times, _ = both(chip.Workload.of(["AIC"], [1], [10.0], [[]]))
    assert times.dispatch[0] == times.ready[0] == times.submitted[0] == C["submit_us"]
    assert times.start[0] == times.dispatch[0] + C["dispatch_us"] + C["dispatch_each_us"] + FLIGHT
    assert times.end[0] == times.start[0] + 10.0
    assert times.finish[0] == times.end[0] + C["poll_us"] + C["complete_us"] + C["complete_each_us"]


def test_a_consumer_is_ready_when_its_producer_is_finished():
    times, _ = both(chip.Workload.of(["AIC", "AIV"], [1, 1], [10.0, 1.0], [[], [0]]))
    assert times.ready[1] == times.finish[0] > times.end[0]


def test_threads_publish_their_blocks_one_after_another():
    times, _ = both(chip.Workload.of(["AIC"], [24], [10.0], [[]]))
    # the eighth block of each thread
    begin = times.dispatch[0] + C["dispatch_us"]
    assert times.end[0] == begin + 8 * C["dispatch_each_us"] + FLIGHT + 10.0
    assert times.finish[0] == times.end[0] + C["poll_us"] + C["complete_us"] + 8 * C["complete_each_us"]


def test_a_mixed_block_is_three_subtasks():
    times, _ = both(chip.Workload.of(["MIX"], [1], [10.0], [[]]))
    assert times.start[0] == times.dispatch[0] + C["dispatch_us"] + 3 * C["dispatch_each_us"] + FLIGHT
    looks = 2  # half of three busy cores, rounded up
    assert times.finish[0] == times.end[0] + looks * C["poll_us"] + C["complete_us"] + 3 * C["complete_each_us"]


def test_a_second_wave_follows_without_the_scheduler_where_blocks_are_long():
    times, _ = both(chip.Workload.of(["AIC"], [48], [100.0], [[]]))
    one, _ = both(chip.Workload.of(["AIC"], [24], [100.0], [[]]))
    assert times.end[0] == one.end[0] + C["switch_us"] + 100.0


def test_short_blocks_wait_for_the_rounds_of_the_scheduler():
    times, _ = both(chip.Workload.of(["AIC"], [48], [1.0], [[]]))
    one, _ = both(chip.Workload.of(["AIC"], [24], [1.0], [[]]))
    round_us = C["dispatch_us"] + C["complete_us"] + 8 * (C["dispatch_each_us"] + C["complete_each_us"]) + FLIGHT
    assert times.end[0] == one.end[0] + round_us


def test_a_pending_block_starts_a_switch_after_the_running_one():
    work = chip.Workload.of(["AIC", "AIC"], [24, 24], [100.0, 10.0], [[], []])
    times, _ = both(work)
    assert times.dispatch[1] < times.end[0]
    assert times.start[1] == on_grid(times.start[0] + 100.0 + C["switch_us"])


def test_a_third_task_waits_until_a_pending_slot_opens():
    work = chip.Workload.of(["AIC"] * 3, [24] * 3, [100.0] * 3, [[], [], []])
    times, _ = both(work)
    assert times.dispatch[2] == times.start[1]


CHAIN: dict = {"shapes": ["AIC", "AIC"], "duration_us": [50.0, 10.0], "waits": [[], [0]]}


def test_a_consumer_of_a_flagged_producer_is_staged_when_that_is_published():
    work = chip.Workload.of(**CHAIN, blocks=[12, 12], early=[True, False])
    times, _ = both(work)
    # four blocks on each of three threads
    assert times.dispatch[1] == times.dispatch[0] + C["dispatch_us"] + 4 * C["dispatch_each_us"]
    assert times.start[1] == times.ready[1] + C["doorbell_us"]
    assert times.ready[1] == times.finish[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"early": [False, True]}, "its producer is not flagged"),
        ({"blocks": [12, 25]}, "it has more blocks than there are cores"),
    ],
)
def test_what_is_not_eligible_is_not_staged(change, reason):
    work = chip.Workload.of(**{**CHAIN, "blocks": [12, 12], "early": [True, False], **change})
    times, _ = both(work)
    assert times.dispatch[1] >= times.ready[1], reason


def test_a_staging_waits_for_open_slots():
    work = chip.Workload.of(**CHAIN, blocks=[48, 24], early=[True, False])
    times, _ = both(work)
    assert times.dispatch[1] >= times.end[0] - 50.0  # the start of the producer's last pending block


def test_one_producer_without_the_flag_keeps_a_task_from_being_staged_until_it_is_finished():
    work = chip.Workload.of(
        ["AIC", "AIV", "AIC"], [1, 1, 1], [50.0, 20.0, 1.0], [[], [], [0, 1]], early=[True, False, False]
    )
    times, _ = both(work)
    assert times.dispatch[2] == times.finish[1] < times.finish[0]


def test_a_dummy_between_keeps_a_task_from_being_staged():
    work = chip.Workload.of(
        ["AIC", "DUMMY", "AIC"], [1, 0, 1], [50.0, 0.0, 1.0], [[], [0], [1]], early=[True, True, False]
    )
    times, _ = both(work)
    assert times.dispatch[2] == times.ready[2] == times.finish[1]


def test_an_allocation_does_not_keep_a_task_from_being_staged():
    work = chip.Workload.of(
        ["ALLOC", "AIC", "AIC"], [0, 1, 1], [0.0, 50.0, 1.0], [[], [], [0, 1]], early=[False, True, False]
    )
    times, _ = both(work)
    assert times.dispatch[2] < times.ready[2]


def test_ready_tasks_of_any_kind_go_before_stagings():
    # vector tasks wait for slots until the producer has been running for long
    shapes, waits = ["AIC", "AIV", "AIV", "AIV", "AIC"], [[], [], [], [], [0]]
    work = chip.Workload.of(
        shapes, [1, 48, 48, 48, 1], [400.0, 100.0, 100.0, 100.0, 1.0], waits, early=[True] + [False] * 4
    )
    times, _ = both(work)
    assert times.dispatch[3] < times.dispatch[4] < times.ready[4]


def test_staged_tasks_stage_their_consumers():
    work = chip.Workload.of(["AIC"] * 3, [8] * 3, [50.0, 10.0, 10.0], [[], [0], [1]], early=[True] * 3)
    times, _ = both(work)
    assert times.dispatch[2] < times.finish[0]
    assert times.start[2] == times.finish[1] + C["doorbell_us"]


def test_blocks_with_sync_start_start_together_after_the_last_publication():
    work = chip.Workload.of(["AIC"], [12], [10.0], [[]], sync_start=[True])
    times, _ = both(work)
    assert times.start[0] == times.dispatch[0] + C["dispatch_us"] + 4 * C["dispatch_each_us"] + FLIGHT
    assert times.end[0] == times.start[0] + 10.0


def test_sync_start_waits_for_a_slot_for_every_block():
    # eight cores have a running and a pending block
    sizes, none = [24, 8, 17], [[], [], []]
    marked = chip.Workload.of(["AIC"] * 3, sizes, [100.0] * 3, none, sync_start=[False, False, True])
    times, _ = both(marked)
    assert times.dispatch[2] > times.end[0] - 50.0
    times, _ = both(chip.Workload.of(["AIC"] * 3, sizes, [100.0] * 3, none))
    assert times.dispatch[2] < times.end[0] - 50.0


def test_sync_start_with_more_blocks_than_cores_is_refused():
    work = chip.Workload.of(["AIC"], [25], [10.0], [[]], sync_start=[True])
    with pytest.raises(PyptoxError, match="`sync_start` needs a core for each block"):
        chip.simulate(work)


def test_the_first_block_of_a_core_starts_later():
    schedule = SCHEDULE.replace(first_us=2.0)
    times, _ = both(chip.Workload.of(["AIC", "AIC"], [1, 1], [10.0, 10.0], [[], [0]]), schedule)
    gaps = times.start - times.dispatch
    assert gaps.tolist() == [gaps[1] + 2.0, C["dispatch_us"] + C["dispatch_each_us"] + FLIGHT]


def test_an_end_is_seen_after_it_shows_and_half_a_round_of_looks():
    schedule = SCHEDULE.replace(fin_us=0.5)
    for blocks, looks in ((1, 1), (24, 1)):  # the last one to end is the last that is busy
        times, _ = both(chip.Workload.of(["AIC"], [blocks], [10.0], [[]]), schedule)
        served = C["complete_us"] + C["complete_each_us"] * -(-blocks // 3)
        assert times.finish[0] - times.end[0] == pytest.approx(0.5 + C["poll_us"] * looks + served, abs=1e-5)
    others = chip.Workload.of(["AIC", "AIV"], [1, 16], [10.0, 100.0], [[], []])
    times, _ = both(others, schedule, clusters=8)
    threads = 3  # of 8 clusters; the first owns 3 and looks at its AIC and at 6 busy AIVs
    assert threads == schedule.threads
    served = C["complete_us"] + C["complete_each_us"]
    assert times.finish[0] - times.end[0] == pytest.approx(0.5 + 4 * C["poll_us"] + served, abs=1e-5)


def test_a_cohort_larger_than_a_threads_cores_stops_normal_dispatch():
    def start_of_the_last(blocks):
        work = chip.Workload.of(
            ["AIC", "AIC", "AIC", "AIV"], [24, 24, blocks, 1], [50.0, 50.0, 10.0, 1.0], [[]] * 4,
            sync_start=[False, False, True, False],
        )  # fmt: skip
        times, _ = both(work)
        return times.dispatch[2], times.dispatch[3]

    cohort, other = start_of_the_last(24)
    assert other >= cohort > 40
    cohort, other = start_of_the_last(8)
    assert other < cohort


def test_a_predicated_task_is_not_staged():
    for predicated in (False, True):
        work = chip.Workload.of(
            ["AIC", "AIV"], [12, 12], [50.0, 10.0], [[], [0]], early=[True, False], predicated=[False, predicated]
        )  # fmt: skip
        times, _ = both(work)
        assert (times.dispatch[1] < times.ready[1]) == (not predicated)


def test_an_a5_has_four_schedulers():
    schedule = chip.a5_schedule()
    assert schedule.threads == 4
    assert schedule.values() == chip.a2a3_schedule().values()
    both(chip.Workload.of(["AIC", "AIV"], [36, 72], [10.0, 5.0], [[], [0]]), schedule, clusters=36)


def test_mixed_tasks_are_looked_for_first():
    shapes = ["AIC", "AIV", "AIC", "MIX"]
    work = chip.Workload.of(shapes, [24, 48, 24, 24], [500.0, 500.0, 1.0, 1.0], [[], [], [], []])
    free = SCHEDULE.replace(submit_us=0.0)
    times, _ = both(work, free)
    assert times.dispatch[3] < times.dispatch[0]


def test_a_dummy_is_one_hop():
    work = chip.Workload.of(["AIC", "DUMMY", "AIC"], [1, 0, 1], [5.0, 0.0, 5.0], [[], [0], [1]])
    times, _ = both(work)
    assert times.finish[1] == times.finish[0] + C["dummy_us"]
    assert times.ready[2] == times.finish[1]


def test_an_allocation_is_complete_when_it_is_submitted():
    work = chip.Workload.of(["ALLOC", "AIC"], [0, 1], [0.0, 5.0], [[], [0]])
    times, _ = both(work)
    assert times.finish[0] == times.submitted[0] == C["submit_us"]
    assert times.ready[1] == times.submitted[1]


def test_ready_order_is_the_order_of_finishes():
    # two chains: the consumer of the shorter producer goes first although it was submitted later
    work = chip.Workload.of(["AIC"] * 4, [1] * 4, [50.0, 10.0, 1.0, 1.0], [[], [], [0], [1]])
    times, _ = both(work)
    assert times.dispatch[3] < times.dispatch[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["CUBE"], [1], [1.0], [[]]), "`shapes` must be of"),
        ((["AIC"], [0], [1.0], [[]]), "`blocks` of a task of shape AIC must be 1 to"),
        ((["DUMMY"], [1], [0.0], [[]]), "must be 0"),
        ((["AIC"], [1], [-1.0], [[]]), "`duration_us` of task 0"),
        ((["AIC"], [1], [1e30], [[]]), "from 0 to 1e\\+09; got 1e\\+30"),
        ((["AIC"], [1], ["1"], [[]]), "got '1'"),
        ((["AIC"], [1.5], [1.0], [[]]), "`blocks` of a task .* an integer; task 0 has 1.5"),
        ((["AIC", "AIC"], [1, 1], [1.0, 1.0], [[], [0.0]]), "must be earlier tasks"),
        ((["AIC"], [1], [1.0], [[0]]), "must be earlier tasks"),
        ((["AIC"], [1, 1], [1.0], [[]]), "`blocks` must have an entry for each of 1 tasks"),
        ((["AIC", "ALLOC"], [1, 0], [1.0, 0.0], [[], [0]]), "must be empty"),
    ],
)
def test_bad_workloads_are_refused(arguments, message):
    with pytest.raises(PyptoxError, match=message):
        chip.Workload.of(*arguments)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"edges": [1.5]}, "`edges` must be 0 or more"),
        ({"edges": [-1]}, "`edges` must be 0 or more"),
        ({"submitted_us": [1e30]}, "`submitted_us` must be in the order"),
        ({"submitted_us": [float("nan")]}, "`submitted_us` must be in the order"),
    ],
)
def test_other_bad_columns_are_refused(given, message):
    with pytest.raises(PyptoxError, match=message):
        chip.Workload.of(["AIC"], [1], [1.0], [[]], **given)


def test_bad_constants_are_refused():
    with pytest.raises(ValueError, match="`submit` is not a constant"):
        SCHEDULE.replace(submit=1.0)
    with pytest.raises(ValueError, match="not negative"):
        SCHEDULE.replace(submit_us=-1.0)
    for name, value in (("submit_us", 1e10), ("submit_us", "1"), ("submit_us", True), ("threads", 2.5), ("threads", 5)):
        with pytest.raises(PyptoxError, match=f"`{name}` must be"):
            SCHEDULE.replace(**{name: value})
    for name, value in (("hbm_us", 1e300), ("hbm_us", "1"), ("aic", None)):
        with pytest.raises(ValueError, match=f"`{name}` of a chip must be"):
            a2a3().replace(**{name: value})


@pytest.mark.parametrize("clusters", [32, 128])
def test_more_clusters_than_any_preset_has(random_workload, clusters):
    for seed in range(6):
        work, schedule, _ = random_workload(seed, tasks=30, memory=seed % 2 == 0)
        many = np.where(work.blocks > 0, np.minimum(9 * work.blocks, 300), 0)
        work = dataclasses.replace(work, blocks=many.astype(np.int32), sync_start=np.zeros(work.tasks, bool))
        both(work, schedule, clusters)


def test_four_threads(random_workload):
    for seed in range(9, 12):
        work, schedule, _ = random_workload(seed)
        both(work, schedule.replace(threads=4), 3)
    with pytest.raises(ValueError, match="`threads` must be 1 to 4"):
        SCHEDULE.replace(threads=5)


def test_every_constant_has_a_source():
    assert set(SCHEDULE.sources) == {*C, "threads"}


def test_buckets_grow():
    sizes = [bucket(n) for n in range(1, 5000)]
    assert sizes == sorted(sizes)
    assert all(n <= size <= max(256, 1.5 * n) for n, size in enumerate(sizes, 1))
