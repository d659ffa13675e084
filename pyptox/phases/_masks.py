"""Core slots: how they are numbered, and masks of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Mask = Sequence[int] | Sequence[bool] | np.ndarray
"""Slot numbers, or one truth value for each slot."""


@dataclass(frozen=True)
class Slots:
    """The numbering of slots in a mixed kernel: the cube cores first, then the vector cores of each block.

    >>> slots = Slots(aic=24, aiv_per_aic=2)
    >>> slots.cube(3), slots.vector(3, 1), slots.count
    (3, 31, 72)
    >>> slots.name(31)
    'AIV 3.1'
    """

    aic: int
    aiv_per_aic: int = 2

    def __post_init__(self) -> None:
        if self.aic < 1 or self.aiv_per_aic < 0:
            raise ValueError(
                f"`aic` must be at least 1 and `aiv_per_aic` at least 0; got {self.aic} and {self.aiv_per_aic}"
            )

    @property
    def count(self) -> int:
        """All slots."""
        return self.aic * (1 + self.aiv_per_aic)

    def cube(self, block: int) -> int:
        """The slot of a block's cube core."""
        if not 0 <= block < self.aic:
            raise ValueError(f"`block` must be 0 to {self.aic - 1}; got {block}")
        return block

    def vector(self, block: int, sub_block: int) -> int:
        """The slot of one of a block's vector cores."""
        if not 0 <= sub_block < self.aiv_per_aic:
            raise ValueError(f"`sub_block` must be 0 to {self.aiv_per_aic - 1}; got {sub_block}")
        return self.aic + self.cube(block) * self.aiv_per_aic + sub_block

    def name(self, slot: int) -> str:
        """A slot's core for people: ``AIC block`` or ``AIV block.sub_block``."""
        if slot < self.aic:
            return f"AIC {slot}"
        block, sub_block = divmod(slot - self.aic, self.aiv_per_aic)
        return f"AIV {block}.{sub_block}"


def slots_in(mask: Mask | None, count: int, name: str) -> tuple[int, ...]:
    """The slots of a mask, in order; all of ``count`` where it is None."""
    if mask is None:
        return tuple(range(count))
    array = np.asarray(mask)
    if array.dtype == bool:
        if array.shape != (count,):
            raise ValueError(f"`{name}` must have one truth value for each of {count} slots; got shape {array.shape}")
        return tuple(np.flatnonzero(array).tolist())
    if array.size and (array.dtype.kind not in "iu" or array.ndim != 1):
        raise ValueError(f"`{name}` must hold slot numbers or truth values; got {mask!r}. Try range({count})")
    beyond = [slot for slot in array.tolist() if not 0 <= slot < count]
    if beyond:
        raise ValueError(f"`{name}` must name slots 0 to {count - 1}; got {beyond[0]}")
    return tuple(sorted(set(array.tolist())))


def mask(text: str, count: int, slots: Slots | None = None, name: str = "mask") -> tuple[int, ...] | None:
    """Slots from text; None, which stands for the default, where ``text`` is empty.

    Args:
        text: ``all``, ``none``, ``0-3,8``, a bit mask ``0xff``, or with ``slots`` also ``aic`` and ``aiv``.
        count: how many slots there are.
        slots: how they are numbered.
        name: what to call the mask in an error.

    >>> mask("0-3,8", count=9)
    (0, 1, 2, 3, 8)
    >>> mask("aiv", 6, Slots(aic=2))
    (2, 3, 4, 5)
    """
    if not text:
        return None
    found: list[int] = []
    for part in filter(None, (p.strip().lower() for p in text.split(","))):
        if part == "all":
            found += range(count)
        elif part in ("aic", "aiv") and slots is not None:
            found += range(slots.aic) if part == "aic" else range(slots.aic, slots.count)
        elif part != "none":
            found += _numbers(part, name, slots)
    return slots_in(found, count, name)


def _numbers(part: str, name: str, slots: Slots | None) -> Sequence[int]:
    try:
        if part.startswith("0x"):
            bits = int(part, 16)
            return [bit for bit in range(bits.bit_length()) if bits >> bit & 1]
        first, dash, last = part.partition("-")
        if dash and int(last) < int(first):
            raise ValueError
        # one beyond any machine is enough for the range check that follows to object
        return range(int(first), min(int(last), int(first) + 1_000_000) + 1) if dash else [int(first)]
    except ValueError:
        hint = (
            "" if slots is not None or part not in ("aic", "aiv") else "; say how many cube cores there are with --aic"
        )
        raise ValueError(
            f"`{name}` must be all, none, aic, aiv, slot numbers such as 0-3,8, or bits such as 0xff; "
            f"got {part!r}{hint}"
        ) from None
