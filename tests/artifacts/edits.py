"""What several of these tests share: edits of JSON files, the newer layout, and the command line."""

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from pyptox.artifacts import NameMap
from pyptox.cli import main

seeds = st.integers(0, 2**32)
NAMES = NameMap({7: "q_proj", 8: "rms", 9: "attn_aic", 10: "attn_aiv", 11: "mix_aic", 12: "mix_aiv"})
SUBSET = "qwen3_decode_layer_a2a3_subset"
NEWER = "chip_swimlane_records.sep2026_layout.json"


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def as_september_2026(content: dict) -> dict:
    """The same records in the layout of September 2026."""
    content = dict(content)
    records = content.pop("aicpu_tasks")
    content["scheduler_tasks"] = {"schema_version": 1, "producer": "aicpu", "records": records}
    streams = []
    for thread, rows in enumerate(content.pop("aicpu_scheduler_phases")):
        metrics = ("pop_hit", "pop_miss", "shared_at_start", "shared_at_end")
        streams.append(
            {
                "scheduler_id": thread,
                "capture": {"committed": len(rows), "dropped": 0, "truncated": False},
                "records": [{"task_id": None} | {k: v for k, v in row.items() if k not in metrics} for row in rows],
                "metrics": [
                    {"record_index": n} | {k: v for k, v in row.items() if k in metrics} for n, row in enumerate(rows)
                ],
            }
        )
    content["scheduler_records"] = {"schema_version": 1, "streams": streams}
    return content


def change(path: Path, edit) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def codes(findings, severity: str = "error") -> set[str]:
    return {finding.code for finding in findings if finding.severity == severity}


def row(key, number, column, value):
    def edit(content):
        content[key][number][column] = value

    return edit


def put(*path_and_value):
    *path, last, value = path_and_value

    def edit(content):
        for step in path:
            content = content[step]
        content[last] = value

    return edit


def drop(*path):
    *path, last = path

    def edit(content):
        for step in path:
            content = content[step]
        del content[last]

    return edit
