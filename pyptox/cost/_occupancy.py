"""How full every on-chip space is: slots, padding and live ranges.

A tile that crosses pipes needs one slot for each stage of the loop it is made in, as long as that loop runs; a tile
that one pipe makes and uses, or that no loop makes, needs one slot, and only while it is alive. A vector instruction
works in place where it can. The occupancy of a space is the largest sum over the program's positions. Sizes are what
is allocated: rows and columns padded to fractals in the cube's spaces, to 32 bytes in Vec.
"""

from dataclasses import dataclass

from .._dtypes import dtype_of
from .._scalar import Scalar, is_number, maximum, minimum, round_up, where
from ..hardware import Sizes
from ..lang._record import Loop, Recorder
from ..lang._types import Buffer, Space

ON_CHIP = (Space.MAT, Space.LEFT, Space.RIGHT, Space.ACC, Space.VEC)
HARD = (Space.MAT, Space.LEFT, Space.RIGHT, Space.VEC)
"""Spaces whose overflow is an error; Acc may overflow at the price of extra drains."""


@dataclass(frozen=True)
class Use:
    """One buffer in its space: bytes of all its slots, and the positions between which it is alive."""

    buffer: Buffer
    bytes: Scalar
    slots: Scalar
    begin: int
    end: int


def allocated_bytes(sizes: Sizes, buffer: Buffer) -> Scalar:
    """Bytes of one slot, padded as the hardware pads it."""
    tile = buffer.tile
    rows, columns = tile.shape
    width = dtype_of(tile.dtype).bytes
    if tile.space is Space.VEC:
        return rows * round_up(columns * width, sizes.min_row)
    f = sizes.fractal_rows
    if tile.space is Space.ACC:
        return round_up(rows, f) * round_up(columns, f) * width
    return round_up(rows, f) * round_up(columns * width, sizes.fractal_bytes)


def uses(recorder: Recorder, sizes: Sizes) -> dict[Space, list[Use]]:
    """Every buffer by space, with its slots and live range."""
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    pipes: dict[int, set[str]] = {}
    spans: dict[int, tuple[int, int]] = {}
    kept: set[int] = set()  # what a loop hands on stays whole
    replaced: set[int] = set()  # what a loop hands on takes the place of what it was handed
    steps: list[tuple[int, int, list[int]]] = []  # position, what is made there, from what
    position = 0

    def visit(nodes: list) -> None:
        nonlocal position
        for node in nodes:
            if isinstance(node, Loop):
                start = position
                replaced.update(new.number for _, new in node.carried)
                kept.update(old.number for old, _ in node.carried)
                visit(node.first)
                # what was made before a loop and is read in it lives to the loop's end
                for number in list(end):
                    if begin[number] <= start and end[number] > start:
                        end[number] = position
                spans[node.key] = (start + 1, position)
                continue
            position += 1
            touched = [(buffer, 0) for buffer in node.reads]
            if node.writes is not None and node.fresh:
                steps.append((position, node.writes.number, [buffer.number for buffer in node.reads]))
            if node.writes is not None:
                touched.append((node.writes, -1))
            for buffer, which in touched:
                begin.setdefault(buffer.number, position)
                end[buffer.number] = position
                if node.costs:
                    pipes.setdefault(buffer.number, set()).add(node.costs[which][0])

    assert recorder.walk is not None
    visit(recorder.walk.first)
    crossing = {number for number, touched_by in pipes.items() if len(touched_by) > 1}
    in_place = _in_place(recorder, steps, end, crossing)
    result: dict[Space, list[Use]] = {space: [] for space in ON_CHIP}
    for number, buffer in recorder.buffers.items():
        if buffer.tile is None or number not in begin or buffer.tile.space is Space.GM:
            continue
        crosses = number in crossing
        if not crosses and (number in replaced or number in in_place):
            continue
        slots = buffer.loop.stages if crosses and buffer.loop is not None else 1
        if buffer.label == "move" and buffer.tile.space is Space.VEC:
            slots = maximum(slots, sizes.cross_slots)
        used = allocated_bytes(sizes, buffer) * slots
        if buffer.tile.space is Space.VEC:
            used = used / recorder.vector_split  # each vector core of the cluster holds its share of the rows
            if number not in kept:
                used = used / recorder.vector_slices
        live = begin[number], end[number]
        if crosses and buffer.loop is not None and buffer.loop.key in spans:
            live = spans[buffer.loop.key]
        result[buffer.tile.space].append(Use(buffer, used, slots, *live))
    return result


def _in_place(recorder: Recorder, steps: list, end: dict[int, int], crossing: set[int]) -> set[int]:
    """Results in Vec that take the slot of an operand of their size that arrived there and dies with them."""
    taken: set[int] = set()
    for position, made, reads in steps:
        new = recorder.buffers[made].tile
        for number in reads:
            old = recorder.buffers[number].tile
            if new is None or old is None or not (number in taken or (number in crossing and old.space is Space.VEC)):
                continue
            same = all(a is b for a, b in zip(new.shape, old.shape, strict=True))
            if same and dtype_of(new.dtype).bytes == dtype_of(old.dtype).bytes and end[number] == position:
                taken.add(made)
    return taken


def occupancy(used: dict[Space, list[Use]]) -> dict[Space, Scalar]:
    """The largest number of bytes alive at once, by space."""
    result: dict[Space, Scalar] = {}
    for space, buffers in used.items():
        # live ranges only start where a buffer is made, so the peak is at one of those positions; a result may take
        # the place of an operand that dies with it
        alive = {
            frozenset(n for n, u in enumerate(buffers) if u.begin <= at and (u.end > at or u.begin == at))
            for at in {u.begin for u in buffers}
        }
        peak: Scalar = 0.0
        for together in alive:
            if not any(together < other for other in alive):
                here: Scalar = 0.0
                for n in sorted(together):
                    here = here + buffers[n].bytes
                peak = maximum(peak, here)
        result[space] = peak
    return result


def narrowest_row(recorder: Recorder) -> Scalar:
    """The smallest innermost row of any on-chip tile, bytes (single-column tiles aside)."""
    narrowest: Scalar = float(1 << 30)
    for buffer in recorder.buffers.values():
        tile = buffer.tile
        if tile is None or (is_number(tile.shape[1]) and tile.shape[1] == 1):
            continue
        row = tile.shape[1] * float(dtype_of(tile.dtype).bytes)
        if not is_number(tile.shape[1]):
            row = where(tile.shape[1] == 1, narrowest, row)
        narrowest = minimum(narrowest, row)
    return narrowest
