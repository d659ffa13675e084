"""The PMU view: counters add up with the prediction, files keep every value, captures compare or say why not."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyptox as px
from pyptox import pmu
from pyptox.cli import main
from pyptox.cost import explain

CHIP = px.hardware.a2a3()
TILE = {"m": 16, "n": 128, "k": 256}
SIZES = ["--m", "16", "--k", "512", "--n", "1024", "--dtype", "bf16", "--tile", "m=16,n=128,k=256"]
HEADER = "thread_id,core_id,task_id,func_id,core_type,pmu_total_cycles"
PIPES = "vec_busy_cycles,cube_busy_cycles,scalar_busy_cycles,mte1_busy_cycles,mte2_busy_cycles,mte3_busy_cycles"


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def specs_of(kernel):
    inputs = [px.spec((16, 512), "bf16"), px.spec((512, 1024), "bf16"), px.spec((1024,), "fp32")]
    return kernel.specs(*inputs[: len(kernel.inputs)])


def predicted(kernel=px.kernels.matmul, chip=CHIP, **options) -> pmu.View:
    return pmu.view(kernel, specs_of(kernel), TILE, chip, **options)


@pytest.fixture
def captured(tmp_path) -> Path:
    """Two tasks of kernel 4 on two cube cores each, one of which executes two blocks of the second."""
    lines = [
        f"{HEADER},{PIPES},icache_miss,icache_req,event_type",
        "0,6,0x0000000100000001,4,0,1000,0,100,50,200,900,0,1,30,2",
        "0,7,0x0000000100000001,4,0,1200,0,110,50,210,950,0,1,30,2",
        "1,6,0x0000000100000002,4,0,700,0,60,25,100,600,0,1,30,2",
        "1,6,0x0000000100000002,4,0,700,0,60,25,100,600,0,1,30,2",
        "0,7,0x0000000100000002,4,0,1300,0,110,50,210,950,0,1,30,2",
    ]
    path = tmp_path / "pmu.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


# ------------------------------------------------------------------------------------------------ the prediction


@pytest.mark.parametrize("kernel", [px.kernels.matmul, px.kernels.matmul_bias_activation])
@pytest.mark.parametrize("chip", [CHIP, px.hardware.a5()], ids=lambda chip: chip.name)
def test_counters_are_the_explanation(kernel, chip) -> None:
    specs = specs_of(kernel)
    cost, found = explain(kernel, specs, TILE, chip), predicted(kernel, chip)
    assert found.total_cycles == round(cost.cycles)
    assert found.l2_hit == pytest.approx(cost.l2_hit)
    assert found.moved["read"] == pytest.approx(sum(p.moved for p in cost.paths if p.mode == "load"))
    names = {"VECTOR": "vec", "CUBE": "cube", "MTE1": "mte1", "MTE3": "mte3", "FIXPIPE": "fix"}
    for core, counters in found.counters.items():
        for pipe, part in (names | {"MTE2" if core == "AIC" else "MTE2V": "mte2"}).items():
            belongs = (pipe in ("VECTOR", "MTE3", "MTE2V")) == (core == "AIV")
            for name in (n for n in counters if f"{part}_" in n):
                assert counters[name] == (round(cost.busy.get(pipe, 0.0)) if belongs else 0), name


def test_what_is_not_modelled_is_empty() -> None:
    found = predicted()
    assert found.undetermined == ("scalar_busy_cycles", "icache_miss", "icache_req")
    assert list(found.counters) == ["AIC"]
    assert found.counters["AIC"]["vec_busy_cycles"] == 0
    assert list(found.uncounted) == ["FIXPIPE"]
    assert predicted(chip=px.hardware.a5()).uncounted == {}
    json.dumps(found.to_dict())
    assert "left empty, not determined by the model: scalar_busy_cycles" in str(found)


@pytest.mark.parametrize("event_type", [1, 4, 5, 6, 7, 8])
def test_other_groups_are_not_invented(event_type) -> None:
    found = predicted(event_type=event_type)
    assert found.undetermined == found.group.counters
    assert found.total_cycles > 0


def test_mixed_kernel_has_both_kinds_of_core() -> None:
    found = predicted(px.kernels.matmul_bias_activation)
    assert list(found.counters) == ["AIC", "AIV"]
    assert found.counters["AIV"]["vec_busy_cycles"]
    assert found.counters["AIV"]["cube_busy_cycles"] == 0


def test_grouped_kernel() -> None:
    kernel = px.kernels.grouped_matmul
    specs = kernel.specs(px.spec((64, 512), "bf16"), px.spec((2, 512, 1024), "bf16"), px.control([48, 16]))
    cost, found = explain(kernel, specs, TILE, CHIP), pmu.view(kernel, specs, TILE, CHIP)
    assert found.total_cycles == round(cost.cycles)
    assert found.l2_hit == pytest.approx(cost.l2_hit)


def test_unknown_groups() -> None:
    with pytest.raises(ValueError, match=r"`event_type`.*2 PIPE_UTIL.*got 3"):
        predicted(event_type=3)
    with pytest.raises(ValueError, match=r"`chip`.*got 'mine'"):
        pmu.group("mine")


# ---------------------------------------------------------------------------------------------------------- files

word = st.integers(0, 2**32 - 1)
rows = st.builds(
    pmu.Row,
    thread_id=st.none() | word,
    core_id=st.none() | word,
    task_id=st.integers(0, 2**64 - 1),
    func_id=word,
    core=st.sampled_from(pmu.CORES),
    total_cycles=st.integers(0, 2**64 - 1),
    counters=st.fixed_dictionaries({"first": st.none() | word, "second": st.none() | word}),
)


@given(st.lists(rows, min_size=1, max_size=8), st.integers(0, 9))
def test_files_keep_every_value(tmp_path_factory, lines, event_type) -> None:
    path = tmp_path_factory.mktemp("pmu") / "pmu.csv"
    capture = pmu.Capture(event_type, ("first", "second"), tuple(lines))
    pmu.write(path, capture)
    assert pmu.read(path) == capture
    assert [p.name for p in path.parent.iterdir()] == ["pmu.csv"]


def test_prediction_as_a_file(tmp_path) -> None:
    path = tmp_path / "pmu.csv"
    views = [predicted(), predicted(px.kernels.matmul_bias_activation, func_id=5)]
    pmu.write(path, pmu.capture_of(views))
    first, *lines = path.read_text().splitlines()
    assert first == f"{HEADER},{PIPES},icache_miss,icache_req,event_type"
    assert len(lines) == 3
    assert lines[1].startswith(",,0x0000000000000001,5,0,")
    assert lines[1].endswith(",,,2")
    assert pmu.read(path).functions == (0, 5)
    comparison = pmu.compare(views, pmu.read(path))
    assert {line.ratio for line in comparison.lines} <= {1.0, None}
    with pytest.raises(ValueError, match="one event group"):
        pmu.capture_of([predicted(), predicted(event_type=8)])
    with pytest.raises(ValueError, match="one event group"):
        pmu.capture_of([])


def test_a_counter_that_does_not_fit_leaves_no_file(tmp_path) -> None:
    row = pmu.Row(0, 0, 1, 0, "AIC", 1, {"first": 2**32})
    with pytest.raises(ValueError, match="32 bits"):
        pmu.write(tmp_path / "pmu.csv", pmu.Capture(2, ("first",), (row,)))
    assert not list(tmp_path.iterdir())


GOOD = "0,1,0x01,2,0,100,5,2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "missing: thread_id"),
        ("a,b\n1,2\n", "missing: thread_id"),
        (f"{HEADER},x,x,event_type\n", "x twice"),
        (f"{HEADER},x,event_type\n", "no rows"),
        (f"{HEADER},x,event_type\n{GOOD}\n0,1,0x01,2,0,100,5,4\n", "2 and 4"),
        (f"{HEADER},x,event_type\n{GOOD},9\n", "line 2 must have 8 cells"),
        (f"{HEADER},x,event_type\n{GOOD}\n0,1\n", "line 3 must have 8 cells"),
        (f"{HEADER},x,event_type\n0,1,0x01,2,2,100,5,2\n", "core_type"),
        (f"{HEADER},x,event_type\n0,1,task,2,0,100,5,2\n", "line 2: `task_id`"),
        (f"{HEADER},x,event_type\n0,1,0x01,2,0,,5,2\n", "line 2: `pmu_total_cycles`"),
        (f"{HEADER},x,event_type\n0,1,0x01,2,0,100,4294967296,2\n", "line 2: `x` must be an integer of 32 bits"),
        (f"{HEADER},x,event_type\n0,1,0x01,2,0,100,-5,2\n", "line 2: `x`"),
    ],
)
def test_bad_files(tmp_path, capsys, content, message) -> None:
    path = tmp_path / "pmu.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        pmu.read(path)
    assert run(capsys, "pmu", "matmul", *SIZES, "--compare", path)[0] == 2


# ----------------------------------------------------------------------------------------------------- comparison


def test_roll_up_takes_the_busiest_core(captured) -> None:
    (found,) = pmu.roll_up(pmu.read(captured))
    assert (found.func_id, found.core, found.tasks, found.cores) == (4, "AIC", 2, 2)
    assert found.total_cycles == (1200 + 1400) / 2
    assert found.counters["cube_busy_cycles"] == (110 + 120) / 2


def test_comparison(captured) -> None:
    capture = pmu.read(captured)
    one = predicted(func_id=4)
    lines = {line.counter: line for line in pmu.compare([one], capture).lines}
    assert lines["pmu_total_cycles"].ratio == pytest.approx(one.total_cycles / 1300)
    assert lines["scalar_busy_cycles"].measured == 50
    assert lines["scalar_busy_cycles"].predicted is None
    assert lines["vec_busy_cycles"].ratio is None
    with pytest.raises(ValueError, match=r"`func_id`.*4; got 9"):
        pmu.compare([predicted(func_id=9)], capture)
    with pytest.raises(ValueError, match="event type 2; got 8"):
        pmu.compare([predicted(func_id=4, event_type=8)], capture)


def test_comparison_notes(tmp_path) -> None:
    path = tmp_path / "pmu.csv"
    path.write_text(f"{HEADER},cube_busy_cycles,event_type\n0,1,0x01,0,0,100,0,2\n0,1,0x01,0,1,100,0,2\n")
    notes = " ".join(pmu.compare([predicted()], pmu.read(path)).notes)
    assert "degenerate capture: cube_busy_cycles is 0" in notes
    assert "expects no work on AIV" in notes
    path.write_text(f"{HEADER},cube_busy_cycles,event_type\n0,1,0x01,0,0,100,,2\n")
    comparison = pmu.compare([predicted(px.kernels.matmul_bias_activation)], pmu.read(path))
    assert "no AIV rows" in " ".join(comparison.notes)
    assert [line.measured for line in comparison.lines if line.core == "AIV"] == [None, None]


def test_read_hits_compare_over_both_ports(tmp_path) -> None:
    path = tmp_path / "pmu.csv"
    names = ",".join(pmu.group("a2a3", 8).counters)
    path.write_text(
        f"{HEADER},{names},event_type\n0,1,0x01,0,0,100,1,2,30,10,20,20,8\n0,2,0x01,0,0,90,1,2,0,20,0,0,8\n"
    )
    *_, last = pmu.compare([predicted(event_type=8)], pmu.read(path)).lines
    assert (last.core, last.measured) == ("all", 0.5)
    assert last.predicted == predicted().l2_hit
    path.write_text(f"{HEADER},{names},event_type\n0,1,0x01,0,0,100,1,2,,10,20,20,8\n")
    assert pmu.compare([predicted(event_type=8)], pmu.read(path)).lines[-1].measured is None


# -------------------------------------------------------------------------------------------------------- command


def test_command(capsys, tmp_path, captured) -> None:
    out_file = tmp_path / "predicted.csv"
    code, out, _ = run(capsys, "pmu", "matmul", *SIZES, "--out", out_file)
    assert code == 0
    assert "mte2_busy_cycles" in out
    assert pmu.read(out_file).rows[0].total_cycles == predicted().total_cycles
    code, out, _ = run(capsys, "pmu", "matmul", *SIZES, "--compare", captured)
    assert code == 0
    assert "evidence of what was measured: rank 3 of 4" in out
    code, out, _ = run(capsys, "pmu", "matmul", *SIZES, "--compare", captured, "--json")
    answer = json.loads(out)
    assert answer["prediction"]["func_id"] == 4
    assert {line["counter"]: line for line in answer["comparison"]["lines"]}["pmu_total_cycles"]["measured"] == 1300


@pytest.mark.parametrize("options", [["--event", "3"], ["--compare", "no/such.csv"], ["--hardware", "toaster"]])
def test_command_with_bad_options(capsys, options) -> None:
    code, out, err = run(capsys, "pmu", "matmul", *SIZES, *options)
    assert code == 2
    assert err.startswith("error: ")
    assert not out


def test_command_asks_which_kernel(capsys, captured) -> None:
    captured.write_text(captured.read_text() + "0,7,0x0000000100000003,5,0,1300,0,110,50,210,950,0,1,30,2\n")
    code, _, err = run(capsys, "pmu", "matmul", *SIZES, "--compare", captured)
    assert code == 2
    assert "4, 5; got none" in err
    assert run(capsys, "pmu", "matmul", *SIZES, "--compare", captured, "--func", "5")[0] == 0
    assert run(capsys, "pmu", "matmul", *SIZES, "--compare", captured, "--func", "5", "--event", "8")[0] == 2


def test_every_shared_capture_reads(shared) -> None:
    paths = sorted(shared.rglob("pmu*.csv"))
    if not paths:
        pytest.skip(f"no pmu.csv under {shared}")
    for path in paths:
        assert pmu.roll_up(pmu.read(path))
