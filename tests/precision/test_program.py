"""Programs beside float64: gates, snapshots, attribution and walks, as kernels have them; and the command line."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import artifacts
from pyptox import precision as pr
from pyptox import program as pp
from pyptox.cli import main
from pyptox.precision._check import golden_and_bound, golden_of

MLP = "docs/programs/mlp.py:mlp"
SIZES = ["tokens=16", "width=64", "hidden=96"]


@pp.program(sizes=lambda rows=16: {"x": px.spec((rows, 64), "bf16"), "w": px.spec((64, 32), "bf16")})
def projected(x, w):
    return pp.submit(px.kernels.softmax, pp.submit(px.kernels.matmul, x, w, m=16, n=32, k=32), m=8)


@pp.program
def cached(x, w, cache, slots):
    wide = pp.submit(px.kernels.matmul_split_k, x, w, m=16, n=32, k=32, splits=2)
    pp.submit(px.kernels.matmul_split_k, x, w, out=wide, m=16, n=32, k=32, splits=2)
    narrow = pp.submit(px.kernels.convert("bf16"), wide, m=16, n=32)
    for layer in range(2):
        pp.submit(px.kernels.cache_write, narrow, slots[layer], cache[layer], m=16, n=32)
    return cache, narrow


def _cached_specs():
    return cached.specs(
        px.spec((16, 64), "bf16"), px.spec((64, 32), "bf16"), px.spec((2, 24, 32), "bf16"), px.spec((2, 16), "int32")
    )


@pytest.mark.parametrize("distribution", ["normal", "outliers", "denormal"])
def test_a_good_program_passes(distribution):
    found = pr.examine_program(projected, distribution=distribution, seed=3)
    assert found.passed, found
    assert list(found.golden) == ["softmax.out"]
    np.testing.assert_allclose(found.golden["softmax.out"], pp.reference(projected, *found.inputs), rtol=1e-12)


def test_views_places_and_atomic_adds():
    found = pr.examine_program(cached, _cached_specs())
    assert found.passed, found
    slots = found.inputs[3]
    assert all(len(set(row)) == 16 for row in slots)  # distinct within each view that is written through
    assert slots.min() >= 0
    assert slots.max() < 24
    expected = pp.reference(cached, *found.inputs)
    for got, wanted in zip(found.golden.values(), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_the_bound_is_of_the_size_of_the_error_and_a_fault_exceeds_it():
    @pp.program
    def twice_rounded(x, w):
        wide = pp.submit(px.kernels.matmul_wide, x, w, m=16, n=32, k=32)
        return pp.submit(px.kernels.convert("bf16", "trunc"), wide, m=16, n=32)

    specs = projected.specs()
    found = pr.examine_program(twice_rounded, specs)
    assert not found.passed
    assert "beyond what rounding may cost" in found.summary


def test_gates_name_the_results():
    assert pr.examine_program(projected, gate={"softmax.out": pr.RelL2(1e-2)}).passed
    failed = pr.examine_program(projected, gate=pr.RelL2(1e-6), seed=4)
    assert not failed.passed
    assert "softmax.out: FAILED RelL2" in failed.summary
    assert "seed 4" in failed.summary


def test_replay_of_a_program(tmp_path):
    saved = pr.examine_program(projected, save_to=tmp_path / "kept", seed=5, distribution="lognormal")
    again = pr.examine_program(projected, replay=tmp_path / "kept")
    assert again.seed == 5
    for one, other in zip(saved.inputs, again.inputs, strict=True):
        np.testing.assert_array_equal(one.view(np.uint16), other.view(np.uint16))
    assert again.report == saved.report
    with pytest.raises(pr.SnapshotError, match="was saved for the tensors"):
        pr.examine_program(projected, projected.specs(rows=32), replay=tmp_path / "kept")
    with pytest.raises(pr.SnapshotError, match="was saved of projected; expected cached"):
        pr.examine_program(cached, _cached_specs(), replay=tmp_path / "kept")


def test_what_is_too_large_is_said():
    with pytest.raises(pr.TooLargeError, match="at most 268,435,456 elements; projected has"):
        pr.examine_program(projected, projected.specs(rows=1 << 22))


def test_the_bound_reads_the_same_float64_as_the_reference():
    for kernel, specs in (
        (px.kernels.rms_norm, px.kernels.rms_norm.specs(px.spec((16, 200), "bf16"), px.spec((200,), "fp32"))),
        (px.kernels.w8a8_matmul, px.kernels.w8a8_matmul.specs(
            px.spec((16, 64), "int8"), px.spec((64, 32), "int8"), px.spec((16, 1), "fp32"), px.spec((32,), "fp32"))),
        (px.kernels.quantize_per_token, px.kernels.quantize_per_token.specs(px.spec((16, 200), "bf16"))),
    ):  # fmt: skip
        values, chip = kernel.configuration({}), px.hardware.a2a3()
        inputs = pr.sample_inputs(kernel, specs, 1)
        made, _ = golden_and_bound(kernel, specs, values, chip, inputs)
        for got, expected in zip(made, golden_of(kernel, specs, *inputs, hardware=chip, **values), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300)


# ---------------------------------------------------------------------------------------------------------------- walks
def test_a_walk_beside_float64_names_the_task():
    @pp.program
    def faulty(x, w):
        wide = pp.submit(px.kernels.matmul_wide, x, w, m=16, n=32, k=32)
        narrow = pp.submit(px.kernels.convert("bf16", "trunc"), wide, m=16, n=32)
        return pp.submit(px.kernels.softmax, narrow, m=8)

    arrays = [pr.draw("normal", s.shape, s.dtype, seed=1) for s in projected.specs().values()]
    found = pr.walk_float64(faulty, *arrays)
    assert found.first is not None
    assert found.first.name.startswith("t1 convert")
    assert [stage.guilty for stage in found.stages] == [False, True, False]
    assert found.stages[2].alone is not None
    assert found.stages[2].alone.passed
    assert pr.walk_float64(projected, *arrays).passed


def _dump(arrays, graph, culprit: str):
    made = []
    for stage in pr.stages(cached, *arrays):
        outputs = stage.outputs
        if stage.name == culprit:
            outputs = {n: (a.astype(np.float32) * np.float32(1.02)).astype(a.dtype) for n, a in outputs.items()}
        made.append(pr.Stage(stage.name, stage.inputs, outputs))
    return artifacts.dump_of(made, graph)


def test_arguments_come_from_the_dump():
    recorded = pp.graph(cached, *_cached_specs().values())
    arrays = pr.sample_program_inputs(recorded, px.hardware.a2a3(), seed=2)
    dump = _dump(arrays, recorded, "")
    for got, expected in zip(artifacts.arguments_of(dump, recorded), arrays, strict=True):
        np.testing.assert_array_equal(got, expected)
    without = artifacts.ArgsDump(tuple(arg for arg in dump.args if arg.stage != "before_dispatch"))
    with pytest.raises(px.PyptoxError, match="must hold what t0 matmul_split_k read of argument `x`"):
        artifacts.arguments_of(without, recorded)
    kept = dict(zip(recorded.arguments, arrays, strict=True))
    assert artifacts.arguments_of(without, recorded, kept)[0].dtype == jnp.bfloat16


# ---------------------------------------------------------------------------------------------------- the command line
def _run(capsys, *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(["check", *arguments])
    streams = capsys.readouterr()
    return int(stop.value.code or 0), streams.out + streams.err


def test_check_of_a_program(capsys, tmp_path):
    code, out = _run(capsys, MLP, *SIZES, "--attribute", "--walk", "--save", str(tmp_path / "kept"))
    assert code == 0, out
    assert "within what rounding may cost" in out
    assert "first order holds" in out
    assert "every stage is good" in out
    code, out = _run(capsys, MLP, *SIZES, "--replay", str(tmp_path / "kept"), "--gate", "rel_l2:1e-9", "--json")
    answer = json.loads(out)
    assert code == 1
    assert not answer["passed"]
    assert answer["precision"]["distribution"].startswith("replayed from")
    assert all(v["passed"] for v in answer["verification"])


def test_check_refuses_what_does_not_fit(capsys):
    for arguments, message in (
        ((), "needs a kernel or a program"),
        ((MLP, "--m", "3"), "`--m` belongs to a kernel"),
        (("softmax", "tokens=3"), "belong to a program"),
        ((MLP, "width=oops"), "sizes of a program are name=integer"),
        (("softmax", "--m", "4", "--n", "64", "--walk"), "names no tiles"),
    ):
        code, out = _run(capsys, *arguments)
        assert code == 2, out
        assert message in out
        assert "Traceback" not in out


def test_check_of_a_capture(capsys, tmp_path):
    program = tmp_path / "twice.py"
    program.write_text(
        "import pyptox as px\nfrom pyptox import program as pp\n\n"
        "@pp.program(sizes=lambda rows=16: {'x': px.spec((rows, 32), 'bf16'), 'w': px.spec((32, 32), 'bf16')})\n"
        "def twice(x, w):\n"
        "    first = pp.submit(px.kernels.matmul, x, w, name='first', m=16, n=32, k=32)\n"
        "    return pp.submit(px.kernels.matmul, first, w, name='second', m=16, n=32, k=32)\n"
    )
    from pyptox.cli._programs import program_at

    twice = program_at(f"{program}:twice")
    recorded = pp.graph(twice)
    arrays = pr.sample_program_inputs(recorded, px.hardware.a2a3())
    good = pr.stages(twice, *arrays)
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    artifacts.write_args_dump(tmp_path / "good", artifacts.dump_of(good, recorded))
    code, out = _run(capsys, f"{program}:twice", "--capture", str(tmp_path / "good"))
    assert code == 0, out
    assert "every stage is good" in out
    wrong = pr.Stage(good[1].name, good[1].inputs, {"out": -good[1].outputs["out"]})
    artifacts.write_args_dump(tmp_path / "bad", artifacts.dump_of([good[0], wrong], recorded))
    code, out = _run(capsys, f"{program}:twice", "--capture", str(tmp_path / "bad"), "--json")
    assert code == 1
    assert json.loads(out)["walk"]["first"] == "t1 second"
    code, out = _run(capsys, f"{program}:twice", "--capture", str(tmp_path / "absent"))
    assert code == 2
    code, out = _run(capsys, "softmax", "--m", "4", "--n", "64", "--capture", str(tmp_path / "good"))
    assert code == 2
