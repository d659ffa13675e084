"""What a collective (a barrier over cores) costs, seen from the cores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Collective:
    """Diagnostics of one collective, in cycles. ``b`` is a core's arrival, ``a`` its release.

    These are maxima over different cores: they explain, and do not add up to anything.

    Attributes:
        arrival_skew: ``max(b) - min(b)``: how unevenly the cores arrive.
        first_release_service: ``min(a) - max(b)``: what the collective itself takes; negative where a core leaves
            before the last one has arrived, which no barrier over these cores does.
        release_skew: ``max(a) - min(a)``.
        full_release_tail: ``max(a) - max(b)``: from the last arrival until all cores have left.
        early_core_residence: ``max(a - b)``: the longest stay. It includes the arrival skew: not a service time.
        wait: ``a - b`` by slot.
        first, last: slots that arrive first and last. The last is the one that the others wait for.
    """

    arrival_skew: int
    first_release_service: int
    release_skew: int
    full_release_tail: int
    early_core_residence: int
    wait: dict[int, int]
    first: int
    last: int

    @property
    def mean_wait(self) -> float:
        """Mean of ``a - b``, cycles."""
        return sum(self.wait.values()) / len(self.wait)

    def to_dict(self) -> dict[str, Any]:
        """Every diagnostic; slots are strings, as JSON wants."""
        names = ("arrival_skew", "first_release_service", "release_skew", "full_release_tail", "early_core_residence")
        return {
            **{name: getattr(self, name) for name in names},
            "mean_wait": self.mean_wait,
            "wait": {str(slot): cycles for slot, cycles in self.wait.items()},
            "first": self.first,
            "last": self.last,
        }

    def __str__(self) -> str:
        longest = max(self.wait, key=self.wait.__getitem__)
        rows = [
            ("arrival skew", self.arrival_skew, f"slot {self.first} first, slot {self.last} last: the slowest core"),
            ("first release service", self.first_release_service, "last arrival to first release"),
            ("release skew", self.release_skew, "first release to last"),
            ("full release tail", self.full_release_tail, "last arrival to last release"),
            ("early core residence", self.early_core_residence, f"slot {longest}; includes the arrival skew"),
            ("mean wait", round(self.mean_wait), f"over {len(self.wait)} cores"),
        ]
        return "\n".join(
            ["collective (maxima over different cores: never add them)"]
            + [f"  {name:<22} {cycles:>12,}  {note}" for name, cycles, note in rows]
        )


def collective(arrival: Mapping[int, int], release: Mapping[int, int]) -> Collective | None:
    """Diagnostics from stamps by slot; None where no core has both.

    >>> collective({0: 10, 1: 30}, {0: 35, 1: 34}).arrival_skew
    20
    """
    wait = {slot: release[slot] - arrival[slot] for slot in arrival if slot in release}
    if not wait:
        return None
    b, a = arrival.values(), release.values()
    return Collective(
        arrival_skew=max(b) - min(b),
        first_release_service=min(a) - max(b),
        release_skew=max(a) - min(a),
        full_release_tail=max(a) - max(b),
        early_core_residence=max(wait.values()),
        wait=wait,
        first=min(arrival, key=arrival.__getitem__),
        last=max(arrival, key=arrival.__getitem__),
    )
