"""Measured rows that become programs: task granularity, scheduling, and kernels inside a layer."""

import numpy as np
import pytest

from pyptox import chip
from pyptox.hardware import a2a3
from pyptox.validation import validate
from pyptox.validation._report import FILES, Report, _answer, read
from pyptox.validation._staged import Program, root, slower, solved
from pyptox.validation._v200 import KERNELS, TILES, WIDE, _cost, layer, width_of

PROGRAMS = ("task_granularity", "scheduling", "kernel_task_times")
GRANULARITY = (
    "id,group,variant,is_baseline,workload,platform,tasks,blocks_or_grid,cores_used,per_task_us,metric,value,unit"
)
SCHEDULING = "id,group,mechanism,variant,is_baseline,workload,tasks,metric,value,unit,stat"
KERNEL = "id,workload,kernel,core,dtype,M,K,N,tile_k,n_per_block,blocks_per_launch,instances,mean_us"


@pytest.fixture(scope="module")
def report(shared):
    rows = [_answer(file, row, a2a3()) for file in PROGRAMS for row in read(shared / "measured", file)]
    return Report(rows)


def test_task_granularity_has_the_right_signs_and_ratios(report):
    groups, ratios = report.to_dict()["groups"], report.ratios("task_granularity")
    assert len(ratios) >= 11
    assert sum(groups[name]["sign"] == 1.0 for name in ratios) >= 0.9 * len(ratios)
    assert np.median(list(ratios.values())) <= 0.10


def test_scheduling_averages_are_near(report):
    rows = [r for r in report.rows if r["file"] == "scheduling" and r["covered"]]
    assert len(rows) >= 25
    errors = [abs(r["relative_error"]) for r in rows]
    assert np.mean(errors) < 0.20
    assert np.median(errors) < 0.10


def test_kernels_inside_a_layer_are_near(report):
    rows = [r for r in report.rows if r["file"] == "kernel_task_times" and r["covered"]]
    assert len(rows) == 9
    errors = {r["id"]: abs(r["relative_error"]) for r in rows}
    assert np.median(list(errors.values())) < 0.15
    elsewhere = {"v200b_gate_proj", "v200b_up_proj"}
    assert max(error for name, error in errors.items() if name not in elsewhere) < 0.25
    # The same kernel took 96 µs in one published run, and 68 and 73 µs in another. In the first, gate and up are read
    # in turn and put each other out of L2: the simulated blocks find nothing there. In the other, 24 blocks of 5.2 MB
    # in 68 µs are 1.85 TB/s, more than HBM has: part was still in L2, by an order of launches that is not stated.
    gate = _cost(KERNELS["gate_proj"], a2a3())
    cold = next(r["predicted"] for r in rows if r["id"] == "v200_gate_proj")
    product = KERNELS["gate_proj"].product
    assert product is not None
    k, _, _, columns = product
    assert cold > gate.cold_us
    for row in (r for r in rows if r["id"] in elsewhere):
        assert gate.resident_us < row["measured"] < gate.cold_us
        assert 24 * k * columns * 2 / row["measured"] > 1.7e6  # bytes a µs: above the 1.6 TB/s of HBM, beyond noise


def test_decode_steps_and_layers_are_near(shared):
    rows = [_answer("decode_e2e", row, a2a3()) for row in read(shared / "measured", "decode_e2e")]
    covered = [r for r in rows if r["covered"]]
    assert len(covered) >= 11
    assert max(abs(r["relative_error"]) for r in covered) < 0.15
    assert all(r["reason"] for r in rows)
    groups = Report(rows).to_dict()["groups"]
    assert groups["qwen14_single_layer"]["sign"] == groups["qwen14_step_756"]["sign"] == 1.0


DECODE = "id,group,model,phase,layers,batch,context,stage,variant,metric,value,unit,evidence,source"


