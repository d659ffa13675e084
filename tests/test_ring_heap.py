"""Published rows about rings: outcomes and marks, and what rows must state to be compared."""

import pytest

from pyptox import validation
from pyptox.hardware import a2a3
from pyptox.rings import deadlock
from pyptox.validation import _prefill_programs as programs

HEADER = (
    "id,group,workload,config,scope_mode,ring,heap_cap,task_window_cap,dep_pool_cap,resource,value,unit,outcome,note"
)
NAME = "Qwen3-14B prefill 40 layers"


def answers(folder, *rows: str) -> dict[str, dict]:
    (folder / "ring_heap.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return {row["id"]: row for row in validation.validate(folder, a2a3()).rows}


@pytest.fixture(scope="module")
def published(shared):
    rows = validation.validate(shared / "measured", a2a3()).rows
    return {row["id"]: row for row in rows if row["file"] == "ring_heap"}


def test_every_published_outcome_is_right(published):
    judged = [row for row in published.values() if row["outcome_predicted"] is not None]
    assert len(judged) >= 16
    assert {row["id"] for row in judged if row["outcome_predicted"] != row["outcome_measured"]} == set()
    assert {row["outcome_predicted"] for row in judged} == {"pass", "deadlock"}


def test_marks_are_within_a_tenth(published):
    marks = [row for row in published.values() if row["predicted"] is not None]
    assert len(marks) >= 10
    assert all(row["relative_error"] is not None and abs(row["relative_error"]) < 0.1 for row in marks)


def test_rows_that_state_too_little_say_why(published):
    left = {row["id"]: row["reason"] for row in published.values() if not row["covered"]}
    assert "how many tasks" in left["rh500_auto_win_r3"]
    assert "sizes of its tensors are not stated" in left["rhcfg_ci"]
    assert "a time" in left["rh799_nofix"]
    assert all(left.values())


def test_outcomes_follow_from_capacities_layers_and_nesting(tmp_path):
    found = answers(
        tmp_path,
        f"small,g,{NAME},,manual 4-ring,,128 MiB,,,,,,PASS,",
        f"large,g,{NAME},,manual 4-ring,,256 MiB,,,,,,PASS,",
        f"pinned,g,{NAME},,auto,,8 GiB,,,,,,deadlock,",
        "few,g,Qwen3-14B prefill 2 layers b1 x 128,,auto (7 nested scopes),,2 GiB,,,,,,PASS,",
        f"memory,g,{NAME},,manual 4-ring,,16 GiB,,,,,,OOM,",
        "windows,g,Qwen3-14B prefill b16 seq3500 chunk3500 40 layers,window-major,,,64 MiB,,,,,,PASS,",
        "slots,g,Qwen3-14B prefill 2 layers b1 x 128,,auto,,8 GiB,256,,,,,deadlock,",
        "one,g,DeepSeek,,,2,1 GiB,,,heap high-water,1100,MiB,deadlock,",
        "odd,g,DeepSeek,,,2,1 GiB,1000,,heap high-water,1100,MiB,deadlock,",
    )
    predicted = {name: row["outcome_predicted"] for name, row in found.items()}
    assert predicted == {
        "small": "deadlock",
        "large": "pass",
        "pinned": "deadlock",
        "few": "pass",
        "memory": "out of memory",
        "windows": "deadlock",
        "slots": "deadlock",
        "one": "deadlock",
        "odd": None,
    }
    assert found["memory"]["outcome_measured"] == "out of memory"
    assert "powers of two" in found["odd"]["reason"]


def test_marks_follow_from_what_rows_of_a_group_state(tmp_path):
    sizes = "scores 10 -> 20 MiB; a/b 0.5 -> 2 MiB at 1024"
    found = answers(
        tmp_path,
        "ring2,g,Qwen3-14B prefill 2 layers b1 x 128,,manual 4-ring,2,8 GiB,,,heap high-water,64,MB,,",
        "scratch,h,attention max_seq 2048,after,,,,,,scratch,48,MiB,,",
        f"noted,h,attention max_seq 1024,before,,,,,,scratch,11,MiB,,{sizes}",
        "alone,i,attention max_seq 2048,after,,,,,,scratch,48,MiB,,",
        "before,j,MoE,old (before),,3,,,,heap high-water,900,MiB,,payload 300 MiB -> 50 MiB",
        "after,j,MoE,new (after),,3,,,,heap high-water,650,MiB,,",
    )
    assert found["ring2"]["relative_error"] == pytest.approx(65 / 64 - 1)
    assert found["scratch"]["predicted"] == 48
    assert found["noted"]["predicted"] == 11
    assert not found["alone"]["covered"]
    assert not found["before"]["covered"]
    assert found["after"]["predicted"] == 650


def test_a_program_of_more_layers_needs_more_only_where_a_scope_is_open_around_them():
    from pyptox.rings import Limits, smallest

    by_hand = [smallest(programs.token_by_token(n, 128, 7, True)).limits.heap for n in (2, 4)]
    assert by_hand[0][1:] == by_hand[1][1:]  # layers, tiles and tokens are given back
    assert by_hand[1][0] == 2 * by_hand[0][0]
    nested = [smallest(programs.token_by_token(n, 128, 7, False)).limits.heap[3] for n in (2, 4)]
    assert nested[1] == pytest.approx(2 * nested[0], rel=0.02)
    found = deadlock(programs.token_by_token(2, 128, 7, False), Limits())
    assert found is not None
    assert (found.cause, found.error) == ("head-of-line pin", "HEAP_RING_DEADLOCK")
