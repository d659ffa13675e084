"""What does not fit the chip is never predicted without a word."""

import pytest

import pyptox as px
from pyptox import chip
from pyptox import program as pp
from pyptox.cli import main

LARGE = ["matmul", "--m", "512", "--n", "4096", "--k", "4096", "--tile", "m=512,n=4096,k=4096"]
SIZES = {"a": px.spec((512, 4096), "bf16"), "b": px.spec((4096, 4096), "bf16")}


@pp.program(sizes=lambda: SIZES)
def product(a, b):
    return pp.submit(px.kernels.matmul, a, b, m=512, n=4096, k=4096)


@pytest.mark.parametrize("reading", [chip.simulate, lambda graph: chip.durations(graph)(px.hardware.a2a3())])
def test_a_task_that_does_not_fit_is_refused_by_name_space_and_bytes(reading):
    with pytest.raises(px.VerifierError, match=r"`t0 matmul` cannot run on .* needs 75,497,472 bytes of Mat.*524,288"):
        reading(pp.graph(product))


@pytest.mark.parametrize("command", ["explain", "pmu"])
def test_a_prediction_of_what_does_not_fit_says_so_first(capsys, command):
    with pytest.raises(SystemExit):
        main([command, *LARGE])
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("does not fit the chip: PT101 `matmul` needs 75,497,472 bytes of Mat")
    with pytest.raises(SystemExit):
        main([command, *LARGE[:-1], "m=128,n=256,k=64"])
    assert "does not fit" not in capsys.readouterr().out
