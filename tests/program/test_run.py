"""Values of programs."""

import importlib.util
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl
from pyptox import program as pp
from pyptox.cli import main
from pyptox.program._tensor import ProgramError

MLP = Path(__file__).parents[2] / "docs" / "programs" / "mlp.py"


def _mlp():
    spec = importlib.util.spec_from_file_location("mlp", MLP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mlp


def _inputs(tokens, width, hidden):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((tokens, width)).astype(np.float32)
    norm = rng.uniform(0.5, 1.5, width).astype(np.float32)
    weights = [rng.standard_normal(s) / np.sqrt(s[0]) for s in ((width, hidden), (width, hidden), (hidden, width))]
    return [x, norm, *(w.astype(jnp.bfloat16) for w in weights)]


def test_an_mlp_block_against_numpy():
    mlp, inputs = _mlp(), _inputs(5, 96, 160)
    x, norm, gate, up, down = (np.asarray(a).astype(np.float64) for a in inputs)
    h = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * norm
    g = h @ gate
    expected = x + (g / (1 + np.exp(-g)) * (h @ up)) @ down
    np.testing.assert_allclose(pp.reference(mlp, *inputs), expected, rtol=1e-12)
    out = np.asarray(pp.run(mlp, *inputs))
    assert out.dtype == np.float32
    assert np.linalg.norm(out - expected) < 0.01 * np.linalg.norm(expected)


def test_every_permitted_order_gives_the_same_values():
    mlp, inputs = _mlp(), _inputs(5, 96, 160)
    graph = pp.graph(mlp, tokens=5, width=96, hidden=160)
    assert pp.missing_orderings(graph) == []
    first = np.asarray(pp.run(mlp, *inputs))
    for order in set(pp.orders(graph, 6)):
        np.testing.assert_array_equal(np.asarray(pp.run(mlp, *inputs, order=order)), first)
    with pytest.raises(ProgramError, match="runs t2 gate before t1"):
        pp.run(mlp, *inputs, order=[0, 2, 1, 3, 4, 5, 6])
    with pytest.raises(ProgramError, match="each of the 7 tasks once"):
        pp.run(mlp, *inputs, order=[0, 1, 2])


def test_a_second_run_of_the_same_types_is_not_compiled_again():
    from pyptox.program._run import _compiled

    mlp, inputs = _mlp(), _inputs(5, 96, 160)
    pp.run(mlp, *inputs)
    before = _compiled.cache_info().misses
    pp.run(mlp, *(-array for array in inputs))
    assert _compiled.cache_info().misses == before


def test_atomic_adds_go_to_what_is_there():
    @pp.program
    def accumulate(a, b):
        held = pp.empty((16, 64), "fp32", name="sum")
        pp.submit(px.kernels.matmul_split_k, a, b, out=held, m=16, n=64, k=64, splits=2)
        pp.submit(px.kernels.matmul_split_k, a, b, out=held, m=16, n=64, k=64, splits=2)
        return held

    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(jnp.bfloat16) for s in ((16, 256), (256, 64)))
    expected = 2 * np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    np.testing.assert_allclose(np.asarray(pp.run(accumulate, a, b)), expected, rtol=1e-3, atol=1e-3)
    graph = pp.graph(accumulate, px.spec((16, 256), "bf16"), px.spec((256, 64), "bf16"))
    assert [(e.pred, e.succ, e.source) for e in graph.edges] == [
        (0, 1, "creator"),
        (0, 2, "creator"),
        (1, 2, "tensormap"),
    ]


def test_views_read_and_write_their_elements():
    @pp.program
    def columns(x):
        halves = [pp.submit(px.kernels.convert("fp32"), x[:, a : a + 32], m=16, n=32) for a in (0, 32)]
        held = pp.empty((8, 64), "fp32")
        for half, at in zip(halves, (32, 0), strict=True):
            pp.submit(px.kernels.copy, half, out=held[:, at : at + 32], m=16, n=32)
        return held, held.reshape(16, 32)

    x = np.arange(512, dtype=np.float32).reshape(8, 64)
    whole, flat = pp.run(columns, x)
    np.testing.assert_array_equal(np.asarray(whole), np.roll(x, 32, axis=1))
    np.testing.assert_array_equal(np.asarray(flat), np.roll(x, 32, axis=1).reshape(16, 32))


