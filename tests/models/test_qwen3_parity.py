"""Qwen3 beside `transformers` itself. Needs the extra ``parity``: torch and transformers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from models import qwen3_14b

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

SPEC = importlib.util.spec_from_file_location("qwen3_checkpoints", Path(__file__).parent / "qwen3_checkpoints.py")
assert SPEC is not None
assert SPEC.loader is not None
checkpoints = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(checkpoints)


@pytest.fixture(scope="module")
def libraries():
    return pytest.importorskip("torch"), pytest.importorskip("transformers")


def _error(found, right) -> float:
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


@pytest.mark.parametrize("tied", [False, True])
def test_a_checkpoint_that_transformers_wrote(libraries, tmp_path, tied):
    torch, transformers = libraries
    torch.manual_seed(int(tied))
    config = transformers.Qwen3Config(
        vocab_size=96,
        hidden_size=80,
        intermediate_size=112,
        num_hidden_layers=3,
        num_attention_heads=10,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    written = transformers.Qwen3ForCausalLM(config)
    written.save_pretrained(tmp_path, max_shard_size="100KB")
    tokens, lengths = checkpoints.tokens(), checkpoints.LENGTHS

    def computes(dtype):
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype).eval()

        def logits(x):
            with torch.no_grad():
                return model(torch.tensor(x)).logits.float().numpy()

        return logits

    exact, narrow = computes(torch.float32), computes(torch.bfloat16)
    right = exact(tokens)
    for dtype, allowed in (("fp32", 1e-4), ("bf16", 2 * _error(narrow(tokens), right))):
        model = qwen3_14b.from_pretrained(tmp_path, dtype, whole=False)
        assert _error(model.logits(tokens), right) <= allowed
        made, seen = model.generate(tokens, checkpoints.STEPS, lengths=lengths, with_logits=True)
        read = [np.concatenate([p[:n], row])[None] for p, n, row in zip(tokens, lengths, made, strict=True)]
        after = np.stack([exact(x)[0, n - 1 : -1] for x, n in zip(read, lengths, strict=True)])
        assert _error(seen, after) <= allowed
        best = np.sort(after, -1)
        sure = best[..., -1] - best[..., -2] > 2 * np.abs(seen - after).max(-1)
        assert sure.sum() > 10
        np.testing.assert_array_equal(made[sure], after.argmax(-1)[sure])
