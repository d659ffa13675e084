"""Rings of whole programs: agreement with the chip's timeline, scopes that need less, the command line."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autotune
import pyptox as px
from pyptox import artifacts, chip, rings
from pyptox import program as pp
from pyptox._errors import PyptoxError
from pyptox.cli import main
from pyptox.rings import Limits

MLP = str(Path(__file__).resolve().parents[2] / "docs/programs/mlp.py:mlp")
KIB = 1024


def sizes():
    return {"x": px.spec((16, 256), "fp32"), "y": px.spec((16, 256), "fp32")}


@pp.program(sizes=sizes)
def chain(x, y):
    for _ in range(16):
        x = pp.submit(px.kernels.residual_add, x, y, m=16, n=256)
    return x


@pp.program(sizes=sizes)
def scoped(x, y):
    for _ in pp.loop(range(8)):
        inner = pp.submit(px.kernels.residual_add, x, y, m=16, n=256)
        pp.submit(px.kernels.residual_add, inner, y, out=x, m=16, n=256)
    return x


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_without_pressure_times_are_those_of_the_chip():
    found, graph = chip.pressure(pp.graph(scoped)), pp.graph(scoped)
    timeline = chip.simulate(graph)
    np.testing.assert_allclose(found.run.submitted, timeline.times.submitted, rtol=1e-12)
    np.testing.assert_allclose(found.run.finish, timeline.times.finish, rtol=1e-12)
    assert found.added_us == 0
    assert found.passed


def test_pressure_adds_time_and_never_breaks_the_smallest():
    found = chip.pressure(pp.graph(scoped), Limits().replace(heap=16 * KIB))
    assert found.smallest.limits.heap[1] == 16 * KIB
    assert found.passed
    assert found.added_us > 0
    assert found.run.stalls["heap"].sum() == pytest.approx(found.run.stall_us)
    assert found.run.peak["heap"][1] == 16 * KIB
    roomy = chip.pressure(pp.graph(scoped), Limits().replace(heap=32 * KIB))
    assert roomy.run.time_us <= found.run.time_us
    site = found.run.stats.sites()[0]
    assert (site.visits, site.ring, site.allocated.heap) == (8, 1, 8 * 16 * KIB)
    assert site.site.startswith("test_pressure.py:")


def test_a_peak_says_whose_bytes_it_is_and_what_is_stuck():
    @pp.program(sizes=sizes)
    def pinned(x, y):
        with pp.scope(), pp.scope(), pp.scope():
            kept = pp.submit(px.kernels.residual_add, x, y, m=16, n=256)  # the head of ring 3, kept to the end
            for _ in pp.loop(range(200)):
                inner = pp.submit(px.kernels.residual_add, x, y, m=16, n=256)
                pp.submit(px.kernels.residual_add, inner, y, deps=[kept], m=16, n=256)
            return pp.submit(px.kernels.residual_add, kept, y, out=y, m=16, n=256)

    found = chip.pressure(pp.graph(pinned))
    held = found.run.at_peak(3)
    assert held is not None
    assert held.head == 0
    assert sum(held.by_site.values()) == found.run.peak["heap"][3] == 401 * 16 * KIB
    assert list(held.by_site.values()) == [400 * 16 * KIB, 16 * KIB]
    last = found.run.peak_task["heap"][3]
    assert last == 400
    now = found.run.submitted[last] - found.run.cost_us[last]
    free = (found.run.consumed <= now) & (found.work.closes <= last)
    assert held.behind == found.work.bytes[free & (found.work.ring == 3)].sum() > 0
    assert "done, behind t0" in str(found)
    assert found.run.at_peak(0) is None
    assert found.to_dict()["at_peak"][3]["behind"] == held.behind


def test_other_scopes_need_less_and_keep_what_is_read():
    found = autotune.rings(chain, added_time=0.5)
    assert found.best.smallest.limits.arena < found.as_is.smallest.limits.arena
    assert found.best.allowed
    assert found.best.added_us <= 0.5 * found.pressure.free.time_us
    assert found.best.spans
    strict = autotune.rings(chain, added_time=0.0)
    assert strict.best.added_us <= 0
    assert "place" in str(found)
    json.dumps(found.to_dict())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_placed_scopes_hold_all_that_is_read(random_submissions, seed):
    work = random_submissions(seed)
    rng = np.random.default_rng(seed)
    last = np.arange(work.count)
    for task, producers in enumerate(work.holds):
        last[list(producers)] = np.maximum(last[list(producers)], task)
    cuts = sorted({0, work.count, *rng.integers(0, work.count + 1, 4).tolist()})
    spans = list(itertools.pairwise(cuts))
    for begin, end in list(spans):
        if end - begin > 2:
            middle = int(rng.integers(begin + 1, end))
            spans += [(begin, middle), (middle, end)]
    placed = rings.place(work, spans, last)
    ran = rings.orchestrate(placed.work, np.ones(placed.work.count), np.full(placed.work.count, 5.0))
    assert ran.late == ()
    assert ran.deadlock is None
    assert placed.work.bytes.sum() == work.bytes.sum()
    assert placed.work.bytes[placed.moved].sum() == work.bytes[placed.source[placed.moved]].sum()
    kept = placed.work.bytes[~placed.moved]
    assert ((kept == work.bytes) | (kept == 0)).all()
    for task in np.flatnonzero(placed.moved):  # what was moved is given back after its last reader
        assert placed.work.closes[task] > max([task, *placed.work.holders[task]])


def test_spans_must_nest():
    work = rings.submissions(pp.graph(chain))
    with pytest.raises(PyptoxError, match="must nest"):
        rings.place(work, [(0, 5), (3, 8)], np.arange(16))
    with pytest.raises(PyptoxError, match="one past the last"):
        rings.place(work, [(0, 17)], np.arange(16))


def test_the_arena_says_what_it_forbids():
    found = autotune.rings(chain, limits=Limits().replace(heap=2**20), memory=2**20)
    assert found.largest_for_all == 2**18
    assert any("out of memory before the first task" in line for line in found.arena())
    few = autotune.rings(chain, memory=40 * KIB)
    assert not few.best.allowed
    assert any("no capacity passes" in line for line in few.arena())
    apart = autotune.rings(chain, memory=300 * KIB)  # 256 KiB on one ring and the least on the others
    assert any("Give each ring its own" in line for line in apart.arena())
    with pytest.raises(PyptoxError, match="`added_time`"):
        autotune.rings(chain, added_time=-1.0)


def test_the_command_says_whether_a_program_passes(capsys):
    code, out, _ = run(capsys, "rings", MLP, "--chart")
    assert code == 0
    assert "mlp: passes, 7 tasks" in out
    assert "bytes held" in out
    code, out, _ = run(capsys, "rings", MLP, "--caps", "heap=400KiB")
    assert code == 1
    assert "HEAP_RING_DEADLOCK (2): heap too small" in out
    assert "would let it drain: heap of ring 0: 480 KiB" in out
    code, out, _ = run(capsys, "rings", MLP, "--caps", "heap=400KiB", "--json")
    content = json.loads(out)
    assert (code, content["passed"], content["deadlock"]["code"]) == (1, False, 2)
    assert content["smallest"]["limits"]["heap"][0] == 480 * KIB
    code, out, _ = run(capsys, "rings", MLP, "--caps", "heap=480KiB task_window=8")
    assert code == 0


def test_the_command_solves(capsys):
    code, out, _ = run(capsys, "rings", MLP, "--solve", "--added-time", "0.2", "--json")
    content = json.loads(out)
    assert code == 0
    assert content["solved"]["smallest"]["limits"]["heap"][0] == 480 * KIB
    assert content["solved"]["best"]["arena"] < 480 * KIB
    code, out, _ = run(capsys, "rings", MLP, "--solve", "--memory", "300KiB")
    assert code == 1
    assert "no capacity passes" in out


def test_a_safe_heap_is_said_to_be_a_bound(capsys):
    layers = f"{Path(MLP).parent / 'layers.py'}:layers"
    code, out, _ = run(capsys, "rings", layers, "layers=8", "--solve")
    assert code == 0
    assert "; surely all from " in out
    code, out, _ = run(capsys, "rings", layers, "layers=8", "--solve", "--json")
    least = json.loads(out)["solved"]["smallest"]
    assert "safe_heap" not in least
    assert all(bound >= heap for bound, heap in zip(least["safe_heap_bound"], least["limits"]["heap"], strict=True))
    assert least["safe_heap_bound"] != least["limits"]["heap"]


def test_bad_input_is_a_message(capsys, tmp_path):
    for arguments, message in (
        (("rings",), "`PROGRAM` or `--capture`"),
        (("rings", MLP, "--caps", "heap=much"), "a size must be such as"),
        (("rings", MLP, "--caps", "task_window=100"), "powers of two"),
        (("rings", "--capture", str(tmp_path / "none.jsonl")), "is neither"),
        (("rings", MLP, "--capture", str(tmp_path)), "does not go with PROGRAM"),
        (("rings", MLP, "--memory", "1GiB"), "`--memory` is about what --solve finds; got it without --solve"),
        (("rings", MLP, "--added-time", "0.1"), "`--added-time` is about what --solve finds; got it without --solve"),
        (("rings", MLP, "--solve", "--memory", "0"), "`memory` must be 1 or more"),
        (("rings", MLP, "--solve", "--added-time", "nan"), "`added_time` must be a share"),
        (("rings", MLP, "--solve", "--added-time", "-1"), "`added_time` must be a share"),
        (("rings", "--capture", str(tmp_path), "--memory", "1GiB"), "does not go with --memory"),
        (("rings", "--capture", str(tmp_path), "--added-time", "0"), "does not go with --added-time"),
        (("rings", "--capture", str(tmp_path), "--hardware", "a5"), "does not go with --hardware"),
    ):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert message in err


def test_a_program_becomes_a_capture(capsys, tmp_path):
    file = tmp_path / "scope_stats.jsonl"
    assert run(capsys, "rings", MLP, "--out", file)[0] == 0
    assert artifacts.read_scope_stats(file).version == 6
    (tmp_path / "scope_stats").mkdir()
    file.rename(tmp_path / "scope_stats" / file.name)
    code, out, _ = run(capsys, "rings", "--capture", tmp_path, "--json")
    peaks = {(p["ring"], p["resource"]): p["high_water"] for p in json.loads(out)["peaks"]}
    assert code == 0
    assert peaks[0, "heap"] == 480 * KIB