def test_windows_and_programs_of_a_decode_are_read_from_the_row(tmp_path):
    line = (
        "{0},g,Qwen3-14B,decode,1,16,,full step,{1} 16-row window{2},per step,{3},ms,device_measured,pypto-lib PR #892"
    )
    rows = _validated(
        tmp_path, "decode_e2e", DECODE,
        line.format("one", "one", "", 2), line.format("two", "2", "s", 4),
        "old,g,Qwen3-14B,decode,1,16,,single layer makespan,x,total,1,us,device_measured,pypto-lib PR #100",
        "tpot,g,Qwen3-14B,decode,40,16,,TPOT,x,per token,48,ms,device+host,pypto-lib PR #639",
        "v4,g,DeepSeek V4-Flash,decode,,,,layer,x,wall,48,us,device_measured,pypto-lib PR #639",
    )  # fmt: skip
    assert rows["two"]["predicted"] == pytest.approx(2 * rows["one"]["predicted"], rel=0.05)
    assert {name: rows[name]["covered"] for name in ("old", "tpot", "v4")} == dict.fromkeys(
        ("old", "tpot", "v4"), False
    )
    assert "host" in rows["tpot"]["reason"]


def test_rows_that_are_not_covered_say_why(report):
    assert all(r["covered"] or r["reason"] for r in report.rows)
    assert {r["file"] for r in report.rows} == set(PROGRAMS) <= set(FILES)


def _validated(tmp_path, file, header, *lines):
    (tmp_path / f"{file}.csv").write_text("\n".join((header, *lines)) + "\n")
    return {r["id"]: r for r in validate(tmp_path, a2a3()).rows}


def test_a_variant_has_the_work_of_its_baseline(tmp_path):
    rows = _validated(
        tmp_path, "task_granularity", GRANULARITY,
        "a,g,spmd(8),1,merge,a2a3,,8,8,,span,53,us", "b,g,spmd(32),0,merge,a2a3,,32,,,span,30,us",
        "c,h,before,1,x,a2a3,,,,,wall,53,us", "d,h,spmd(16),0,x,a2a3,,,,,wall,50,us",
        "e,i,one,0,x,a2a3,40,,,,wall,53,us", "f,j,fine,1,x,a2a3,400,,,,wall,900,us",
        "g,j,coarse,0,x,a2a3,100,,,,wall,500,us",
    )  # fmt: skip
    assert rows["a"]["predicted"] == pytest.approx(53, rel=1e-3)
    assert 15 < rows["b"]["predicted"] < 40  # a quarter of the blocks' time, and the scheduler's
    assert "states neither" in rows["d"]["reason"]
    assert "no baseline" in rows["e"]["reason"]
    assert 0.6 < (900 - rows["g"]["predicted"]) / 300 < 1.4  # µs that the scheduler takes for a task
    assert all(rows[n]["relative_error"] is None for n in "abfg")


def test_occupancy_is_that_of_whole_waves(tmp_path):
    line = "{0},g,v,0,rope,a2a3,{1},,48,,AIV occupancy,67,%"
    rows = _validated(tmp_path, "task_granularity", GRANULARITY, line.format("a", 64), line.format("b", 96))
    assert rows["a"]["predicted"] == pytest.approx(100 * 64 / 96, rel=0.03)
    assert rows["b"]["predicted"] == pytest.approx(100, rel=0.03)


def test_a_boundary_of_the_critical_path_costs_about_four_microseconds(tmp_path):
    line = "{0},g,v,0,x,a2a3,{0},,,,scheduling gap in layer wall,60,us"
    rows = _validated(tmp_path, "task_granularity", GRANULARITY, line.format(10), line.format(20))
    assert rows["20"]["predicted"] - rows["10"]["predicted"] == pytest.approx(40, rel=0.1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("m,g,MMIO/notification,24-core COND sweep,0,a3,,latency,1,ns,", 2.4),
        ("m,g,MMIO/notification,AICPU->AICore E2E,0,a3,,latency,95-105,ns,", 0.14),
        ("m,g,host run() cost,64 tasks per run,0,x,64,total,1,us,", 43.3 + 64 * 8.08),
        ("m,g,core task switch,switch,0,x,,gap,1,us,mean", 0.81),
        ("m,g,fanout,after,0,paged_attention,400,orchestrator entry cost,1,us,", 400 * (0.46 + 0.18)),
        ("m,g,head,no warmup,0,3 chained AIC tasks; block_num 24; 50 us each,,head OH,1,us,t1 avg", None),
    ],
)
def test_mechanisms_are_read_from_the_row(tmp_path, line, expected):
    row = _validated(tmp_path, "scheduling", SCHEDULING, line)["m"]
    assert row["covered"] == (expected is not None)
    if expected is not None:
        assert row["predicted"] == pytest.approx(expected, rel=1e-3)


