"""Deadlocks are named with their cause and the runtime's code; what is said to help, helps; smallest is smallest."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyptox as px
from pyptox import program as pp
from pyptox import rings
from pyptox._errors import PyptoxError
from pyptox.program import Scope
from pyptox.rings import Limits, Submissions

ROWS = px.spec((16, 256), "fp32")  # 16 KiB
KIB = 1024


def record(function, **sizes) -> Submissions:
    return rings.submissions(pp.graph(pp.program(function, sizes=lambda: {"x": ROWS, "y": ROWS}), **sizes))


def add(x, y, **options):
    return pp.submit(px.kernels.residual_add, x, y, m=16, n=256, **options)


def leaking(x, y):
    kept = []
    for _ in range(4):
        opened = pp.scope()
        opened.__enter__()
        kept.append(opened)  # and never left
        for _ in range(4):
            add(x, y)
    leaking.kept = kept  # type: ignore[attr-defined]
    return x


def test_a_scope_leak_is_named():
    work = record(leaking)
    assert [s.end for s in work.scopes] == [16, None, None, None, None]
    assert [s.depth for s in work.scopes] == [0, 1, 2, 3, 4]
    found = rings.deadlock(work, Limits().replace(heap=64 * KIB))
    assert found is not None
    assert (found.cause, found.code, found.ring, found.task, found.head) == ("scope leak", 2, 3, 12, 8)
    assert "never closed" in found.what
    assert "test_deadlock.py:" in str(found.head_scope)
    assert any("left open" in remedy for remedy in found.remedies)
    assert rings.deadlock(work, Limits().replace(heap=128 * KIB)) is None


def pinned(x, y):
    with pp.scope(), pp.scope(), pp.scope():
        kept = add(x, y)  # depth 3
        for _ in pp.loop(range(6)):  # depth 4, the same ring
            add(add(x, y), y)
        return add(kept, y, out=x)


def test_a_block_at_the_head_of_the_line_is_named():
    work = record(pinned)
    found = rings.deadlock(work, Limits().replace(heap=96 * KIB))
    assert found is not None
    assert (found.cause, found.code, found.ring, found.head) == ("head-of-line pin", 2, 3, 0)
    assert (found.held, found.behind) == (96 * KIB, 64 * KIB)  # t0; two turns that are done; half of the third
    assert "cannot go before it" in found.what
    assert any("depth 0 to 2" in remedy for remedy in found.remedies)
    shallow = dataclasses.replace(work, scope=np.where(work.scope == 3, 2, work.scope))
    assert rings.deadlock(shallow, Limits().replace(heap=96 * KIB)) is None  # as the remedy says


def flat(x, y):
    for _ in range(20):
        add(x, y, out=x)
    return x


def test_a_window_too_small_is_named():
    work = record(flat)
    found = rings.deadlock(work, Limits().replace(task_window=16))
    assert found is not None
    assert (found.cause, found.error, found.task, found.enough) == ("window too small", "SCOPE_DEADLOCK", 15, 32)
    scopes = [Scope(0, "auto", 0, "p.py:1", 0, 20)]
    scopes += [Scope(d, "auto", d, f"p.py:{d}", 5 * (d - 3) if d > 3 else 0, 20) for d in range(1, 7)]
    deep = Submissions.of([0] * 20, scopes=scopes)
    found = rings.deadlock(deep, Limits().replace(task_window=16))
    assert found is not None
    assert (found.code, found.error) == (3, "FLOW_CONTROL_DEADLOCK")  # no scope fills the window by itself


def test_a_pool_overflow_is_named():
    work = Submissions.of([0] * 12, waits=[[], *([0],) * 11])
    found = rings.deadlock(work, Limits().replace(dep_pool=8))
    assert found is not None
    assert (found.cause, found.code, found.task, found.held, found.enough) == ("pool overflow", 4, 9, 8, 11)
    join = Submissions.of([0] * 12, waits=[*([],) * 11, list(range(11))])
    found = rings.deadlock(join, Limits().replace(dep_pool=8))
    assert found is not None
    assert (found.cause, found.task, found.asked) == ("pool overflow", 11, 11)


def test_what_is_larger_than_the_heap_is_named():
    found = rings.deadlock(Submissions.of([4 * KIB, 9 * KIB]), Limits().replace(heap=8 * KIB))
    assert found is not None
    assert (found.cause, found.task, found.asked) == ("larger than the ring", 1, 9 * KIB)


def test_shared_capacities_are_named():
    work = Submissions.of([0] * 12, entries=[1] * 12)
    found = rings.deadlock(work, Limits().replace(tensormap=10))
    assert found is not None
    assert (found.code, found.cause, found.task) == (11, "tensor map overflow", 10)
    found = rings.deadlock(work, Limits().replace(scope_tasks=8))
    assert found is not None
    assert (found.code, found.cause, found.task) == (10, "too many tasks in open scopes", 8)


def test_a_task_that_updates_all_of_a_tensor_takes_the_entry_before_it_away():
    slots = np.arange(16, dtype=np.int32)

    def function(x, y):
        for _ in range(20):
            pp.submit(px.kernels.cache_write, x, px.control(slots), y)
        return y

    work = record(function)
    assert work.entries.tolist() == [1] * 20
    assert rings.smallest(work).limits.tensormap == 1
    assert rings.orchestrate(work, [1e3] * 20, [1.0] * 20).peak["tensormap"] == (1,)
    tight = rings.orchestrate(work, [1e3] * 20, [1.0] * 20, Limits().replace(tensormap=1))
    assert tight.deadlock is None
    assert tight.stall_us == 0
    apart = record(flat)  # what is written without being read takes nothing away
    assert rings.smallest(apart).limits.tensormap == 20


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_closing_the_scope_that_is_named_lets_the_task_through(random_submissions, seed):
    work = random_submissions(seed)
    rng = np.random.default_rng(seed)
    least = rings.smallest(work).limits
    limits = least.replace(heap=[max(1024, int(h * rng.uniform(0.5, 1)) // 1024 * 1024) for h in least.heap])
    found = rings.deadlock(work, limits)
    if found is None or found.head is None:
        return
    named = [s for s in work.scopes if any(s.label in r for r in found.remedies if r.startswith("close"))]
    assert named
    scopes = tuple(dataclasses.replace(s, end=min(s.end, found.task)) if s in named else s for s in work.scopes)  # type: ignore[type-var]
    after = rings.deadlock(dataclasses.replace(work, scopes=scopes), limits)
    assert after is None or after.task > found.task
    enough = rings.deadlock(work, limits.replace(heap=[
        found.enough if ring == found.ring else 2**40 for ring in range(4)
    ]))  # fmt: skip
    assert enough is None


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_smallest_capacities_pass_and_one_step_less_fails(random_submissions, seed):
    work = random_submissions(seed)
    found = rings.smallest(work)
    least = found.limits
    assert rings.deadlock(work, least) is None
    for ring in range(4):
        if not len(work.on(ring)):
            continue

        def one(name: str, value: int, ring: int = ring) -> Limits:
            return least.replace(**{name: [value if r == ring else v for r, v in enumerate(getattr(least, name))]})

        assert found.exhaustive[ring]
        for heap in range(1024, least.heap[ring], 1024):
            assert not rings.passes(work, one("heap", heap)), heap
        for heap in range(found.safe_heap[ring], found.safe_heap[ring] + 50 * 1024, 1024):
            assert rings.passes(work, one("heap", heap)), heap
        if least.task_window[ring] > 2:
            assert rings.deadlock(work, one("task_window", least.task_window[ring] // 2)) is not None
        if least.dep_pool[ring] > 1:
            assert rings.deadlock(work, one("dep_pool", least.dep_pool[ring] - 1)) is not None
    if least.tensormap > 1:
        assert rings.deadlock(work, least.replace(tensormap=least.tensormap - 1)) is not None
    if least.scope_tasks > 1:
        assert rings.deadlock(work, least.replace(scope_tasks=least.scope_tasks - 1)) is not None


def in_turn(sizes, spans) -> Submissions:
    """Blocks on ring 1, some of them in a scope of their own that closes early."""
    scopes = [Scope(0, "auto", 0, "p.py:1", 0, len(sizes))]
    scopes += [Scope(n + 1, "auto", 1, f"p.py:{n + 2}", *span) for n, span in enumerate(spans)]
    return Submissions.of([size * KIB for size in sizes], scopes=scopes)


def test_a_heap_with_room_in_pieces_says_where_they_are():
    limits = Limits().replace(heap=8 * KIB)
    found = rings.deadlock(in_turn([3, 3, 4], [(0, 1), (1, 3)]), limits)
    assert found is not None
    assert (found.task, found.asked, found.held) == (2, 4 * KIB, 3 * KIB)
    assert (
        "what is free is not in one piece: 3 KiB at its start, before t1, and 2 KiB at its end, after t1, and no block "
        "straddles the end"
    ) in found.what
    found = rings.deadlock(in_turn([4, 3, 3, 2], [(0, 1), (1, 4)]), limits)
    assert found is not None
    assert found.held + found.asked == 8 * KIB
    assert (
        "1 KiB after t2, up to where it is taken back, and 1 KiB at its end, left out before t2 and taken back"
        in found.what
    )
    short = rings.deadlock(in_turn([4, 4, 4], [(0, 3)]), limits)
    assert short is not None
    assert "one piece" not in short.what


def test_an_empty_heap_starts_over_wherever_it_is_parked():
    work = in_turn([6, 7, 1], [(0, 1), (1, 3)])  # 7 KiB neither after nor before 6, but all of them once that is gone
    assert rings.passes(work, Limits().replace(heap=8 * KIB))
    run = rings.orchestrate(work, [5.0] * 3, [1.0] * 3, Limits().replace(heap=8 * KIB))
    assert run.deadlock is None
    assert run.stalls["heap"][1] > 0
    assert run.peak["heap"][1] == 8 * KIB  # nothing left out: what the place it was parked at took is free again


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_pieces_of_a_stuck_heap_are_smaller_than_what_is_asked_and_all_that_is_free(data):
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=12))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sizes) - 1), max_size=4)))
    spans = list(zip([0, *cuts], [*cuts, len(sizes)], strict=True))
    capacity = data.draw(st.integers(6, 12)) * KIB
    found = rings.deadlock(in_turn(sizes, spans), Limits().replace(heap=capacity))
    if found is None or found.held + found.asked > capacity:
        return
    text = found.what.partition("in one piece: ")[2]
    pieces = [
        int(float(size) * (KIB if unit == "KiB" else 1)) for size, unit in re.findall(r"([\d.]+) (KiB|B)\b", text)
    ]
    assert len(pieces) == 2
    assert pieces[0] < found.asked  # the other one may be large enough, but is taken back only later
    assert "taken back" in text or pieces[1] < found.asked
    assert sum(pieces) == capacity - found.held


def test_a_heap_of_odd_sizes_is_searched_by_halves(monkeypatch):
    from pyptox.rings import _smallest

    scopes = [Scope(0, "auto", 0, "p.py:1", 0, 60)]
    scopes += [Scope(n + 1, "auto", 1, "p.py:2", 3 * n, 3 * n + 3) for n in range(20)]
    size = (np.random.default_rng(0).integers(1, 200, 60) * KIB).tolist()
    work = Submissions.of(size, scopes=scopes)
    heap, safe, exhaustive = _smallest.smallest_heap(work, 1)
    assert exhaustive
    assert heap < safe
    monkeypatch.setattr(_smallest, "MOST_TRIED", 1)
    found, _, exhaustive = _smallest.smallest_heap(work, 1)
    assert not exhaustive
    assert heap <= found <= safe
    for capacity, passes in ((found, True), (found - KIB, False)):
        limits = Limits().replace(heap=capacity)
        assert (rings.deadlock(work, limits) is None) is passes


def test_a_program_says_what_it_submits():
    def function(x, y):
        made = pp.empty((3, 100), "bf16")  # 600 bytes
        with pp.scope():
            first = add(x, y)
            with pp.scope("manual"):
                add(first, y, out=x, deps=[first])
        return x, made

    work = record(function)
    assert work.bytes.tolist() == [KIB, 16 * KIB, 0]
    assert work.ring.tolist() == [0, 1, 2]
    assert work.fanin.tolist() == [0, 0, 1]
    assert work.entries.tolist() == [0, 0, 0]  # the tensor map is not asked in a manual scope
    assert work.closes.tolist() == [3, 3, 3]
    assert [(n, s.depth, phase) for n, s, phase in work.boundaries()] == [
        (0, 0, "begin"), (1, 1, "begin"), (2, 2, "begin"), (3, 2, "end"), (3, 1, "end"), (3, 0, "end"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heaps": 1}, "`heaps` is not a capacity"),
        ({"heap": [1, 2]}, "one for each of 4 rings"),
        ({"heap": 0}, "whole numbers above 0"),
        ({"task_window": 1000}, "powers of two"),
        ({"tensormap": [1, 2, 3, 4]}, "`tensormap` is shared by the rings"),
        ({"heap": 2**60}, "2\\^56 at most"),
    ],
)
def test_capacities_that_cannot_be(changes, message):
    with pytest.raises(PyptoxError, match=message):
        Limits().replace(**changes)


def test_capacities_as_text():
    parsed = rings.parse_limits(["heap=1GiB,2GiB,256MiB,64k", "task_window=64"])
    assert parsed.heap == (2**30, 2**31, 2**28, 2**16)
    assert parsed.task_window == (64,) * 4
    assert rings.parse_limits(["heap=0.5TiB"]).heap == (2**39,) * 4
    for wrong in ("heap", "heap=big", "stack=3", "heap=1,2", "heap=0.3", "heap=1_000"):
        with pytest.raises(PyptoxError):
            rings.parse_limits([wrong])


@pytest.mark.parametrize("name", ["task_window", "dep_pool", "tensormap", "scope_tasks"])
@pytest.mark.parametrize("value", ["4.5", "4KiB", "4B", "1e3", "", "-4", "1_024"])
def test_counts_are_whole_and_have_no_unit(name, value):
    with pytest.raises(PyptoxError, match=f"`{name}` must be whole numbers without a unit"):
        rings.parse_limits([f"{name}={value}"])


@pytest.mark.parametrize("size", ["99999999999999999999TiB", "100000TiB", "1.0001", "0.3B"])
def test_a_size_is_whole_bytes_and_not_beyond_all_bounds(size):
    with pytest.raises(PyptoxError, match="a size must be whole bytes, 65,536 TiB at most"):
        rings.parse_limits([f"heap={size}"])
