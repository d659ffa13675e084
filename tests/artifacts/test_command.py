"""``pyptox capture``."""

import json

import pytest

from pyptox import artifacts
from tests.artifacts.edits import change, drop, run


def test_command(capsys, folder) -> None:
    out_folder = folder / "out" / "lanes"
    code, out, err = run(capsys, "capture", folder, "--strict", "--out", out_folder)
    assert (code, err) == (0, "")
    assert out.startswith("next_levels/decode: ")
    assert "no rule is broken" in out
    assert json.loads((out_folder / "merged_swimlane.json").read_text())["traceEvents"]
    code, out, _ = run(capsys, "capture", folder, "--json")
    answer = json.loads(out)
    assert (code, answer["passed"]) == (0, True)
    assert sum(answer["path"]["by_cause_us"].values()) == pytest.approx(answer["makespan_us"])
    assert json.dumps(answer, allow_nan=False)
    (folder / "deps.json").unlink()
    code, out, _ = run(capsys, "capture", folder)
    assert code == 0
    assert "early dispatch: cannot be told" in out
    assert run(capsys, "capture", folder, "--strict")[0] == 1


def test_command_with_findings(capsys, folder) -> None:
    change(folder / "chip_swimlane_records.json", drop("aicpu_tasks", 2))
    code, out, _ = run(capsys, "capture", folder)
    assert code == 1
    assert "error unpaired-row: chip_swimlane_records.json: aicore_tasks[2]" in out
    code, out, _ = run(capsys, "capture", folder, "--json")
    assert (code, json.loads(out)["findings"][0]["record"]) == (1, 2)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_command_on_lower_levels(capsys, folder, level) -> None:
    path = folder / "chip_swimlane_records.json"
    artifacts.write_records(path, artifacts.read_records(path), level=level)
    code, out, _ = run(capsys, "capture", folder, "--json")
    assert (code, json.loads(out)["level"]) == (0, level)
    assert run(capsys, "capture", folder)[0] == 0


def test_command_on_what_it_cannot_read(capsys, folder) -> None:
    (folder / "chip_swimlane_records.json").write_text("{}")
    for path in (folder, folder / "absent", folder / "deps.json"):
        code, out, err = run(capsys, "capture", path)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert "Traceback" not in err
