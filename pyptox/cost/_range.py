"""Where a prediction leaves what its constants were fitted on."""

from ..hardware import Hardware
from ..lang._types import Space
from ..lang.rules import pieces
from ._nest import Nest, instructions

_NAMES = {"row_bytes": "rows of {} bytes", "stride_bytes": "rows {} bytes apart", "cores": "{} cores at work"}


def outside(nest: Nest, hardware: Hardware) -> tuple[str, ...]:
    """What is outside ``hardware.seen``, in words; empty where the chip states no range, or nothing is outside.

    Looked at: bytes of each contiguous piece that a load reads, bytes from one piece to the next, and cores that work
    at the same time; and whether vector instructions are timed at all, whose costs are published, not fitted.
    """
    found: dict[str, list[float]] = {"cores": [float(nest.active)]}
    vector = False
    for node in instructions([nest.walk]):
        tensor = node.attributes.get("tensor")
        if tensor is not None and node.out is not None and node.out.space is Space.MAT:
            count, size, stride = pieces(hardware.sizes, tensor, *node.out.valid)
            if count > 1:
                found.setdefault("row_bytes", []).append(float(size))
                found.setdefault("stride_bytes", []).append(float(stride))
        vector = vector or any(pipe == "VECTOR" for pipe, _ in node.costs)
    notes = []
    for name, (low, high) in hardware.seen.items():
        for value in sorted({v for v in found.get(name, ()) if not low <= v <= high}):
            notes.append(f"{_NAMES[name].format(f'{value:,.0f}')} ({low:,.0f} to {high:,.0f} were measured)")
    if vector and hardware.seen:
        notes.append("vector instructions (published costs, not fitted)")
    return tuple(notes)
