"""``pyptox bench`` and what is behind it."""

import json

import numpy as np
import pytest

from benchmarks import decode
from models.qwen3_14b import LADDER, Config, ModelError
from pyptox.cli import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_a_predicted_step(capsys, monkeypatch):
    monkeypatch.delenv("PYPTO_BENCH", raising=False)
    code, out, _ = run(capsys, "bench", "qwen3-14b", "--layers", "1", "--json")
    assert code == 0
    found = json.loads(out)
    assert sum(found["attribution"].values()) == pytest.approx(found["step_us"], rel=1e-9)
    assert found["tokens_per_s"] == pytest.approx(16e6 / found["step_us"])
    assert found["tasks"] == 36
    assert {stage["name"] for stage in found["stages"]} >= {"q", "attention", "down", "head", "sample"}
    code, out, _ = run(capsys, "bench", "qwen3-14b", "--layers", "1")
    assert code == 0
    assert out.splitlines()[-1] == f"[MODEL] step_us={found['step_us']:.3f}"


def test_two_windows_take_twice_one():
    one, two = (
        decode.predict(LADDER[-1], config=Config(layers=2), batch=batch, context=1000).step_us for batch in (16, 32)
    )
    assert two / one == pytest.approx(2, rel=0.05)


def test_a_variant_from_a_file(capsys, tmp_path):
    file = tmp_path / "variant.json"
    file.write_text(json.dumps(LADDER[6].to_dict()))
    code, out, _ = run(capsys, "bench", "qwen3-14b", "--layers", "1", "--config", str(file), "--json")
    assert code == 0
    assert json.loads(out)["variant"] == LADDER[6].name
    for text, message in [("{", "`config` must be a JSON file"), ('{"q": {"m": 3}}', "`variant.q` has no choice 'm'")]:
        file.write_text(text)
        code, _, err = run(capsys, "bench", "qwen3-14b", "--config", str(file))
        assert (code, message in err) == (2, True), err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llama"], "`MODEL` must be qwen3-14b; got 'llama'"),
        (["qwen3-14b", "--batch", "0"], "`batch` must be at least 1; got 0"),
        (["qwen3-14b", "--layers", "-1"], "`--layers` must be positive"),
        (["qwen3-14b", "--context", "40961"], "`lengths` must be at most 40960"),
        (["qwen3-14b", "--context", "0"], "`lengths` must hold a positive number"),
        (["qwen3-14b", "--variant", "fastest"], "`variant` must be one of task-per-iteration"),
        (["qwen3-14b", "--dtype", "fp8"], "`dtype` must be one of bf16, fp32, a8w8"),
        (["qwen3-14b", "--hardware", "h100"], "hardware"),
    ],
)
def test_bad_input(capsys, arguments, message):
    code, out, err = run(capsys, "bench", *arguments)
    assert code == 2
    assert message in err
    assert not out


def test_real_times(capsys, monkeypatch):
    tiny = Config(layers=1, hidden=64, intermediate=96, heads=4, key_heads=2, size=16, vocabulary=96, context=256)
    times = decode.measure(LADDER[-1].replace(rows=4), tiny, batch=2, context=9, rounds=3, warmup=1)
    assert times.shape == (3,)
    assert (times > 0).all()
    with pytest.raises(ModelError, match="need 261"):
        decode.measure(LADDER[-1], tiny, batch=2, context=256, rounds=3, warmup=1)
    monkeypatch.setattr(decode, "measure", lambda *_, rounds, warmup: np.array([1.0, 3.0, 2.0]))
    monkeypatch.setenv("PYPTO_BENCH", "1")
    monkeypatch.setenv("PYPTO_BENCH_ROUNDS", "3")
    code, out, _ = run(capsys, "bench", "qwen3-14b", "--layers", "1")
    assert code == 0
    assert "[RUN]   effective_us (3 rounds) min=1.0 median=2.0 mean=2.0 max=3.0" in out
    monkeypatch.setenv("PYPTO_BENCH_ROUNDS", "none")
    code, _, err = run(capsys, "bench", "qwen3-14b", "--layers", "1")
    assert (code, "`PYPTO_BENCH_ROUNDS` must be an integer" in err) == (2, True)
