"""Qwen3 against what `transformers` computed (``data/qwen3.npz``), and against NumPy in float64."""

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyptox as px
from models import qwen3_14b
from models.qwen3_14b import LADDER, Config, Model, ModelError, Variant, config_of, from_pretrained, random_weights
from models.qwen3_14b._program import layer_program
from pyptox import chip
from pyptox import program as pp
from pyptox._safetensors import SafetensorsError
from pyptox.cost import verify

HERE = Path(__file__).parent


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checkpoints = _load("qwen3_checkpoints")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A checkpoint of each case; the untied one in two files."""
    made = {case: tmp_path_factory.mktemp(case) for case in checkpoints.CASES}
    return {case: checkpoints.write(made[case], case, shards=2 if case == "untied" else 1) for case in made}


@functools.cache
def _stored() -> dict[str, np.ndarray]:
    return dict(np.load(HERE / "data" / "qwen3.npz"))


def _error(found, right) -> float:
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


# ------------------------------------------------------------------------------------------------------- transformers
@pytest.mark.parametrize(
    ("case", "dtype"), [("untied", "fp32"), ("untied", "bf16"), ("tied", "fp32"), ("tied", "bf16")]
)
def test_logits_and_tokens_are_those_of_transformers(folders, case, dtype):
    want = {name.removeprefix(f"{case}."): x for name, x in _stored().items() if name.startswith(f"{case}.")}
    allowed = 1e-4 if dtype == "fp32" else 2 * _error(want["bfloat16.logits"], want["float32.logits"])
    model = from_pretrained(folders[case], dtype, whole=case == "untied")
    tokens = checkpoints.tokens()
    logits = model.logits(tokens)
    assert logits.dtype == np.float32
    assert _error(logits, want["float32.logits"]) <= allowed
    made, steps = model.generate(tokens, checkpoints.STEPS, lengths=checkpoints.LENGTHS, with_logits=True)
    compared = 0
    for row, right, seen, exact, margins in zip(
        made, want["float32.tokens"], steps, want["float32.steps"], want["float32.margins"], strict=True
    ):
        for step in range(checkpoints.STEPS):
            assert _error(seen[step], exact[step]) <= 1.5 * allowed  # one row scatters more than all
            compared += 1
            if margins[step] <= 2 * np.abs(seen[step] - exact[step]).max():
                if row[step] == right[step]:
                    continue
                break  # either token may come first; from here on they read different texts
            assert row[step] == right[step]
    assert compared >= (48 if dtype == "fp32" else 12)


# -------------------------------------------------------------------------------------------------------------- NumPy
def _quantized(x: np.ndarray) -> np.ndarray:
    """Rows through int8 and back."""
    scale = np.maximum(np.abs(x).max(-1, keepdims=True), 1e-4) / 127
    return np.rint(x / scale) * scale


def _forward(config: Config, weights: dict[str, np.ndarray], tokens: np.ndarray, quantized: bool) -> np.ndarray:
    """The logits of one sequence in float64; ``quantized`` emulates int8 weights and activations."""
    c = config
    tensors = {name: x.astype(float) for name, x in weights.items()}
    narrow = _quantized if quantized else lambda x: x

    def norm(x, gain):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + c.epsilon) * tensors[gain]

    def project(x, name):
        return narrow(x) @ narrow(tensors[name]).T

    angles = np.arange(len(tokens))[:, None] / c.rope_base ** (np.arange(0, c.size, 2) / c.size)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def turn(x):
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    x = tensors["model.embed_tokens.weight"][tokens]
    for n in range(c.layers):
        at = f"model.layers.{n}"
        h = norm(x, f"{at}.input_layernorm.weight")
        q, k, v = (project(h, f"{at}.self_attn.{name}_proj.weight").reshape(len(h), -1, c.size) for name in "qkv")
        q, k = turn(norm(q, f"{at}.self_attn.q_norm.weight")), turn(norm(k, f"{at}.self_attn.k_norm.weight"))
        k, v = (np.repeat(part, c.group, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(c.size) + np.triu(np.full((len(h),) * 2, -np.inf), 1)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        attended = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(len(h), -1)
        x = x + project(attended, f"{at}.self_attn.o_proj.weight")
        h = norm(x, f"{at}.post_attention_layernorm.weight")
        gate, up = (project(h, f"{at}.mlp.{name}_proj.weight") for name in ("gate", "up"))
        x = x + project(gate / (1 + np.exp(-gate)) * up, f"{at}.mlp.down_proj.weight")
    head = "model.embed_tokens.weight" if c.tied else "lm_head.weight"
    return norm(x, "model.norm.weight") @ tensors[head].T


def test_a8w8_errs_as_its_quantisation_does(folders):
    config, weights = config_of(checkpoints.config("untied")), checkpoints.tensors("untied")
    tokens = checkpoints.tokens()[:1]
    exact, emulated = (_forward(config, weights, tokens[0], quantized) for quantized in (False, True))
    assert _error(exact, _stored()["untied.float32.logits"][0]) < 1e-5
    found = from_pretrained(folders["untied"], "a8w8", whole=False).logits(tokens)[0]
    bf16 = _error(_stored()["untied.bfloat16.logits"][0], exact)
    explained = _error(emulated, exact)
    assert explained > bf16
    assert _error(found, exact) <= 1.5 * explained
    assert _error(found, emulated) <= 2 * bf16 + 0.5 * explained  # a value near a step goes either way


# ------------------------------------------------------------------------------------------------------------ variants
TINY = Config(layers=2, hidden=64, intermediate=96, heads=10, key_heads=2, size=16, vocabulary=96, context=256)


@functools.cache
def _tiny():
    return random_weights(TINY, "fp32", seed=3)


def _tokens_of(variant: Variant) -> list:
    prompts = np.random.default_rng(1).integers(0, TINY.vocabulary, (3, 6))
    return Model(_tiny(), variant.replace(rows=4), whole=False).generate(prompts, 5, lengths=[6, 2, 4]).tolist()


@functools.cache
def _right() -> list:
    return _tokens_of(LADDER[-1])


@pytest.mark.slow
@pytest.mark.parametrize("variant", LADDER, ids=lambda variant: variant.name)
def test_every_step_of_the_ladder_gives_the_same_tokens(variant):
    assert _tokens_of(variant) == _right()


def test_the_first_and_the_last_step_of_the_ladder_give_the_same_tokens():
    assert _tokens_of(LADDER[0]) == _right()


def test_windows_of_a_batch_are_alike():
    prompts = np.random.default_rng(2).integers(0, TINY.vocabulary, (6, 4))
    model = Model(_tiny(), LADDER[-1].replace(rows=4), whole=False)
    together = model.generate(prompts, 4)
    for some in (slice(0, 4), slice(4, 6)):
        np.testing.assert_array_equal(model.generate(prompts[some], 4), together[some])


def test_a_step_is_not_compiled_again_as_the_context_grows():
    from pyptox.program._run import _compiled

    model = Model(_tiny(), LADDER[-1].replace(rows=4))
    prompts = np.random.default_rng(2).integers(0, TINY.vocabulary, (2, 4))
    model.generate(prompts, 2)
    before = _compiled.cache_info().misses
    model.generate(prompts, 9, lengths=[4, 2])
    assert _compiled.cache_info().misses == before
    assert layer_program(TINY, model.variant, "fp32") is layer_program(TINY, model.variant, "fp32")


def test_the_program_of_a_whole_step_is_what_the_model_runs():
    model = Model(_tiny(), LADDER[-1].replace(rows=4), whole=False)
    c, lengths, pages = TINY, [1] * 5, 1
    program = qwen3_14b.decode_program(c, model.variant, "fp32")
    specs = qwen3_14b.decode_specs(c, "fp32", lengths)
    first = np.random.default_rng(5).integers(0, c.vocabulary, 5).astype(np.int32)
    page = np.arange(5, dtype=np.int32)
    slots = ((page[:, None] * 2 + np.arange(2)) * 128).reshape(-1).astype(np.int32)
    rows = slots, np.stack([page, 0 * page], axis=1), page[:, None], px.control(lengths), np.ones((5, 1), np.float32)
    ends = model.embedding, model._rope(128 * pages), model.final_norm, model.head, np.zeros(1, np.int32)
    caches = [np.zeros(spec.shape, np.float32) for spec in specs[-2:]]
    layers = [x for layer in model.layers for x in (*layer, *caches)]
    results = pp.run(program, first, np.zeros(5, np.int32), *rows, *ends, *layers, whole=False)
    tokens = np.concatenate([np.asarray(part)[:, 0] for part in results[:2]])
    np.testing.assert_array_equal(tokens, model.logits(first[:, None])[:, 0].argmax(-1))


@pytest.mark.parametrize("dtype", ["bf16", "a8w8", "fp32"])
def test_every_step_of_the_ladder_fits_the_chip(dtype):
    config, hardware, asked = Config(layers=1), px.hardware.a2a3(), set()
    for variant in LADDER:
        program = qwen3_14b.decode_program(config, variant, dtype)
        for task in pp.graph(program, *qwen3_14b.decode_specs(config, dtype, [3338] * 16)).tasks:
            key = (task.kernel, tuple(task.specs().items()), tuple(task.values.items())) if task.kernel else None
            if task.kernel is not None and key not in asked:
                asked.add(key)
                found = verify(task.kernel, task.specs(), task.values, hardware)
                assert not found.errors, (variant.name, task.name, found.errors)


@pytest.mark.parametrize("name", ["task-per-iteration", "mixed", "deferred-norm", "device-sampling"])
def test_no_ordering_is_missing(name):
    program = qwen3_14b.decode_program(TINY, qwen3_14b.variant_named(name), "bf16")
    graph = pp.graph(program, *qwen3_14b.decode_specs(TINY, "bf16", [5, 100, 129]))
    assert [finding.message for finding in pp.missing_orderings(graph)] == []


def test_the_first_steps_of_the_ladder_save_time_and_all_save_tasks():
    config, found = Config(layers=1), {}
    for name in ("task-per-iteration", "own-tiles", "pipelined", "aligned", "device-sampling"):
        variant = qwen3_14b.variant_named(name)
        graph = pp.graph(
            qwen3_14b.decode_program(config, variant, "bf16"), *qwen3_14b.decode_specs(config, "bf16", [3338] * 16)
        )
        found[name] = len(graph.tasks), chip.simulate(graph).makespan_us
    times = [time for _, time in found.values()][:-1]
    assert times == sorted(times, reverse=True), found
    assert found["device-sampling"][0] < 50 < 1000 < found["task-per-iteration"][0]


def test_a_variant_from_plain_values():
    for variant in LADDER:
        assert Variant.from_dict(json.loads(json.dumps(variant.to_dict()))) == variant
    for data, message in [
        ({"tile": 3}, "`variant` has no choice 'tile'"),
        ({"q": {"n": "256"}}, r"`variant\.q\.n` must be like 256; got '256'"),
        ({"attention": "dense"}, "`attention` must be one of steps, paged, fused"),
        ({"funnel": 1}, r"`variant\.funnel` must be like True"),
        ({"early": True}, r"`variant\.early` must be an object"),
        ({"early": {"gate": True}}, r"`variant\.early` has no choice 'gate'"),
        ([], "`variant` must be an object"),
    ]:
        with pytest.raises(ModelError, match=message):
            Variant.from_dict(data)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "`model_type` must be 'qwen3'; got 'llama'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "`rope_scaling` must be of rope_type 'default'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "`rope_parameters` must be of rope_type 'default'"),
        ({"rope_parameters": {"rope_theta": 1e6, "factor": 2}}, "`rope_parameters` has factor"),
        ({"use_sliding_window": True}, "`use_sliding_window` must be False"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "`layer_types` must be full_attention"),
        ({"attention_bias": True}, "`attention_bias` must be False"),
        ({"hidden_act": "gelu"}, "`hidden_act` must be 'silu'"),
        ({"quantization_config": {"bits": 4}}, "`quantization_config` must be None"),
        ({"partial_rotary_factor": 0.5}, "`partial_rotary_factor` is not known not to matter"),
        ({"num_hidden_layers": 0}, "`num_hidden_layers` must be a positive number; got 0"),
        ({"hidden_size": "80"}, "`hidden_size` must be a positive number"),
        ({"vocab_size": None}, "`vocab_size` must be in the config"),
        ({"rms_norm_eps": 1e-3}, "`rms_norm_eps` must be"),
        ({"num_key_value_heads": 3}, "`heads` must be a multiple of the 3 key heads"),
        ({"head_dim": 15}, "`size` must be even"),
    ],
)
def test_a_config_that_is_not_supported(changes, message):
    with pytest.raises(ModelError, match=message):
        config_of(checkpoints.config("tied") | changes)


def test_what_transformers_takes_for_granted():
    data = checkpoints.config("tied")
    assert config_of(data | {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}).rope_base == 5e5
    for key in ("rope_theta", "head_dim", "tie_word_embeddings"):
        del data[key]
    config = config_of(data)
    assert (config.rope_base, config.size, config.tied) == (1e4, 128, False)


def test_a_checkpoint_that_does_not_fit(tmp_path):
    from pyptox._safetensors import write

    checkpoints.write(tmp_path, "tied")
    made = checkpoints.tensors("tied")
    name = "model.layers.1.mlp.up_proj.weight"
    file = tmp_path / "model.safetensors"
    for wrong, message in [
        ({n: x for n, x in made.items() if n != name}, f"`{name}` must be in the checkpoint"),
        (made | {name: made[name][1:]}, rf"`{name}` must be of shape \[112, 80\]; the checkpoint has \[111, 80\]"),
        (made | {name: made[name].astype(np.int32)}, f"`{name}` must be BF16, F16 or F32"),
        (made | {"model.layers.0.self_attn.q_proj.bias": np.zeros(3, np.float32)}, "q_proj.bias` is no tensor"),
    ]:
        write(file, wrong)
        with pytest.raises(ModelError, match=message):
            from_pretrained(tmp_path)
    write(file, made)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(SafetensorsError, match=r"model\.safetensors is truncated: `model\.norm\.weight`"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json is not valid JSON"):
        from_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"must hold a config\.json"):
        from_pretrained(tmp_path / "absent")


def test_input_that_a_model_does_not_take():
    model = Model(_tiny(), context=16)
    for call, message in [
        (
            lambda: model.logits(np.zeros((0, 4), int)),
            r"`token_ids` must be integers \[batch, length\].*got int64\[0, 4\]",
        ),
        (lambda: model.logits([[0.5]]), "`token_ids` must be integers"),
        (lambda: model.logits([1, 2]), "`token_ids` must be integers"),
        (lambda: model.logits([[96]]), "`token_ids` must be 0 to 95; got 96"),
        (lambda: model.logits([[-1]]), "`token_ids` must be 0 to 95; got -1"),
        (lambda: model.logits([[1] * 17]), "16 tokens, the context; prompt and steps need 17"),
        (lambda: model.generate([[1] * 8], 10), "prompt and steps need 17"),
        (lambda: model.generate([[1]], 0), "`steps` must be a positive integer; got 0"),
        (lambda: model.generate([[1, 2]], 1, lengths=[3]), "`lengths` must be 1 integers from 1 to 2"),
        (lambda: model.generate([[1, 2]], 1, lengths=[1, 1]), "`lengths` must be 1 integers"),
        (lambda: Model(_tiny(), context=257), "`context` must be 1 to 256"),
        (lambda: Model(_tiny(), "fastest"), "`variant` must be one of task-per-iteration, own-tiles"),
        (lambda: random_weights(TINY, "fp16"), "`dtype` must be one of bf16, fp32, a8w8; got 'fp16'"),
        (lambda: qwen3_14b.decode_specs(TINY, "bf16", []), "`lengths` must hold a positive number"),
        (lambda: qwen3_14b.decode_specs(TINY, "bf16", [257]), "`lengths` must be at most 256"),
    ]:
        with pytest.raises(ModelError, match=message):
            call()
