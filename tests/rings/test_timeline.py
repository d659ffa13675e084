"""Back-pressure in the chip's timeline: one logic with the account of the rings, exact, attributed, explained."""

import dataclasses
import itertools
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autotune
import pyptox as px
from pyptox import chip, rings
from pyptox import program as pp
from pyptox.chip._oracle import oracle
from pyptox.chip._run import run
from pyptox.cli import main
from pyptox.rings import Limits, Storage, Submissions

KIB = 1024


def workload(stored: Submissions, seed: int, limits: Limits | None = None) -> chip.Workload:
    """Tasks of every kind for the same graph."""
    rng = np.random.default_rng(seed)
    shapes = rng.choice(["MIX", "AIC", "AIV", "DUMMY"], stored.count, p=[0.2, 0.3, 0.4, 0.1]).tolist()
    shapes = [
        "ALLOC" if rng.random() < 0.1 and not waits else shape
        for shape, waits in zip(shapes, stored.waits, strict=True)
    ]
    kernel = [shape not in ("DUMMY", "ALLOC") for shape in shapes]
    blocks = [int(rng.integers(1, 60)) if k else 0 for k in kernel]
    scale = rng.choice([1, 10, 100])
    durations = [float(d) if k else 0.0 for d, k in zip(rng.exponential(scale, stored.count), kernel, strict=True)]
    work = dataclasses.replace(stored, alloc=np.array([shape == "ALLOC" for shape in shapes], bool))
    return chip.Workload.of(
        shapes, blocks, durations, stored.waits, edges=stored.fanin.tolist(), storage=Storage(work, limits or Limits()),
        early=(rng.random(stored.count) < 0.3).tolist() if seed % 2 else None, lapses=seed % 3 == 0,
    )  # fmt: skip


def tight(work: Submissions, seed: int) -> Limits:
    """Capacities that pass, near the smallest."""
    rng, least = np.random.default_rng(seed), rings.smallest(work)
    heap = [safe + 1024 * int(rng.integers(0, 4)) for safe in least.safe_heap]
    pool = [p + int(rng.integers(0, 4)) for p in least.limits.dep_pool]
    entries = least.limits.tensormap + int(rng.integers(0, 4))
    return least.limits.replace(heap=heap, dep_pool=pool, tensormap=entries)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_submissions_wait_as_the_account_of_the_rings_says(random_submissions, seed):
    stored = random_submissions(seed)
    limits = tight(stored, seed)
    timeline = chip.simulate(workload(stored, seed, limits))
    work, times = timeline.workload, timeline.times
    account = timeline.rings
    assert account is not None
    assert account.deadlock is None
    np.testing.assert_array_equal(account.submitted, times.submitted)
    np.testing.assert_array_equal(account.finish, times.finish)
    np.testing.assert_array_equal(sum(account.stalls.values()), timeline.stalls)
    for name in ("heap", "task_window", "dep_pool"):
        assert all(p <= c for p, c in zip(account.peak[name], getattr(limits, name), strict=True))
    expected = oracle(work, timeline.schedule, timeline.clusters)
    actual = run(work, timeline.schedule, timeline.clusters)[0]
    for field in fields(expected):
        np.testing.assert_array_equal(getattr(actual, field.name), getattr(expected, field.name), field.name)
    assert sum(timeline.attribution().values()) == pytest.approx(timeline.makespan_us, rel=1e-12)
    pieces = timeline.critical()
    assert pieces[0].start_us == pytest.approx(0.0, abs=1e-9)
    assert all(a.end_us == b.start_us for a, b in itertools.pairwise(pieces))


def test_random_programs_do_wait_and_rings_add_time(random_submissions):
    waited = slower = 0
    for seed in range(30):
        stored = random_submissions(seed, 40)
        tasks = workload(stored, seed)
        full = chip.simulate(tasks, rings=tight(stored, seed))
        free = chip.simulate(tasks, rings=rings.unlimited())
        assert free.workload.gate is None
        assert not free.stalls.any()
        waited += bool(full.stalls.any())
        slower += full.makespan_us > free.makespan_us
        assert {wait.task for wait in full.ring_waits} == set(np.flatnonzero(full.stalls).tolist())
    assert waited > 20
    assert slower > 10


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_derivatives_with_back_pressure_are_those_of_finite_differences(random_submissions, seed):
    stored = random_submissions(seed, 30)
    tasks = dataclasses.replace(workload(stored, seed, tight(stored, seed)), lapses=False)
    timeline = chip.simulate(tasks)
    constants, durations = timeline.gradient()
    total = sum(n * timeline.schedule.values()[name] for name, n in constants.items())
    assert total + float(durations @ timeline.times.block) == pytest.approx(timeline.makespan_us, rel=1e-12)
    step, matched = 2.0**-10, 0
    kernels = np.flatnonzero(tasks.duration_us > step)[:6].tolist()
    for task in kernels:
        sides = []
        for sign in (1, -1):
            changed = tasks.duration_us.copy()
            changed[task] += sign * step
            after = chip.simulate(tasks.with_durations(changed)).makespan_us
            sides.append(sign * (after - timeline.makespan_us) / step)
        # where the two sides differ there is a kink; elsewhere the walk gives the slope
        matched += min(sides) - 1e-6 <= durations[task] <= max(sides) + 1e-6 or sides[0] != sides[1]
    assert matched == len(kernels)


