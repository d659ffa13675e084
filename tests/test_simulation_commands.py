"""``pyptox simulate``, ``explain``, ``what-if`` and ``graph`` of programs; timed rounds."""

import json
from pathlib import Path

import pytest

from pyptox import artifacts
from pyptox.cli import main
from pyptox.cli._programs import program_at
from pyptox.cli._rounds import rounds_asked_for

MLP = f"{Path(__file__).parents[1] / 'docs' / 'programs' / 'mlp.py'}:mlp"
SMALL = ["width=64", "hidden=128"]


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_simulate_writes_a_run_that_keeps_every_rule(capsys, tmp_path):
    code, out, _ = run(capsys, "simulate", MLP, "tokens=32", "--out", tmp_path / "run")
    assert code == 0
    assert "[MODEL] step_us=" in out
    assert "[RUN]" not in out
    assert out.splitlines()[-1].startswith("written: ")
    assert artifacts.validate(tmp_path / "run", strict=True) == ()
    assert {"pmu.csv", "merged_swimlane.json"} <= {path.name for path in (tmp_path / "run").iterdir()}
    code, again, _ = run(capsys, "simulate", "--capture", tmp_path / "run", "--json")
    answer = json.loads(again)
    assert answer["start_error_us"]["max"] < 0.05
    step = float(out.split("[MODEL] step_us=")[1].split()[0])
    assert answer["timeline"]["makespan_us"] == pytest.approx(step, abs=0.05)


def test_explain_adds_up(capsys, tmp_path):
    code, out, _ = run(capsys, "explain", MLP, *SMALL, "--json")
    answer = json.loads(out)
    assert code == 0
    total = sum(answer["by_constant"].values()) + sum(part["us"] for part in answer["by_task"])
    assert total == pytest.approx(answer["makespan_us"], abs=1e-4)
    code, out, _ = run(capsys, "explain", MLP, *SMALL, "--out", tmp_path)
    assert f"limit     {answer['limit']}" in out
    assert (tmp_path / "deps.json").is_file()


def test_what_if_takes_every_change(capsys, tmp_path):
    changes = ["--early-dispatch", "up", "--early-dispatch", "gate", "--no-early-dispatch", "gate"]
    changes += ["--remove-edge", "convert(bf16),gate", "--add-edge", "up,gate", "--dummy", "down", "--split", "gate=2"]
    changes += ["--blocks", "down=4", "--duration", "swiglu=2.5", "--cores", "12", "--set", "poll_us=0.05"]
    code, out, _ = run(capsys, "what-if", MLP, "hidden=512", *changes, "--json", "--out", tmp_path)
    answer = json.loads(out)
    assert code == 0
    assert len(answer["edits"]) == 11
    assert answer["saved_us"] == pytest.approx(answer["before_us"] - answer["after_us"])
    assert answer["after"]["schedule"]["poll_us"] == pytest.approx(0.05, abs=1e-6)
    assert {"t2 gate[0]", "t2 gate[1]", "t5* dummy"} <= {task["name"] for task in answer["after"]["tasks"]}
    assert artifacts.validate(tmp_path, strict=True) == ()
    code, out, _ = run(capsys, "what-if", MLP, *SMALL, "--merge", "gate,up")
    assert code == 0
    assert "µs before" in out
    assert "[MODEL] step_us=" in out


def test_a_repeated_round_is_compared_with_a_repeated_one(capsys):
    fast = {}
    for command, key in (("simulate", "makespan_us"), ("explain", "makespan_us"), ("what-if", "before_us")):
        more = ["--set", "poll_us=0.1"] if command == "what-if" else []  # what it is: nothing changes
        code, out, _ = run(capsys, command, MLP, "--repeated", "--json", *more)
        answer = json.loads(out)
        assert code == 0
        fast[command] = answer[key]
        assert answer.get("after_us", answer[key]) == pytest.approx(answer[key], abs=1e-3)
    assert len(set(fast.values())) == 1
    code, out, _ = run(capsys, "simulate", MLP, "--json")
    assert json.loads(out)["makespan_us"] > 1.05 * fast["simulate"]
    code, out, err = run(capsys, "what-if", "--capture", "anywhere", "--repeated", "--early-dispatch", "up")
    assert (code, out) == (2, "")
    assert "`--repeated` belongs to a program" in err


def test_graph_writes_its_files(capsys, tmp_path):
    code, out, _ = run(capsys, "graph", MLP, "--out", tmp_path)
    assert code == 0
    assert "redundant edges: 0" in out
    assert not [f for f in artifacts.validate(tmp_path / "deps.json", strict=True) if f.severity == "error"]
    assert {p.name for p in tmp_path.iterdir()} == {"deps.json", "name_map.json", "dispatch_program.json"}


@pytest.mark.parametrize("command", ["graph", "simulate", "explain", "what-if"])
def test_bad_programs_are_a_message(capsys, command):
    more = ["--cores", "3"] if command == "what-if" else []
    for place in ("absent.py:mlp", f"{MLP}s"):
        code, out, err = run(capsys, command, place, *more)
        assert (code, out) == (2, "")
        assert err.startswith("error: `PROGRAM`")
        assert "Traceback" not in err


def test_a_kernel_takes_no_sizes_of_a_program(capsys):
    code, _, err = run(capsys, "explain", "matmul", "tokens=3", "--m", "16", "--n", "16", "--k", "16")
    assert code == 2
    assert "belong to a program" in err


def test_rounds_are_timed_where_the_environment_asks(capsys, monkeypatch):
    monkeypatch.setenv("PYPTO_BENCH", "1")
    monkeypatch.setenv("PYPTO_BENCH_ROUNDS", "4")
    monkeypatch.setenv("PYPTO_BENCH_WARMUP", "0")
    monkeypatch.setenv("PYPTO_BENCH_RAW", "1")
    code, out, _ = run(capsys, "simulate", MLP, *SMALL)
    assert code == 0
    assert out.index("[MODEL] step_us=") < out.index("[RUN]")
    rounds = artifacts.parse_rounds(out)
    assert rounds is not None
    (samples,) = rounds.raw.values()
    assert (rounds.rounds, rounds.warmup, len(samples)) == (4, 0, 4)
    assert rounds.effective_us is not None
    assert min(samples) == pytest.approx(rounds.effective_us.minimum)
    assert sum(samples) / 4 == pytest.approx(rounds.effective_us.mean, abs=0.1)
    code, out, _ = run(capsys, "simulate", MLP, *SMALL, "--json")
    assert len(json.loads(out)["rounds"]["samples_us"]) == 4


@pytest.mark.parametrize("value", ["", "0", "false", "False"])
def test_no_rounds_where_it_does_not(value):
    assert rounds_asked_for(program_at(MLP), SMALL, {"PYPTO_BENCH": value}) is None
    assert rounds_asked_for(program_at(MLP), SMALL, {}) is None


def test_rounds_are_at_least_one_and_a_number(capsys):
    timed = rounds_asked_for(program_at(MLP), SMALL, {"PYPTO_BENCH": "1", "PYPTO_BENCH_ROUNDS": "0"})
    assert timed is not None
    assert len(timed.samples_us) == 1
    assert "raw" not in str(timed)
    with pytest.raises(ValueError, match="`PYPTO_BENCH_ROUNDS` must be an integer; got 'many'"):
        rounds_asked_for(program_at(MLP), SMALL, {"PYPTO_BENCH": "1", "PYPTO_BENCH_ROUNDS": "many"})