def test_a_control_input_is_handed_over_with_its_values():
    @pp.program
    def experts(x, w):
        return pp.submit(px.kernels.grouped_matmul, x, w, pl.control([3, 0, 5]), m=16, n=32, k=32)

    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((8, 32), (3, 32, 32)))
    expected = np.concatenate([x[:3] @ w[0], x[3:] @ w[2]])
    np.testing.assert_allclose(np.asarray(pp.run(experts, x, w)), expected, rtol=1e-4, atol=1e-5)


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_the_command_line_shows_the_graph(capsys, tmp_path):
    code, out, _ = run(capsys, "graph", f"{MLP}:mlp", "tokens=32")
    assert code == 0
    assert "missing orderings: 0" in out
    code, out, _ = run(capsys, "graph", f"{MLP}:mlp", "--json")
    assert [task["name"] for task in json.loads(out)["tasks"]][2:4] == ["gate", "up"]
    code, out, _ = run(capsys, "graph", f"{MLP}:mlp", "--dot")
    assert out.startswith('digraph "mlp"')
    code, _, err = run(capsys, "graph", f"{MLP}:mlp", "toks=3")
    assert code == 2
    assert "is not a size of `mlp`; it has tokens, width, hidden" in err
    for place in ("mlp.py", f"{MLP}:nothing", "absent.py:mlp"):
        code, _, err = run(capsys, "graph", place)
        assert code == 2
        assert "`PROGRAM`" in err
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_like_it\n")
    code, _, err = run(capsys, "graph", f"{broken}:x")
    assert code == 2
    assert "cannot be read" in err
    assert "ModuleNotFoundError" in err


def _shared_out(x, w, rows):
    return pp.submit(px.kernels.grouped_matmul, x, w, rows, m=16, n=32, k=32)


def test_a_control_argument_takes_other_values_without_compiling_again():
    from pyptox.program._run import _compiled

    shared_out = pp.program(_shared_out)
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((8, 32), (3, 32, 32)))
    function = None
    for rows in ([3, 0, 5], [0, 8, 0], [1, 2, 3]):
        groups = np.repeat(np.arange(3), rows)
        expected = np.zeros((8, 32))
        expected[: len(groups)] = np.einsum("rk,rkn->rn", x[: len(groups)].astype(float), w[groups])
        found = pp.run(shared_out, x, w, px.control(rows))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(pp.reference(shared_out, x, w, px.control(rows)), expected, rtol=1e-12)
        kinds = px.spec(x.shape, "fp32"), px.spec(w.shape, "fp32"), px.control([0, 0, 0])
        function = function or _compiled(shared_out, kinds, None, (), True, None)[0]
        assert function.compilations == 1  # type: ignore[attr-defined]
    with pytest.raises(px.KernelError, match="sum to 9"):
        pp.run(shared_out, x, w, px.control([4, 4, 1]))


def test_task_by_task_is_the_same():
    mlp, inputs = _mlp(), _inputs(5, 96, 160)
    np.testing.assert_allclose(pp.run(mlp, *inputs, whole=False), pp.run(mlp, *inputs), rtol=1e-6, atol=1e-6)


def test_views_of_a_control_argument():
    @pp.program
    def halves(x, w, rows):
        parts = [_shared_out(x, w[a : a + 2], rows[a : a + 2]) for a in (0, 2)]
        return tuple(parts)

    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((8, 32), (4, 32, 32)))
    graph = pp.graph(halves, px.spec(x.shape, "fp32"), px.spec(w.shape, "fp32"), px.control([1, 2, 3, 4]))
    assert [task.control["rows"].values for task in graph.tasks] == [(1, 2), (3, 4)]
    first, second = pp.run(halves, x, w, px.control([1, 2, 3, 4]))
    np.testing.assert_allclose(np.asarray(first)[1:3], x[1:3] @ w[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(second)[3:7], x[3:7] @ w[3], rtol=1e-4, atol=1e-5)


def test_a_donated_argument_is_updated_in_its_place():
    @pp.program
    def write(x, slots, cache):
        return pp.submit(px.kernels.cache_write, x, slots, cache, m=16, n=32)

    cache = jnp.zeros((64, 32), jnp.float32)
    place = cache.unsafe_buffer_pointer()
    found = pp.run(write, jnp.ones((2, 32)), jnp.array([5, 63], jnp.int32), cache, donate=["cache"])
    assert found.unsafe_buffer_pointer() == place
    assert cache.is_deleted()
    assert np.flatnonzero(np.asarray(found).sum(1)).tolist() == [5, 63]
    with pytest.raises(ProgramError, match="`donate` names"):
        pp.run(write, jnp.ones((2, 32)), jnp.array([5, 63], jnp.int32), found, donate=["out"])
