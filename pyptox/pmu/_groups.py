"""Event groups: the counters of one run, in the order of their columns, and the pipes that some of them count.

A run records one group. Names and order are those of the collector's ``pmu.csv``.
"""

from dataclasses import dataclass

from ..lang.rules import CUBE_PIPES, VECTOR_PIPES

PIPE_UTIL = 2
"""The event type that a run records by default: busy cycles by pipe."""


@dataclass(frozen=True)
class Group:
    """One event group: its type, name and counters."""

    event_type: int
    name: str
    counters: tuple[str, ...]


_A2A3 = {
    1: (
        "ARITHMETIC",
        "cube_fp16_exec cube_int8_exec vec_fp32_exec vec_fp16_128lane_exec vec_fp16_64lane_exec vec_int32_exec "
        "vec_misc_exec",
    ),
    2: (
        "PIPE_UTIL",
        "vec_busy_cycles cube_busy_cycles scalar_busy_cycles mte1_busy_cycles mte2_busy_cycles mte3_busy_cycles "
        "icache_miss icache_req",
    ),
    4: (
        "MEMORY",
        "ub_read_req ub_write_req l1_read_req l1_write_req l2_read_req l2_write_req main_read_req main_write_req",
    ),
    5: ("MEMORY_L0", "l0a_read_req l0a_write_req l0b_read_req l0b_write_req l0c_read_req l0c_write_req"),
    6: ("RESOURCE_CONFLICT", "bankgroup_stall_cycles bank_stall_cycles vec_resc_conflict_cycles"),
    7: (
        "MEMORY_UB",
        "ub_read_bw_mte l2_write_bw main_mem_write_bw ub_write_bw_mte ub_read_bw_vector ub_write_bw_vector "
        "ub_read_bw_scalar ub_write_bw_scalar",
    ),
    8: (
        "L2_CACHE",
        "write_cache_hit write_cache_miss_allocate r0_read_cache_hit r0_read_cache_miss_allocate r1_read_cache_hit "
        "r1_read_cache_miss_allocate",
    ),
}
_A5 = {
    2: (
        "PIPE_UTIL",
        "pmu_idc_aic_vec_busy_o cube_instr_busy scalar_instr_busy mte1_instr_busy mte2_instr_busy mte3_instr_busy "
        "icache_req icache_miss pmu_fix_instr_busy",
    ),
}
_FAMILIES = {"a2a3": _A2A3, "a5": _A5}

_PIPES = {
    "vec_busy_cycles": ("VECTOR",),
    "cube_busy_cycles": ("CUBE",),
    "mte1_busy_cycles": ("MTE1",),
    "mte2_busy_cycles": ("MTE2", "MTE2V"),
    "mte3_busy_cycles": ("MTE3",),
    "pmu_idc_aic_vec_busy_o": ("VECTOR",),
    "cube_instr_busy": ("CUBE",),
    "mte1_instr_busy": ("MTE1",),
    "mte2_instr_busy": ("MTE2", "MTE2V"),
    "mte3_instr_busy": ("MTE3",),
    "pmu_fix_instr_busy": ("FIXPIPE",),
}
"""The model's pipes of each counter that counts one. Absent is what it does not determine: the scalar unit and the
instruction cache are not modelled; requests come in units, and executions in kinds, that are not published."""

READ_HITS = ("r0_read_cache_hit", "r1_read_cache_hit")
READ_MISSES = ("r0_read_cache_miss_allocate", "r1_read_cache_miss_allocate")
"""L2 reads by port. The model knows the share of hits over both, not how the ports divide them."""

PIPES_OF = {"AIC": CUBE_PIPES, "AIV": VECTOR_PIPES}


def pipe(counter: str, core: str) -> str | None:
    """The pipe that ``counter`` counts on a core, ``""`` where that core does not have it; None if undetermined.

    >>> pipe("mte2_busy_cycles", "AIV"), pipe("cube_busy_cycles", "AIV"), pipe("icache_miss", "AIV")
    ('MTE2V', '', None)
    """
    if counter not in _PIPES:
        return None
    return next((name for name in _PIPES[counter] if name in PIPES_OF[core]), "")


def group(chip: str, event_type: int = PIPE_UTIL) -> Group:
    """The event group of a chip; ``chip`` is its name, such as ``a2a3/910B2``.

    >>> group("a2a3/910B2").counters[:2]
    ('vec_busy_cycles', 'cube_busy_cycles')
    """
    family = chip.partition("/")[0]
    known = _FAMILIES.get(family)
    if known is None:
        raise ValueError(
            f"`chip` must be of a family whose counters are known ({', '.join(_FAMILIES)}); got {chip!r}. Try a name "
            "such as a2a3/mine"
        )
    if event_type not in known:
        listed = ", ".join(f"{number} {name}" for number, (name, _) in known.items())
        raise ValueError(f"`event_type` must be one that is known of {family}: {listed}; got {event_type}")
    name, counters = known[event_type]
    return Group(event_type, name, tuple(counters.split()))
