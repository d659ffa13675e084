"""The command line: answers, JSON, exit codes."""

import json

import pytest

from autotune import Progress
from benchmarks.problems import problems
from pyptox.cli import main
from pyptox.cli._progress import progress_bar

SIZES = ["--m", "16", "--k", "512", "--n", "1000", "--dtype", "bf16"]


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.parametrize(
    "kernel", ["matmul", "matmul_nt", "matmul_split_k", "matmul_split_k_nt", "matmul_bias_activation"]
)
def test_explain_sums_to_the_time(capsys, kernel) -> None:
    code, out, _ = run(capsys, "explain", kernel, *SIZES, "--tile", "m=16,n=128,k=256", "--json")
    answer = json.loads(out)
    assert code == 0
    assert sum(answer["attribution"].values()) == pytest.approx(answer["time_us"], rel=1e-5)


def test_explain_of_grouped_matmul(capsys) -> None:
    code, out, _ = run(capsys, "explain", "grouped_matmul", *SIZES, "--tile", "m=16,n=128,k=256", "--json")
    answer = json.loads(out)
    assert code == 0
    assert sum(answer["attribution"].values()) == pytest.approx(answer["time_us"], rel=1e-5)


def given(specs, inputs) -> list[str]:
    """The ``--input`` options that say what ``specs`` do."""
    sizes = {
        name: f"{'x'.join(map(str, spec.shape))}:{spec.dtype}"
        if spec.values is None
        else ",".join(map(str, spec.values)) + ","
        for name, spec in specs.items()
    }
    return [part for name in inputs for part in ("--input", f"{name}={sizes[name]}")]


@pytest.mark.parametrize(("kernel", "specs"), problems(), ids=lambda value: getattr(value, "name", None))
def test_every_kernel_has_its_sizes_on_the_command_line(capsys, tmp_path, kernel, specs) -> None:
    sizes = given(specs, kernel.inputs)
    code, out, _ = run(capsys, "explain", kernel.name, *sizes, "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["specs"] == {name: str(spec) for name, spec in specs.items()}
    assert sum(answer["attribution"].values()) == pytest.approx(answer["time_us"], rel=1e-5)
    code, out, _ = run(capsys, "trace", kernel.name, *sizes, "--out", str(tmp_path))
    assert code in (0, 1)
    assert "what sets the time" in out


def test_check_passes_and_fails(capsys) -> None:
    assert run(capsys, "check", "matmul", *SIZES, "--tile", "m=16,n=128,k=256")[0] == 0
    code, out, _ = run(capsys, "check", "matmul", *SIZES, "--tile", "m=16,n=512,k=4096")
    assert code == 1
    assert "PT101" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "nothing", *SIZES],
        ["explain", "matmul", *SIZES, "--tile", "m"],
        ["explain", "matmul", "--input", "a=4x5", "--input", "b"],
        ["explain", "matmul", "--input", "a=4x5", "--input", "b=5y6"],
        ["explain", "matmul", "--input", "a=4x5", "--input", "b=0x6"],
        ["explain", "matmul", "--input", "a=4x5", "--input", "b=5x6:bf17"],
        ["explain", "matmul", "--input", "a=4x5", "--input", "a=4x5"],
        ["explain", "matmul", "--input", "a=4x5"],
        ["explain", "gather_rows"],
        ["explain", "top_k_groups"],
        ["explain", "top_k_groups()", "--input", "x=4x64"],
        ["explain", "top_k_groups(x y)", "--input", "x=4x64"],
        ["explain", "matmul", *SIZES, "--tile", "q=3"],
        ["explain", "matmul", "--m", "0", "--k", "1", "--n", "1"],
        ["explain", "matmul", *SIZES, "--hardware", "toaster"],
        ["explain", "matmul", *SIZES, "--sync", "maybe"],
        ["tune", "matmul", "--m", "0", "--k", "1", "--n", "1"],
        ["tune", "matmul", "--m", "-4", "--k", "1", "--n", "1"],
        ["tune", "matmul", "--m", "4", "--k", "1", "--n", "1", "--dtype", "bf17"],
        ["tune", "matmul", *SIZES, "--method", "guess"],
        ["tune", "matmul", *SIZES, "--sync", "maybe"],
        ["tune", "matmul", *SIZES, "--seed", "-1"],
        ["tune", "matmul", *SIZES, "--evaluations", "0", "--method", "random"],
        ["tune", "matmul_staged", *SIZES, "--hardware", "toaster"],
        ["tune", "grouped_matmul", *SIZES, "--groups", "0"],
        ["explain", "matmul", *SIZES, "--tile", "m=16.5"],
        ["explain", "matmul", *SIZES, "--tile", "m=-16"],
        ["explain", "matmul", *SIZES, "--set", "stages=many"],
        ["hardware", "toaster"],
        ["validate", "no/such/folder"],
    ],
)
def test_bad_input_is_a_message(capsys, arguments) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert err.startswith("error: `")
    assert "Traceback" not in err
    assert not out


