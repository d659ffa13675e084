"""Inputs by name, the float64 scope, snapshots, plain baselines, and the check that puts them together."""

import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import PyptoxError
from pyptox import lang as pl
from pyptox import precision as pr
from pyptox import program as pp
from pyptox._safetensors import read, write

MATMUL = px.kernels.matmul
SPECS = MATMUL.specs(px.spec((20, 300), "bf16"), px.spec((300, 100), "bf16"))
TILE: dict[str, Any] = {"m": 16, "n": 64, "k": 64}


# -------------------------------------------------------------------------------------------------------------- inputs
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "int8", "int32"])
@pytest.mark.parametrize("name", pr.DISTRIBUTIONS)
def test_draws_repeat_and_are_what_they_say(name, dtype):
    x = pr.draw(name, (64, 200), dtype, seed=3)
    assert x.tobytes() == pr.draw(name, (64, 200), dtype, seed=3).tobytes()
    assert name == "all_equal" or x.tobytes() != pr.draw(name, (64, 200), dtype, seed=4).tobytes()
    wide = x.astype(np.float64)
    assert np.isfinite(wide).all()
    if dtype in ("int8", "int32"):
        assert np.abs(wide).max() <= 128
        return
    info = jnp.finfo(x.dtype)
    size = np.abs(wide)
    expected = {
        "normal": abs(wide.std() - 1) < 0.05,
        "outliers": np.sum(size.max(axis=0) > 30) == 2,
        "lognormal": size.max() > 1e4 * size.min(),
        "near_overflow": size.min() >= 0.49 * float(info.max),
        "denormal": 0 < size.max() <= float(info.smallest_normal),
        "all_equal": len(np.unique(wide)) == 1,
        "ties": dtype != "fp32" or not np.any(np.asarray(pr.cast(x, "bf16")).astype(np.float64) == wide),
    }
    assert expected[name]


def test_ties_are_ties():
    x = pr.draw("ties", (1000,), "fp32")
    even, away = (np.asarray(pr.cast(x, "bf16", mode)).astype(np.float64) for mode in ("rint", "round"))
    assert 0.4 < np.mean(even != away) < 0.6
    half = np.abs(even - x.astype(np.float64)) == np.abs(away - x.astype(np.float64))
    assert half.all()


def test_a_slice_of_a_file(tmp_path):
    weights = np.arange(60, dtype=np.float32).reshape(6, 10)
    write(tmp_path / "w.safetensors", {"w": weights, "half": weights.astype(jnp.bfloat16)})
    x = pr.draw(f"{tmp_path}/w.safetensors:w", (3, 4), "fp32", seed=1)
    assert np.all(np.diff(x, axis=1) == 1)
    assert np.all(np.diff(x, axis=0) == 10)
    assert pr.draw(f"{tmp_path}/w.safetensors:half", (60,), "bf16").tolist() == weights.reshape(-1).tolist()
    with pytest.raises(PyptoxError, match="must hold 61 elements"):
        pr.draw(f"{tmp_path}/w.safetensors:w", (61,), "fp32")
    with pytest.raises(PyptoxError, match=r"names 'q'.* has w, half"):
        pr.draw(f"{tmp_path}/w.safetensors:q", (3,), "fp32")
    with pytest.raises(PyptoxError, match="`distribution` must be one of normal"):
        pr.draw("gauss", (3,), "fp32")
    with pytest.raises(PyptoxError, match="`distribution` names c"):
        pr.sample_inputs(MATMUL, SPECS, distribution={"c": "normal"})


# ------------------------------------------------------------------------------------------------------ float64 scope
def _pair():
    return pr.sample_inputs(MATMUL, SPECS)