def test_a_projection_is_found_by_its_tiles(tmp_path):
    line = "{0},Qwen3-14B decode 1 layer,{0},aic,bf16,16,{1},1024,128,128,8,48,17"
    rows = _validated(
        tmp_path, "kernel_task_times", KERNEL, line.format("k_proj", 5120), line.format("v_proj", 4096)
    )  # fmt: skip
    assert rows["k_proj"]["covered"]
    assert "other tiles" in rows["v_proj"]["reason"]


def test_the_tiers_of_the_layer_have_the_published_launches():
    tiers = {"non-spmd": 3096, "spmd-2": 1602, "spmd-4": 864, "spmd-8": 678, "all-spmd": 522}
    works = {name: layer(width_of(name)) for name in tiers}
    assert {name: work.tasks for name, work in works.items()} == tiers
    blocks = {int(work.blocks.sum()) for work in works.values()}
    assert blocks == {3096}


def test_a_weight_is_cold_for_the_first_tile_and_found_by_the_others():
    hardware = a2a3()
    work = layer(WIDE, hardware)
    block = chip.simulate(work, hardware=hardware).times.block
    query = block[[name.endswith(" q_proj") for name in work.names]]
    assert len(query) == TILES
    assert (query[1:] < 0.5 * query[0]).all()
    assert set(KERNELS) == {name.split(" ")[1] for name in work.names}


def test_the_baseline_sets_the_work_or_the_scheduler():
    hardware, schedule = a2a3(), chip.a2a3_schedule()
    program = Program(48, 2, whole=True)
    work, factor = solved(program, 300.0, "910B2", False)
    assert factor == 1.0
    assert Program(48, 2, work_us=work, whole=True).time_us(hardware, schedule) == pytest.approx(300, rel=1e-3)
    least = program.time_us(hardware, schedule)
    work, factor = solved(program, least / 2, "910B2", False)
    assert (work, factor) == (0.0, pytest.approx(0.5, rel=1e-2))
    assert program.time_us(hardware, slower(schedule, factor)) == pytest.approx(least / 2, rel=1e-3)
    assert root(lambda x: x, 5.0, 0.0, 3.0) == 3.0


def test_a_long_program_is_extrapolated_along_its_stages():
    hardware, schedule = a2a3(), chip.a2a3_schedule()
    program = Program(1200, 50, work_us=500.0, whole=True)
    exact = program.timeline(hardware, schedule).makespan_us
    assert program.time_us(hardware, schedule) == pytest.approx(exact, rel=0.02)


def test_the_tiers_of_the_layer_by_time(tmp_path):
    line = "{0},v200_tiers,{0},0,x,a2a3,,,,,layer wall,{1},{2}"
    rows = _validated(
        tmp_path, "task_granularity", GRANULARITY,
        line.format("non-spmd", 5, "ms"), line.format("spmd-4", 5000, "us"), line.format("all-spmd", 5, "ms"),
    )  # fmt: skip
    times = [rows[name]["predicted"] for name in ("non-spmd", "spmd-4", "all-spmd")]
    assert times == sorted(times, reverse=True)
    work = layer(WIDE)
    assert times[2] > max(
        (work.blocks * work.duration_us)[work.shapes == kind].sum() / n for kind, n in ((1, 24), (2, 48))
    )
    assert rows["spmd-4"]["measured"] == rows["all-spmd"]["measured"] == 5000


def test_a_file_with_groups_sums_up_signs_and_ratios():
    rows = [{"file": "task_granularity", "group": g, "unit": "us", "measured": m, "predicted": p, "covered": True,
             "relative_error": None, "reason": "", "outcome_predicted": None, "outcome_measured": None}
            for g, m, p in (("a", 10, 10), ("a", 20, 22), ("a", 10.1, 9), ("b", 10, 9), ("b", 30, 8))]  # fmt: skip
    report = Report(rows)
    found = report.to_dict()["files"]["task_granularity"]["ratios"]
    assert (found["pairs"], found["sign"]) == (3, pytest.approx(2 / 3))
    each = report.ratios("task_granularity")
    assert found["ratio_error"] == pytest.approx(np.median([each["a"], each["b"]]))
    assert "in groups sign right in 67% of 3 pairs that differ by more than 3 %" in str(report).splitlines()[0]
