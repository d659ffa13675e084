"""Named constraints, and what they removed from a space."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

import numpy as np

Points: TypeAlias = dict[str, np.ndarray]
Predicate: TypeAlias = Callable[[Mapping[str, np.ndarray]], Any]


class EmptySpaceError(ValueError):
    """No point of a space is legal; `constraint` removed the last ones, `rejected` counts for each."""

    def __init__(self, size: int, rejected: Mapping[str, int], advice: str = ""):
        self.advice = advice
        self.rejected = dict(rejected)
        self.constraint = [name for name, count in rejected.items() if count][-1]
        counts = ", ".join(f"`{name}` removed {count}" for name, count in rejected.items() if count)
        super().__init__(
            f"the space must hold a legal point; got {size:,} points, of which {counts}{self.advice}. "
            "Widen the parameters or relax what removed most"
        )


@final
@dataclasses.dataclass(frozen=True)
class Constraint:
    """A named predicate: points to one boolean for each."""

    name: str
    predicate: Predicate

    def __call__(self, points: Points, count: int) -> np.ndarray:
        """The boolean for each of `count` points, checked."""
        passed = np.asarray(self.predicate(points))
        if passed.dtype != bool or passed.shape not in ((), (count,)):
            raise TypeError(
                f"`{self.name}` must return one boolean for each of the {count} points, got {passed.dtype} "
                f"of shape {passed.shape}; combine conditions with & and |, not `and` and `or`"
            )
        return np.broadcast_to(passed, (count,))


@final
@dataclasses.dataclass(frozen=True)
class Census:
    """How many points a space has, how many are legal, how many each constraint removed."""

    size: int
    legal: int
    rejected: dict[str, int]

    def __str__(self) -> str:
        lines = [f"{self.legal} of {self.size} points are legal"]
        return "\n".join(lines + [f"  `{name}` removed {count}" for name, count in self.rejected.items()])

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