def test_the_reference_is_float64_in_every_setting():
    inputs = _pair()
    expected = inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)
    results = []

    def work():
        results.append(px.reference(MATMUL, *inputs, **TILE))
        with jax.enable_x64(True):
            results.append(px.reference(MATMUL, *inputs, **TILE))
        with jax.enable_x64(False):
            results.append(px.reference(MATMUL, *inputs, **TILE))

    def traced(x):  # the reference of other arrays while the caller is being traced
        results.append(px.reference(MATMUL, *inputs, **TILE))
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        work()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        jax.jit(traced)(jnp.float32(1))
        jax.grad(traced)(jnp.float32(1))
    assert len(results) == 14
    for result in results:
        assert isinstance(result, np.ndarray)
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)
    assert not jax.config.read("jax_enable_x64")
    assert jnp.asarray(1.0).dtype == jnp.float32
    with pytest.raises(PyptoxError, match="`a` of a reference must be an array with values"):
        jax.jit(lambda a: px.reference(MATMUL, a, inputs[1], **TILE))(inputs[0])


def test_the_reference_of_a_program_is_float64():
    @pp.program
    def twice(x, w):
        return pp.submit(px.kernels.softmax, pp.submit(MATMUL, x, w, **TILE))

    x, w = _pair()
    expected = x.astype(np.float64) @ w.astype(np.float64)
    expected = np.exp(expected - expected.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    for x64 in (False, True):
        with jax.enable_x64(x64):
            got = pp.reference(twice, x, w)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, expected, rtol=1e-12)


# ----------------------------------------------------------------------------------------------------------- baselines
SHAPES = {
    **dict.fromkeys(("matmul", "matmul_split_k"), ((16, 96), (96, 64))),
    **dict.fromkeys(("matmul_nt", "matmul_split_k_nt", "matmul_panels", "matmul_staged"), ((16, 96), (64, 96))),
    "flash_attention": ((2, 64, 32),) * 3,
    **dict.fromkeys(("rms_norm", "rms_norm_tiled"), ((16, 96), (96,))),
    **dict.fromkeys(("layer_norm", "layer_norm_tiled"), ((16, 96), (96,), (96,))),
    **dict.fromkeys(("softmax", "softmax_two_pass", "softmax_online"), ((16, 96),)),
    **dict.fromkeys(("swiglu", "residual_add"), ((16, 96),) * 2),
}


@pytest.mark.parametrize("name", pr.BASELINES)
def test_plain_baselines_compute_what_the_kernels_do(name):
    kernel = vars(px.kernels)[name]
    dtypes = ["bf16" if len(shape) > 1 else "fp32" for shape in SHAPES[name]]
    specs = kernel.specs(*(px.spec(shape, dtype) for shape, dtype in zip(SHAPES[name], dtypes, strict=True)))
    values = kernel.configuration({})
    inputs = pr.sample_inputs(kernel, specs)
    truth = px.reference(kernel, *inputs)
    (out,) = pr.baseline(kernel, inputs, values).values()
    assert str(out.dtype) == {"bf16": "bfloat16", "fp32": "float32"}[specs["out"].dtype]
    assert pr.judge(pr.RelL2(4e-3), out, truth).passed
    assert pr.examine(kernel, specs, {}, gate=pr.VersusBaseline(k=2)).passed


def test_a_kernel_without_a_baseline_says_so():
    with pytest.raises(PyptoxError, match="quantize_per_token has no plain implementation"):
        pr.baseline(px.kernels.quantize_per_token, [np.ones((2, 32), np.float32)], {})


