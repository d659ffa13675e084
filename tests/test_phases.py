"""Phase profiles: the partition is exact, every finding is provoked, files and commands answer or say why not."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyptox import phases
from pyptox.cli import main

ROW = [10, 20, 21, 40, 50, 0, 3, 7]
OTHER = [11, 33, 35, 41, 47, 0, 3, 7]
words = st.integers(0, 2**64 - 1)
matrices = st.lists(st.lists(words, min_size=8, max_size=8), min_size=1, max_size=12)


def kinds(result: phases.Profile) -> set[str]:
    return {finding.kind for finding in result.findings}


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


# ------------------------------------------------------------------------------------------------- the identity


@given(matrices, st.data())
def test_pieces_add_up_to_the_whole_on_any_matrix(rows, data) -> None:
    subset = st.lists(st.integers(0, len(rows) - 1), unique=True)
    masks = {name: data.draw(subset) for name in ("producers", "arrivals", "releases", "bodies")}
    start, end = sorted((data.draw(words), data.draw(words)))
    task = data.draw(st.sampled_from([None, phases.Task(start, end)]))
    result = phases.profile(np.array(rows, np.uint64), task=task, **masks)
    cut = result.partition
    assert cut.exact
    assert all(type(piece.cycles) is int for piece in cut.pieces)
    assert sum(piece.cycles for piece in cut.pieces) == cut.whole
    if task is not None:
        assert cut.whole == end - start
    if result.counted["entry"] and result.counted["done"]:
        assert sum(p.cycles for p in cut.pieces if p.start != "M0" and p.end != "M1") == cut.span


@given(st.lists(st.lists(st.integers(1, 2**63), min_size=5, max_size=5), min_size=1, max_size=9))
def test_boundaries_are_reductions_of_absolute_stamps(rows) -> None:
    full = np.array([[*row, 0, 0, 1] for row in rows], np.uint64)
    at = {b.symbol: b for b in phases.profile(full).partition.boundaries}
    columns = list(zip(*rows, strict=True))
    assert [at[s].cycle for s in "ERBAF"] == [
        min(columns[0]),
        max(columns[1]),
        max(columns[2]),
        min(columns[3]),
        max(columns[4]),
    ]
    assert all(rows[at[s].slot][n] == at[s].cycle for n, s in enumerate("ERBAF"))


def test_a_clean_matrix_has_no_findings() -> None:
    result = phases.profile([ROW, OTHER], task=phases.Task(8, 60, epoch=3), generation=7, uninstrumented=38)
    assert result.passed
    assert result.unchecked == ()
    assert [p.cycles for p in result.partition.pieces] == [2, 23, 2, 5, 10, 10]
    assert result.partition.span == 40
    assert result.to_dict()["envelope"] == {"instrumented": 40, "uninstrumented": 38}
    assert "envelope with probes 40, without 38 cycles" in str(result)


def test_collective() -> None:
    found = phases.profile([ROW, OTHER]).collective
    assert found is not None
    assert found.arrival_skew == 35 - 21
    assert found.first_release_service == 40 - 35
    assert found.release_skew == 1
    assert found.full_release_tail == 41 - 35
    assert found.early_core_residence == 40 - 21
    assert found.wait == {0: 19, 1: 6}
    assert (found.first, found.last, found.mean_wait) == (0, 1, 12.5)


def test_a_kernel_without_a_collective() -> None:
    rows = [[10, 0, 0, 0, 50, 0, 0, 7], [12, 0, 0, 0, 70, 0, 0, 7]]
    result = phases.profile(rows, producers=[], arrivals=[], releases=[])
    assert result.passed
    assert result.collective is None
    assert [(p.start, p.end, p.cycles) for p in result.partition.pieces] == [("E", "F", 60)]


# -------------------------------------------------------------------------------------------------- the findings


def test_stale_row_is_left_out() -> None:
    result = phases.profile([ROW, [1, 2, 3, 4, 999, 0, 3, 6]])
    assert kinds(result) == {"stale"}
    assert result.partition.span == 40
    assert result.counted["entry"] == 1


def test_all_rows_stale() -> None:
    result = phases.profile([ROW, OTHER], generation=8)
    assert [f.slot for f in result.findings if f.kind == "stale"] == [0, 1]
    assert result.partition.boundaries == ()
    assert not result.passed
    assert "no core has a stamp of this round" in str(result)
    with pytest.raises(ValueError, match="entry and a body"):
        _ = result.envelope


def test_unwritten_row_is_left_out() -> None:
    result = phases.profile([ROW, [0] * 8])
    assert kinds(result) == {"unwritten"}
    assert result.partition.span == 40


def test_non_monotonic_row_is_kept() -> None:
    result = phases.profile([ROW, [11, 36, 35, 41, 47, 0, 3, 7]])
    assert kinds(result) == {"non-monotonic", "order"}
    assert result.counted["arrival"] == 2
    assert result.partition.exact


def test_inactive_core_counted_in_a_phase() -> None:
    result = phases.profile([ROW, OTHER], active=[0], producers=[0, 1])
    assert [(f.kind, f.slot) for f in result.findings] == [("inactive", 1)]
    assert result.counted["produced"] == 1


def test_core_without_the_stamp_of_a_phase() -> None:
    rows = [ROW, [11, 0, 35, 41, 47, 0, 3, 7]]
    assert kinds(phases.profile(rows)) == {"inactive"}
    assert phases.profile(rows, producers=[True, False]).passed


def test_epochs_that_differ_between_cores() -> None:
    result = phases.profile([ROW, OTHER, [12, 33, 35, 41, 47, 0, 4, 7]])
    assert [(f.kind, f.slot) for f in result.findings] == [("epoch", 2)]


@pytest.mark.parametrize(
    "task", [phases.Task(8, 60, epoch=5), phases.Task(11, 60), phases.Task(8, 49), phases.Task(1000, 1060)]
)
def test_epochs_that_differ_between_task_and_cores(task) -> None:
    result = phases.profile([ROW, OTHER], task=task)
    assert kinds(result) == {"epoch"}
    assert result.partition.exact


def test_release_before_the_last_arrival() -> None:
    result = phases.profile([ROW, [11, 33, 45, 46, 47, 0, 3, 7]])
    assert kinds(result) == {"order"}
    assert [p.cycles for p in result.partition.pieces] == [23, 12, -5, 10]


def test_a_layout_without_generation_says_so() -> None:
    layout = phases.Layout.parse("entry,produced,arrival,release,done,-,-,-")
    result = phases.profile([ROW, OTHER], layout=layout)
    assert result.passed
    assert any("generation" in note for note in result.unchecked)


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        ([[1.0] * 8], {}, "integers"),
        ([[1] * 7], {}, "8 words"),
        ([[-1] * 8], {}, "cycles since an epoch"),
        ([[2**64] * 8], {}, "integers"),
        ([ROW, [1, 2]], {}, "integers"),
        ([], {}, "8 words"),
        ([ROW], {"active": [1]}, "slots 0 to 0"),
        ([ROW], {"active": []}, "at least one core"),
        ([ROW], {"active": [True, False]}, "truth value"),
        ([ROW], {"active": [0.5]}, "slot numbers"),
        ([ROW], {"slots": phases.Slots(2)}, "number the matrix"),
    ],
)
def test_bad_matrix(matrix, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        phases.profile(matrix, **options)


# ------------------------------------------------------------------------------------------ masks, layouts, slots


@given(st.integers(1, 30), st.integers(0, 3))
def test_slots_are_numbered_once(aic, each) -> None:
    slots = phases.Slots(aic, each)
    numbers = [slots.cube(b) for b in range(aic)] + [slots.vector(b, s) for b in range(aic) for s in range(each)]
    assert numbers == list(range(slots.count))
    assert len({slots.name(n) for n in numbers}) == slots.count


def test_masks() -> None:
    assert phases.mask("0xb,5", 6) == (0, 1, 3, 5)
    assert phases.mask("none", 6) == ()
    assert phases.mask("aic", 6, phases.Slots(2)) == (0, 1)
    for wrong in ("x", "aiv", "3-1", "0-99", "-1"):
        with pytest.raises(ValueError, match="`mask`"):
            phases.mask(wrong, 6)


@pytest.mark.parametrize("text", ["entry", "entry,entry,produced,arrival,release,done,-,-", "a,b,c,d,e,f,g,h"])
def test_bad_layout(text) -> None:
    with pytest.raises(ValueError, match="`words`"):
        phases.Layout.parse(text)


# ------------------------------------------------------------------------------------------------------ emission

durations = st.lists(st.integers(0, 10_000), min_size=4, max_size=4)


@given(durations, durations, durations, st.integers(0, 500), st.integers(1, 50), st.floats(0, 0.5), st.integers(0, 9))
def test_emitted_matrices_are_clean(produce, body, stagger, service, probe, noise, seed) -> None:
    made = phases.emit(produce, body, stagger=stagger, service=service, probe=probe, noise=noise, seed=seed)
    result = phases.profile(made.matrix, task=made.task, uninstrumented=made.uninstrumented)
    assert result.passed, result
    assert result.partition.span is not None
    assert made.uninstrumented <= result.partition.span
    again = phases.emit(produce, body, stagger=stagger, service=service, probe=probe, noise=noise, seed=seed)
    assert np.array_equal(made.matrix, again.matrix)


def test_emission_reproduces_its_durations() -> None:
    made = phases.emit([100, 140], [60, 50], publish=5, service=20, start=1000)
    result = phases.profile(made.matrix)
    assert [p.cycles for p in result.partition.pieces] == [140, 5, 20, 60]
    assert result.partition.span == made.uninstrumented


def test_emission_on_some_slots() -> None:
    made = phases.emit(100, [60, 50], active=[1, 3], producers=[3], slots=5, service=20)
    assert made.matrix.shape == (5, 8)
    result = phases.profile(made.matrix, active=made.active, producers=made.producers, task=made.task)
    assert result.passed
    assert result.counted["produced"] == 1
    assert not made.matrix[[0, 2, 4]].any()
    assert kinds(phases.profile(made.matrix)) == {"unwritten", "inactive"}


@pytest.mark.parametrize(
    "options",
    [
        {"produce": [1, 2], "body": [1, 2, 3]},
        {"produce": [-1], "body": [1]},
        {"produce": 1, "body": [1], "start": 0},
        {"produce": [1], "body": [1], "active": [0, 1]},
        {"produce": [1], "body": [1], "producers": [3]},
        {"produce": [1, 1], "body": 1, "active": [0, 1], "producers": [2], "slots": 3},
    ],
)
def test_bad_durations(options) -> None:
    with pytest.raises(ValueError, match="`"):
        phases.emit(**options)


# ---------------------------------------------------------------------------------------------------- comparison


@given(st.lists(st.tuples(words, words).map(lambda pair: tuple(sorted(pair))), min_size=1, max_size=6))
def test_a_chain_adds_up(tasks) -> None:
    chain = phases.Chain(tuple(tasks))
    assert chain.exact
    assert sum(chain.durations) + sum(chain.gaps) == tasks[-1][1] - tasks[0][0]
    assert chain.envelope >= chain.chained


def test_negative_gaps_are_kept() -> None:
    result = phases.compare([[(0, 85)], [(0, 90)]], [[(0, 50), (40, 80)], [(0, 100), (20, 60)]])
    assert [split.gaps for _, split in result.pairs] == [(-10,), (-80,)]
    assert result.differences == (-5, 10)
    assert result.merged_wins == 1
    assert "totals are envelopes" in str(result)
    assert result.to_dict()["rounds"][1]["split"]["chained"] == 60


@pytest.mark.parametrize(
    ("merged", "split"), [([], []), ([[(0, 1)]], []), ([[(0, 1)]], [[]]), ([[(2, 1)]], [[(0, 1)]])]
)
def test_bad_pairs(merged, split) -> None:
    with pytest.raises(ValueError, match=r"`(merged|split)`"):
        phases.compare(merged, split)


# --------------------------------------------------------------------------------------------- files and command


@given(st.lists(matrices.map(lambda m: m[:1]), min_size=1, max_size=3), st.sampled_from([".npy", ".csv"]))
def test_files_keep_every_bit(tmp_path_factory, rounds, suffix) -> None:
    path = tmp_path_factory.mktemp("stamps") / f"stamps{suffix}"
    phases.write_rounds(path, rounds)
    read, layout = phases.read_rounds(path)
    assert [m.tolist() for m in read] == rounds
    assert layout == phases.Layout()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_csv_without_names_and_with_another_layout(tmp_path) -> None:
    plain, named = tmp_path / "plain.csv", tmp_path / "named.csv"
    plain.write_text(",".join(map(str, ROW)) + "\n\n" + ",".join(map(str, OTHER)) + "\n")
    assert phases.read_rounds(plain)[0][0].tolist() == [ROW, OTHER]
    named.write_text("generation,entry,produced,arrival,release,done,-,-\n7,10,20,21,40,50,0,0\n")
    assert json.loads(json.dumps(phases.report([named]).to_dict()))["rounds"][0]["partition"]["span"] == 40


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"1"),
        ("a.csv", b""),
        ("a.csv", b"entry,produced,arrival,release,done,-,-,-\n"),
        ("a.csv", b"1,2,3\n"),
        ("a.csv", b"1,2,3,4,5,6,7,1e9\n"),
        ("a.csv", b"1,2,3,4,5,6,7,18446744073709551616\n"),
        ("a.csv", b"a,b\n1,2\n"),
        ("a.csv", b"\xff\xfe1"),
        ("a.npy", b""),
        ("a.npy", b"no array"),
    ],
)
def test_command_on_a_bad_file(capsys, tmp_path, name, content) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    code, out, err = run(capsys, "phases", path)
    assert code == 2, err
    assert err.startswith("error: ")
    assert not out


@pytest.fixture
def stamps(tmp_path) -> Path:
    path = tmp_path / "stamps.npy"
    np.save(path, np.array([ROW, OTHER], np.uint64))
    return path


@pytest.mark.parametrize(
    "options",
    [
        ["--active", "5"],
        ["--active", "none"],
        ["--producers", "what"],
        ["--words", "entry"],
        ["--task", "5"],
        ["--task", "9,5"],
        ["--task", "1,100", "--task", "1,100"],
        ["--aic", "5"],
        ["--split", "absent.npy"],
    ],
)
def test_command_with_bad_options(capsys, stamps, options) -> None:
    code, _, err = run(capsys, "phases", stamps, *options)
    assert code == 2
    assert err.startswith("error: ")


def test_command(capsys, stamps) -> None:
    code, out, _ = run(capsys, "phases", stamps, "--task", "8,60", "--aic", "1", "--aiv-per-aic", "1")
    assert code == 0
    assert "adds up to M1-M0 = 52" in out
    assert "AIV 0.0" in out
    code, out, _ = run(capsys, "phases", stamps, "--json", "--producers", "0")
    answer = json.loads(out)
    assert (code, answer["passed"]) == (0, True)
    assert answer["rounds"][0]["partition"]["identity"] == {"sum": 40, "whole": 40, "holds": True}
    assert answer["rounds"][0]["counted"]["produced"] == 1


def test_command_with_findings(capsys, stamps) -> None:
    code, out, _ = run(capsys, "phases", stamps, "--generation", "8")
    assert code == 1
    assert "stale: slot 0" in out
    code, out, _ = run(capsys, "phases", stamps, "--active", "0", "--bodies", "all", "--json")
    assert (code, json.loads(out)["rounds"][0]["findings"][0]["kind"]) == (1, "inactive")


def test_command_compares_rounds(capsys, tmp_path) -> None:
    merged, first, second = (tmp_path / f"{name}.npy" for name in ("merged", "first", "second"))
    seeds = range(3)
    phases.write_rounds(merged, [phases.emit([90, 100], 50, service=9, noise=0.1, seed=s).matrix for s in seeds])
    phases.write_rounds(first, [phases.emit([90, 100], 0, noise=0.1, seed=s).matrix for s in seeds])
    phases.write_rounds(second, [phases.emit([0, 0], 50, noise=0.1, seed=s, start=80).matrix for s in seeds])
    code, out, err = run(capsys, "phases", merged, "--split", first, "--split", second, "--json")
    answer = json.loads(out)
    assert code == 0, err
    assert len(answer["rounds"]) == len(answer["comparison"]["differences"]) == 3
    assert all(r["split"]["identity"] and r["split"]["gaps"][0] < 0 for r in answer["comparison"]["rounds"])
    code, out, _ = run(capsys, "phases", merged, "--split", first, "--split", second)
    assert "merged is shorter in" in out
    assert run(capsys, "phases", merged, "--generation", "1")[0] == 2
