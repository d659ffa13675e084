"""The shape of a model of the Qwen3 family."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyptox import PyptoxError

PAGE = 128
"""Tokens of a page of the key and value cache."""


class ModelError(PyptoxError):
    """A model is asked for what it, or its checkpoint, does not have."""


@dataclass(frozen=True)
class Config:
    """A dense Qwen3 model; the defaults are the 14B one.

    Attributes:
        layers, hidden, intermediate: as in the checkpoint.
        heads, key_heads, size: query heads, key and value heads, and features of each.
        vocabulary: rows of the embedding.
        epsilon: of every RMSNorm.
        rope_base: of the rotary embedding.
        context: positions that the model was made for.
        tied: the embedding is the LM head as well.

    >>> Config().group
    5
    """

    layers: int = 40
    hidden: int = 5120
    intermediate: int = 17408
    heads: int = 40
    key_heads: int = 8
    size: int = 128
    vocabulary: int = 151936
    epsilon: float = 1e-6
    rope_base: float = 1e6
    context: int = 40960
    tied: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "intermediate", "heads", "key_heads", "size", "vocabulary", "context"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ModelError(f"`{name}` must be a positive integer; got {value!r}")
        if self.heads % self.key_heads:
            raise ModelError(f"`heads` must be a multiple of the {self.key_heads} key heads; got {self.heads}")
        if self.size % 2:
            raise ModelError(f"`size` must be even, rotary pairs; got {self.size}")

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.key_heads


_NAMES = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "intermediate_size": "intermediate",
    "num_attention_heads": "heads",
    "num_key_value_heads": "key_heads",
    "head_dim": "size",
    "vocab_size": "vocabulary",
    "rms_norm_eps": "epsilon",
    "rope_theta": "rope_base",
    "max_position_embeddings": "context",
    "tie_word_embeddings": "tied",
}
_OPTIONAL = {"rope_theta": 1e4, "tie_word_embeddings": False, "rms_norm_eps": 1e-6, "head_dim": 128}
"""What `transformers` takes where a config leaves them out."""
_FIXED = {
    "model_type": ("qwen3",),
    "architectures": (["Qwen3ForCausalLM"], None),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "use_sliding_window": (False,),
    "attention_dropout": (0, 0.0),
    "pruned_heads": ({}, None),
    "is_encoder_decoder": (False,),
    "is_decoder": (False, True),
    "add_cross_attention": (False,),
    "tie_encoder_decoder": (False,),
    "quantization_config": (None,),
}
"""Keys that change what is computed, with the values that this program computes."""
_WITHOUT_EFFECT = {
    *("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "initializer_range"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"),
    *("max_window_layers", "sliding_window", "id2label", "label2id", "problem_type", "return_dict"),
    *("output_attentions", "output_hidden_states", "chunk_size_feed_forward", "_attn_implementation"),
    *("_attn_implementation_autoset", "attn_implementation", "torchscript", "task_specific_params", "finetuning_task"),
    *("tokenizer_class", "prefix", "num_labels"),
}
"""Keys that change no logit as long as the fixed ones hold: a sliding window is not used unless it is switched on."""


def read_config(path: str | os.PathLike[str]) -> Config:
    """The config of a checkpoint's folder, or of a ``config.json``.

    Raises:
        ModelError: no such file, or a key that asks for something else than this program computes; it names the key.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ModelError(f"`path` must hold a config.json; {str(file)!r} is not there")
    try:
        data = json.loads(file.read_text())
    except ValueError as error:
        raise ModelError(f"{file.name} is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise ModelError(f"{file.name} must be a JSON object; got {type(data).__name__}")
    return config_of(data)


def config_of(data: Mapping[str, Any]) -> Config:
    """The config that a Hugging Face ``config.json`` says.

    Raises:
        ModelError: as :func:`read_config`.
    """
    data = dict(data) | _rope(data)
    for key in ("rope_parameters", "rope_scaling"):
        data.pop(key, None)
    kinds = data.pop("layer_types", None)
    if kinds is not None and set(kinds) - {"full_attention"}:
        raise ModelError(f"`layer_types` must be full_attention throughout; got {sorted(set(kinds))}")
    if data.get("model_type") is None:
        raise ModelError("`model_type` must be 'qwen3'; the config has none")
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key in _NAMES:
            values[_NAMES[key]] = value
        elif key in _FIXED:
            if value not in _FIXED[key]:
                raise ModelError(f"`{key}` must be {_FIXED[key][0]!r}; got {value!r}, which is not supported")
        elif key not in _WITHOUT_EFFECT and value not in (None, False):
            raise ModelError(f"`{key}` is not known not to matter, and so not supported; got {value!r}")
    for key, name in _NAMES.items():
        if values.get(name) is None:
            if key not in _OPTIONAL:
                raise ModelError(f"`{key}` must be in the config; it is not")
            values[name] = _OPTIONAL[key]
    _numbers(values)
    return Config(**values)


def _numbers(values: dict[str, Any]) -> None:
    for key, name in _NAMES.items():
        value = values[name]
        expected = bool if name == "tied" else (int, float) if name in ("epsilon", "rope_base") else int
        if not isinstance(value, expected) or (name != "tied" and (isinstance(value, bool) or value <= 0)):
            raise ModelError(f"`{key}` must be {'a boolean' if name == 'tied' else 'a positive number'}; got {value!r}")
    if values["epsilon"] not in (1e-6, 1e-5):
        raise ModelError(f"`rms_norm_eps` must be 1e-6 or 1e-5; got {values['epsilon']!r}")
    values["rope_base"] = float(values["rope_base"])


def _rope(data: Mapping[str, Any]) -> dict[str, Any]:
    """``rope_theta``, from wherever a version of `transformers` puts it; only the plain rotary embedding."""
    found: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        rope = data.get(key)
        if rope is None:
            continue
        if not isinstance(rope, Mapping):
            raise ModelError(f"`{key}` must be an object; got {rope!r}")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise ModelError(f"`{key}` must be of rope_type 'default'; got {kind!r}, which is not supported")
        unknown = set(rope) - {"rope_type", "type", "rope_theta"}
        if unknown:
            raise ModelError(f"`{key}` has {', '.join(sorted(map(str, unknown)))}, which is not supported")
        if "rope_theta" in rope:
            found["rope_theta"] = rope["rope_theta"]
    return found
