"""The in-core trace: files, bubbles, chains, what-ifs, and traces of other tools."""

import csv
import itertools
import json

import pytest

import pyptox as px
from pyptox.cost._machine import full_cycles
from pyptox.cost._verify import plain_nest
from pyptox.trace import LANES, read_lanes, side_by_side, trace, what_if, write

CHIP = px.hardware.a2a3()
MATMUL, ATTENTION = px.kernels.matmul, px.kernels.flash_attention
PROBLEMS = [
    (MATMUL, MATMUL.specs(px.spec((100, 700), "bf16"), px.spec((700, 1500), "bf16")), {"m": 32, "n": 128, "k": 64}),
    (ATTENTION, ATTENTION.specs(*(px.spec((2, 300, 64), "fp16"),) * 3), {"m": 64, "n": 64, "preload": 2}),
]


@pytest.mark.parametrize(("kernel", "specs", "values"), PROBLEMS, ids=["matmul", "attention"])
def test_trace_is_the_full_simulation(kernel, specs, values):
    from pyptox.cost import Options
    from pyptox.cost._nest import options_for

    result = trace(kernel, specs, values, CHIP)
    options = options_for(kernel, Options(warm=4), kernel.configuration(values))
    assert result.cycles == full_cycles(plain_nest(kernel, specs, values, CHIP, options).walk)
    assert result.closed_cycles == pytest.approx(result.cycles, rel=0.01)
    for pipe, cycles in result.busy.items():
        assert cycles + sum(result.bubbles[pipe].values()) == pytest.approx(result.cycles)
    for event in result.events:
        if event.after >= 0:
            assert event.start >= result.events[event.after].end
    assert result.chain
    assert not result.degenerate


def _paged(lengths):
    cache, table = px.spec((40, 8, 128, 64), "bf16"), px.spec((len(lengths), 8), "int32")
    query = px.spec((len(lengths), 8, 5, 64), "bf16")
    return px.kernels.paged_attention.specs(query, cache, cache, table, px.control(lengths))


UNEVEN = [
    (ATTENTION, ATTENTION.specs(*(px.spec((3, 1000, 64), "bf16"),) * 3), {"m": 64, "n": 64, "causal": True}),
    (px.kernels.paged_attention, _paged([900, 0, 17, 1000, 128, 1, 640, 300, 77]), {}),
    (
        px.kernels.grouped_matmul,
        px.kernels.grouped_matmul.specs(
            px.spec((550, 256), "bf16"), px.spec((4, 256, 2900), "bf16"), px.control([164, 0, 150, 236])
        ),
        {"m": 16, "n": 128, "k": 64},
    ),
]


@pytest.mark.parametrize(("kernel", "specs", "values"), UNEVEN, ids=["causal", "paged", "grouped"])
def test_blocks_that_differ_are_traced_one_after_the_other(kernel, specs, values):
    result = trace(kernel, specs, values, CHIP)
    told = px.cost.explain(kernel, specs, values, CHIP)
    assert result.blocks > 1
    assert result.cycles == pytest.approx(told.cycles, rel=0.01)
    assert result.closed_cycles == told.closed_cycles
    assert result.cycles == told.full_cycles
    for pipe, cycles in result.busy.items():
        assert cycles + sum(result.bubbles[pipe].values()) == pytest.approx(result.cycles)
    for number, event in enumerate(result.events):
        assert -1 <= event.after < number
        assert event.after < 0 or event.start >= result.events[event.after].end


def test_what_does_not_fit_and_what_waits_for_hbm_is_said():
    softmax, copy = px.kernels.softmax, px.kernels.copy
    result = trace(softmax, softmax.specs(px.spec((16, 50_000), "bf16")), {}, CHIP)
    assert any("does not fit the chip: Vec" in reason for reason in result.degenerate)
    specs = copy.specs(px.spec((8192, 8192), "fp16"))
    result = trace(copy, specs, {}, CHIP)
    assert result.kernel_cycles == float(px.cost.cost_of(copy, specs, {}, CHIP).cycles) > result.cycles
    assert "HBM is busy longer" in str(result)


