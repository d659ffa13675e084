"""How long does the chip simulator take? ``python -m benchmarks.simulator [--json] [--tasks N]``.

A layered graph on 24 clusters: layers of 12 tasks of 30 blocks, AIC, AIV and MIX, each waiting for two tasks of the
layer before; the same with every task flagged for early dispatch; and 32 candidates, the same tasks with other
durations, one after another. Times after compiling are the least of ``--repeats``; value and gradient include the
walk back. A capture of 20,800 rows is written once, then read and replayed: the processor's seconds for that, and for
the report that ``pyptox capture`` prints.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from pyptox import artifacts, chip
from pyptox.chip._machine import compiled

from ._timing import seconds

LAYER = 12
CANDIDATES = 32


def layered(tasks: int, seed: int = 0, blocks: int = 30) -> chip.Workload:
    """``tasks`` tasks of ``blocks`` blocks of 5 to 40 µs."""
    rng = np.random.default_rng(seed)
    shapes = rng.choice(["AIC", "AIV", "MIX"], tasks, p=[0.45, 0.45, 0.1]).tolist()
    waits = [
        rng.integers(n // LAYER * LAYER - LAYER, n // LAYER * LAYER, 2).tolist() if n >= LAYER else []
        for n in range(tasks)
    ]
    return chip.Workload.of(shapes, [blocks] * tasks, rng.uniform(5, 40, tasks).tolist(), waits)


def measure(tasks: int, many: int, repeats: int) -> dict[str, Any]:
    """All figures of this benchmark."""
    work, large = layered(tasks), layered(many)
    flagged = dataclasses.replace(work, early=np.ones(tasks, bool))
    candidates = [work.with_durations(work.duration_us * (1 + n / 64)) for n in range(CANDIDATES)]
    compiled.cache_clear()
    first = seconds(lambda: chip.simulate(work), 1)
    forward = seconds(lambda: chip.simulate(work), repeats)
    gradient = seconds(lambda: chip.simulate(work).gradient(), repeats)
    chip.simulate(flagged)
    timeline = chip.simulate(large)
    record = sum(part.nbytes for part in timeline.record)
    return {
        "tasks": tasks,
        "blocks": int(work.blocks.sum()),
        "forward_ms": 1e3 * forward,
        "value_and_gradient_ms": 1e3 * gradient,
        "compile_s": first - forward,
        "early_value_and_gradient_ms": 1e3 * seconds(lambda: chip.simulate(flagged).gradient(), repeats),
        "candidates": CANDIDATES,
        "candidates_s": seconds(lambda: [chip.simulate(candidate).gradient() for candidate in candidates], 1),
        "many_tasks": many,
        "many_forward_s": seconds(lambda: chip.simulate(large), 1),
        "many_value_and_gradient_s": seconds(lambda: chip.simulate(large).gradient(), 1),
        "record_bytes_a_task": record / many,
        "makespan_us": chip.simulate(work).makespan_us,
        **of_a_capture(),
    }


def of_a_capture(tasks: int = 800, blocks: int = 26) -> dict[str, Any]:
    """Seconds to read a run's files, and to replay them."""
    rng = np.random.default_rng(0)
    waits = [
        rng.integers(n // LAYER * LAYER - LAYER, n // LAYER * LAYER, 2).tolist() if n >= LAYER else []
        for n in range(tasks)
    ]
    times, shapes = rng.uniform(5, 40, tasks).tolist(), rng.choice(["AIC", "AIV"], tasks).tolist()
    timeline = chip.simulate(chip.Workload.of(shapes, [blocks] * tasks, times, waits))
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        artifacts.write_simulation(Path(folder), timeline)
        written = time.process_time() - began
        artifacts.replay(artifacts.read_capture(folder))  # compiled
        began = time.process_time()
        capture = artifacts.read_capture(folder)
        read = time.process_time() - began
        str(artifacts.replay(capture))
        replayed = time.process_time() - began
        str(artifacts.report(capture))
        reported = time.process_time() - began - replayed
    return {
        "capture_rows": len(capture.records.blocks),
        "capture_write_s": written,
        "capture_read_s": read,
        "capture_read_and_replay_s": replayed,
        "capture_report_s": reported,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--tasks", type=int, default=2400)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    result = measure(arguments.tasks, arguments.many, arguments.repeats)
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['tasks']:,} tasks of 30 blocks: {result['forward_ms']:.0f} ms, ", end="")
    print(f"with gradient {result['value_and_gradient_ms']:.0f} ms, compile {result['compile_s']:.1f} s")
    print(f"with early dispatch {result['early_value_and_gradient_ms']:.0f} ms; ", end="")
    print(f"{result['candidates']} candidates with gradients {result['candidates_s']:.1f} s")
    print(f"{result['many_tasks']:,} tasks: {result['many_forward_s']:.1f} s, ", end="")
    print(
        f"with gradient {result['many_value_and_gradient_s']:.1f} s, {result['record_bytes_a_task']:.0f} bytes a task"
    )
    print(f"capture of {result['capture_rows']:,} rows: read {result['capture_read_s']:.1f} s, ", end="")
    print(
        f"read and replayed {result['capture_read_and_replay_s']:.1f} s, written {result['capture_write_s']:.1f} s, ",
        end="",
    )
    print(f"report {result['capture_report_s']:.1f} s")


if __name__ == "__main__":
    main()
