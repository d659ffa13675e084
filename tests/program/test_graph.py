"""The graph reading: one test for each rule of the runtime's dependency inference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyptox as px
from pyptox import lang as pl
from pyptox import program as pp
from pyptox.cli import main
from pyptox.program._findings import joined
from pyptox.program._tensor import ProgramError


@px.kernel(outputs={"out": lambda x: x}, tile={"m": 16, "n": 64})
def copy(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
    """``out = x``."""

    def block(i, j):
        at = (i * tile.m, j * tile.n)
        pl.store(out, at, pl.load(x, at, (tile.m, tile.n), space=pl.Vec))

    pl.grid((pl.cdiv(x.shape[0], tile.m), pl.cdiv(x.shape[1], tile.n)), block)


@px.kernel(outputs={"out": lambda x: x}, in_place={"out": "x"}, tile={"m": 16, "n": 64})
def double(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
    """``x += x`` in place."""

    def block(i, j):
        at = (i * tile.m, j * tile.n)
        part = pl.load(x, at, (tile.m, tile.n), space=pl.Vec)
        pl.store(out, at, pl.add(part, part))

    pl.grid((pl.cdiv(x.shape[0], tile.m), pl.cdiv(x.shape[1], tile.n)), block)


X = px.spec((32, 128), "fp32")


def edges(function, *, full=False):
    found = pp.graph(pp.program(function), X).edges
    if full:
        return [(e.pred, e.succ, e.source, e.flags, e.overlap) for e in found]
    return [(e.pred, e.succ, e.source) for e in found]


def test_an_output_that_the_runtime_allocates_is_found_through_its_creator():
    def chain(x):
        return pp.submit(copy, pp.submit(copy, x))

    assert edges(chain, full=True) == [(0, 1, "creator", ("wait", "retain"), None)]


def test_an_argument_of_the_program_has_no_creator():
    assert edges(lambda x: pp.submit(copy, x)) == []


def test_declared_dependencies_come_first_and_wait_and_retain():
    def declared(x):
        first = pp.submit(copy, x)
        second = pp.submit(copy, x)
        return pp.submit(copy, second, deps=[first])

    assert edges(declared, full=True) == [
        (0, 2, "explicit", ("wait", "retain"), None),
        (1, 2, "creator", ("wait", "retain"), None),
    ]


def test_a_read_after_a_write_into_existing_storage():
    def raw(x):
        held = pp.empty((32, 128), "fp32")
        pp.submit(copy, x, out=held)
        return pp.submit(copy, held)

    assert edges(raw, full=True) == [
        (0, 1, "creator", ("wait", "retain"), None),
        (0, 2, "creator", ("wait", "retain"), None),
        (1, 2, "tensormap", ("wait",), "covered"),
    ]


def test_a_write_after_a_read_is_not_tracked():
    def war(x):
        held = pp.empty((32, 128), "fp32")
        pp.submit(copy, x, out=held)
        read = pp.submit(copy, held)
        pp.submit(copy, x, out=held)
        return read

    graph = pp.graph(pp.program(war), X)
    assert 2 not in graph.waits()[3]
    found = pp.missing_orderings(graph)
    assert [(f.kind, f.first, f.second) for f in found] == [("WAW", 1, 3), ("WAR", 2, 3)]
    assert found[1].tensor == "empty"
    assert found[1].elements == (0, 32 * 128)


def test_writing_existing_storage_takes_no_lookup():
    # by the code of the runtime, OUTPUT_EXISTING has the creator's edge alone
    def waw(x):
        held = pp.empty((32, 128), "fp32")
        pp.submit(copy, x, out=held)
        return pp.submit(copy, x, out=held)

    assert edges(waw) == [(0, 1, "creator"), (0, 2, "creator")]


def test_two_tasks_that_update_in_place_follow_each_other_and_the_covered_entry_goes():
    def updates(x):
        first = pp.submit(double, x)
        second = pp.submit(double, first)
        return pp.submit(double, second)

    assert edges(updates, full=True) == [
        (0, 1, "tensormap", ("wait",), "covered"),
        (1, 2, "tensormap", ("wait",), "covered"),  # and none from 0, whose entry 1 has replaced
    ]


def test_an_update_of_a_part_leaves_the_entry():
    def parts(x):
        pp.submit(double, x)
        pp.submit(double, x[:16])
        return pp.submit(copy, x)

    assert edges(parts, full=True) == [
        (0, 1, "tensormap", ("wait",), "other"),
        (1, 2, "tensormap", ("wait",), "covered"),  # the reader's view holds all that 1 wrote
        (0, 2, "tensormap", ("wait",), "covered"),
    ]


def test_parts_that_are_disjoint_along_an_axis_do_not_wait():
    def halves(x):
        pp.submit(double, x[:, :64])
        return pp.submit(double, x[:, 64:])

    assert edges(halves) == []


def test_views_of_other_strides_wait_when_their_extents_meet():
    def reshaped(x):
        pp.submit(double, x[:, :64])
        flat = x.reshape(64, 64)  # its odd rows are the other half
        return pp.submit(copy, flat[1:2])

    graph = pp.graph(pp.program(reshaped), X)
    assert [(e.pred, e.succ, e.overlap) for e in graph.edges] == [(0, 1, "other")]
    (finding,) = pp.false_serialisation(graph)
    assert (finding.first, finding.second, finding.tensor) == (0, 1, "x")
    assert "no_dep" in finding.message


def test_no_dep_leaves_out_the_lookup_for_one_task():
    def opted_out(x):
        pp.submit(double, x)
        pp.submit(copy, pp.no_dep(x))
        return pp.submit(copy, x)

    assert edges(opted_out) == [(0, 2, "tensormap")]


def test_no_dep_keeps_the_creator():
    def made(x):
        return pp.submit(copy, pp.no_dep(pp.submit(copy, x)))

    assert edges(made) == [(0, 1, "creator")]


def test_a_tensor_with_manual_dep_is_never_looked_up_or_entered():
    def manual(x):
        held = pp.empty((32, 128), "fp32", manual_dep=True)
        pp.submit(copy, x, out=held)
        return pp.submit(copy, held)

    assert edges(manual) == [(0, 1, "creator"), (0, 2, "creator")]


def test_in_a_manual_scope_declared_dependencies_alone_count():
    def scoped(x):
        with pp.scope("manual"):
            first = pp.submit(copy, x)
            second = pp.submit(copy, first)
            return pp.submit(copy, second, deps=[first])

    assert edges(scoped) == [(0, 2, "explicit")]


def test_an_auto_scope_inside_a_manual_one_is_refused():
    def nested(x):
        with pp.scope("manual"), pp.scope("auto"):
            return pp.submit(copy, x)

    with pytest.raises(ProgramError, match="`auto` scope inside a `manual` one"):
        edges(nested)


def test_duplicate_producers_merge():
    def twice(x):
        first = pp.submit(copy, x)
        return pp.submit(copy, first, deps=[first])

    graph = pp.graph(pp.program(twice), X)
    assert [(e.pred, e.succ, e.source) for e in graph.edges] == [(0, 1, "explicit"), (0, 1, "creator")]
    assert graph.waits() == [[], [0]]


def test_a_dummy_joins():
    def joined(x):
        parts = [pp.submit(copy, x) for _ in range(3)]
        gate = pp.dummy(deps=parts)
        return pp.submit(copy, x, deps=[gate])

    graph = pp.graph(pp.program(joined), X)
    assert graph.tasks[3].shape == "DUMMY"
    assert graph.waits()[3:] == [[0, 1, 2], [3]]


def test_redundant_edges_name_the_way_round():
    def around(x):
        first = pp.submit(copy, x)
        second = pp.submit(copy, first)
        return pp.submit(copy, second, deps=[first])

    (finding,) = pp.redundant_edges(pp.graph(pp.program(around), X))
    assert (finding.kind, finding.first, finding.second) == ("redundant", 0, 2)
    assert "through t1 copy" in finding.message


def test_an_edge_that_keeps_storage_alive_is_needed(tmp_path, capsys):
    def written_twice(x):
        held = pp.empty((32, 128), "fp32", name="held")
        first = pp.submit(copy, x, out=held)
        return pp.submit(copy, x, out=held, deps=[first])

    (finding,) = pp.redundant_edges(pp.graph(pp.program(written_twice), X))
    assert (finding.kind, finding.first, finding.second) == ("needed", 0, 2)
    assert "keeps its storage alive" in finding.message
    place = tmp_path / "mine.py"
    place.write_text(
        "import pyptox as px\nfrom pyptox import program as pp\n"
        '@pp.program(sizes=lambda m=16: {"x": px.spec((m, 64), "fp32")})\n'
        "def twice(x):\n"
        '    held = pp.empty((16, 64), "fp32", name="held")\n'
        "    first = pp.submit(px.kernels.residual_add, x, x, out=held)\n"
        "    return pp.submit(px.kernels.residual_add, x, x, out=held, deps=[first])\n"
    )
    with pytest.raises(SystemExit):
        main(["graph", f"{place}:twice"])
    out = capsys.readouterr().out
    assert "redundant edges: 0" in out
    assert "edges that order nothing and are needed: 1" in out


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_joined_boxes_hold_the_same_elements(seed, rank):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 40))
    steps = rng.integers(1, 4, rank)
    boxes = np.concatenate([rng.integers(0, 5, (count, rank)) * steps, rng.integers(0, 2, (count, rank)) * steps], 1)
    boxes[: count // 2, rank:] = steps  # tiles of one grid
    found = joined(boxes)

    def covered(some):
        mask = np.zeros([20] * rank, bool)
        for box in some:
            mask[tuple(slice(a, a + n) for a, n in zip(box[:rank], box[rank:], strict=True))] = True
        return mask

    assert np.array_equal(covered(boxes), covered(found))
    assert len(found) <= len(boxes)
    grid = np.stack(np.meshgrid(*[np.arange(4)] * rank, indexing="ij"), -1).reshape(-1, rank) * steps
    whole = joined(rng.permutation(np.concatenate([grid, np.broadcast_to(steps, grid.shape)], 1)))
    assert whole.tolist() == [[0] * rank + (4 * steps).tolist()]


def test_a_planted_race_is_named_and_shows_itself():
    def race(x):
        held = pp.empty((32, 128), "fp32", name="held")
        pp.submit(copy, x, out=held)
        with pp.scope("manual"):
            pp.submit(double, held[16:])
        return pp.submit(copy, held[16:])

    @pp.program
    def mended(x):
        held = pp.empty((32, 128), "fp32", name="held")
        first = pp.submit(copy, x, out=held)
        with pp.scope("manual"):
            second = pp.submit(double, held[16:], deps=[first])
        return pp.submit(copy, held[16:], deps=[second])

    broken = pp.program(race)
    graph = pp.graph(broken, X)
    found = pp.missing_orderings(graph)
    assert {(f.kind, f.first, f.second) for f in found} >= {("RAW", 1, 2), ("RAW", 2, 3)}
    assert all(f.tensor == "held" and f.elements == (16 * 128, 32 * 128) for f in found)
    raw = next(f for f in found if (f.kind, f.first, f.second) == ("RAW", 1, 2))
    assert raw.part == "held[16:32, :]"
    assert all(part in str(raw) for part in ("t1 copy", "t2 double", "`held[16:32, :]`", "deps= on t1 copy"))
    array = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
    results = {np.asarray(pp.run(broken, array, order=order)).tobytes() for order in set(pp.orders(graph, 40))}
    assert len(results) > 1
    whole = pp.graph(mended, X)
    assert pp.missing_orderings(whole) == []
    results = {np.asarray(pp.run(mended, array, order=order)).tobytes() for order in set(pp.orders(whole, 40))}
    assert len(results) == 1
    np.testing.assert_array_equal(np.asarray(pp.run(mended, array)), 2 * array[16:])


def test_messages_say_what_was_expected():
    with pytest.raises(ProgramError, match="takes 1 inputs"):
        edges(lambda x: pp.submit(copy, x, x))
    with pytest.raises(ProgramError, match="`out` of `copy` must be"):
        edges(lambda x: pp.submit(copy, x, out=x[:16]))
    with pytest.raises(ProgramError, match="must return the tensors"):
        edges(lambda x: None)
    with pytest.raises(ProgramError, match="belong inside a function"):
        pp.empty((16, 16), "fp32")
