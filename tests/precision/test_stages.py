"""Which task of a program is to blame, from its own values or from a device's dump."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import artifacts
from pyptox import program as pp
from pyptox.precision import RelL2, Stage, emulated, stages, walk


@pp.program
def block(x, gain, w, cache, slots):
    normed = pp.submit(px.kernels.rms_norm, x, gain, m=8)
    with pp.scope():
        hidden = pp.submit(px.kernels.matmul, normed, w, name="project", m=16, n=32, k=32)
        active = pp.submit(px.kernels.swiglu, hidden, hidden, m=16, n=32)
    return pp.submit(px.kernels.cache_write, active, slots, cache, m=16, n=32)


def _arrays():
    rng = np.random.default_rng(0)
    x, w, cache = (rng.standard_normal(s).astype(jnp.bfloat16) for s in ((16, 64), (64, 32), (24, 32)))
    return x, np.ones(64, np.float32), w, cache, rng.permutation(24)[:16].astype(np.int32)


def test_the_emulated_golden_is_bit_equal_to_operation_by_operation_numpy():
    rng = np.random.default_rng(1)
    gate, up = (rng.standard_normal((16, 64)).astype(np.float32) for _ in range(2))
    cos, sin = (rng.standard_normal((4, 32)).astype(np.float32) for _ in range(2))
    x = rng.standard_normal((4, 3, 64)).astype(np.float32)
    a, b, c, s = x[..., :32], x[..., 32:], cos[:, None], sin[:, None]
    expected = np.concatenate([a * c - b * s, b * c + a * s], axis=-1)
    # a product and a sum that were contracted into one rounding would differ in a quarter of the elements
    np.testing.assert_array_equal(emulated(px.kernels.rope, x, cos, sin), expected)
    np.testing.assert_array_equal(emulated(px.kernels.residual_add, gate, up), gate + up)


def test_stages_end_in_what_the_program_returns():
    arrays = _arrays()
    last = stages(block, *arrays)[-1].outputs["out"]
    np.testing.assert_array_equal(last, np.asarray(pp.run(block, *arrays)))


def test_its_own_values_are_good():
    arrays = _arrays()
    found = walk(block, *arrays, candidate=stages(block, *arrays))
    assert found.passed
    assert [stage.name for stage in found.stages] == ["t0 rms_norm", "t1 project", "t2 swiglu", "t3 cache_write"]


def _device(arrays, culprit: str):
    """What a device would hold on which ``culprit`` computes in a coarser way."""
    values = list(arrays)
    made = []
    for stage in stages(block, *values):
        outputs = dict(stage.outputs)
        if stage.name == culprit:
            wide = next(iter(outputs.values())).astype(np.float32)
            outputs = dict.fromkeys(outputs, (wide * np.float32(1.03)).astype(jnp.bfloat16))
        made.append(Stage(stage.name, stage.inputs, outputs))
    changed = next(n for n, stage in enumerate(made) if stage.name == culprit)
    # what comes after is computed by correct tasks from wrong inputs
    active = emulated(px.kernels.swiglu, made[1].outputs["out"], made[1].outputs["out"], m=16, n=32)
    if changed <= 1:
        made[2] = Stage("t2 swiglu", {"gate": made[1].outputs["out"], "up": made[1].outputs["out"]}, {"out": active})
        later = emulated(px.kernels.cache_write, active, arrays[4], arrays[3], m=16, n=32)
        made[3] = Stage("t3 cache_write", {"x": active, "slots": arrays[4], "cache": arrays[3]}, {"out": later})
    return made


def test_the_first_bad_task_is_named_from_a_dump(tmp_path):
    arrays = _arrays()
    recorded = pp.graph(block, *(px.spec(a.shape, str(a.dtype)) for a in arrays))
    artifacts.write_args_dump(tmp_path, artifacts.dump_of(_device(arrays, "t1 project"), recorded))
    device = artifacts.dumped_stages(artifacts.read_args_dump(tmp_path), recorded)
    found = walk(block, *arrays, candidate=device)
    assert found.first is not None
    assert found.first.name == "t1 project"
    assert [stage.guilty for stage in found.stages] == [False, True, False, False]
    bad = found.stages[2]
    assert bad.inputs is not None
    assert bad.alone is not None
    assert not bad.inputs.passed
    assert bad.alone.passed
    assert "first bad stage: t1 project" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["first"] == "t1 project"


def test_without_inputs_the_golden_run_decides(tmp_path):
    arrays = _arrays()
    device = [dataclasses.replace(stage, inputs={}) for stage in _device(arrays, "t1 project")]
    found = walk(block, *arrays, candidate=device[1:], gate=RelL2(1e-2))
    assert found.first is not None
    assert found.first.name == "t1 project"
    assert found.stages[0].outputs is None


def test_task_ids_follow_the_rings():
    recorded = pp.graph(block, *(px.spec(a.shape, str(a.dtype)) for a in _arrays()))
    assert {number: task.number for number, task in artifacts.task_ids(recorded).items()} == {
        0: 0,
        1 << 32: 1,
        (1 << 32) | 1: 2,
        1: 3,
    }


def _dump(tmp_path, change=lambda content: None):
    value = np.arange(8, dtype=np.float16).reshape(2, 4)
    args = (
        artifacts.DumpedArg(1, "input", "before_dispatch", 0, value, func_ids=(4,)),
        artifacts.DumpedArg(1, "input", "before_dispatch", 1, 7),
        artifacts.DumpedArg(1 << 32, "output", "after_completion", 2, value.astype(jnp.bfloat16)),
    )
    file = artifacts.write_args_dump(tmp_path, artifacts.ArgsDump(args, run_dir="run", level=2))
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return args


def test_a_dump_is_read_as_written(tmp_path):
    args = _dump(tmp_path)
    dump = artifacts.read_args_dump(tmp_path)
    assert (dump.run_dir, dump.level, dump.dropped) == ("run", 2, 0)
    for got, wrote in zip(dump.args, args, strict=True):
        assert (got.task_id, got.role, got.stage, got.index) == (wrote.task_id, wrote.role, wrote.stage, wrote.index)
        assert np.asarray(got.value).dtype == np.asarray(wrote.value).dtype
        np.testing.assert_array_equal(got.value, wrote.value)
    assert dump.args[0].func_ids == (4,)
    assert json.loads((tmp_path / "args_dump.json").read_text())["args"][0]["task_id"] == "0x0000000000000001"


def test_what_was_cut_has_no_value(tmp_path):
    _dump(tmp_path, lambda content: content["args"][0].update(truncated=True, bin_size=4))
    first = artifacts.read_args_dump(tmp_path).args[0]
    assert first.value is None
    assert not first.whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["args"][0].update(dtype="float12"), r"args\[0\].dtype: `dtype` must be one of float64"),
        (lambda c: c["args"][2].update(bin_size=99), r"args\[2\].bin_size: bfloat16\[2, 4\] takes 16 bytes; got 99"),
        (lambda c: c["args"][0].update(bin_offset=1 << 20), "are missing; it has 32. Was it cut short"),
        (lambda c: c["args"][1].update(role="in"), "`role` must be input or output or inout; got 'in'"),
        (lambda c: c["args"][1].update(task_id="zz"), "`task_id` must be hexadecimal digits"),
        (lambda c: c.update(total_args=9), "`total_args` is 9, the file holds 3"),
        (lambda c: c.pop("args"), "the key `args` is missing"),
        (lambda c: c.update(bin_file="other.bin"), "the payload 'other.bin' is not beside args_dump.json"),
        (lambda c: c["bin_format"].update(byte_order="big_endian"), "`bin_format` must be .*little_endian.* got"),
    ],
)
def test_a_damaged_dump_is_refused(tmp_path, change, message):
    _dump(tmp_path, change)
    with pytest.raises(artifacts.ArtifactError, match=message):
        artifacts.read_args_dump(tmp_path)


def test_a_dump_of_another_program_is_refused(tmp_path):
    recorded = pp.graph(block, *(px.spec(a.shape, str(a.dtype)) for a in _arrays()))
    value = np.zeros((2, 2), np.float32)
    foreign = artifacts.ArgsDump((artifacts.DumpedArg(99, "output", "after_completion", 0, value),))
    with pytest.raises(px.PyptoxError, match="argument 0 of t99; no such task"):
        artifacts.dumped_stages(foreign, recorded)
    with pytest.raises(artifacts.ArtifactError, match=r"no args_dump\.json"):
        artifacts.read_args_dump(tmp_path / "nowhere")
