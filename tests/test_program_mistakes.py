"""Mistakes in a user's program or on its command line: one line that says where, exit code 2."""

import pytest

import pyptox as px
from pyptox import program as pp
from pyptox.cli import main
from pyptox.program._tensor import ProgramError

HEAD = """import pyptox as px
from pyptox import program as pp
from pyptox import kernels as k


@pp.program(sizes=lambda m=16: {"x": px.spec((m, 64), "fp32"), "y": px.spec((m, 64), "fp32")})
def wrong(x, y):
"""

MISTAKES = {
    'return pp.submit("matmul", x, y)': "`kernel` must be a kernel",
    "return pp.submit(k.residual_add, x, y, out=3)": "`out` of `residual_add` expects a tensor of the program; got 3",
    "return pp.submit(k.residual_add, x, 5)": "expects a tensor of the program; got 5",
    "return pp.submit(k.residual_add, x, pp.no_dep(y.shape))": "expects a tensor of the program; got (16, 64)",
    "return pp.submit(k.residual_add, x, y, deps=x)": "`deps` must be a list of tasks",
    "return pp.submit(k.residual_add, x, z)": "NameError: name 'z' is not defined",
    'raise ValueError("my bug")': "ValueError: my bug",
    'return pp.empty((0, 4), "fp32")': "`shape` of a tensor must hold positive integers",
    'return pp.empty((4, 4), "float99")': "`dtype` must be one of",
    'return pp.empty(4, "fp32")': "`shape` of `empty` must be sizes",
    "return y[5, 5, 5]": "has 3 parts",
}


def failing(capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("line", MISTAKES)
@pytest.mark.parametrize("command", ["graph", "simulate", "rings"])
def test_a_mistake_is_one_line_with_its_place(capsys, tmp_path, line, command):
    place = tmp_path / "mine.py"
    place.write_text(f"{HEAD}    {line}\n")
    err = failing(capsys, command, f"{place}:wrong")
    assert err.startswith(f"error: {place}:8: ")
    assert MISTAKES[line] in err
    assert err.count("\n") == 1


def test_a_mistake_in_sizes_and_at_the_top_say_their_line(capsys, tmp_path):
    place = tmp_path / "mine.py"
    place.write_text(HEAD.replace('"fp32")})', '"fp3")})') + "    return x\n")
    assert f"{place}:6: ValueError: `dtype`" in failing(capsys, "graph", f"{place}:wrong")
    place.write_text(HEAD + "    return x\n\nnothing\n")
    assert "cannot be read at line 10: NameError" in failing(capsys, "graph", f"{place}:wrong")


kept: list = []


@pp.program(sizes=lambda: {"x": px.spec((16, 64), "fp32")})
def first(x):
    made = pp.submit(px.kernels.residual_add, x, x)
    kept[:] = [x, made, pp.dummy(deps=[made])]
    return made


@pytest.mark.parametrize("use", ["input", "out", "no_dep", "deps", "task", "result"])
def test_a_tensor_or_task_of_another_program_is_refused(use):
    pp.graph(first)
    foreign, made, task = kept

    @pp.program(sizes=lambda: {"x": px.spec((16, 64), "fp32")})
    def second(x):
        inputs = [x, {"input": foreign, "no_dep": pp.no_dep(made)}.get(use, x)]
        more = {"out": {"out": made}, "deps": {"deps": [made]}, "task": {"deps": [task]}}.get(use, {})
        done = pp.submit(px.kernels.residual_add, *inputs, **more)
        return made if use == "result" else done

    with pytest.raises(ProgramError, match="this program"):
        pp.graph(second)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "PROGRAM", "--tile", "m=16"], "`--tile` belongs to a kernel"),
        (["explain", "PROGRAM", "--m", "16"], "`--m` belongs to a kernel"),
        (["explain", "PROGRAM", "--stages", "0"], "`--stages` belongs to a kernel"),
        (["explain", "--capture", "here", "--sync", "auto"], "`--sync` belongs to a kernel"),
        (["what-if", "PROGRAM", "--add-edge", "up,up"], "up is the same task"),
        (["what-if", "PROGRAM", "--add-edge", "gate,swiglu"], "swiglu waits for it already"),
        (["what-if", "PROGRAM", "--cores", "1000"], "`--cores` must be 1 to 24, the cube cores of a2a3; got 1000"),
        (["simulate", "PROGRAM", "tokens=16", "tokens=32"], "`tokens` must be given once"),
        (["simulate", "PROGRAM", "tokens=-3"], "`tokens` must not be negative; got 'tokens=-3'"),
        (["graph"], "`PROGRAM` must be FILE.py:NAME; got none"),
    ],
)
def test_nothing_that_is_given_is_ignored(capsys, arguments, message):
    program = str(px.__file__).replace("pyptox/__init__.py", "docs/programs/mlp.py:mlp")
    assert message in failing(capsys, *(program if a == "PROGRAM" else a for a in arguments))


def test_rounds_of_a_capture_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PYPTO_BENCH", "1")
    assert "`PYPTO_BENCH` times a program" in failing(capsys, "simulate", "--capture", tmp_path)
