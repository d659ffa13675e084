"""``tune``: resuming, progress, messages, and results of every kernel and method."""

import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import autotune
import pyptox as px
from autotune import Integer, Multiple, Progress, Result, Space
from pyptox import lang as pl
from pyptox import precision

A, B = px.spec((100, 500), "bf16"), px.spec((500, 300), "bf16")
ROOT = pathlib.Path(__file__).resolve().parents[2]
METHODS = ("exhaustive", "gradient", "funnel", "local", "random")


def tune(**settings) -> Result:
    return autotune.tune(px.kernels.matmul, A, B, **{"check": False, "evaluations": 150, **settings})


def answer(result: Result) -> tuple:
    return result.candidates, result.evaluations, result.rejected, result.default


@pytest.mark.parametrize("method", METHODS)
def test_a_run_stopped_at_any_batch_resumes_to_the_same_answer(tmp_path, method, monkeypatch) -> None:
    monkeypatch.setattr(autotune.Exhaustive, "__init__", _in_chunks_of(4096, autotune.Exhaustive.__init__))
    path, whole = tmp_path / "trials.jsonl", tune(method=method)

    def stop(progress: Progress) -> None:
        if progress.scored >= 20:
            raise KeyboardInterrupt

    stopped = tune(method=method, store=path, progress=stop)
    assert stopped.interrupted
    assert "interrupted" in str(stopped)
    events: list[Progress] = []
    resumed = tune(method=method, store=path, progress=events.append)
    assert answer(resumed) == answer(whole)
    assert not resumed.interrupted
    assert not events or events[0].scored > stopped.evaluations
    again: list[Progress] = []
    assert answer(tune(method=method, store=str(path), progress=again.append)) == answer(whole)
    assert not again
    assert len(path.read_text().splitlines()) <= 150


def _in_chunks_of(size: int, make):
    return lambda self, chunk=size, first=0: make(self, chunk, first)


def test_the_store_keeps_problems_apart(tmp_path) -> None:
    path, events = tmp_path / "trials.jsonl", []
    tune(method="random", store=path)
    for settings in ({"seed": 1}, {"sync": "auto"}, {"hardware": px.hardware.a5()}, {"method": "local"}):
        tune(**{"method": "random", "store": path, "progress": events.append, **settings})
        assert events
        events.clear()


