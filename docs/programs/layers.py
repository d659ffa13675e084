"""A stack of SwiGLU MLP blocks, a scope for each: ``pyptox rings docs/programs/layers.py:layers layers=8 --solve``."""

import pyptox as px
from pyptox import kernels as k
from pyptox import program as pp


def sizes(layers: int = 4, tokens: int = 16, width: int = 1024, hidden: int = 3072) -> dict[str, px.Spec]:
    """The arguments of :data:`layers`, bf16; the residual stream is float32."""
    return {
        "x": px.spec((tokens, width), "fp32"),
        "norm": px.spec((layers, width), "fp32"),
        "gate": px.spec((layers, width, hidden), "bf16"),
        "up": px.spec((layers, width, hidden), "bf16"),
        "down": px.spec((layers, hidden, width), "bf16"),
    }


@pp.program(sizes=sizes)
def layers(x, norm, gate, up, down):
    """``x = x + (silu(h gate) * (h up)) down`` with ``h = rms_norm(x)``, layer after layer.

    The residual streams outlive a layer: two buffers in turn, on ring 0. What a layer makes is on ring 1 and goes when
    its scope closes; gate and up go earlier, from ring 2.
    """
    streams = [pp.empty(x.shape, "fp32", name="stream") for _ in range(2)]
    for layer in pp.loop(range(gate.shape[0])):
        normed = pp.submit(k.rms_norm, x, norm[layer], m=8)
        narrow = pp.submit(k.convert("bf16"), normed, m=16, n=512)
        active = pp.empty((x.shape[0], gate.shape[2]), "bf16", name="active")
        with pp.scope():
            gated = pp.submit(k.matmul, narrow, gate[layer], name="gate", m=16, n=256, k=256)
            raised = pp.submit(k.matmul, narrow, up[layer], name="up", m=16, n=256, k=256)
            active = pp.submit(k.swiglu, gated, raised, out=active, m=16, n=256)
        lowered = pp.submit(k.matmul, active, down[layer], name="down", m=16, n=128, k=256)
        x = pp.submit(k.residual_add, x, lowered, out=streams[layer % 2], m=16, n=256)
    return x
