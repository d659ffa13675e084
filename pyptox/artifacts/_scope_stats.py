"""``scope_stats.jsonl``: the state of a ring wherever a scope begins or ends; read in versions 4, 5 and 6."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .._files import write_whole
from ..rings import Boundary, Limits, ScopeStats
from ._json import Where, field, integers

SCOPE_STATS_FILE = "scope_stats.jsonl"
_VERSIONS = (4, 5, 6)
_RINGS = len(Limits().heap)


def read_scope_stats(path: str | os.PathLike[str]) -> ScopeStats:
    """Read a ``scope_stats.jsonl``.

    Positions count up in what is returned: those of versions 4 and 5, where the heap's wrap at its end, are unwrapped
    (right as long as a ring is not gone round twice between two boundaries of it). Version 4 has no dependency pool:
    its amounts are 0.

    Raises:
        ArtifactError: the file is no text, a line is not JSON, a key of its version is missing, or a value cannot be.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise Where(path.name).error("encoding", f"the file must be text in UTF-8; it is not: {error}") from None
    numbered = [(number, line) for number, line in enumerate(lines) if line.strip()]
    if not numbered:
        raise Where(path.name).error("empty", "the file must begin with a line of capacities; it has no line")
    where = _line(path, numbered[0][0])
    header = _object(numbered[0][1], where)
    version = field(header, "version", int, where)
    if version not in _VERSIONS:
        raise where.error("version", f"`version` must be one of {', '.join(map(str, _VERSIONS))}; got {version}")
    _all_there(header, ("fatal", "dropped", "total", *(f"{name}_max" for name in _amounts(version))), where)
    limits = _limits(header, where)
    boundaries = []
    laps = _Laps(limits.heap if version < 6 else (0,) * _RINGS)
    for number, line in numbered[1:]:
        place = _line(path, number)
        content = _object(line, place)
        _all_there(content, _keys(version), place)
        boundaries.append(_boundary(content, place, laps))
    return ScopeStats(
        limits,
        tuple(boundaries),
        field(header, "fatal", bool, where, default=False),
        _count(header, "dropped", where),
        _count(header, "total", where, len(boundaries)),
        version,
        tuple(number + 1 for number, _ in numbered[1:]),
    )


def write_scope_stats(path: str | os.PathLike[str], stats: ScopeStats, *, version: int = 6) -> None:
    """Write a ``scope_stats.jsonl`` in ``version``, whole or not at all.

    >>> import tempfile
    >>> from pyptox import rings
    >>> run = rings.orchestrate(rings.Submissions.of([4096, 2048]), [5.0, 5.0], [1.0, 1.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_scope_stats(f"{folder}/scope_stats.jsonl", run.stats)
    ...     read_scope_stats(f"{folder}/scope_stats.jsonl") == run.stats
    True
    """
    if version not in _VERSIONS:
        raise ValueError(f"`version` must be one of {', '.join(map(str, _VERSIONS))}; got {version}")
    limits = stats.limits
    header: dict[str, Any] = {"version": version, "fatal": stats.fatal, "dropped": stats.dropped, "total": stats.total}
    header |= {"task_window_max": list(limits.task_window), "heap_max": list(limits.heap)}
    if version >= 5:
        header["dep_pool_max"] = list(limits.dep_pool)
    lines = [header | {"tensormap_max": limits.tensormap}]
    for b in stats.boundaries:
        lap = limits.heap[b.ring] if version < 6 else 0
        heap = [position % lap if lap else position for position in b.heap]
        line = {"site": b.site, "phase": b.phase, "depth": b.depth, "ring": b.ring}
        line |= {"task_window_start": b.task_window[0], "task_window_end": b.task_window[1]}
        line |= {"heap_start": heap[0], "heap_end": heap[1]}
        if version >= 5:
            line |= {"dep_pool_start": b.dep_pool[0], "dep_pool_end": b.dep_pool[1]}
        lines.append(line | {"tensormap": b.tensormap})
    write_whole(path, "".join(json.dumps(line) + "\n" for line in lines))