@pytest.mark.parametrize("method", ["local", "exhaustive"])
def test_a_killed_run_keeps_its_trials(tmp_path, method, monkeypatch) -> None:
    path = tmp_path / "trials.jsonl"
    script = (
        "import os, signal, autotune, pyptox as px\n"
        "from autotune import Exhaustive\n"
        "make = Exhaustive.__init__\n"
        "Exhaustive.__init__ = lambda self, chunk=4096, first=0: make(self, chunk, first)\n"
        "def die(progress):\n"
        "    if progress.scored >= 60: os.kill(os.getpid(), signal.SIGKILL)\n"
        "autotune.tune(px.kernels.matmul, px.spec((100, 500), 'bf16'), px.spec((500, 300), 'bf16'), check=False,\n"
        f"              evaluations=150, method={method!r}, store={str(path)!r}, progress=die)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    scored = sum(line["note"]["scored"] if "note" in line else 1 for line in kept)
    assert scored >= 60
    monkeypatch.setattr(autotune.Exhaustive, "__init__", _in_chunks_of(4096, autotune.Exhaustive.__init__))
    events: list[Progress] = []
    resumed = tune(method=method, store=path, progress=events.append)
    assert events[0].scored > scored
    whole = tune(method=method)
    assert (resumed.candidates, resumed.evaluations) == (whole.candidates, whole.evaluations)


def test_ctrl_c_prints_the_best_so_far(tmp_path) -> None:
    path = tmp_path / "trials.jsonl"
    command = ["tune", "matmul", "--m", "100", "--k", "500", "--n", "300", "--method", "local", "--json"]
    command += ["--evaluations", "1000000", "--no-check", "--store", str(path)]
    run = subprocess.Popen(
        [sys.executable, "-c", "from pyptox.cli import main; main()", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (path.exists() and path.stat().st_size) and run.poll() is None:
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=100)
    assert run.returncode == 0, err
    assert err.startswith("stopping after this batch")
    assert json.loads(out)["interrupted"]


def test_progress_counts_up_to_the_total() -> None:
    events: list[Progress] = []
    result = tune(method="exhaustive", progress=events.append)
    assert len(events) == -(-result.space_size // 65536)
    assert events[-1].scored == events[-1].total == result.space_size
    events.clear()
    tune(method="random", progress=events.append)
    assert events[-1].scored == events[-1].total == 150
    assert all(event.best_us > 0 for event in events)


LEFT, BIAS = px.spec((48, 256), "bf16"), px.spec((128,), "fp32")
RIGHT, TURNED = px.spec((256, 128), "bf16"), px.spec((128, 256), "bf16")
INPUTS = {
    "matmul": (LEFT, RIGHT),
    "grouped_matmul": (LEFT, px.spec((3, 256, 128), "bf16"), px.control([20, 0, 28])),
    "matmul_nt": (LEFT, TURNED),
    "matmul_split_k": (LEFT, RIGHT),
    "matmul_split_k_nt": (LEFT, TURNED),
    "matmul_panels": (LEFT, TURNED),
    "flash_attention": (px.spec((2, 48, 32), "fp16"),) * 3,
    "paged_attention": (
        px.spec((3, 2, 5, 32), "bf16"),
        *(px.spec((9, 2, 16, 32), "bf16"),) * 2,
        px.spec((3, 3), "int32"),
        px.control([48, 0, 17]),
    ),
    "matmul_staged": (LEFT, TURNED),
    "matmul_bias_activation": (LEFT, RIGHT, BIAS),
}
KERNELS = {name: vars(px.kernels)[name] for name in INPUTS}
QUICK = ("matmul",)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in KERNELS]
)
def test_every_kernel_and_method_gives_a_result_that_can_be_kept(tmp_path, capsys, name) -> None:
    kernel, path = KERNELS[name], tmp_path / "result.json"
    small = Space(**{size: Multiple(16, 64, 16) for size in kernel.tile[:3]}, stages=Integer(1, 3))
    # a gradient is compiled for a minute or more where loops are nested
    methods = [method for method in ("auto", *METHODS) if method != "gradient" or name == "matmul"]
    for method in methods:
        result = autotune.tune(kernel, *INPUTS[name], method=method, evaluations=60, space=small, check=False)
        result.save(path)
        assert Result.load(path) == result
        assert str(Result.load(path)) == str(result)
        assert result.best.time_us >= result.bound_us
        assert result.kernel in str(result)
        assert set(result.best.config) == set(kernel.numeric)
        exec(result.snippet(), {})
        assert float(capsys.readouterr().out) == pytest.approx(result.best.time_us, rel=0.02)


HALF: Any = 1.5
TEXT: Any = "4"
WRONG = [
    (lambda: px.spec((0, 5), "bf16"), "`shape` of a tensor must hold positive integers"),
    (lambda: px.spec((-3, 5), "bf16"), "`shape` of a tensor must hold positive integers"),
    (lambda: px.spec((HALF, 5), "bf16"), "`shape` of a tensor must hold positive integers"),
    (lambda: px.spec((4, 5), "bf17"), "`dtype`.*bf17"),
    (lambda: autotune.tune(px.kernels.matmul, A, px.spec((501, 300), "bf16")), "`b` must be .k, n. with k = 500"),
    (lambda: autotune.tune(px.kernels.matmul, A, px.spec((500,), "bf16")), "`a` and `b` of a matmul are matrices"),
    (lambda: autotune.tune(px.kernels.matmul, A, px.spec((500, 300), "fp16")), "`a` and `b` must have one dtype"),
    (lambda: autotune.tune(px.kernels.matmul, A), "`matmul` also needs a spec for b"),
    (lambda: autotune.tune(px.kernels.matmul, A, B, c=B), "`c` is not an input of `matmul`"),
    (lambda: tune(method="guess"), "`method` must be one of .*guess"),
    (lambda: tune(sync="maybe"), "`sync` must be"),
    (lambda: tune(evaluations=0), "`evaluations` must be at least 1; got 0"),
    (lambda: tune(evaluations=-1), "`evaluations` must be at least 1; got -1"),
    (lambda: tune(seed=-1), "`seed` must be a non-negative integer; got -1"),
    (lambda: tune(space=Space(q=Integer(1, 2))), "`space` has q, which `matmul` does not; it has m, n, k"),
    (lambda: tune(space=Space(m=Integer(0, 2))), "`m` of `space` must hold integers from 1 to"),
    (
        lambda: tune(space=Space(m=autotune.Choice(16, 24.5))),
        "`m` of `space` must hold integers from 1 to .*got Choice",
    ),
    (lambda: tune(space=Space(m=autotune.Choice("wide"))), "`m` of `space` must hold integers from 1 to .*got Choice"),
    (lambda: tune(space=Space(stages=Integer(7, 9))), "`stages` of `space` must hold integers from 1 to 4"),
    (lambda: tune(space=Space(m=Multiple(4096, 8192, 4096))), "of which `Mat` removed"),
    (lambda: tune(space=Space(m=Multiple(16, 64, 16)).where("none", lambda at: at["m"] < 0)), "`none` removed"),
    (lambda: tune(method="random", space=Space(m=Multiple(4096, 8192, 4096))), "of which `Mat` removed"),
    (lambda: Multiple(HALF, 64, 16), "`low` of Multiple must be an integer, got 1.5"),
    (lambda: Integer(1, TEXT), "`high` of Integer must be an integer, got '4'"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_arguments_say_what_was_expected(make, message) -> None:
    with pytest.raises((ValueError, TypeError), match=re.compile(message)):
        make()


@px.kernel(
    outputs={"out": lambda x: x}, tile={"m": 16, "n": 128}, choices={"passes": (1, 2, 4), "doubled": (False, True)}
)
def scaled(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, passes: int = 1, doubled: bool = False) -> None:
    """Adds ``x`` to itself in ``passes`` steps, and once more where ``doubled``."""

    def block(i, j):
        part = pl.load(x, (i * tile.m, j * tile.n), (tile.m, tile.n), space=pl.Vec)
        for _ in range(passes + doubled):
            part = pl.add(part, part)
        pl.store(out, (i * tile.m, j * tile.n), part)

    pl.grid((pl.cdiv(x.shape[0], tile.m), pl.cdiv(x.shape[1], tile.n)), block)


SCALED = px.spec((256, 512), "fp32")


@pytest.mark.parametrize("method", ["exhaustive", "gradient", "random"])
def test_choices_are_searched_where_the_space_has_them(method):
    sizes = autotune.default_space(scaled, scaled.specs(SCALED), px.hardware.a2a3()).parameters
    space = autotune.Space(**sizes, passes=autotune.Choice(4, 2, 1))
    held = {"doubled": True}
    result = autotune.tune(scaled, SCALED, space=space, values=held, method=method, check=False, evaluations=400)
    assert result.best.config["passes"] == 1
    assert result.best.config["doubled"] is True
    alone = autotune.tune(scaled, SCALED, values=held | {"passes": 1}, check=False)
    assert result.best.time_us == pytest.approx(alone.best.time_us, rel=0.02 if method != "exhaustive" else 1e-6)
    assert autotune.tune(scaled, SCALED, values={"passes": 4}, check=False).best.time_us > alone.best.time_us


def test_held_values_and_choices_that_do_not_fit_are_errors():
    space = autotune.Space(m=autotune.Multiple(16, 64, 16), passes=autotune.Choice(3, 1))
    with pytest.raises(ValueError, match="`passes` of `space` must hold some of 1, 2, 4"):
        autotune.tune(scaled, SCALED, space=space)
    with pytest.raises(ValueError, match="`values` and `space` both have m"):
        autotune.tune(scaled, SCALED, space=autotune.Space(m=autotune.Multiple(16, 64, 16)), values={"m": 16})
    with pytest.raises(px.KernelError, match="`width` is not a parameter"):
        autotune.tune(scaled, SCALED, values={"width": 1})


def test_a_search_over_choices_resumes(tmp_path):
    sizes = autotune.default_space(scaled, scaled.specs(SCALED), px.hardware.a2a3()).parameters
    space = autotune.Space(**sizes, passes=autotune.Choice(1, 2))
    first = autotune.tune(scaled, SCALED, space=space, check=False, store=tmp_path / "trials.jsonl")
    again = autotune.tune(scaled, SCALED, space=space, check=False, store=tmp_path / "trials.jsonl")
    assert again.best == first.best


def test_a_gate_is_required_of_every_finalist(tmp_path):
    a, b = px.spec((16, 2048), "bf16"), px.spec((2048, 512), "bf16")
    space = Space(m=Integer(16, 16), n=Integer(128, 128), k=Multiple(128, 256, step=128), splits=Integer(1, 3))

    def tuned(gate):
        return autotune.tune(px.kernels.matmul_split_k, a, b, space=space, gate=gate)

    def error(candidate: autotune.Candidate) -> float:
        assert candidate.relative_l2 is not None
        return candidate.relative_l2

    loose = tuned(precision.RelL2(1e-3))
    errors = [error(c) for c in loose.candidates]
    assert loose.rejected["gate"] == 0
    assert len(set(errors)) > 1  # the order of the sum changes the error
    assert all(0 < e < 1e-5 for e in errors)
    front = loose.pareto
    assert all(x.time_us <= y.time_us and error(x) > error(y) for x, y in itertools.pairwise(front))
    assert not any(c.time_us < p.time_us and error(c) <= error(p) for c in loose.candidates for p in front)
    assert error(front[-1]) == min(errors)
    loose.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == loose
    assert "rel L2" in loose.table()

    limit = sorted(errors)[len(errors) // 2]
    strict = tuned(precision.RelL2(limit))
    assert 0 < strict.rejected["gate"] < len(errors)
    left = {str(c.config) for c in loose.candidates if error(c) <= limit}
    assert {str(c.config) for c in strict.candidates} == left
    assert strict.check is not None
    assert strict.check["passed"]
    with pytest.raises(autotune.NoCandidatePassedError, match=r"none does.*relative L2 .* \(at most 1e-12\)"):
        tuned(precision.RelL2(1e-12))
