"""Tiny random Qwen3 checkpoints, the same wherever they are made, and prompts for them."""

import json
from pathlib import Path

import numpy as np

from pyptox._safetensors import write as write_tensors

CASES = {"untied": {"layers": 2, "tied": False}, "tied": {"layers": 4, "tied": True}}
VOCABULARY, BATCH, LENGTH, STEPS = 96, 3, 12, 16
LENGTHS = (12, 5, 9)
"""Tokens of each prompt of the batch of differing lengths."""


def config(case: str) -> dict:
    """The config.json of a case: five query heads a key head, a head wider than hidden / heads."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "head_dim": 16,
        "hidden_act": "silu",
        "hidden_size": 80,
        "intermediate_size": 112,
        "max_position_embeddings": 256,
        "model_type": "qwen3",
        "num_attention_heads": 10,
        "num_hidden_layers": CASES[case]["layers"],
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": CASES[case]["tied"],
        "use_sliding_window": False,
        "vocab_size": VOCABULARY,
    }


def tensors(case: str) -> dict[str, np.ndarray]:
    """Weights in float32 that bf16 holds exactly, so that both types of a model have the same ones."""
    import ml_dtypes

    c = config(case)
    rng = np.random.default_rng(sorted(CASES).index(case))
    hidden, inner, size = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    wide, narrow = c["num_attention_heads"] * size, c["num_key_value_heads"] * size

    def matrix(n: int, k: int) -> np.ndarray:
        made = rng.standard_normal((n, k)) / np.sqrt(k)
        return made.astype(ml_dtypes.bfloat16).astype(np.float32)

    def gain(n: int) -> np.ndarray:
        return rng.uniform(0.5, 1.5, n).astype(ml_dtypes.bfloat16).astype(np.float32)

    made = {"model.embed_tokens.weight": matrix(VOCABULARY, hidden) * np.float32(8)}
    for n in range(c["num_hidden_layers"]):
        at = f"model.layers.{n}."
        made |= {
            f"{at}input_layernorm.weight": gain(hidden),
            f"{at}self_attn.q_proj.weight": matrix(wide, hidden),
            f"{at}self_attn.k_proj.weight": matrix(narrow, hidden),
            f"{at}self_attn.v_proj.weight": matrix(narrow, hidden),
            f"{at}self_attn.o_proj.weight": matrix(hidden, wide),
            f"{at}self_attn.q_norm.weight": gain(size) * np.float32(2),
            f"{at}self_attn.k_norm.weight": gain(size) * np.float32(2),
            f"{at}post_attention_layernorm.weight": gain(hidden),
            f"{at}mlp.gate_proj.weight": matrix(inner, hidden),
            f"{at}mlp.up_proj.weight": matrix(inner, hidden),
            f"{at}mlp.down_proj.weight": matrix(hidden, inner),
        }
    made["model.norm.weight"] = gain(hidden)
    if not c["tie_word_embeddings"]:
        made["lm_head.weight"] = matrix(VOCABULARY, hidden) * np.float32(4)
    return made


def write(folder: Path, case: str, *, shards: int = 1) -> Path:
    """The checkpoint of a case, in ``shards`` files."""
    (folder / "config.json").write_text(json.dumps(config(case)))
    made = tensors(case)
    if shards == 1:
        write_tensors(folder / "model.safetensors", made, {"format": "pt"})
        return folder
    files = [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)]
    where = {name: files[n % shards] for n, name in enumerate(made)}
    for file in files:
        write_tensors(folder / file, {name: x for name, x in made.items() if where[name] == file}, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def tokens() -> np.ndarray:
    """A batch of prompts of one length."""
    return np.random.default_rng(7).integers(1, VOCABULARY, (BATCH, LENGTH))


def greedy(logits_of) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Greedy tokens after prompts of ``LENGTHS``, the lead of the first logit over the second, and the logits.

    ``logits_of`` takes [1, length] and gives [1, length, vocabulary]: no cache, no padding.
    """
    found, margins, steps = [], [], []
    for prompt, length in zip(tokens(), LENGTHS, strict=True):
        row = prompt[:length].tolist()
        for _ in range(STEPS):
            last = logits_of(np.array([row]))[0, -1]
            best = np.sort(last)[-2:]
            margins.append(best[1] - best[0])
            steps.append(last)
            row.append(int(last.argmax()))
        found.append(row[length:])
    shape = len(LENGTHS), STEPS
    return np.array(found), np.array(margins).reshape(shape), np.array(steps).reshape(*shape, -1)
