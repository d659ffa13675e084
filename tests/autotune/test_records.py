"""Configurations, trials and the store."""

import json
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import Config, Store, Trial, write_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
CONFIGS = st.builds(Config, st.dictionaries(st.text(), SCALARS))


@given(CONFIGS)
def test_config_round_trips_and_keeps_its_id(config: Config) -> None:
    again = Config.from_json(config.to_json())
    assert again == config
    assert again.id == config.id
    assert hash(again) == hash(config)
    assert len(config.id) == 16
    assert pickle.loads(pickle.dumps(config)) == config


def test_config_is_frozen_and_canonical() -> None:
    config = Config({"n": np.int64(64)}, m=np.bool_(True))
    assert config == Config(m=True, n=64)
    assert config == {"n": 64, "m": True}
    assert Config(m=1).id != Config(m=True).id
    assert repr(config) == "Config(m=True, n=64)"
    assert config.id == "9a68b78ce2b4e640"  # the same in every process and release
    with pytest.raises(AttributeError, match="frozen"):
        config.m = 3
    for bad in (float("inf"), (1, 2)):
        with pytest.raises(TypeError, match="`m` must be None or a finite"):
            Config(m=bad)


@given(
    CONFIGS,
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.floats(allow_nan=False, allow_infinity=False)),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_trial_round_trips(config: Config, value: float, samples: list[float], predicted: float | None) -> None:
    trial = Trial(config, value=value, samples=tuple(samples), predicted=predicted, seconds=0.5, seed=3)
    assert Trial.from_json(trial.to_json()) == trial
    failed = Trial.failed(config, "timeout", "60 s")
    assert Trial.from_json(failed.to_json()) == failed
    assert "\n" not in failed.to_json()


def test_trial_rejects_contradictions() -> None:
    with pytest.raises(ValueError, match="`value` must be finite"):
        Trial(Config(), "ok")
    with pytest.raises(ValueError, match="`value` must be finite"):
        Trial(Config(), "crashed", 1.0)
    with pytest.raises(ValueError, match="`status` must be one of"):
        Trial(Config(), "fine", 1.0)  # pyright: ignore[reportArgumentType]


def trial(number: int) -> Trial:
    return Trial(Config(tile=number), value=float(number))


def test_store_keeps_keys_apart_and_tolerates_a_cut_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "deep" / "trials.jsonl"
    one, other = Store(path, "one"), Store(path, "other")
    assert one.load() == ()
    one.append(trial(1))
    other.append(trial(2))
    one.append(trial(3))
    assert one.load() == (trial(1), trial(3))
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1]) + 1):
        path.write_bytes(whole[:-cut])
        assert one.load() == (trial(1),)
    one.append(trial(4))
    assert one.load() == (trial(1), trial(4))
    assert other.load() == (trial(2),)
    path.write_bytes(b"nonsense\n" + whole)
    with pytest.raises(ValueError, match="line 1 is not one"):
        one.load()


def test_a_killed_process_keeps_its_finished_trials(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "trials.jsonl"
    script = (
        "import os, pathlib, signal\n"
        "from autotune import Config, Store, Trial\n"
        f"store = Store(pathlib.Path({str(path)!r}))\n"
        "store.append(Trial(Config(tile=1), value=1.0))\n"
        "store.append(Trial(Config(tile=2), value=2.0))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = pathlib.Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == -9
    assert Store(path).load() == (trial(1), trial(2))


def test_json_is_replaced_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "best.json"
    write_json(path, {"tile": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"tile": float("nan")})
    with pytest.raises(TypeError):
        write_json(path, {"tile": object()})
    assert json.loads(path.read_text()) == {"tile": 1}
    assert list(tmp_path.iterdir()) == [path]
