"""Tuning of whole programs: the search, what it refuses, and the account of its changes."""

import numpy as np
import pytest

import autotune
import pyptox as px
from autotune import Check, tune_program
from pyptox import chip
from pyptox import program as pp
from pyptox._errors import PyptoxError

SPECS = px.spec((16, 1024), "bf16"), px.spec((1024, 1024), "bf16"), px.spec((1024, 512), "bf16")
SPACE = autotune.Space(
    **{
        "up.n": autotune.PowerOfTwo(64, 2048),
        "up.k": autotune.PowerOfTwo(64, 512),
        "down.n": autotune.PowerOfTwo(64, 512),
        "flags.early": autotune.Boolean(),
    }
)
START = {"up.n": 64, "up.k": 64, "down.n": 64, "flags.early": False}


def build(values):
    def two(x, up, down):
        early = {"allow_early_resolve": values["flags.early"]}
        tile = {"m": 16, "n": values["up.n"], "k": values["up.k"]}
        y = pp.submit(px.kernels.matmul, x, up, name="up", **tile, **early)
        return pp.submit(px.kernels.matmul, y, down, name="down", m=16, n=values["down.n"], k=128, **early)

    return pp.graph(pp.Program(two, "two", ("x", "up", "down")), *SPECS)


def test_the_best_of_a_small_space_is_found():
    found = tune_program(build, SPACE, start=START, evaluations=120, seed=1)
    times = []
    for index in range(SPACE.size):
        values = {name: column[0] for name, column in SPACE.at(np.array([index])).items()}
        graph = build({name: value.item() for name, value in values.items()})
        if all(
            t.kernel is None or px.cost.verify(t.kernel, t.specs(), t.values, px.hardware.a2a3()).passed
            for t in graph.tasks
        ):
            times.append(chip.simulate(graph).makespan_us)
    assert found.best.time_us <= min(times) * 1.002
    assert found.refused
    assert found.best.time_us < found.start.time_us


def test_changes_lead_from_the_start_to_the_answer_and_add_up():
    found = tune_program(build, SPACE, start=START, evaluations=60)
    values = dict(START)
    for change in found.changes:
        assert values[change.parameter] == change.before != change.after
        values[change.parameter] = change.after
    assert values == dict(found.best.config)
    saved = sum(change.saved_us for change in found.changes)
    assert saved == pytest.approx(found.start.time_us - found.best.time_us)
    assert chip.simulate(build(values)).makespan_us == found.best.time_us
    assert "sum" in str(found)
    assert found.to_dict()["changes"] == [vars(change) for change in found.changes]


def test_a_seed_gives_one_answer_and_a_budget_holds():
    first, second = (tune_program(build, SPACE, start=START, evaluations=30, seed=3) for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert len(first.curve) == first.evaluations <= 30


def test_what_fails_its_check_is_not_the_answer():
    def narrow(values):
        return Check(values["down.n"] == 64, {"columns": values["down.n"]})

    found = tune_program(build, SPACE, start=START, evaluations=60, check=narrow)
    assert found.best.config["down.n"] == 64
    with pytest.raises(PyptoxError, match="`check` must pass for `start`"):
        tune_program(build, SPACE, start=START, evaluations=10, check=lambda values: Check(False, {}))


def test_a_start_that_cannot_run_is_an_error():
    with pytest.raises(PyptoxError, match="`start` must be legal"):
        tune_program(build, SPACE, start=START | {"up.n": 2048, "up.k": 512})
    with pytest.raises(PyptoxError, match="`start` must be a point"):
        tune_program(build, SPACE, start=START | {"up.n": 100})


COLD = (
    px.spec((16, 4096), "bf16"),
    px.spec((16, 4096), "fp32"),
    px.spec((4096, 256), "bf16"),
    px.spec((256, 1024), "bf16"),
    px.spec((1024, 8192), "bf16"),
)
WIDTHS = autotune.Space(
    **{
        "mix.n": autotune.PowerOfTwo(16, 128),
        "down.n": autotune.PowerOfTwo(64, 512),
        "down.k": autotune.PowerOfTwo(64, 256),
    }
)


def cold(values):
    """A small product keeps two cores busy while the weights of the last one could come from HBM."""

    def three(x, z, mix, up, down):
        z = pp.submit(px.kernels.residual_add, z, z, name="norm", m=16, n=256)
        y = pp.submit(px.kernels.matmul, x, mix, name="mix", m=16, n=values["mix.n"], k=256)
        y = pp.submit(px.kernels.matmul, y, up, name="up", m=16, n=128, k=128)
        tile = {"m": 16, "n": values["down.n"], "k": values["down.k"]}
        return pp.submit(px.kernels.matmul, y, down, name="down", **tile), z

    return pp.graph(pp.Program(three, "three", ("x", "z", "mix", "up", "down")), *COLD)


def test_warms_and_tiles_together_are_never_slower_than_either_alone():
    start = {"mix.n": 128, "down.n": 64, "down.k": 64}
    tiles = tune_program(cold, WIDTHS, start=start, evaluations=40)
    warms = autotune.prefetch(cold(start), budget=40)
    both = tune_program(cold, WIDTHS, start=start, evaluations=40, prefetch=40)
    assert both.start.time_us == tiles.start.time_us == warms.as_is_us
    assert both.best.time_us < 0.97 * min(tiles.best.time_us, warms.best.time_us)
    chosen = dict(both.best.config)
    again = autotune.prefetch(cold(chosen), choices=[str(chosen.pop("prefetch"))])
    assert again.tried[0].time_us == both.best.time_us
    assert {change.parameter for change in both.changes} > {"prefetch"}
    assert sum(change.saved_us for change in both.changes) == pytest.approx(both.start.time_us - both.best.time_us)


def test_the_name_of_the_choice_of_warms_is_taken():
    space = autotune.Space(prefetch=autotune.Boolean())
    with pytest.raises(PyptoxError, match="`prefetch`"):
        tune_program(cold, space, start={"prefetch": True}, prefetch=10)
