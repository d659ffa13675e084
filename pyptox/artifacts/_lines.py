"""Lines of logs: ``[RUN] effective_us`` of timed rounds, and ``[STRACE]`` spans."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_NUMBER = r"([-+]?\d+(?:\.\d+)?)"
_STATISTICS = rf"min={_NUMBER} median={_NUMBER} mean={_NUMBER} max={_NUMBER}"
_HEADLINE = re.compile(rf"\[RUN\]\s+effective_us \((\d+) rounds\) {_STATISTICS}\s*$")
_UNAVAILABLE = re.compile(r"\[RUN\]\s+(effective_us|benchmark) unavailable: (.*\S)\s*$")
_RANK = re.compile(rf"\[RUN\]\s+rank (\S+): (?:eff_us {_STATISTICS}|\(no timing\))\s*$")
_SLOT = re.compile(rf"\[RUN\]\s+slot (\d+)(?: \((.+)\))?: eff_us {_STATISTICS}\s*$")
_RAW_HEAD = re.compile(r"\[RUN\]\s+raw samples: ranks=(\d+) rounds=(\d+) warmup=(\d+)\s*$")
_RAW = re.compile(r"\[RUN\]\s+rank (\S+) raw n=(\d+) eff_us=\[([^\]]*)\]\s*$")
_STRACE = re.compile(r"\[STRACE\]\s+(.*\S)\s*$")
_SPAN_KEYS = ("v", "pid", "tid", "inv", "hid", "depth", "name", "ts", "dur")


@dataclass(frozen=True)
class Statistics:
    """Of effective times, µs, as printed with one decimal."""

    minimum: float
    median: float
    mean: float
    maximum: float

    def __str__(self) -> str:
        return f"min={self.minimum:.1f} median={self.median:.1f} mean={self.mean:.1f} max={self.maximum:.1f}"


@dataclass(frozen=True)
class Rounds:
    """What a benchmark printed.

    Attributes:
        rounds: timed rounds; None where nothing was timed.
        effective_us: the headline; None where it is unavailable.
        unavailable: why there is no headline.
        ranks: statistics by rank; None for a rank without timing.
        slots: (rank, slot, name, statistics) of ranks with several dispatches a round; rank "" before the first.
        raw: samples by rank, µs.
        warmup: rounds before those; None where the raw samples were not printed.
    """

    rounds: int | None = None
    effective_us: Statistics | None = None
    unavailable: str | None = None
    ranks: Mapping[str, Statistics | None] = field(default_factory=dict)
    slots: tuple[tuple[str, int, str | None, Statistics], ...] = ()
    raw: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    warmup: int | None = None


@dataclass(frozen=True)
class Span:
    """One ``[STRACE]`` line.

    Attributes:
        name: such as ``chip.run`` or ``chip.run.device_wall``.
        ts_ns, dur_ns: start and duration; ns of the device's clock where ``more["clk"]`` is ``dev``.
        pid, tid, inv, hid: process, thread, invocation and handle, as printed.
        depth: of nesting.
        more: further ``key=value`` pairs.
    """

    name: str
    ts_ns: int
    dur_ns: int
    pid: str = "0"
    tid: str = "0"
    inv: str = "0"
    hid: str = "0"
    depth: int = 0
    more: Mapping[str, str] = field(default_factory=dict)


def parse_rounds(text: str) -> Rounds | None:
    """Read the ``[RUN]`` lines of a log; None where there are none. Of several headlines the last counts.

    >>> rounds = parse_rounds("[RUN]   effective_us (3 rounds) min=1.0 median=2.0 mean=2.5 max=4.0")
    >>> rounds.rounds, rounds.effective_us.median
    (3, 2.0)
    """
    count, headline, why, warmup, rank = None, None, None, None, ""
    ranks: dict[str, Statistics | None] = {}
    slots: list[tuple[str, int, str | None, Statistics]] = []
    raw: dict[str, tuple[float, ...]] = {}
    found = False
    for line in text.splitlines():
        if match := _HEADLINE.search(line):
            count, headline, why = int(match[1]), _statistics(match.groups()[1:]), None
        elif match := _UNAVAILABLE.search(line):
            count, headline, why = None, None, match[2]
        elif match := _RANK.search(line):
            rank = match[1]
            ranks[rank] = None if match[2] is None else _statistics(match.groups()[1:])
        elif match := _SLOT.search(line):
            slots.append((rank, int(match[1]), match[2], _statistics(match.groups()[2:])))
        elif match := _RAW_HEAD.search(line):
            warmup = int(match[3])
        elif match := _RAW.search(line):
            raw[match[1]] = _samples(match[3], int(match[2]), line)
        else:
            continue
        found = True
    return Rounds(count, headline, why, ranks, tuple(slots), raw, warmup) if found else None


def _statistics(texts: Iterable[str]) -> Statistics:
    return Statistics(*map(float, texts))


def _samples(text: str, count: int, line: str) -> tuple[float, ...]:
    samples = tuple(float(part) for part in text.split(",") if part.strip())
    if len(samples) != count:
        raise ValueError(f"a raw line must hold n={count} samples; got {len(samples)} in {line.strip()!r}. Cut short?")
    return samples


def format_rounds(rounds: Rounds) -> str:
    """The lines of a benchmark, as :func:`parse_rounds` reads them.

    >>> print(format_rounds(Rounds(3, Statistics(1.0, 2.0, 2.5, 4.0))))
    [RUN]   effective_us (3 rounds) min=1.0 median=2.0 mean=2.5 max=4.0
    """
    lines = []
    if rounds.effective_us is not None:
        lines.append(f"[RUN]   effective_us ({rounds.rounds} rounds) {rounds.effective_us}")
    elif rounds.unavailable is not None:
        lines.append(f"[RUN]   effective_us unavailable: {rounds.unavailable}")

    def slots(of: str) -> None:
        for rank, slot, name, statistics in rounds.slots:
            if rank == of:
                lines.append(f"[RUN]       slot {slot}{f' ({name})' if name else ''}: eff_us {statistics}")

    slots("")
    for rank, statistics in rounds.ranks.items():
        lines.append(f"[RUN]     rank {rank}: " + ("(no timing)" if statistics is None else f"eff_us {statistics}"))
        slots(rank)
    if rounds.warmup is not None:
        count = max(map(len, rounds.raw.values()), default=0) if rounds.rounds is None else rounds.rounds
        lines.append(f"[RUN]   raw samples: ranks={len(rounds.raw)} rounds={count} warmup={rounds.warmup}")
    for rank, samples in rounds.raw.items():
        lines.append(f"[RUN]     rank {rank} raw n={len(samples)} eff_us=[{', '.join(f'{us:.1f}' for us in samples)}]")
    return "\n".join(lines)


def parse_spans(text: str) -> list[Span]:
    """Read the ``[STRACE]`` lines of a log.

    Raises:
        ValueError: a line of another version, or one that lacks a key.

    >>> parse_spans("[STRACE] v=1 pid=7 tid=7 inv=0 hid=0 depth=1 name=chip.run ts=100 dur=50 clk=dev")[0].more
    {'clk': 'dev'}
    """
    spans = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _STRACE.search(line)
        if not match:
            continue
        pairs = dict(part.split("=", 1) for part in match[1].split() if "=" in part)
        missing = [key for key in _SPAN_KEYS if key not in pairs]
        if missing:
            raise ValueError(f"line {number}: an [STRACE] line must have `{missing[0]}`; got {match[1]!r}. Cut short?")
        if pairs["v"] != "1":
            raise ValueError(f"line {number}: `v` must be 1; got {pairs['v']!r}. A newer log: use the tools of its run")
        try:
            ts, dur, depth = int(pairs["ts"]), int(pairs["dur"]), int(pairs["depth"])
        except ValueError:
            raise ValueError(f"line {number}: `ts`, `dur` and `depth` must be integers; got {match[1]!r}") from None
        more = {key: value for key, value in pairs.items() if key not in _SPAN_KEYS}
        owner = {key: pairs[key] for key in ("pid", "tid", "inv", "hid")}
        spans.append(Span(pairs["name"], ts, dur, **owner, depth=depth, more=more))
    return spans


def format_span(span: Span) -> str:
    """One line, as :func:`parse_spans` reads it.

    >>> format_span(Span("chip.run", 100, 50, more={"clk": "dev"}))
    '[STRACE] v=1 pid=0 tid=0 inv=0 hid=0 depth=0 name=chip.run ts=100 dur=50 clk=dev'
    """
    pairs: dict[str, object] = {"v": 1, "pid": span.pid, "tid": span.tid, "inv": span.inv, "hid": span.hid}
    pairs |= {"depth": span.depth, "name": span.name, "ts": span.ts_ns, "dur": span.dur_ns, **span.more}
    wrong = [key for key, value in pairs.items() if not str(value) or re.search(r"\s", f"{key}{value}") or "=" in key]
    if wrong:
        raise ValueError(f"`span` must have values of one word each; got {pairs[wrong[0]]!r} for {wrong[0]}")
    return "[STRACE] " + " ".join(f"{key}={value}" for key, value in pairs.items())
