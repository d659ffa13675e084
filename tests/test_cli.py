"""The command line: answers, JSON, exit codes."""

import json

import pytest

from pyptox.cli import main

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
        ["explain", "matmul", *SIZES, "--tile", "q=3"],
        ["explain", "matmul", "--m", "0", "--k", "1", "--n", "1"],
        ["explain", "matmul", *SIZES, "--hardware", "toaster"],
        ["explain", "matmul", *SIZES, "--sync", "maybe"],
        ["hardware", "toaster"],
        ["validate", "no/such/folder"],
    ],
)
def test_bad_input_is_a_message(capsys, arguments) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert not out


def test_hardware(capsys) -> None:
    assert json.loads(run(capsys, "hardware", "a5", "--json")[1])["numbers"]["aic"] == 36
