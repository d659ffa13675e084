"""A matrix of timestamps from durations: what a device with these durations would write, probes included."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._layout import STAMPS, WORDS, Layout
from ._masks import Mask, slots_in
from ._profile import Task


@dataclass(frozen=True)
class Emission:
    """What :func:`emit` makes.

    Attributes:
        matrix: stamps, ``uint64 [slots, 8]``.
        active, producers: slots that run, and those of them that produce.
        task: the task's own bounds: the cores' earliest possible start, and the end of the last probe.
        uninstrumented: cycles from the first entry to the last body done of the same durations without probes.
    """

    matrix: np.ndarray
    active: tuple[int, ...]
    producers: tuple[int, ...]
    task: Task
    uninstrumented: int

    def to_dict(self) -> dict[str, Any]:
        """Everything, the matrix as lists."""
        return {
            "matrix": self.matrix.tolist(),
            "active": list(self.active),
            "producers": list(self.producers),
            "task": {"start": self.task.start, "end": self.task.end, "epoch": self.task.epoch},
            "uninstrumented": self.uninstrumented,
        }

    def __str__(self) -> str:
        rows = "\n".join(" ".join(f"{word:>10}" for word in row) for row in self.matrix.tolist())
        return f"{rows}\ntask {self.task.start} to {self.task.end}, {self.uninstrumented:,} cycles without probes"


@dataclass(frozen=True)
class _Work:
    """Cycles of each active core: what passes before each stamp, probes aside."""

    entry: np.ndarray
    produce: np.ndarray
    publish: np.ndarray
    release: np.ndarray
    body: np.ndarray

    def stamps(self, start: int, probe: int, produces: np.ndarray) -> dict[str, np.ndarray]:
        """Each core's stamps. A probe reads the clock first and then writes, so it delays what follows its stamp."""
        entry = start + self.entry
        produced = np.where(produces, entry + probe + self.produce, 0)
        arrival = np.where(produces, produced, entry) + probe + self.publish
        # nobody leaves before the last one has arrived and has written its stamp
        release = arrival.max() + probe + self.release
        done = release + probe + self.body
        return dict(zip(STAMPS, (entry, produced, arrival, release, done), strict=True))


def emit(
    produce: Any,
    body: Any,
    *,
    stagger: Any = 0,
    publish: Any = 0,
    service: int = 0,
    release_step: int = 0,
    probe: int = 0,
    noise: float = 0.0,
    seed: int = 0,
    start: int = 1,
    generation: int = 1,
    epoch: int = 0,
    active: Mask | None = None,
    producers: Mask | None = None,
    slots: int | None = None,
    layout: Layout = Layout(),  # noqa: B008  (frozen)
) -> Emission:
    """Run cores through ``enter, produce, publish, barrier, body`` and write their stamps.

    A core enters at ``start + stagger``, produces, publishes and arrives; ``service`` cycles after the last arrival the
    first core is released, each later slot ``release_step`` cycles after the one before.

    Args:
        produce, body: cycles of each active core, or one number for all.
        stagger, publish: the same, for the delay of a core's entry and for what it does between its last product and
            its arrival.
        service, release_step: cycles of the collective.
        probe: cycles that one stamp costs its core.
        noise: standard deviation of the logarithm of each core's durations; 0 for none.
        seed: of the noise.
        start: absolute cycle at which the task starts; at least 1, since a stamp of 0 means never written.
        generation, epoch: what rows carry.
        active: slots that run; ``slots`` or the length of ``produce`` by default.
        producers: those of them that produce; all by default. The others leave the word empty.
        slots: rows of the matrix; by default as many as are needed.
        layout: which word is what.

    Raises:
        ValueError: durations that are negative or not one for each active core, or a producer that is not active.

    >>> made = emit([100, 140], [60, 50], service=20, probe=4)
    >>> made.matrix[:, :5].tolist()
    [[1, 105, 109, 173, 237], [1, 145, 149, 173, 227]]
    >>> made.uninstrumented, made.task.end
    (220, 241)
    """
    given = {"produce": produce, "body": body, "stagger": stagger, "publish": publish}
    lengths = {np.asarray(value).size for value in given.values() if np.ndim(value)}
    needed = max(lengths, default=1) if active is None else _rows_needed(active)
    rows = needed if slots is None else slots
    running = slots_in(active, rows, "active")
    making = running if producers is None else slots_in(producers, rows, "producers")
    if not running or lengths - {len(running)} or set(making) - set(running):
        raise ValueError(
            f"`produce`, `body`, `stagger` and `publish` must hold one duration for each active core, and `producers` "
            f"be among them; got {sorted(lengths)} durations for {len(running)} active cores, producers {list(making)}"
        )
    if start < 1 or probe < 0 or noise < 0 or service < 0 or release_step < 0:
        raise ValueError(
            "`start` must be at least 1 and `probe`, `noise`, `service` and `release_step` at least 0; got "
            f"{start}, {probe}, {noise}, {service} and {release_step}"
        )
    random = np.random.default_rng(seed)
    cycles = {name: _cycles(name, value, len(running), noise, random) for name, value in given.items()}
    release = service + release_step * np.arange(len(running))
    work = _Work(cycles["stagger"], cycles["produce"], cycles["publish"], release, cycles["body"])
    produces = np.isin(running, making)
    stamps, bare = work.stamps(start, probe, produces), work.stamps(start, 0, produces)
    words = {**stamps, "epoch": epoch, "generation": generation}
    matrix = np.zeros((rows, WORDS), np.uint64)
    for column, word in enumerate(layout.words):
        if word in words:
            matrix[list(running), column] = words[word]
    matrix.flags.writeable = False
    return Emission(
        matrix=matrix,
        active=running,
        producers=making,
        task=Task(start, int(stamps["done"].max()) + probe, epoch),
        uninstrumented=int(bare["done"].max() - bare["entry"].min()),
    )


def _rows_needed(active: Mask) -> int:
    """Rows of the smallest matrix that a mask fits."""
    array = np.asarray(active)
    return array.size if array.dtype == bool else int(max(array, default=-1)) + 1


def _cycles(name: str, value: Any, cores: int, noise: float, random: np.random.Generator) -> np.ndarray:
    """Integer cycles of each core. The noise is multiplicative, so that no duration turns negative."""
    exact = np.broadcast_to(np.asarray(value, float), (cores,))
    if not np.isfinite(exact).all() or (exact < 0).any():
        raise ValueError(f"`{name}` must hold cycles, at least 0; got {value!r}")
    return np.rint(exact * np.exp(noise * random.standard_normal(cores))).astype(np.int64)