class _Laps:
    """Positions that wrap at a ring's capacity, as positions that count up."""

    def __init__(self, capacity: tuple[int, ...]):
        self.capacity, self.given = capacity, [0] * _RINGS

    def unwrapped(self, ring: int, start: int, end: int, where: Where) -> tuple[int, int]:
        """What has been taken back and given out."""
        capacity = self.capacity[ring]
        if not capacity:
            return start, end
        if max(start, end) > capacity:
            raise where.under("heap_end" if end > capacity else "heap_start").error(
                "value", f"a position of the heap of ring {ring} must be 0 to {capacity}; got {max(start, end)}"
            )
        self.given[ring] += (end - self.given[ring]) % capacity
        return self.given[ring] - (end - start) % capacity, self.given[ring]


def _line(path: Path, number: int) -> Where:
    return Where(path.name, f"line {number + 1}", number)


def _amounts(version: int) -> tuple[str, ...]:
    """What a version records: capacities, and at every boundary what there is of them."""
    return ("task_window", "heap", *(("dep_pool",) if version >= 5 else ()), "tensormap")


def _keys(version: int) -> tuple[str, ...]:
    spans = (f"{name}_{side}" for name in _amounts(version)[:-1] for side in ("start", "end"))
    return ("site", "phase", "depth", "ring", *spans, "tensormap")


def _all_there(content: Mapping[str, Any], names: Iterable[str], where: Where) -> None:
    for name in names:
        if name not in content:
            field(content, name, int, where)


def _object(line: str, where: Where) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise where.error(
            "json", f"each line must be a JSON object; this one is not: {error}. Was the run cut short?"
        ) from None
    if not isinstance(content, dict):
        raise where.error("type", f"each line must be a JSON object; got {line[:40]!r}")
    return content


def _limits(header: Mapping[str, Any], where: Where) -> Limits:
    capacities: dict[str, Any] = {}
    for name in ("task_window", "heap", "dep_pool"):
        key = f"{name}_max"
        values = integers(header, key, where) if key in header else (0,) * _RINGS
        if len(values) != _RINGS or min(values) < 0:
            raise where.under(key).error(
                "type", f"`{key}` must hold a capacity for each of {_RINGS} rings; got {values}"
            )
        capacities[name] = values
    return Limits(**capacities, tensormap=_count(header, "tensormap_max", where))


def _count(content: Mapping[str, Any], name: str, where: Where, default: int = 0) -> int:
    value = field(content, name, int, where, default=default)
    if value < 0:
        raise where.under(name).error("type", f"`{name}` must not be negative; got {value}")
    return value


def _boundary(content: Mapping[str, Any], where: Where, laps: _Laps) -> Boundary:
    phase, ring = field(content, "phase", str, where), field(content, "ring", int, where)
    if phase not in ("begin", "end"):
        raise where.under("phase").error("value", f"`phase` must be begin or end; got {phase!r}")
    if not 0 <= ring < _RINGS:
        raise where.under("ring").error("value", f"`ring` must be 0 to {_RINGS - 1}; got {ring}")
    spans = {}
    for name in ("task_window", "heap", "dep_pool"):
        start, end = _count(content, f"{name}_start", where), _count(content, f"{name}_end", where)
        start, end = laps.unwrapped(ring, start, end, where) if name == "heap" else (start, end)
        if start > end:
            raise where.under(f"{name}_start").error(
                "order", f"`{name}_start` must not be beyond `{name}_end`; got {start} and {end}"
            )
        spans[name] = (start, end)
    return Boundary(
        field(content, "site", str, where),
        phase,
        _count({"depth": field(content, "depth", int, where)}, "depth", where),
        ring,
        **spans,
        tensormap=_count(content, "tensormap", where),
    )
