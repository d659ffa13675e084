"""``scope_stats.jsonl``: what is written reads back in every version, damage is named, peaks are attributed."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyptox import artifacts, rings
from pyptox.artifacts import ArtifactError
from pyptox.cli import main
from pyptox.program import Scope
from pyptox.rings import Limits, Submissions

KIB = 1024


def nested(layers: int = 5, heap: int = 256 * KIB) -> rings.Run:
    """Layers with a scope each, stages inside them."""
    scopes, size = [Scope(0, "auto", 0, "net.py:1", 0, 6 * layers)], []
    for layer in range(layers):
        first = 6 * layer
        scopes.append(Scope(len(scopes), "auto", 1, "net.py:4", first, first + 6))
        scopes.append(Scope(len(scopes), "auto", 2, "net.py:6", first + 1, first + 5))
        size += [8 * KIB, *[40 * KIB] * 4, 0]
    work = Submissions.of(size, scopes=scopes)
    return rings.orchestrate(work, [7.0] * len(size), [2.0] * len(size), Limits().replace(heap=heap))


@settings(max_examples=60, deadline=None)
@given(layers=st.integers(1, 12), heap=st.integers(160, 700), version=st.sampled_from([4, 5, 6]))
def test_what_is_written_reads_back(tmp_path_factory, layers, heap, version):
    run, file = nested(layers, heap * KIB), tmp_path_factory.mktemp("stats") / "scope_stats.jsonl"
    artifacts.write_scope_stats(file, run.stats, version=version)
    back = artifacts.read_scope_stats(file)
    assert back.version == version
    if version == 6:
        assert back == run.stats
        return
    for read, wrote in zip(back.boundaries, run.stats.boundaries, strict=True):
        assert (read.site, read.phase, read.task_window) == (wrote.site, wrote.phase, wrote.task_window)
        assert read.dep_pool == (wrote.dep_pool if version == 5 else (0, 0))
        # a ring that is full looks like an empty one, and a lap between two boundaries is not seen
        held = wrote.heap[1] - wrote.heap[0]
        assert read.heap[1] - read.heap[0] == held % run.limits.heap[read.ring]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert all(line["heap_end"] < heap * KIB for line in lines[1:])


def wrapped(tmp_path, stats, version):
    file = tmp_path / f"v{version}.jsonl"
    artifacts.write_scope_stats(file, stats, version=version)
    return artifacts.read_scope_stats(file)


def test_peaks_are_attributed_alike_in_every_version(tmp_path):
    run = nested(heap=2**20)
    sites = {s.site: s for s in run.stats.sites()}
    assert sites["net.py:6"].allocated.heap == 5 * 160 * KIB
    assert sites["net.py:4"].allocated.heap == 5 * 8 * KIB
    peaks = {(p.ring, p.resource): p for p in run.stats.peaks()}
    assert peaks[2, "heap"].site == "net.py:6"
    assert peaks[1, "heap"].site == "net.py:4"
    run = nested()  # the heap is gone round
    assert run.stats.boundaries[-3].heap[1] > run.limits.heap[2]
    peaks = {(p.ring, p.resource): p for p in run.stats.peaks()}
    for version in (4, 5):
        again = {(p.ring, p.resource): p for p in wrapped(tmp_path, run.stats, version).peaks()}
        assert again[2, "heap"].high_water == peaks[2, "heap"].high_water
        assert again[2, "task_window"] == peaks[2, "task_window"]


def test_a_leak_in_a_capture_is_named(tmp_path, capsys):
    stats = nested(2).stats
    kept = tuple(b for n, b in enumerate(stats.boundaries) if not (b.phase == "end" and b.depth == 1 and n > 5))
    file = tmp_path / "scope_stats.jsonl"
    artifacts.write_scope_stats(file, dataclasses.replace(stats, boundaries=kept, total=len(kept)))
    assert [site.site for site in artifacts.read_scope_stats(file).leaks] == ["net.py:4"]
    with pytest.raises(SystemExit) as stop:
        main(["rings", "--capture", str(file), "--chart"])
    assert stop.value.code == 1
    assert "scope leak: net.py:4" in capsys.readouterr().out


def test_a_run_that_failed_or_lost_boundaries_says_so():
    stats = nested(2).stats
    failed = dataclasses.replace(stats, boundaries=stats.boundaries[:-2], fatal=True, dropped=2)
    assert failed.leaks == []
    assert any("ended with an error, inside net.py:" in f for f in failed.findings())
    assert any("2 of" in f for f in failed.findings())


def test_the_real_capture_reads(shared):
    stats = artifacts.read_scope_stats(shared / "captures/scope_stats/scope_stats_v4.jsonl")
    assert stats.version == 4
    assert stats.limits.heap == (268435456,) * 4
    (site,) = stats.sites()
    assert (site.site, site.visits, site.allocated.task_window) == ("(unknown):0", 1, 1)
    assert stats.tensormap_peak == 1
    assert stats.findings() == []


def lines(**changes) -> str:
    header = {"version": 6, "fatal": False, "dropped": 0, "total": 1, "task_window_max": [16] * 4}
    header |= {"heap_max": [1024] * 4, "dep_pool_max": [16] * 4, "tensormap_max": 64}
    line = {"site": "a.py:1", "phase": "begin", "depth": 0, "ring": 0, "task_window_start": 0, "task_window_end": 0}
    line |= {"heap_start": 0, "heap_end": 0, "dep_pool_start": 0, "dep_pool_end": 0, "tensormap": 0}
    for key, value in changes.items():
        place = header if key in header else line
        if value is None:
            del place[key]
        else:
            place[key] = value
    return f"{json.dumps(header)}\n{json.dumps(line)}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must begin with a line of capacities"),
        ("{\n", "must be a JSON object"),
        ("[1]\n", "must be a JSON object"),
        (lines(version=3), "`version` must be one of 4, 5, 6"),
        (lines(version=None), "`version` is missing"),
        (lines(heap_max=[1, 2]), "`heap_max` must hold a capacity for each of 4 rings"),
        (lines(site=None), "`site` is missing"),
        (lines(ring=4), "`ring` must be 0 to 3"),
        (lines(phase="middle"), "`phase` must be begin or end"),
        (lines(heap_start=5), "`heap_start` must not be beyond `heap_end`"),
        (lines(tensormap=-1), "`tensormap` must not be negative"),
        (lines(depth="0"), "`depth` must be an integer"),
        (lines() + '{"site": "a.p', "Was the run cut short?"),
    ],
)
def test_damage_is_named(tmp_path, content, message):
    file = tmp_path / "scope_stats.jsonl"
    file.write_text(content)
    with pytest.raises(ArtifactError) as caught:
        artifacts.read_scope_stats(file)
    assert message in str(caught.value)
    assert "scope_stats.jsonl" in str(caught.value)


def test_what_a_version_does_not_have_is_nothing(tmp_path):
    file = tmp_path / "scope_stats.jsonl"
    file.write_text(lines(dep_pool_max=None, dep_pool_start=None, dep_pool_end=None, tensormap=None, dropped=None))
    stats = artifacts.read_scope_stats(file)
    assert stats.limits.dep_pool == (0, 0, 0, 0)
    assert stats.boundaries[0].dep_pool == (0, 0)


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=200))
def test_no_text_is_a_traceback(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("stats") / "scope_stats.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ArtifactError):
        artifacts.read_scope_stats(file)


def test_no_version_but_those(tmp_path):
    with pytest.raises(ValueError, match="`version` must be one of 4, 5, 6"):
        artifacts.write_scope_stats(tmp_path / "x", nested(1).stats, version=7)
    assert np.array(list(tmp_path.iterdir())).size == 0
