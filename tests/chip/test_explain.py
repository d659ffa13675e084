"""What a makespan is made of, and early dispatch by consumer."""

import json

import pytest

from pyptox import chip

FLAGS = {"shapes": ["AIC", "AIC"], "blocks": [12, 12], "duration_us": [50.0, 10.0], "waits": [[], [0]]}


def test_constants_and_tasks_add_up_to_the_makespan(random_workload):
    for seed in range(40):
        work, schedule, _ = random_workload(seed)
        found = chip.explain(work, schedule=schedule) if seed // 3 % 4 < 2 else None
        if found is None:  # made for fewer clusters
            continue
        total = sum(found.by_constant.values()) + sum(found.by_task.values())
        assert total == pytest.approx(found.total_us, abs=1e-4)
        assert sum(found.on_path.values()) == pytest.approx(found.total_us, abs=1e-4)
        assert json.dumps(found.to_dict())
        assert f"limit     {found.limit}" in str(found)


def test_the_limit_is_the_largest_part():
    slow = chip.explain(chip.Workload.of(["AIC"], [24], [500.0], [[]], names=["t0 gate"]))
    assert slow.limit == "gate blocks"
    assert slow.by_task == {0: 500.0}
    slow_submits = chip.a2a3_schedule().replace(submit_us=5.0)
    many = chip.explain(chip.Workload.of(["AIC"] * 100, [1] * 100, [0.0] * 100, [[]] * 100), schedule=slow_submits)
    assert many.limit == "submission"


def test_measured_submissions_are_a_part_of_the_makespan():
    work = chip.Workload.of(["AIC", "AIC"], [1, 1], [10.0, 10.0], [[], []], submitted_us=[0.0, 300.0])
    found = chip.explain(work)
    assert found.timeline.times.ready.tolist() == [0.0, 300.0]
    assert found.by_constant["measured submission"] == 300.0
    assert found.limit == "measured submission"
    assert sum(found.by_constant.values()) + sum(found.by_task.values()) == found.total_us
    assert found.timeline.critical()[0].counts == {"submitted": 1}


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        ({}, "none", "t0 is not flagged"),
        ({"early": [True, False]}, "full", ""),
        ({"early": [True, False], "blocks": [12, 25]}, "none", "25 blocks for 24 cores"),
        ({"blocks": [12, 25]}, "none", "25 blocks for 24 cores; t0 is not flagged"),
        (
            {"blocks": [12, 25], "predicated": [False, True]},
            "none",
            "25 blocks for 24 cores; predicated; t0 is not flagged",
        ),
        (
            {"shapes": ["AIC", "DUMMY", "AIC"], "blocks": [1, 0, 1], "duration_us": [50.0, 0.0, 1.0]}
            | {"waits": [[], [0], [0, 1]], "early": [True, False, False]},
            "none",
            "t1 is a dummy",
        ),
        (
            {"early": [True, False], "submitted_us": [0.0, 200.0]},
            "none",
            "submitted after its producers were finished",
        ),
    ],
)
def test_early_dispatch_says_why_not(change, verdict, reason):
    use = chip.explain(chip.Workload.of(**FLAGS | change)).early[-1]
    assert (use.verdict, use.reason) == (verdict, reason)
    assert use.early == (use.blocks if verdict == "full" else 0)
    assert use.producers[0].task == 0


def test_early_dispatch_by_its_stamps_is_what_the_machine_staged(random_workload):
    staged = 0
    for seed in range(40):
        work, schedule, clusters = random_workload(seed)
        if clusters != 24:
            continue
        t = chip.simulate(work, schedule=schedule)
        for use in chip.early_uses(t):
            assert (use.verdict == "full") == (t.staged[use.task] and use.early == use.blocks)
            if use.verdict == "none":
                assert use.reason
            staged += use.verdict == "full"
            flagged = [p for p in use.producers if p.published_us is not None]
            assert all(p.published_us <= p.finish_us for p in flagged if p.published_us is not None)
    assert staged > 10