# ------------------------------------------------------------------------------------------------------------ examine
def _truncating(rounding: str):
    @px.kernel(outputs={"out": lambda x: px.spec(x.shape, "bf16")}, tile={"m": 16, "n": 64}, name="narrow")
    def narrow(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        def block(i, j):
            at = (i * tile.m, j * tile.n)
            part = pl.load(x, at, (tile.m, tile.n), space=pl.Vec)
            pl.store(out, at, pl.cast(part, "bf16", rounding=rounding))

        pl.grid((pl.cdiv(x.shape[0], tile.m), pl.cdiv(x.shape[1], tile.n)), block)

    return narrow


@pytest.mark.parametrize("distribution", ["normal", "outliers", "lognormal", "ties", "denormal", "all_equal"])
def test_a_good_kernel_passes_on_every_distribution(distribution):
    result = pr.examine(
        _truncating("rint"), _truncating("rint").specs(px.spec((32, 64), "fp32")), {}, distribution=distribution
    )
    assert result.passed, str(result)
    assert result.report.leaves[0].equal == 1.0


def test_ties_show_what_normal_inputs_hide():
    kernel = _truncating("round")
    specs = kernel.specs(px.spec((32, 64), "fp32"))
    gate = pr.BitEqual()
    assert pr.examine(kernel, specs, {}, gate=gate).passed
    result = pr.examine(kernel, specs, {}, seed=5, gate=gate, distribution="ties")
    assert not result.passed
    assert "seed 5" in result.summary


def test_overflow_is_found():
    result = pr.examine(MATMUL, SPECS, TILE, gate=pr.FiniteMatch(), distribution="near_overflow")
    assert not result.passed
    assert "NaN or infinite on one side only" in result.summary


# ----------------------------------------------------------------------------------------------------------- snapshots
@pytest.fixture
def saved(tmp_path):
    result = pr.examine(MATMUL, SPECS, TILE, seed=9, save_to=tmp_path / "run" / "a")
    return tmp_path / "run" / "a", result


def test_replay_is_bit_exact(saved):
    folder, result = saved
    again = pr.examine(MATMUL, SPECS, TILE, replay=folder)
    assert again.report == result.report
    assert again.seed == 9
    kept = pr.load(folder)
    inputs = pr.sample_inputs(
        MATMUL, {**SPECS, "a": px.spec(kept.inputs["a"].shape, "bf16"), "b": px.spec(kept.inputs["b"].shape, "bf16")}, 9
    )
    assert [kept.inputs[n].tobytes() for n in "ab"] == [x.tobytes() for x in inputs]
    assert kept.golden["out"].tobytes() == np.asarray(px.reference(MATMUL, *inputs, **TILE)).tobytes()
    assert pr.examine(MATMUL, SPECS, {"m": 32, "n": 128, "k": 32}, replay=folder).passed  # one golden for all tiles


def test_a_foreign_snapshot_is_refused(saved, tmp_path):
    folder, _ = saved
    other = MATMUL.specs(px.spec((20, 300), "fp16"), px.spec((300, 100), "fp16"))
    with pytest.raises(pr.SnapshotError, match=r"was saved for the tensors a bf16\[20,300\].*; expected a fp16"):
        pr.examine(MATMUL, other, TILE, replay=folder)
    nt = px.kernels.matmul_nt
    with pytest.raises(pr.SnapshotError, match="was saved of matmul; expected matmul_nt"):
        pr.examine(nt, nt.specs(px.spec((20, 300), "bf16"), px.spec((100, 300), "bf16")), TILE, replay=folder)
    specs = _truncating("rint").specs(px.spec((32, 64), "fp32"))
    pr.examine(_truncating("rint"), specs, {}, save_to=tmp_path / "narrow")
    assert pr.examine(_truncating("rint"), specs, {}, replay=tmp_path / "narrow").passed
    with pytest.raises(pr.SnapshotError, match="was saved of another text or other instructions"):
        pr.examine(_truncating("trunc"), specs, {}, replay=tmp_path / "narrow")
    with pytest.raises(pr.SnapshotError, match=r"has no snapshot.json"):
        pr.examine(MATMUL, SPECS, TILE, replay=tmp_path)


def test_a_damaged_snapshot_is_refused(saved):
    folder, _ = saved
    golden = folder / "golden.safetensors"
    whole = golden.read_bytes()
    for damage, message in (
        (whole[:-8], "is truncated"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "its hash differs"),
        (b"", "is truncated or no safetensors file"),
    ):
        golden.write_bytes(damage)
        with pytest.raises(pr.SnapshotError, match=message):
            pr.load(folder)
    write(golden, {"result": np.array(read_back(whole, folder))})
    with pytest.raises(pr.SnapshotError, match="other arrays than were saved: missing out; unknown result"):
        pr.load(folder)
    golden.rename(folder / "gold.safetensors")
    with pytest.raises(pr.SnapshotError, match=r"incomplete: golden.safetensors missing"):
        pr.load(folder)
    manifest = folder / "snapshot.json"
    content = json.loads(manifest.read_text())
    for text in ("{", json.dumps({**content, "format": "other"}), json.dumps({**content, "files": {}})):
        manifest.write_text(text)
        with pytest.raises(pr.SnapshotError, match="is damaged, or not of format"):
            pr.load(folder)


def read_back(content: bytes, folder: Path) -> np.ndarray:
    (folder / "again.safetensors").write_bytes(content)
    return read(folder / "again.safetensors")["out"]


def test_saving_refuses_a_folder_that_holds_something(saved):
    folder, _ = saved
    with pytest.raises(pr.SnapshotError, match="must be new or empty"):
        pr.examine(MATMUL, SPECS, TILE, save_to=folder)


def test_a_killed_save_leaves_no_half_snapshot(tmp_path):
    script = (
        "import os, sys, numpy as np\n"
        "from pyptox.precision import _snapshot\n"
        "from pyptox.precision import save\n"
        "write, count = _snapshot.write, []\n"
        "def killed(path, arrays):\n"
        "    count.append(path)\n"
        "    write(path, arrays)\n"
        "    if len(count) == 2:\n"
        "        os._exit(9)\n"
        "_snapshot.write = killed\n"
        "save(sys.argv[1], {'x': np.ones(3)}, {'y': np.ones(3)}, {})\n"
    )
    target = tmp_path / "snapshot"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", script, str(target)], env=environment, timeout=120, check=False)
    assert ended.returncode == 9
    assert not target.exists()
    pr.save(target, {"x": np.ones(3)}, {"y": np.ones(3)}, {})  # and what is left over is not in the way
    assert pr.load(target).golden["y"].tolist() == [1, 1, 1]


def test_an_interrupted_save_cleans_up(tmp_path, monkeypatch):
    def interrupted(path, text):
        raise KeyboardInterrupt

    monkeypatch.setattr("pyptox.precision._snapshot.write_whole", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pr.save(tmp_path / "a", {}, {}, {})
    assert list(tmp_path.iterdir()) == []


def test_the_identity_of_a_program_changes_with_a_task():
    def program(rounding):
        @pp.program(sizes=lambda: {"x": px.spec((32, 64), "fp32")})
        def one(x):
            return pp.submit(_truncating(rounding), x)

        return pr.identity_of(pp.graph(one))

    assert program("rint") == program("rint")
    assert program("rint")["computes"] != program("trunc")["computes"]
    assert program("rint")["specs"] == {"x": "fp32[32,64]"}


# ---------------------------------------------------------------------------------------------------------- quantisers
def test_the_quantiser_does_what_the_kernel_does():
    x = np.random.default_rng(0).standard_normal((16, 96), np.float32)
    x[3] = 0
    out, scale = px.run(px.kernels.quantize_per_token, x)
    q = pr.quantize(x)
    np.testing.assert_array_equal(q.values, out)
    np.testing.assert_array_equal(q.scale, scale)
    np.testing.assert_array_equal(q.dequantize(), px.run(px.kernels.dequantize_per_token, out, scale))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("per", pr.GRANULARITIES)
def test_a_quantiser_errs_by_half_a_step(per, symmetric):
    x = np.random.default_rng(0).lognormal(size=(24, 96)).astype(np.float32)
    q = jax.jit(lambda x: pr.quantize(x, per=per, group=32 if per == "group" else None, symmetric=symmetric))(x)
    step = np.broadcast_to(q.scale, (24, 3, 32) if per == "group" else (24, 96)).reshape(24, 96)
    error = np.abs(np.asarray(q.dequantize(), np.float64) - x)
    assert np.all(error <= 0.5001 * step * (1 if symmetric else 2))
    assert q.values.dtype == jnp.int8


def test_finer_scales_err_less_and_asymmetric_uses_the_whole_range():
    x = pr.draw("outliers", (64, 256), "fp32")
    error = {}
    for per in pr.GRANULARITIES:
        q = pr.quantize(x, per=per, group=16 if per == "group" else None)
        error[per] = pr.compare(np.asarray(q.dequantize()), x.astype(np.float64)).leaves[0].relative_l2
    assert error["tensor"] > error["token"] > error["group"]
    assert error["tensor"] > error["channel"]
    positive = np.abs(x)
    rmse = {
        symmetric: pr.compare(np.asarray(pr.quantize(positive, symmetric=symmetric).dequantize()), positive)
        .leaves[0]
        .rmse
        for symmetric in (True, False)
    }
    assert rmse[False] < 0.6 * rmse[True]


def test_static_scales_saturate_and_arguments_are_checked():
    q = pr.quantize(np.array([[1, 300]], np.float32), scale=jnp.float32(1.0))
    assert q.values.tolist() == [[1, 127]]
    q = pr.quantize(np.array([[-1, 2]], np.float32), symmetric=False, scale=jnp.float32(0.5), zero=jnp.float32(-100))
    assert q.values.tolist() == [[-102, -96]]
    assert q.dequantize().tolist() == [[-1, 2]]
    x = np.ones((2, 6), np.float32)
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"per": "row"}, "`per` must be one of"),
        ({"per": "group"}, "`group` goes with"),
        ({"per": "group", "group": 4}, "that `group` divides"),
        ({"dtype": "bf16"}, "`dtype` of quantize"),
        ({"dtype": "fp8_e5m2", "symmetric": False}, "`symmetric` must be True"),
        ({"symmetric": False, "scale": jnp.float32(1)}, "needs its `zero`"),
    )
    for options, message in cases:
        with pytest.raises(PyptoxError, match=message):
            pr.quantize(x, **options)


