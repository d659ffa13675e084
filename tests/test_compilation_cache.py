"""The cache of compiled functions on disk: used by the next process, and in nobody's way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from pyptox.cost._compilation_cache import _setting, persistent

_PROGRAM = """
import json, warnings
warnings.simplefilter("error")
import jax
import pyptox as px

seen = {"hits": 0, "asked": 0}

def count(event, **kwargs):
    seen["hits"] += event == "/jax/compilation_cache/cache_hits"
    seen["asked"] += event == "/jax/compilation_cache/compile_requests_use_cache"

jax.monitoring.register_event_listener(count)
kernel = px.kernels.matmul
specs = kernel.specs(px.spec((16, 512), "bf16"), px.spec((512, 1024), "bf16"))
points = {"m": [16], "n": [128], "k": [128], "stages": [2], "group": [4]}
time_us = px.cost.evaluate(kernel, specs, points, px.hardware.a2a3()).time_us[0]
before = seen["hits"]
jax.jit(lambda x: x + 1)(1.0)
print(json.dumps({**seen, "others": seen["hits"] - before, "time_us": float(time_us)}))
"""


def _run(folder: Path, **environment: str) -> dict:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    kept |= {"XDG_CACHE_HOME": str(folder), **environment}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=kept, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_second_process_starts_from_the_first(tmp_path):
    first, second = _run(tmp_path), _run(tmp_path)
    assert first["hits"] == 0
    assert second["hits"] == 1  # the one compilation of this package; others in the process are not looked up
    assert second["others"] == 0
    assert second["time_us"] == first["time_us"]
    entries = list((tmp_path / "pyptox").rglob("*-cache"))
    assert len(entries) == 1


def test_a_folder_of_the_users_own_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ours"))
    before = _setting("jax_compilation_cache_dir")
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
        with persistent():
            assert _setting("jax_compilation_cache_dir") == str(tmp_path / "theirs")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("blocked", ["file", "nowhere"])
def test_a_folder_that_cannot_be_made_is_done_without(tmp_path, monkeypatch, blocked):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file") if blocked == "file" else "/proc/nowhere")
    with persistent():
        assert _setting("jax_compilation_cache_dir") is None


def test_settings_are_put_back(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = [_setting(name) for name in names]
    with persistent():
        assert str(_setting(names[0])).startswith(str(tmp_path))
    assert [_setting(name) for name in names] == before