def held(blocks: int = 24) -> tuple[chip.Workload, Submissions]:
    """Two turns of a scope; a heap for one. The second waits until the first turn's reader is finished."""
    scopes = [pp.Scope(0, "auto", 0, "model.py:1", 0, 4)]
    scopes += [pp.Scope(n + 1, "auto", 1, "model.py:2", 2 * n, 2 * n + 2) for n in range(2)]
    stored = Submissions.of([4 * KIB, 0, 4 * KIB, 0], scopes=scopes, waits=[[], [0], [], [2]])
    work = chip.Workload.of(
        ["AIC", "AIV", "AIC", "AIV"], [blocks] * 4, [10.0, 50.0, 10.0, 50.0], [[], [0], [], [2]],
        names=["t0 make", "t1 read", "t2 make", "t3 read"], storage=Storage(stored, Limits().replace(heap=4 * KIB)),
    )  # fmt: skip
    return work, stored


def test_a_wait_is_blamed_on_the_task_that_pins_the_ring():
    timeline = chip.simulate(held()[0])
    (wait,) = timeline.ring_waits
    assert (wait.task, wait.resource, wait.ring, wait.head, wait.until, wait.on_path) == (2, "heap", 1, 0, 1, True)
    assert wait.until_us == timeline.times.finish[1]
    assert timeline.times.submitted[2] == wait.until_us + timeline.schedule.values()["submit_us"]
    assert timeline.bound == ["submission", "producer", "ring", "producer"]
    assert timeline.gaps()["ring"].tolist() == [0.0, 0.0, wait.waited_us, 0.0]
    steps = [(piece.step, piece.task) for piece in timeline.critical()]
    assert steps.index(("retire", 1)) < steps.index(("ring", 2)) < steps.index(("submit", 2)) < steps.index(("run", 3))
    assert timeline.attribution()["read"] == 100.0  # both readers, one after another
    busy = 4 * timeline.schedule.values()["submit_us"] + 2 * timeline.schedule.values()["submit_edge_us"]
    assert timeline.utilisation["orchestrator"] == pytest.approx(busy / timeline.makespan_us)
    text = str(chip.explain(timeline))
    assert "rings: 1 submissions waited" in text
    assert "heap of ring 1, held by t0 make in s1 model.py:2 until t1 read finished, on the path" in text
    assert timeline.to_dict()["rings"]["stall_us"] == wait.waited_us


def test_a_change_shows_what_the_rings_cost():
    answer = chip.what_if(held()[0], [chip.SetRings(Limits().replace(heap=8 * KIB))])
    assert answer.saved_us > 55
    assert not answer.after.stalls.any()
    shorter = chip.what_if(held()[0], [chip.SetDuration("t1", 20.0)])
    assert shorter.saved_us == pytest.approx(30.0)
    split = chip.what_if(held()[0], [chip.Split("make", 2)])
    stored = split.after.workload.storage
    assert stored is not None
    assert stored.work.bytes.tolist() == [4 * KIB, 0, 0, 4 * KIB, 0, 0]
    assert [(s.begin, s.end) for s in stored.work.scopes] == [(0, 6), (0, 3), (3, 6)]
    assert [wait.task for wait in split.after.ring_waits] == [3]
    larger = chip.SetRings(Limits().replace(heap=8 * KIB))
    merged = chip.what_if(held()[0], [larger, chip.Merge(("t0", "t2"))]).after.workload.storage
    assert merged is not None
    assert (merged.work.bytes.tolist(), merged.work.waits) == ([8 * KIB, 0, 0], [(), (0,), (0,)])
    with pytest.raises(rings.DeadlockError, match="larger than the ring"):
        chip.what_if(held()[0], [chip.Merge(("t0", "t2"))])


def test_tasks_that_never_end_their_scope_are_an_error_with_its_code():
    work, stored = held()
    with pytest.raises(rings.DeadlockError, match="HEAP_RING_DEADLOCK") as raised:
        chip.simulate(work, rings=Limits().replace(heap=2 * KIB))
    assert (raised.value.deadlock.code, raised.value.deadlock.cause) == (2, "larger than the ring")
    leaking = dataclasses.replace(stored, scopes=(*stored.scopes[:1], dataclasses.replace(stored.scopes[1], end=None),
                                                  *stored.scopes[2:]))  # fmt: skip
    with pytest.raises(rings.DeadlockError, match="scope leak"):
        chip.simulate(dataclasses.replace(work, storage=Storage(leaking, Limits().replace(heap=4 * KIB))))
    slow = work.with_durations([10.0, 600_000.0, 10.0, 50.0])
    with pytest.raises(rings.DeadlockError, match="slow reader"):
        chip.simulate(slow)
    with pytest.raises(px.PyptoxError, match="`rings` needs tasks that state"):
        chip.simulate(dataclasses.replace(work, storage=None), rings=Limits())


