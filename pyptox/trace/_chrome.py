"""Traces as files: Chrome-trace JSON with lanes and flows, metrics, and the pipeline summary; and back."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

from .._files import write_whole
from ._trace import LANES, Trace, name_of

_CYCLES = "busy scalar mte2_aic mte2_aiv mte1 cube fixp vec mte3"
SUMMARY = (
    *("op_name", "core_id", "unit", "total_cycles", "active_start_cycle", "active_end_cycle", "active_cycles"),
    *(f"{name}_cycles" for name in _CYCLES.split(" ")),
)
"""Columns of ``pipeline_summary.csv``, as the PTO performance simulator writes them."""

_AIC = {"SCALAR": "scalar_cycles", "MTE2": "mte2_aic_cycles", "MTE1": "mte1_cycles"}
_AIC |= {"CUBE": "cube_cycles", "FIXPIPE": "fixp_cycles"}
_AIV = {"MTE2V": "mte2_aiv_cycles", "VECTOR": "vec_cycles", "MTE3": "mte3_cycles"}
_SAME = {"VEC": "VECTOR", "FIXP": "FIXPIPE", "Scalar": "SCALAR"}


def chrome(trace: Trace) -> dict[str, Any]:
    """The trace as a Chrome-trace object; ts and dur are µs, a flow joins what waited to what it waited for."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": f"{trace.kernel} on {trace.hardware}"}}
    ]
    for lane, pipe in enumerate(LANES):
        if pipe in trace.busy:
            events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": lane, "args": {"name": pipe}})
            events.append({"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": lane, "args": {"sort_index": lane}})
    lane_of = {pipe: lane for lane, pipe in enumerate(LANES)}
    clock = trace.clock_mhz
    for number, event in enumerate(trace.events):
        file, line = event.instruction.site
        events.append(
            {
                "ph": "X",
                "name": name_of(event),
                "cat": event.instruction.operation.name,
                "pid": 0,
                "tid": lane_of[event.pipe],
                "ts": event.start / clock,
                "dur": (event.end - event.start) / clock,
                "args": {
                    "cycles": event.end - event.start,
                    "iteration": list(event.iteration),
                    "cause": event.cause,
                    "line": f"{Path(file).name}:{line}",
                },
            }
        )
        if event.after >= 0 and event.cause != "pipe":
            source = trace.events[event.after]
            flow = {"cat": event.cause, "name": event.cause, "id": number, "pid": 0}
            events.append({**flow, "ph": "s", "tid": lane_of[source.pipe], "ts": source.end / clock})
            events.append({**flow, "ph": "f", "bp": "e", "tid": lane_of[event.pipe], "ts": event.start / clock})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def metrics(trace: Trace) -> dict[str, Any]:
    """Cycles and counts of every instruction of the text, and of every pipe."""
    cycles: dict[tuple[str, str], list[float]] = {}
    for event in trace.events:
        cycles.setdefault((name_of(event), event.pipe), []).append(event.end - event.start)
    rows = [{"name": n, "pipe": p, "count": len(each), "cycles": sum(each)} for (n, p), each in cycles.items()]
    rows.sort(key=lambda row: -row["cycles"])
    return trace.to_dict() | {"per_instruction": rows}


def summary(trace: Trace) -> str:
    """``pipeline_summary.csv``: three rows, the cube core and its two vector cores; integers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SUMMARY)
    for unit in ("AIC", "AIV0", "AIV1"):
        columns = _AIC if unit == "AIC" else _AIV
        mine = [event for event in trace.events if event.pipe in columns]
        begin = round(min((event.start for event in mine), default=0.0))
        end = round(max((event.end for event in mine), default=0.0))
        row: dict[str, Any] = dict.fromkeys(SUMMARY, 0) | {
            "op_name": trace.kernel,
            "unit": unit,
            "total_cycles": round(trace.cycles),
        }
        row |= {"active_start_cycle": begin, "active_end_cycle": end, "active_cycles": end - begin}
        row |= {column: round(trace.busy.get(pipe, 0.0)) for pipe, column in columns.items()}
        row["busy_cycles"] = sum(int(row[column]) for column in columns.values())
        writer.writerow([row[column] for column in SUMMARY])
    return text.getvalue()


def write(trace: Trace, directory: str | os.PathLike[str]) -> dict[str, Path]:
    """Write ``trace.json``, ``metrics.json`` and ``pipeline_summary.csv`` under ``directory``; all or nothing each."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "trace.json": json.dumps(chrome(trace)),
        "metrics.json": json.dumps(metrics(trace), indent=1),
        "pipeline_summary.csv": summary(trace),
    }
    for name, content in contents.items():
        write_whole(folder / name, content)
    return {name: folder / name for name in contents}


def read_lanes(path: str | os.PathLike[str]) -> dict[str, float]:
    """Busy time by pipe of a trace that another tool wrote: Chrome JSON of msprof or of the PTO performance simulator.

    The unit is the file's own (µs, or cycles in the simulator's bare arrays). Of several cores the busiest counts.
    Set and wait flags, and lanes that are no pipe, are left out.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        events = content["traceEvents"] if isinstance(content, dict) else content
        names = {
            (e.get("pid"), e.get("tid")): e["args"]["name"]
            for e in events
            if e.get("ph") == "M" and e.get("name") == "thread_name"
        }
        totals: dict[Any, dict[str, float]] = {}
        for e in events:
            if e.get("ph") == "X":
                lane = str(names.get((e.get("pid"), e.get("tid")), e.get("tid")))
                core, _, pipe = lane.rpartition(" ")
                pipe = _SAME.get(pipe, pipe).split("#")[0]
                if pipe == "MTE2" and "AIV" in core:
                    pipe = "MTE2V"
                if pipe in LANES:
                    lanes = totals.setdefault(e.get("pid"), {})
                    lanes[pipe] = lanes.get(pipe, 0.0) + float(e["dur"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"`path` must be a Chrome trace (a JSON object with traceEvents, or an array of events); {path} is not: "
            f"{error}"
        ) from None
    if not totals:
        raise ValueError(f"`path` {path} has no events on a known pipe; expected lanes such as {', '.join(LANES)}")
    return max(totals.values(), key=lambda lanes: sum(lanes.values()))


def side_by_side(trace: Trace, measured: dict[str, float]) -> str:
    """Shares of each pipe, of the busiest pipe's time: predicted and measured, lane by lane."""
    most = max(trace.busy.values()), max(measured.values())
    lines = ["pipe        predicted   measured   (shares of the busiest pipe)"]
    for pipe in LANES:
        if pipe in trace.busy or pipe in measured:
            mine, theirs = trace.busy.get(pipe, 0.0) / most[0], measured.get(pipe, 0.0) / most[1]
            lines.append(f"{pipe:<10} {mine:>10.1%} {theirs:>10.1%}")
    return "\n".join(lines)