@pytest.mark.parametrize("size", ["1.5", "many"])
def test_sizes_that_are_no_integers_are_a_usage_error(capsys, size) -> None:
    code, out, err = run(capsys, "tune", "matmul", "--m", size, "--k", "1", "--n", "1")
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "valid integer" in err
    assert not out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chekc"], "No such command 'chekc'"),
        (["check", "softmax", "--frob"], "No such option: --frob"),
        (["check", "swiglu", "--seed", "x"], "Invalid value for '--seed'"),
        (["tune"], "Missing argument 'KERNEL'"),
        (["check", "README.md:x"], "`PROGRAM` must be FILE.py:NAME; got 'README.md:x'"),
        (["check", "docs/programs/mlp.py"], "`PROGRAM` must be FILE.py:NAME; got 'docs/programs/mlp.py'"),
        (["explain", "docs/programs/mlp.py"], "`PROGRAM` must be FILE.py:NAME"),
        (["check", "docs\\mlp"], "`PROGRAM` must be FILE.py:NAME"),
    ],
)
def test_usage_errors_are_one_line(capsys, arguments, message) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert not out


def test_no_command_shows_the_help(capsys) -> None:
    code, out, err = run(capsys)
    assert code == 2
    assert "Usage: pyptox" in out + err


@pytest.mark.parametrize("sizes", [("--m", "16", "--n", "512"), ("--m", "16", "--n", "64", "--tile", "m=16,n=64")])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gate", "zzz"), "`gate` must be one of"),
        (("--distribution", "zzz"), "`distribution` must be one of"),
        (("--distribution", "none.safetensors:x"), "`distribution` must name a safetensors file that exists"),
        (("--seed", "-1"), "`seed` must be 0 or more"),
        (("--replay", "nope"), "`folder` must hold a snapshot"),
        (("--replay", "nope", "--seed", "5"), "`seed` is of inputs that are drawn"),
        (("--replay", "nope", "--distribution", "ties"), "`distribution` is of inputs that are drawn"),
        (("--save", "docs"), "`folder` must be new or empty"),
    ],
)
def test_options_are_checked_whether_the_configuration_fits_or_not(capsys, sizes, options, message) -> None:
    code, out, err = run(capsys, "check", "swiglu", *sizes, *options)
    assert code == 2
    assert message in err
    assert not out


def test_tune_resumes_from_a_store(capsys, tmp_path) -> None:
    store = tmp_path / "trials.jsonl"
    arguments = ["tune", "matmul", *SIZES, "--method", "random", "--evaluations", "50", "--no-check", "--json"]
    code, first, err = run(capsys, *arguments, "--store", str(store))
    assert (code, err) == (0, "")
    size = store.stat().st_size
    second = run(capsys, *arguments, "--store", str(store))[1]
    assert store.stat().st_size == size
    assert json.loads(second)["candidates"] == json.loads(first)["candidates"]


def test_the_progress_bar_writes_to_stderr_alone(capsys, monkeypatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    with progress_bar(shown=True) as progress:
        assert progress is not None
        progress(Progress(scored=5, total=10, best_us=2.5))
    out, err = capsys.readouterr()
    assert not out
    assert "5 of 10 scored, best 2.5 µs" in err


def test_hardware(capsys) -> None:
    assert json.loads(run(capsys, "hardware", "a5", "--json")[1])["numbers"]["aic"] == 36


def test_version(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("pyptox ")


def test_a_tile_size_given_twice_is_an_error(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["explain", "matmul", "--m", "16", "--k", "64", "--n", "64", "--tile", "m=16,m=32"])
    assert stop.value.code == 2
    assert "`m` must be given once" in capsys.readouterr().err


def test_check_by_gates_distributions_and_replay(capsys, tmp_path) -> None:
    problem = ["check", "matmul", *SIZES, "--tile", "m=16,n=128,k=256"]
    saved = str(tmp_path / "golden")
    code, out, _ = run(capsys, *problem, "--gate", "ulp:max=1", "--gate", "versus_baseline", "--save", saved, "--json")
    answer = json.loads(out)["precision"]
    assert code == 0
    assert [finding["gate"] for finding in answer["findings"]] == ["Ulp(max=1)", "VersusBaseline(k=2, of=relative_l2)"]
    code, out, _ = run(capsys, *problem, "--replay", saved, "--json")
    again = json.loads(out)["precision"]
    assert code == 0
    assert again["report"] == answer["report"]
    assert again["distribution"] == f"replayed from {saved}"
    code, out, _ = run(capsys, *problem, "--distribution", "near_overflow", "--seed", "3")
    assert code == 1
    assert "seed 3" in out
    for bad, message in (
        (["--gate", "close"], "`gate` must be one of allclose"),
        (["--distribution", "gauss"], "`distribution` must be one of normal"),
        (["--save", saved], "`folder` must be new or empty"),
        (["--replay", str(tmp_path)], "has no snapshot.json"),
    ):
        code, out, err = run(capsys, *problem, *bad)
        assert code == 2
        assert message in err


def test_a_kernel_that_is_almost_named_is_named(capsys) -> None:
    code, _, err = run(capsys, "explain", "matmull", *SIZES)
    assert code == 2
    assert "Did you mean matmul?" in err
    code, _, err = run(capsys, "explain", "top_k_groups", *SIZES)
    assert code == 2
    assert 'try "top_k_groups(8)"' in err
    assert "rms_norm" not in err