def rows():
    return {"x": px.spec((16, 256), "fp32"), "y": px.spec((16, 256), "fp32")}


@pp.program(sizes=rows)
def scoped(x, y):
    for _ in pp.loop(range(8)):
        inner = pp.submit(px.kernels.residual_add, x, y, m=16, n=256)
        pp.submit(px.kernels.residual_add, inner, y, out=x, m=16, n=256)
    return x


@pp.program(sizes=rows)
def unscoped(x, y):
    for _ in range(8):
        x = pp.submit(px.kernels.residual_add, x, y, m=16, n=256)
    return x


def test_programs_with_scopes_of_their_own_have_the_rings_of_the_runtime():
    default = chip.simulate(pp.graph(scoped)).workload.storage
    assert default is not None
    assert default.limits == Limits()
    assert chip.simulate(pp.graph(unscoped)).workload.storage is None
    few = chip.simulate(pp.graph(scoped), rings=Limits().replace(heap=16 * KIB))
    assert few.makespan_us > chip.simulate(pp.graph(scoped)).makespan_us
    assert len(few.ring_waits) == 7
    with pytest.raises(rings.DeadlockError, match="heap too small"):
        chip.simulate(pp.graph(unscoped), rings=Limits().replace(heap=16 * KIB))
    answer = chip.what_if(chip.simulate(pp.graph(unscoped)), [chip.SetRings(Limits())])
    assert answer.saved_us == 0.0


def test_warms_are_submitted_to_rings_too():
    found = chip.workload(pp.graph(scoped), px.hardware.a2a3(), rings=Limits())
    warmed, places = chip.with_warms(found, [chip.Warm(2, ((0, 1.0),))], hbm_byte_us=5e-7)
    assert warmed.storage is not None
    stored = warmed.storage.work
    assert stored.names[3] == "warm"
    assert (int(stored.bytes[3]), stored.scope[3], stored.holds[3]) == (0, stored.scope[2], (2,))
    assert stored.bytes[places].tolist() == found.storage.work.bytes.tolist()  # type: ignore[union-attr]
    back = chip.without_warms(warmed)[0].storage
    assert back is not None
    assert back.work.holds == [tuple(each) for each in found.storage.work.holds]  # type: ignore[union-attr]
    assert back.work.scopes == found.storage.work.scopes  # type: ignore[union-attr]


LAYERS = str(Path(__file__).resolve().parents[2] / "docs/programs/layers.py:layers")


def test_commands_take_capacities_and_tell_of_waits_and_deadlocks(capsys):
    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([*arguments[:1], LAYERS, *arguments[1:]])
        shown = capsys.readouterr()
        return int(stop.value.code or 0), shown.out, shown.err

    code, out, _ = command("simulate", "--caps", "heap=384KiB", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["rings"]["stall_us"] > 100
    assert {wait["resource"] for wait in told["rings"]["waits"]} == {"heap"}
    assert sum(told["attribution"].values()) == pytest.approx(told["makespan_us"])
    code, out, _ = command("explain", "--caps", "heap=384KiB")
    assert code == 0
    assert "rings: 7 submissions waited" in out
    assert "heap of ring 1, held by" in out
    code, out, _ = command("what-if", "--caps", "heap=256KiB", "--json")
    changed = json.loads(out)
    assert code == 0
    assert changed["before"]["rings"]["stall_us"] == 0 < changed["after"]["rings"]["stall_us"]
    assert changed["edits"][0].startswith("rings: heap 256 KiB")
    code, _, err = command("simulate", "--caps", "heap=200KiB")
    assert code == 1
    assert "HEAP_RING_DEADLOCK (2): heap too small" in err
    assert "heap of ring 1: 224 KiB" in err
    code, _, err = command("simulate", "--caps", "stack=3")
    assert code == 2
    assert "capacities are name=value" in err
    with pytest.raises(SystemExit) as stop:
        main(["explain", "matmul", "--m", "16", "--caps", "heap=1KiB"])
    assert stop.value.code == 2
    assert "belongs to a program" in capsys.readouterr().err


def test_a_tuner_refuses_what_comes_to_a_deadlock():
    def build(values):
        def turns(x, y):
            for _ in pp.loop(range(2)):
                made = [pp.submit(px.kernels.residual_add, x, y, m=16, n=256) for _ in range(values["parts"])]
                pp.submit(px.kernels.residual_add, made[-1], y, out=x, m=16, n=256)
            return x

        program = pp.Program(turns, "turns", ("x", "y"))
        return pp.graph(program, px.spec((2048, 8192), "fp32"), px.spec((2048, 8192), "fp32"))  # 64 MiB each

    space = autotune.Space(parts=autotune.Choice(3, 6))
    found = autotune.tune_program(build, space, start={"parts": 3}, evaluations=4)
    assert dict(found.best.config) == {"parts": 3}
    assert any("HEAP_RING_DEADLOCK" in why for why in found.refused)
