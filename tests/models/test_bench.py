"""``pyptox bench`` and what is behind it."""

import dataclasses
import importlib.util
import itertools
import json
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import decode
from benchmarks.ladder import ACTORS, ladder, ladder_table
from models.qwen3_14b import LADDER, Config, Early, ModelError
from models.qwen3_14b import _space as space
from models.qwen3_14b._variant import FAMILIES
from pyptox import artifacts
from pyptox.chip._constants import CONSTANTS
from pyptox.cli import main
from pyptox.cost import verify
from pyptox.hardware import a2a3

SPEC = importlib.util.spec_from_file_location("qwen3_checkpoints", Path(__file__).parent / "qwen3_checkpoints.py")
assert SPEC is not None
assert SPEC.loader is not None
checkpoints = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(checkpoints)


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


@pytest.fixture(scope="module")
def steps():
    return ladder(context=3338)


def test_the_ladder_is_as_published(steps):
    times = {s.layer.variant: s.layer.step_us for s in steps}
    assert list(times) == [v.name for v in LADDER]
    layers = {s.layer.variant: m.value for s in steps for m in s.published if m.what == "layer_us"}
    assert len(layers) == 4
    names = sorted(layers, key=layers.__getitem__)
    assert names == sorted(names, key=times.__getitem__)
    for one, other in itertools.pairwise(names):
        assert times[one] / times[other] == pytest.approx(layers[one] / layers[other], rel=0.15)
    for s in steps:
        for m in s.published:
            if m.what == "step_ms":
                assert s.step_us / 1000 == pytest.approx(m.value, rel=0.10)


def test_the_parts_of_every_step_of_the_ladder_add_up(steps):
    constants = {name for names in ACTORS.values() for name in names}
    assert constants == set(CONSTANTS)
    for s in steps:
        assert sum(s.parts.values()) == pytest.approx(s.layer.step_us, rel=1e-9)
    text = ladder_table(steps)
    assert "hw-native-sys/pypto-lib PR #190" in text
    assert text.count("  sum ") == len(steps)


def test_steps_of_a_growing_context(capsys):
    code, out, _ = run(
        capsys, "bench", "qwen3-14b", "--layers", "1", "--context", "127", "--decode-steps", "3", "--json"
    )
    assert code == 0
    found = json.loads(out)["steps"]
    assert [s["context"] for s in found] == [127, 128, 129]
    assert found[2]["step_us"] >= found[0]["step_us"]  # a page more, of attention that few keys keep off the path
    alone = decode.predict(LADDER[-1], config=Config(layers=1), context=129)
    assert found[2]["step_us"] == alone.step_us


def test_the_files_of_a_step(capsys, tmp_path):
    code, out, _ = run(
        capsys, "bench", "qwen3-14b", "--layers", "1", "--context", "200", "--out", str(tmp_path / "run")
    )
    assert code == 0
    assert "[MODEL] step_us=" in out
    capture = artifacts.read_capture(tmp_path / "run")
    assert capture.deps is not None
    assert len(capture.deps.tasks) == 36
    assert artifacts.replay(capture).timeline.makespan_us == pytest.approx(
        decode.predict(LADDER[-1], config=Config(layers=1), context=200).step_us, rel=0.02
    )


def test_tuning_a_layer(capsys, tmp_path, steps):
    file = tmp_path / "tuned.json"
    code, out, _ = run(
        capsys,
        "tune",
        "qwen3-14b",
        "--variant",
        "critical-waves",
        "--evaluations",
        "12",
        "--no-check",
        "--save",
        str(file),
    )
    assert code == 0
    layer = float(out.rpartition("layer_us=")[2])
    tuned = decode.variant_of("", file)
    assert decode.predict_layer(tuned).step_us == pytest.approx(layer, abs=1e-3)
    assert layer < min(step.layer.step_us for step in steps)
    for arguments, message in [
        (["--m", "16"], "takes no shape"),
        (["--batch", "0"], "`--batch` must be at least 1"),
        (["--dtype", "fp8"], "`--dtype` must be bf16 or a8w8"),
        (["--variant", "best"], "`variant` must be one of"),
        (["--context", "50000"], "at most 40960"),
    ]:
        code, _, err = run(capsys, "tune", "qwen3-14b", *arguments, "--save", str(tmp_path / "none.json"))
        assert (code, message in err) == (2, True), err
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("a8w8", marks=pytest.mark.slow)])
def test_what_is_tuned_is_never_slower_than_a_step_of_the_ladder(dtype):
    start, found = space.tuned(LADDER[3], dtype=dtype, evaluations=4, check=False)
    fastest = min(decode.predict_layer(step, dtype=dtype).step_us for step in LADDER)
    assert found.best.time_us <= fastest
    assert start == space.best_step(dtype=dtype)
    variant = space.variant_of(found.best.config, start)
    assert decode.predict_layer(variant, dtype=dtype).step_us == found.best.time_us


def test_only_tiles_that_the_verifier_refuses_are_left_out_of_the_space():
    start, rng, refused = LADDER[-1], np.random.default_rng(0), 0
    every = space.space_of(start).parameters
    for _ in range(40):
        values = space.values_of(start)
        values |= {f"o.{name}": rng.choice(every[f"o.{name}"].values).item() for name in ("n", "k", "stages")}
        if values in space.space_of(start):
            continue
        refused += 1
        graph = space.graph_of(space.variant_of(values, start))
        task = next(task for task in graph.tasks if task.name == "o")
        assert task.kernel is not None
        assert not verify(task.kernel, task.specs(), task.values, a2a3()).passed
    assert refused > 3


