"""A SwiGLU MLP block with its norm and residual: ``pyptox graph docs/programs/mlp.py:mlp tokens=16``."""

import pyptox as px
from pyptox import kernels as k
from pyptox import program as pp


def sizes(tokens: int = 16, width: int = 1024, hidden: int = 3072) -> dict[str, px.Spec]:
    """The arguments of :data:`mlp`, bf16; the residual stream is float32."""
    return {
        "x": px.spec((tokens, width), "fp32"),
        "norm": px.spec((width,), "fp32"),
        "gate": px.spec((width, hidden), "bf16"),
        "up": px.spec((width, hidden), "bf16"),
        "down": px.spec((hidden, width), "bf16"),
    }


@pp.program(sizes=sizes)
def mlp(x, norm, gate, up, down):
    """``x + (silu(h gate) * (h up)) down`` with ``h = rms_norm(x)``."""
    normed = pp.submit(k.rms_norm, x, norm, m=8)
    narrow = pp.submit(k.convert("bf16"), normed, m=16, n=512)
    gated = pp.submit(k.matmul, narrow, gate, name="gate", m=16, n=256, k=256)
    raised = pp.submit(k.matmul, narrow, up, name="up", m=16, n=256, k=256)
    active = pp.submit(k.swiglu, gated, raised, m=16, n=256)
    lowered = pp.submit(k.matmul, active, down, name="down", m=16, n=128, k=256)
    return pp.submit(k.residual_add, x, lowered, m=16, n=256)
