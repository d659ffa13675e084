"""Mistakes in a user's program or on its command line: one line that says where, exit code 2."""

import sys
from typing import Any

import numpy as np
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
    assert "NameError: name 'nothing' is not defined (line 10)" in failing(capsys, "graph", f"{place}:wrong")


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
        (["what-if", "PROGRAM", "--cores", "1000"], "`--cores` must be 1 to 128, an integer; got 1000"),
        (["what-if", "PROGRAM", "--duration", "down=1e30"], "`duration_us` must be a finite number of µs"),
        (["what-if", "PROGRAM", "--duration", "down=1e308", "--json"], "`duration_us` must be a finite number of µs"),
        (["what-if", "PROGRAM", "--set", "complete_us=1e300"], "`complete_us` must be a finite number of µs"),
        (["what-if", "PROGRAM", "--set", "hbm_us=1e300"], "`hbm_us` of a chip must be 1e+09 at most"),
        (["what-if", "PROGRAM", "--set", "hbm_us=1e8"], "`duration_us` of task"),
        (
            ["what-if", "PROGRAM", "--duration", "down=1e9", "--set", "clock_mhz=1"],
            "`duration_us` of a block must be 1e+09 at most; t5 down has",
        ),
        (["explain", "PROGRAM", "--tile", "m=16"], "mlp, whose sizes are NAME=VALUE. Leave it out"),
        (
            ["simulate", "--capture", "here", "--hardware", "a5"],
            "`--hardware` belongs to a program; got a5 with --capture",
        ),
        (["explain", "--capture", "here", "--hardware", "910B4"], "`--hardware` belongs to a program"),
        (["what-if", "--capture", "here", "--hardware", "a5", "--cores", "3"], "`--hardware` belongs to a program"),
        (["graph", "PROGRAM", "tokens=10000000"], "1,000,000 blocks at most; `matmul` would have 7,500,000"),
        (["rings", "PROGRAM", "tokens=1000000000"], "1,000,000 blocks at most"),
        (["graph", "PROGRAM", "tokens=99999999999999999999"], "`shape` of a tensor must hold less than 1 PiB"),
        (["simulate", "PROGRAM", "tokens=16", "tokens=32"], "`tokens` must be given once"),
        (["simulate", "PROGRAM", "tokens=-3"], "`tokens` must not be negative; got 'tokens=-3'"),
        (["graph"], "`PROGRAM` must be FILE.py:NAME; got none"),
    ],
)
def test_nothing_that_is_given_is_ignored(capsys, arguments, message):
    program = str(px.__file__).replace("pyptox/__init__.py", "docs/programs/mlp.py:mlp")
    assert message in failing(capsys, *(program if a == "PROGRAM" else a for a in arguments))


ROWS = '{"x": px.spec((m, 64), "fp32"), "y": px.spec((m, 64), "fp32")}'


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (f"lambda m: {ROWS}", "`m` must be given: it is a size of `wrong` without a default. Try m=16"),
        ("lambda m=16: 3", "the sizes of `wrong` must give a spec by argument; they give 3"),
        ('lambda m=16: {"x": 3, "y": 4}', "the sizes of `wrong` must give a spec by argument"),
        (f"lambda m=16: {ROWS} if m > 16 else __import__('sys').exit(0)", "SystemExit: 0"),
    ],
)
def test_sizes_that_give_none(capsys, tmp_path, sizes, message):
    place = tmp_path / "mine.py"
    before = HEAD.split("sizes=")[1].split(")\n")[0]
    place.write_text(HEAD.replace(before, sizes) + "    return pp.submit(k.residual_add, x, y)\n")
    err = failing(capsys, "graph", f"{place}:wrong")
    assert message in err
    assert err.count("\n") == 1
    if "m:" in sizes:
        with pytest.raises(SystemExit) as stop:
            main(["graph", f"{place}:wrong", "m=32"])
        assert not stop.value.code


@pytest.mark.parametrize("where", ["top", "body"])
def test_a_program_that_exits_is_a_mistake(capsys, tmp_path, where):
    place = tmp_path / "mine.py"
    leave = "__import__('sys').exit(0)"
    place.write_text(HEAD + (f"    {leave}\n" if where == "body" else f"    return x\n\n\n{leave}\n"))
    assert "SystemExit: 0" in failing(capsys, "graph", f"{place}:wrong")


