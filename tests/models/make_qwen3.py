"""Writes ``data/qwen3.npz``: what `transformers` computes on the tiny checkpoints that :mod:`qwen3_checkpoints` makes.

Run ``python tests/models/make_qwen3.py`` with the extra ``parity`` installed (torch, transformers).
"""

import importlib
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import qwen3_checkpoints as checkpoints


def main() -> None:
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    stored = {}
    for case in checkpoints.CASES:
        with tempfile.TemporaryDirectory() as folder:
            checkpoints.write(Path(folder), case)
            for dtype in ("float32", "bfloat16"):
                model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
                with torch.no_grad():
                    logits = model(torch.tensor(checkpoints.tokens())).logits.float().numpy()
                    tokens, margins, steps = checkpoints.greedy(
                        lambda x, model=model: model(torch.tensor(x)).logits.float().numpy()
                    )
                stored |= {f"{case}.{dtype}.logits": logits, f"{case}.{dtype}.tokens": tokens}
                stored |= {f"{case}.{dtype}.margins": margins, f"{case}.{dtype}.steps": steps}
    narrow = {name: x.astype(np.float32 if x.dtype.kind == "f" else np.int16) for name, x in stored.items()}
    np.savez_compressed(Path(__file__).parent / "data" / "qwen3.npz", **narrow)


if __name__ == "__main__":
    main()