def test_a_survey_shares_inputs_and_part():
    found = pr.survey(MATMUL, SPECS, [TILE, {"m": 32, "n": 128, "k": 16}], gate=pr.Ulp(max=0.6))
    assert found[0].compared == found[1].compared
    assert [leaf.name for leaf in found[0].report.leaves] == ["out"]
    assert all(result.passed for result in found)
    assert pr.survey(MATMUL, SPECS, []) == []


def test_arguments_are_named_where_they_are_wrong(tmp_path):
    with pytest.raises(PyptoxError, match="`seed` must be 0 or more, an integer; got -1"):
        pr.draw("normal", (4,), "fp32", seed=-1)
    with pytest.raises(PyptoxError, match=r"`distribution` must name a safetensors file that exists; got 'no"):
        pr.draw("no.safetensors:x", (4,), "fp32")
    with pytest.raises(PyptoxError, match=r"`distribution` is of inputs that are drawn.*got outliers"):
        pr.examine(MATMUL, SPECS, TILE, distribution="outliers", replay=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(pr.SnapshotError, match="`folder` must be where files can be made"):
        pr.save(tmp_path / "file" / "deeper" / "x", {}, {}, {})


def test_what_is_not_finite_is_said_by_the_attribution():
    report = pr.attribute(px.kernels.residual_add, np.full((4, 32), np.nan, np.float32), np.ones((4, 32), np.float32))
    assert not report.exact
    assert not report.holds
    assert report.not_finite == 128
    assert "no output is finite" in str(report)
