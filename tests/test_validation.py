"""Measured rows to problems, and back to a report."""

import json

import pytest

from pyptox.hardware import a2a3
from pyptox.validation import validate

KEYS = {
    "file", "id", "covered", "reason", "measured", "predicted", "unit", "relative_error",
    "outcome_measured", "outcome_predicted", "group",
}  # fmt: skip


def test_rows(shared, tmp_path):
    report = validate(shared / "measured", a2a3())
    assert all(set(r) == KEYS and (r["covered"] or r["reason"]) for r in report.rows)
    report.save(tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text()) == report.rows
    judged = [r for r in report.rows if r["outcome_predicted"] is not None]
    assert judged
    assert all(r["outcome_predicted"] == r["outcome_measured"] for r in judged)
    assert "rows covered" in str(report)


def test_accuracy_of_the_shipped_preset(shared):
    data = validate(shared / "measured", a2a3()).to_dict()
    assert data["files"]["gemm_step_sweep"]["mean_error"] < 0.04
    assert data["files"]["gemm_times"]["mean_error"] < 0.10
    assert data["files"]["l2_hit_pipe_profile"]["median_error"] < 0.10
    full = [r for r in data["rows"] if r["id"].startswith("fa_910b2_pto")]
    assert sum(abs(r["relative_error"]) for r in full) / len(full) < 0.10
    assert data["files"]["vector_op_cycles"]["covered"] == 210
    assert data["files"]["vector_op_cycles"]["mean_error"] < 0.05
    groups = {r["group"] for r in data["rows"] if r["file"] == "tile_sweeps"}
    signs = [v["sign"] for name, v in data["groups"].items() if name in groups]
    assert len(signs) >= 10
    assert sum(sign == 1.0 for sign in signs) >= 0.9 * len(signs)


COLUMNS = (
    "id,group,variant,op,platform,dtype_a,dtype_b,M,K,N,tile_m,tile_k,tile_n,pipeline_stage,cores,b_layout,"
    "other_changes,metric,value,unit,outcome,limit_detail,note"
)
FULL = "CATLASS matmul,Atlas A2,fp16,fp16,256,1024,512,128,256,256,2,20,RowMajor,,kernel time,20,us,ok,,"


def _validate(tmp_path, *lines):
    (tmp_path / "tile_sweeps.csv").write_text("\n".join((COLUMNS, *lines)) + "\n")
    return validate(tmp_path, a2a3()).rows


def test_a_row_that_states_everything_is_absolute(tmp_path):
    (row,) = _validate(tmp_path, f"x,g,v,{FULL}")
    assert row["covered"]
    assert row["relative_error"] == pytest.approx(row["predicted"] / 20 - 1)


def test_what_a_row_leaves_out_comes_from_its_group_then_is_assumed(tmp_path):
    less = FULL.replace("256,1024,512,128", ",,512,128")
    rows = _validate(tmp_path, f"x,g,v,{FULL}", f"y,g,v,{less}", f"z,h,v,{less}")
    assert rows[1]["predicted"] == rows[0]["predicted"]
    assert rows[1]["relative_error"] is not None
    assert rows[2]["relative_error"] is None
    assert "assumed: M, K" in rows[2]["reason"]


@pytest.mark.parametrize(
    ("tile", "detail", "expected"),
    [
        ("64,128,64", "weight 512*128*2 double-buffered L0B", "rejected"),
        ("64,128,64", "weight 128*128*2 double-buffered L0B", "ok"),
        ("64,512,256", "L0B OOM", "rejected"),
        ("64,64,128", "L0B OOM", "ok"),
        ("256,64,256", "L0C overflow", "rejected"),
        ("128,64,256", "L0C overflow", "ok"),
    ],
)
def test_rejections_are_computed_from_sizes(tmp_path, tile, detail, expected):
    text = FULL.replace("128,256,256", tile).replace("ok,,", f"compile_fail,{detail},")
    (row,) = _validate(tmp_path, f"x,g,v,{text}")
    assert row["outcome_measured"] == "rejected"
    assert row["outcome_predicted"] == expected


def test_malformed_rows_carry_a_reason(tmp_path):
    (tmp_path / "gemm_times.csv").write_text("id,kernel,base_m\nx,gemm,128\ny,,oops\n")
    rows = validate(tmp_path, a2a3()).rows
    assert [r["covered"] for r in rows] == [False, False]
    assert all("column" in r["reason"] for r in rows)


def test_missing_directory(tmp_path):
    with pytest.raises(ValueError, match="`directory`"):
        validate(tmp_path / "absent", a2a3())