@pytest.mark.parametrize("where", ["top", "body"])
def test_a_module_beside_the_program_is_found(capsys, tmp_path, monkeypatch, where):
    name = f"beside_{where}"
    (tmp_path / f"{name}.py").write_text("from pyptox.kernels import residual_add\n")
    place = tmp_path / "mine.py"
    body = HEAD + (f"    import {name}\n" if where == "body" else "")
    place.write_text(
        (f"import {name}\n" if where == "top" else "") + f"{body}    return pp.submit({name}.residual_add, x, y)\n"
    )
    before = sys.path[:]
    with pytest.raises(SystemExit) as stop:
        main(["graph", f"{place}:wrong"])
    assert not stop.value.code
    assert "1 tasks" in capsys.readouterr().out
    assert sys.path == before


def test_a_program_without_tasks_is_told(capsys, tmp_path):
    place = tmp_path / "mine.py"
    place.write_text(HEAD + "    return x\n")
    for command in ("graph", "simulate"):
        with pytest.raises(SystemExit) as stop:
            main([command, f"{place}:wrong"])
        assert not stop.value.code
        assert "note: `wrong` has no tasks" in capsys.readouterr().err


def test_an_array_that_is_none_is_named():
    good: Any = np.zeros((16, 64), np.float32)
    for given, message in (
        ("x", "`x` of `first` must be an array; got 'x' .str."),
        (None, "`x` of `first` must be an array; got None"),
        (good.astype(np.float64), "`x` of `first`: `dtype` must be one of .*; got 'float64'. Convert it"),
        (px.spec((16, 64), "fp32"), "`x` of `first` must be an array, or px.control"),
        (np.zeros((0, 64), np.float32), "`x` of `first`: `shape` of a tensor"),
    ):
        for read in (pp.run, pp.reference):
            with pytest.raises(ProgramError, match=message):
                read(first, given)
    wrong: dict[str, Any] = {"order": 3, "hardware": "a2a3"}  # what a type checker would refuse
    for name, value in wrong.items():
        with pytest.raises(px.PyptoxError, match=f"`{name}` must be"):
            pp.run(first, good, **{name: value})
    name: Any = "first"
    for read in (pp.run, pp.reference, pp.graph):
        with pytest.raises(px.PyptoxError, match="`program` must be"):
            read(name, good)
    with pytest.raises(ProgramError, match="`specs` of `first` must be specs"):
        pp.graph(first, good)


def test_rounds_of_a_capture_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PYPTO_BENCH", "1")
    assert "`PYPTO_BENCH` times a program" in failing(capsys, "simulate", "--capture", tmp_path)


def test_a_file_that_cannot_be_written_names_its_option(capsys, tmp_path):
    (tmp_path / "file").touch()
    program = str(px.__file__).replace("pyptox/__init__.py", "docs/programs/mlp.py:mlp")
    for out in (tmp_path / "file", tmp_path / "file" / "in"):
        assert failing(capsys, "graph", program, "--out", out).startswith(f"error: `--out {out}`: ")
    assert "`--capture" in failing(capsys, "simulate", "--capture", tmp_path / "absent")


@pp.program(sizes=lambda: {"x": px.spec((16, 64), "fp32")})
def raced(x):
    """Two tasks in order write a tensor that a third writes with nothing between."""
    out = pp.empty(x.shape, "fp32", manual_dep=True)
    first = pp.submit(px.kernels.residual_add, x, x, out=out)
    second = pp.submit(px.kernels.residual_add, x, x, out=out, deps=[first])
    return pp.submit(px.kernels.residual_add, x, x, out=out), second


def test_the_advice_on_races_leaves_no_redundant_edge():
    found = pp.missing_orderings(pp.graph(raced))
    assert [(f.first, f.second) for f in found] == [(1, 3), (2, 3)]
    assert "in order too once t3 residual_add waits for t2 residual_add" in str(found[0])
    assert "submit `residual_add` with deps= on t2 residual_add" in str(found[1])


def test_one_block_is_no_blocks():
    assert " 1 block " in str(pp.graph(raced))
    assert "1 blocks" not in str(pp.graph(raced))
