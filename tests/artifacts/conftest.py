"""A whole capture to read and to damage."""

from pathlib import Path

import pytest

from pyptox import artifacts
from tests.artifacts.edits import NAMES
from tests.chip.conftest import random_workload as random_workload


@pytest.fixture
def folder(tmp_path, random_run) -> Path:
    """A whole capture that keeps every rule."""
    records, deps = random_run(3)
    artifacts.write_records(tmp_path / "chip_swimlane_records.json", records)
    artifacts.write_deps(tmp_path / "deps.json", deps)
    artifacts.write_names(tmp_path / "name_map.json", NAMES)
    artifacts.write_program(tmp_path / "dispatch_program.json", "next_levels/decode")
    return tmp_path
