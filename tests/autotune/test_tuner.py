"""The engine and its loop."""

import concurrent.futures
import pathlib

import pytest

from autotune import (
    Budget,
    Config,
    DriveProgress,
    Exhaustive,
    Integer,
    Local,
    Random,
    Space,
    Store,
    Trial,
    Tuner,
    drive,
)


def space() -> Space:
    return Space(x=Integer(0, 30), y=Integer(0, 30)).where("below", lambda at: at["x"] + at["y"] <= 50)


def distance(config: Config) -> float:
    x, y = config["x"], config["y"]
    assert isinstance(x, int)
    assert isinstance(y, int)
    return float((x - 12) ** 2 + (y - 7) ** 2)


def test_drive_finds_the_best_within_the_budget() -> None:
    events: list[DriveProgress] = []
    outcome = drive(Tuner(space()), distance, Budget(evaluations=120), progress=events.append)
    assert outcome.stopped == "evaluations"
    assert len(outcome.trials) == len(events) == 120
    assert outcome.best is not None
    assert outcome.best.config == Config(x=12, y=7)
    assert [event.evaluations for event in events] == list(range(1, 121))
    improved = [event.trial.value for event in events if event.improved]
    assert improved == sorted(improved, reverse=True)
    assert all(trial.seconds > 0 for trial in outcome.trials)
    assert outcome.to_dict()["best"]["config"] == {"x": 12, "y": 7}
    assert "120 trials" in str(outcome)


def test_drive_ends_with_the_space_or_the_clock() -> None:
    few = Space(x=Integer(0, 4))
    assert drive(Tuner(few, search=Exhaustive()), lambda config: 1.0).stopped == "finished"
    clock = drive(Tuner(space()), distance, Budget(seconds=1e-9))
    assert (clock.stopped, len(clock.trials)) == ("seconds", 1)


def test_ctrl_c_returns_the_best_so_far(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path / "trials.jsonl")
    calls = []

    def interrupted(config: Config) -> float:
        calls.append(config)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return distance(config)

    outcome = drive(Tuner(space()), interrupted, Budget(evaluations=100), store=store)
    assert outcome.stopped == "interrupted"
    assert len(outcome.trials) == 19
    assert outcome.best is not None
    assert outcome.best.value == min(trial.value for trial in outcome.trials)
    assert store.load() == outcome.trials

    resumed = drive(Tuner(space()), distance, Budget(evaluations=60), store=store)
    whole = drive(Tuner(space()), distance, Budget(evaluations=60))
    assert [trial.config for trial in resumed.trials] == [trial.config for trial in whole.trials]
    assert resumed.best is not None
    assert whole.best is not None
    assert resumed.best.config == whole.best.config


def test_failures_are_trials() -> None:
    def fragile(config: Config) -> Trial | float:
        if config["x"] == 1:
            raise RuntimeError("no memory")
        if config["x"] == 2:
            return Trial.failed(config, "compile_error", "tile too large")
        return float("inf") if config["x"] == 3 else 5.0

    outcome = drive(Tuner(Space(x=Integer(0, 3)), search=Exhaustive(), seed=9), fragile)
    assert [trial.status for trial in outcome.trials] == ["ok", "crashed", "compile_error", "invalid"]
    assert outcome.trials[1].error == "RuntimeError: no memory"
    assert {trial.seed for trial in outcome.trials} == {9}
    assert outcome.best == outcome.trials[0]
    nothing = drive(Tuner(Space(x=Integer(1, 2)), search=Exhaustive()), fragile)
    assert nothing.best is None
    assert "no trial succeeded" in str(nothing)


def test_store_trials_outside_the_space_are_left_out(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path / "trials.jsonl")
    store.append(Trial(Config(x=99), value=-1.0))
    store.append(Trial(Config(z=1), value=-1.0))
    store.append(Trial(Config(x=2), value=0.5))
    outcome = drive(Tuner(Space(x=Integer(0, 3)), search=Exhaustive()), lambda config: 1.0, store=store)
    assert outcome.best is not None
    assert outcome.best.config == Config(x=2)
    assert [trial.config["x"] for trial in outcome.trials] == [2, 0, 1, 3]


def test_workers_give_the_same_result() -> None:
    alone = drive(Tuner(space(), search=Random()), distance, Budget(evaluations=50), batch=8)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = drive(Tuner(space(), search=Random()), distance, Budget(evaluations=50), batch=8, mapping=pool.map)
    assert [trial.config for trial in alone.trials] == [trial.config for trial in together.trials]


def test_tell_ignores_repetitions_and_takes_strangers() -> None:
    tuner = Tuner(space(), search=Local())
    first = Trial(Config(x=3, y=3), value=2.0)
    tuner.tell([first, Trial(Config(x=3, y=3), value=1.0)])
    tuner.tell([Trial(Config(x=3, y=3), value=0.0)])
    assert tuner.trials == (first,)
    assert tuner.best == first


@pytest.mark.parametrize("limits", [{"evaluations": 0}, {"seconds": -1.0}])
def test_budget_must_be_positive(limits: dict) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Budget(**limits)


def test_presets_grow() -> None:
    sizes = [preset.evaluations or 0 for preset in (Budget.quick(), Budget.standard(), Budget.thorough())]
    assert sizes == sorted(sizes)
