"""Files to profiles: every round of a kernel, and the comparison with the tasks it was split into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._compare import Comparison, compare
from ._files import read_rounds
from ._layout import Layout
from ._masks import Slots, mask
from ._profile import Profile, Task, profile

MASKS = ("active", "producers", "arrivals", "releases", "bodies")


@dataclass(frozen=True)
class Report:
    """Profiles of each round, those of each split task by round, and the comparison where tasks were given."""

    rounds: tuple[Profile, ...]
    split: tuple[tuple[Profile, ...], ...]
    comparison: Comparison | None

    @property
    def passed(self) -> bool:
        """No round of any task has a finding."""
        return all(p.passed for tasks in (self.rounds, *self.split) for p in tasks)

    def to_dict(self) -> dict[str, Any]:
        """Everything that the parts say."""
        return {
            "passed": self.passed,
            "rounds": [p.to_dict() for p in self.rounds],
            "split": [[p.to_dict() for p in tasks] for tasks in self.split],
            "comparison": self.comparison.to_dict() if self.comparison else None,
        }

    def __str__(self) -> str:
        parts = []
        for n, result in enumerate(self.rounds):
            parts.append((f"round {n}\n" if len(self.rounds) > 1 else "") + str(result))
        for n, tasks in enumerate(self.split):
            found = [f"  round {r}: {finding}" for r, p in enumerate(tasks) for finding in p.findings]
            parts.append("\n".join([f"split task {n}: {len(found) or 'no'} finding{'s' * (len(found) != 1)}", *found]))
        if self.comparison is not None:
            parts.append(str(self.comparison))
        return "\n\n".join(parts)


def report(
    files: Sequence[str | Path],
    *,
    masks: Mapping[str, str] | None = None,
    tasks: Sequence[str] = (),
    generation: int | None = None,
    words: str = "",
    uninstrumented: int | None = None,
    slots: Slots | None = None,
    split: Sequence[str | Path] = (),
) -> Report:
    """Profile every round in ``files``, and compare with the tasks of ``split``.

    Args:
        files: rounds of the kernel, one after the other.
        masks: text of each mask (:func:`pyptox.phases.mask`): active, producers, arrivals, releases, bodies.
        tasks: ``START,END`` of the task in each round, cycles.
        generation: what the rows of the first round carry; the newest by default. With several rounds each takes its
            own newest.
        words: names of the eight words; see :class:`pyptox.phases.Layout`.
        uninstrumented: cycles of the kernel without probes.
        slots: how slots are numbered.
        split: one file for each task of the split variant, in order, with the same rounds. Only entries and bodies
            of its active cores are read.
    """
    layout = Layout.parse(words) if words else None
    read = [(matrix, found) for path in files for matrices, found in [read_rounds(path, layout)] for matrix in matrices]
    if tasks and len(tasks) != len(read):
        raise ValueError(f"`--task` must be given once for each of {len(read)} rounds; got {len(tasks)}")
    if generation is not None and len(read) > 1:
        raise ValueError(f"`--generation` names that of one round; got {len(read)} rounds. Try one at a time")
    given = {name: (masks or {}).get(name, "") for name in MASKS}
    rounds = []
    for n, (matrix, found) in enumerate(read):
        chosen = {name: mask(text, len(matrix), slots, f"--{name}") for name, text in given.items()}
        rounds.append(
            profile(
                matrix,
                **chosen,
                task=_task(tasks[n]) if tasks else None,
                generation=generation,
                layout=found,
                uninstrumented=uninstrumented,
                slots=slots,
            )
        )
    others = tuple(_split_task(path, layout, given["active"], slots) for path in split)
    wrong = [len(task) for task in others if len(task) != len(rounds)]
    if wrong:
        raise ValueError(f"`--split` files must have the same {len(rounds)} rounds; got {wrong[0]}")
    comparison = None
    if others:
        chains = [[task[n].envelope for task in others] for n in range(len(rounds))]
        comparison = compare([[p.envelope] for p in rounds], chains)
    return Report(tuple(rounds), others, comparison)


def _split_task(path: str | Path, layout: Layout | None, active: str, slots: Slots | None) -> tuple[Profile, ...]:
    matrices, found = read_rounds(path, layout)
    return tuple(
        profile(m, active=mask(active, len(m), slots, "--active"), producers=(), arrivals=(), releases=(), layout=found)
        for m in matrices
    )


def _task(text: str) -> Task:
    start, comma, end = text.partition(",")
    if not comma or not start.strip().isdecimal() or not end.strip().isdecimal():
        raise ValueError(f"`--task` must be START,END in cycles; got {text!r}. Try --task 1000,5200")
    return Task(int(start), int(end))
