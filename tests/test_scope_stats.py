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
    file.write_text(lines(version=4, dep_pool_max=None, dep_pool_start=None, dep_pool_end=None))
    stats = artifacts.read_scope_stats(file)
    assert stats.limits.dep_pool == (0, 0, 0, 0)
    assert stats.boundaries[0].dep_pool == (0, 0)


def test_a_key_that_its_version_has_is_needed(tmp_path):
    file = tmp_path / "scope_stats.jsonl"
    places = [json.loads(line) for line in lines().splitlines()]
    for version in (4, 5, 6):
        for number, content in enumerate(places, 1):
            for key in content:
                file.write_text(lines(**({"version": version} | {key: None})))
                if version == 4 and key.startswith("dep_pool"):
                    artifacts.read_scope_stats(file)
                    continue
                message = f"scope_stats.jsonl: line {number}.{key}: the key `{key}` is missing"
                with pytest.raises(ArtifactError, match=message):
                    artifacts.read_scope_stats(file)


def test_a_file_that_is_no_text_is_named(tmp_path, capsys):
    file = tmp_path / "mine.jsonl"
    file.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(SystemExit) as stop:
        main(["rings", "--capture", str(file)])
    assert stop.value.code == 2
    assert "mine.jsonl: the file must be text in UTF-8" in capsys.readouterr().err


def boundaries(*changed, repeated=(), order=(0, 1, 2, 3)) -> str:
    """A root with one scope in it, some boundaries changed (number, key, value)."""
    header, line = (
        json.loads(each) for each in lines(total=len(order) + len(repeated), heap_max=[8192] * 4).splitlines()
    )
    found = [
        line | {"site": "m.py:1"},
        line | {"site": "m.py:5", "depth": 1, "ring": 1},
        line | {"site": "m.py:5", "depth": 1, "ring": 1, "phase": "end", "heap_end": 4096, "task_window_end": 3},
        line | {"site": "m.py:1", "phase": "end", "heap_end": 2048, "task_window_end": 2},
    ]
    for number, key, value in changed:
        found[number][key] = value
    placed = sorted([*order, *repeated]) if repeated else order
    return "".join(json.dumps(each) + "\n" for each in [header, *(found[number] for number in placed)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (boundaries((2, "ring", 2)), "line 4 (end of m.py:5): a scope of depth 1 is on ring 1; got ring 2"),
        (boundaries((2, "ring", 2)), "line 4 (end of m.py:5): it begins on ring 1, at line 3, and ends on ring 2"),
        (boundaries(order=(0, 1, 3, 2)), "line 4 (end of m.py:1): m.py:5, of depth 1, is still open inside it"),
        (boundaries(repeated=(2,)), "line 5 (end of m.py:5): no scope m.py:5 of depth 1 is open"),
        (boundaries(repeated=(1,)), "line 4 (begin of m.py:5): m.py:5, of depth 1, is still open"),
        (boundaries((2, "tensormap", 1000)), "line 4 (end of m.py:5): the tensor map holds 1,000 of 64 entries"),
        (boundaries((2, "heap_end", 10**6)), "line 4 (end of m.py:5): heap of ring 1 holds 976.6 KiB of 8 KiB"),
        (boundaries((2, "task_window_end", 17)), "line 4 (end of m.py:5): task_window of ring 1 holds 17 of 16"),
        (
            boundaries((0, "heap_end", 3072)),
            "line 5 (end of m.py:1): heap of ring 0 goes back, from (0, 3072) to (0, 2048)",
        ),
        (boundaries((1, "depth", 2), (2, "depth", 2)), "line 3 (begin of m.py:5): no scope of depth 1 is open"),
        (boundaries((2, "depth", 70)), "line 4 (end of m.py:5): depth 70 is beyond the 64 scopes that may be open"),
        (boundaries(order=(0, 2, 3)), "line 3 (end of m.py:5): no scope m.py:5 of depth 1 is open"),
        (boundaries().replace('"total": 4', '"total": 3'), "there are 4 boundaries; `total` says 3"),
    ],
)
def test_boundaries_that_cannot_be_are_found(tmp_path, capsys, content, message):
    file = tmp_path / "scope_stats.jsonl"
    file.write_text(content)
    assert message in artifacts.read_scope_stats(file).findings()
    with pytest.raises(SystemExit) as stop:
        main(["rings", "--capture", str(file)])
    assert stop.value.code == 1
    assert message in capsys.readouterr().out


def test_what_can_be_is_no_finding_and_lost_boundaries_break_no_rule(tmp_path):
    file = tmp_path / "scope_stats.jsonl"
    file.write_text(boundaries())
    assert artifacts.read_scope_stats(file).findings() == []
    file.write_text(boundaries(order=(0, 2, 3)).replace('"total": 3', '"total": 4'))
    assert artifacts.read_scope_stats(file).broken == []
    file.write_text(boundaries().replace("\n", "\n\n", 2).replace('"tensormap": 0', '"tensormap": 99'))
    assert artifacts.read_scope_stats(file).broken[0].startswith("line 3 (begin of m.py:1): the tensor map")
    file.write_text(lines(version=4, heap_end=1025))
    with pytest.raises(ArtifactError, match="a position of the heap of ring 0 must be 0 to 1024; got 1025"):
        artifacts.read_scope_stats(file)


@settings(max_examples=40, deadline=None)
@given(layers=st.integers(1, 12), heap=st.integers(160, 700))
def test_a_simulated_run_breaks_no_rule(layers, heap):
    assert nested(layers, heap * KIB).stats.broken == []


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
