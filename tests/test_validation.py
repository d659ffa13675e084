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


def test_malformed_rows_carry_a_reason(tmp_path):
    (tmp_path / "gemm_times.csv").write_text("id,kernel,base_m\nx,gemm,128\ny,,oops\n")
    rows = validate(tmp_path, a2a3()).rows
    assert [r["covered"] for r in rows] == [False, False]
    assert all("column" in r["reason"] for r in rows)


def test_missing_directory(tmp_path):
    with pytest.raises(ValueError, match="`directory`"):
        validate(tmp_path / "absent", a2a3())