def test_flags_of_early_dispatch_are_of_the_tasks_that_they_name():
    for variant in (LADDER[0], LADDER[5], LADDER[-1]):
        for family in FAMILIES:
            early = dataclasses.replace(Early.none(), **{family: True})
            graph = space.graph_of(variant.replace(early=early))
            flagged = {task.name for task in graph.tasks if task.early}
            assert flagged == {t.name for t in graph.tasks if t.kernel is not None} & set(FAMILIES[family])


@pytest.mark.slow
def test_a_choice_is_checked_against_float64():
    start = LADDER[-1]
    found = space.checked(start.replace(columns=256, row_steps=1), start)
    assert found.passed
    assert found.details["float64 error"] < 0.01
    assert not space.checked(start, start, "fp32").details["float64 error"] > 1e-5


def test_a_changed_configuration_is_simulated_within_a_second():
    decode.predict(LADDER[-1])
    begin = time.process_time()  # of this process: what else the machine does is not counted
    found = decode.predict(decode.changed(LADDER[-1]))
    assert time.process_time() - begin < 1.0
    assert found.step_us != decode.predict(LADDER[-1]).step_us


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
        (["qwen3-14b", "--decode-steps", "0"], "`decode-steps` must be at least 1"),
        (["qwen3-14b", "--context", "40960", "--decode-steps", "2"], "must be at most 40959 for 2 steps"),
        (["qwen3-14b", "--ladder", "--decode-steps", "2"], "exclude each other"),
        (["qwen3-14b", "--ladder", "--variant", "spmd"], "`--ladder` is of every variant"),
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
    with pytest.raises(ModelError, match="`context` must be at most 251 for so many rounds; got 256"):
        decode.measure(LADDER[-1], tiny, batch=2, context=256, rounds=3, warmup=1)
    monkeypatch.setattr(decode, "measure", lambda *_, rounds, warmup, checkpoint: np.array([1.0, 3.0, 2.0]))
    monkeypatch.setenv("PYPTO_BENCH", "1")
    monkeypatch.setenv("PYPTO_BENCH_ROUNDS", "3")
    code, out, _ = run(capsys, "bench", "qwen3-14b", "--layers", "1")
    assert code == 0
    assert "[RUN]   effective_us (3 rounds) min=1.0 median=2.0 mean=2.0 max=3.0" in out
    monkeypatch.setenv("PYPTO_BENCH_ROUNDS", "none")
    code, _, err = run(capsys, "bench", "qwen3-14b", "--layers", "1")
    assert (code, "`PYPTO_BENCH_ROUNDS` must be an integer" in err) == (2, True)


# ---------------------------------------------------------------------------------------------------------- checkpoints
NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def folder(tmp_path):
    return checkpoints.write(tmp_path, "tied")


def test_another_model_of_the_family(capsys, monkeypatch, folder):
    monkeypatch.setenv("PYPTO_BENCH", "1")
    monkeypatch.setenv("PYPTO_BENCH_ROUNDS", "2")
    arguments = "--checkpoint", str(folder), "--batch", "2", "--context", "9", "--json"
    code, out, err = run(capsys, "bench", "qwen3-14b", *arguments)
    assert code == 0, err
    found = json.loads(out)
    assert found["layers"] == checkpoints.config("tied")["num_hidden_layers"]
    assert found["run"]["rounds"] == 2
    code, _, err = run(capsys, "bench", "qwen3-14b", *arguments, "--layers", "2")
    assert (code, "`--layers` must be left out with --checkpoint" in err) == (2, True)
    code, _, err = run(capsys, "bench", "qwen3-14b", "--config", str(folder))
    assert (code, "must be a JSON file of a variant" in err) == (2, True)


def _config(**changes):
    return lambda folder: (folder / "config.json").write_text(json.dumps(checkpoints.config("tied") | changes))


def _tensors(change):
    def spoil(folder):
        made = checkpoints.tensors("tied")
        change(made)
        checkpoints.write_tensors(folder / "model.safetensors", made)

    return spoil


def _bytes(change):
    def spoil(folder):
        file = folder / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_bytes(lambda data: data[:-8]), "model.safetensors is truncated: `model.norm.weight`"),
        (_bytes(lambda data: data[:100]), "model.safetensors is truncated or no safetensors file"),
        (_bytes(lambda data: data[:4]), "model.safetensors is truncated or no safetensors file"),
        (_bytes(lambda data: b""), "model.safetensors is truncated or no safetensors file"),
        (_tensors(lambda made: made.pop(NAME)), f"`{NAME}` must be in the checkpoint"),
        (_tensors(lambda made: made.update({NAME: made[NAME][1:]})), f"`{NAME}` must be of shape [112, 80]"),
        (_config(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "`rope_scaling` must be of rope_type 'default'"),
        (_config(partial_rotary_factor=0.5), "`partial_rotary_factor` is not known not to matter"),
        (_config(quantization_config={"bits": 4}), "`quantization_config` must be None"),
        (_config(max_position_embeddings=8), "`lengths` must be at most 8, the model's context; got 9"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not valid JSON"),
        (lambda folder: (folder / "config.json").unlink(), "must hold a config.json"),
    ],
)
def test_a_checkpoint_that_is_refused(capsys, folder, spoil, message):
    spoil(folder)
    out = folder / "run"
    code, printed, err = run(
        capsys, "bench", "qwen3-14b", "--checkpoint", str(folder), "--context", "9", "--out", str(out)
    )
    assert (code, printed) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1
    assert not out.exists()
