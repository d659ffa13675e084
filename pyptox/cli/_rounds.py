"""Timed rounds of a program on the local JAX device, asked for by ``PYPTO_BENCH`` as in the toolchain.

``PYPTO_BENCH_ROUNDS`` (100) rounds are timed after ``PYPTO_BENCH_WARMUP`` (5) others, in this process and on one set of
inputs; ``PYPTO_BENCH_RAW`` prints every sample.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..artifacts import Rounds, Statistics, format_rounds
from ..program import Program

_VARIABLES = ("PYPTO_BENCH", "PYPTO_BENCH_ROUNDS", "PYPTO_BENCH_WARMUP", "PYPTO_BENCH_RAW")
_OFF = ("", "0", "false", "False")


@dataclass(frozen=True)
class Timed:
    """Rounds of a program.

    Attributes:
        program: its name.
        device: what it ran on.
        rounds: the times, as a benchmark prints them.
        samples_us: every round.
    """

    program: str
    device: str
    rounds: Rounds
    samples_us: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        statistics = self.rounds.effective_us
        return {
            "program": self.program,
            "device": self.device,
            "rounds": self.rounds.rounds,
            "effective_us": None if statistics is None else vars(statistics),
            "samples_us": list(self.samples_us),
        }

    def __str__(self) -> str:
        return format_rounds(self.rounds)


def rounds_asked_for(
    program: Program, sizes: Sequence[str], environment: Mapping[str, str] = os.environ
) -> Timed | None:
    """The rounds of a program on random inputs; None where ``PYPTO_BENCH`` does not ask for them."""
    from ._programs import sizes_of

    return rounds_of(program.name, lambda count, warmup: _times(program, sizes_of(sizes), count, warmup), environment)


def asked(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether ``PYPTO_BENCH`` asks for timed rounds."""
    return environment.get("PYPTO_BENCH", "") not in _OFF


def rounds_of(
    name: str, measure: Callable[[int, int], np.ndarray], environment: Mapping[str, str] = os.environ
) -> Timed | None:
    """The rounds that ``measure(count, warmup)`` gives, µs; None where ``PYPTO_BENCH`` does not ask for them."""
    unknown = sorted({name for name in environment if name.startswith("PYPTO_BENCH")} - set(_VARIABLES))
    for name in unknown:
        print(f"note: `{name}` is not known and changes nothing; known: {', '.join(_VARIABLES)}", file=sys.stderr)
    if not asked(environment):
        return None
    count = _whole(environment, "PYPTO_BENCH_ROUNDS", 100, 1)
    warmup = _whole(environment, "PYPTO_BENCH_WARMUP", 5, 0)
    samples = measure(count, warmup)
    raw = environment.get("PYPTO_BENCH_RAW", "") not in _OFF
    rounds = Rounds(
        count,
        Statistics(*(float(f(samples)) for f in (np.min, np.median, np.mean, np.max))),
        raw={str(os.getpid()): tuple(samples.tolist())} if raw else {},
        warmup=warmup if raw else None,
    )
    import jax

    return Timed(name, jax.devices()[0].platform, rounds, tuple(samples.tolist()))


def _times(program: Program, sizes: Mapping[str, Any], count: int, warmup: int) -> np.ndarray:
    """µs of each round of the program, jitted as a whole."""
    import jax

    from ..program._run import jitted

    specs = program.specs(**sizes)
    rng = np.random.default_rng(0)
    arrays = [jax.device_put(_filled(rng, spec)) for spec in specs.values()]
    compiled = jitted(program, tuple(specs.values()))
    samples = np.zeros(count)
    for n in range(-1 - warmup, count):  # one more to compile
        begin = time.perf_counter()
        jax.block_until_ready(compiled(*arrays))
        if n >= 0:
            samples[n] = 1e6 * (time.perf_counter() - begin)
    return samples


def _filled(rng: np.random.Generator, spec: Any) -> np.ndarray:
    from .._dtypes import dtype_of

    kind = dtype_of(spec.dtype)
    if kind.floating:
        return rng.standard_normal(spec.shape).astype(kind.jax)
    return rng.integers(-8, 8, spec.shape).astype(kind.jax)


def _whole(environment: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = environment.get(name, "")
    try:
        value = int(text) if text else default
    except ValueError:
        raise ValueError(f"`{name}` must be an integer; got {text!r}. Leave it out for {default}") from None
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}; got {value}. Leave it out for {default}")
    return value