@pytest.mark.parametrize(("kernel", "specs", "values"), PROBLEMS, ids=["matmul", "attention"])
def test_files(tmp_path, kernel, specs, values):
    result = trace(kernel, specs, values, CHIP)
    files = write(result, tmp_path)
    content = json.loads(files["trace.json"].read_text())
    spans = [e for e in content["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == len(result.events)
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans)
    assert all(isinstance(e["pid"], int) and isinstance(e["tid"], int) for e in spans)
    starts = {e["id"]: e for e in content["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in content["traceEvents"] if e["ph"] == "f"}
    assert starts
    assert starts.keys() == ends.keys()
    assert all(starts[n]["ts"] <= ends[n]["ts"] + 1e-9 for n in starts)
    # one instruction at a time on every lane
    for lane in {e["tid"] for e in spans}:
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if e["tid"] == lane)
        assert all(b[0] >= a[1] - 1e-9 for a, b in itertools.pairwise(mine))
    rows = list(csv.DictReader(files["pipeline_summary.csv"].read_text().splitlines()))
    assert [row["unit"] for row in rows] == ["AIC", "AIV0", "AIV1"]
    assert int(rows[0]["cube_cycles"]) == round(result.busy["CUBE"])
    measured = read_lanes(files["trace.json"])
    assert measured["CUBE"] == pytest.approx(result.busy["CUBE"] / result.clock_mhz)
    assert "CUBE" in side_by_side(result, measured)


def test_more_scores_ahead_is_what_attention_gains_by():
    kernel, specs, _ = PROBLEMS[1]
    changes = {(c.name, c.value): c for c in what_if(kernel, specs, {"m": 64, "n": 64, "preload": 0}, CHIP)}
    assert changes["preload", 1].cycles < 0.9 * changes["preload", 1].before
    again = trace(kernel, specs, {"m": 64, "n": 64, "preload": 1}, CHIP)
    assert again.cycles == changes["preload", 1].cycles


def test_a_kernel_without_its_work_is_degenerate():
    from pyptox.trace._trace import _degenerate

    assert _degenerate("AIC", {"MTE2": 5.0})
    assert _degenerate("MIX", {"CUBE": 5.0})
    assert _degenerate("AIV", {"SCALAR": 5.0})
    assert not _degenerate("AIV", {"VECTOR": 5.0})


def test_foreign_traces(tmp_path):
    perf_sim = [
        {"ph": "X", "name": "TLOAD(128x64,fp16):1", "pid": 0, "tid": "[AIC-0] MTE2", "ts": 0, "dur": 10},
        {"ph": "X", "name": "TADD:2", "pid": 0, "tid": "[AIC-0/AIV-1] VEC", "ts": 10, "dur": 4},
        {"ph": "X", "name": "TLOAD:3", "pid": 0, "tid": "[AIC-0/AIV-1] MTE2", "ts": 0, "dur": 3},
    ]
    (tmp_path / "sim.json").write_text(json.dumps(perf_sim))
    assert read_lanes(tmp_path / "sim.json") == {"MTE2": 10.0, "VECTOR": 4.0, "MTE2V": 3.0}
    msprof = {"traceEvents": [{"ph": "X", "name": "MMAD", "pid": "core0", "tid": "CUBE", "ts": 0.0, "dur": 2.5}]}
    (tmp_path / "msprof.json").write_text(json.dumps(msprof))
    assert read_lanes(tmp_path / "msprof.json") == {"CUBE": 2.5}
    for text in ("no json", "3", '{"traceEvents": []}', '[{"ph": "X"}]'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match="`path`"):
            read_lanes(tmp_path / "bad.json")


def test_lanes_are_in_dataflow_order():
    assert [p for p in LANES if p in ("MTE2", "MTE1", "CUBE", "VECTOR", "FIXPIPE", "MTE3", "SCALAR")] == [
        "MTE2", "MTE1", "CUBE", "VECTOR", "FIXPIPE", "MTE3", "SCALAR",
    ]  # fmt: skip
