"""How much a search may spend."""

import dataclasses
from typing import Self, final


@final
@dataclasses.dataclass(frozen=True)
class Budget:
    """A limit on evaluations and on seconds; None is no limit. Whichever comes first ends the search.

    >>> Budget.quick()
    Budget(evaluations=32, seconds=None)
    """

    evaluations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("evaluations", "seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive, got {value}; None is no limit")

    @classmethod
    def quick(cls) -> Self:
        """32 evaluations: enough for a good model and its first corrections."""
        return cls(evaluations=32)

    @classmethod
    def standard(cls) -> Self:
        """128 evaluations."""
        return cls(evaluations=128)

    @classmethod
    def thorough(cls) -> Self:
        """1024 evaluations."""
        return cls(evaluations=1024)
