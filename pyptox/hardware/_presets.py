"""The chips that ship with pyptox. Every number has its source in ``_SOURCES``, or says that it is calibrated.

``calibrated`` numbers come from ``python -m benchmarks.calibrate`` (documented in docs/calibration.md), which
starts from the published figure named beside them.
"""

import dataclasses

from ._base import Counts, Hardware, Sizes, Times

_COSTMODEL = "hw-native-sys/pypto@e2d0f78a:include/pypto/backend/common/backend_handler.h (L0CostModel, device sweeps)"
_INI_B2 = "CANN platform_config Ascend910B2C.ini"
_INI_A5 = "CANN platform_config Ascend950PR_957bx.ini"
_SOC = "hw-native-sys/pto-isa@3186c381:kernels/manual/common/flash_atten/scripts/fa_cost_model.py (SOC_SPECS)"
_ARCH = "hw-native-sys/pto-isa@3186c381:include/pto/costmodel/arch_config.hpp"
_FORMULA = "hw-native-sys/pto-isa@3186c381:include/pto/costmodel/a2a3/formula_costmodel (slope 1/64 fp32, 1/128 fp16)"
_PERF_GUIDE = "hw-native-sys/pypto-lib@634e77bd:docs/debug-and-tune/performance-tuning.md"
_INCORE = "hw-native-sys/pypto@e2d0f78a:docs/en/user/performance/04-incore.md"
_A5_HW = "hw-native-sys/simpler@6ebaf771:src/a5/docs/hardware.md"
_A5_SIM = "hw-native-sys/pypto PR #2001 (53b619414), a5 simulator fit"

_SOURCES = {
    "clock_mhz": _SOC,
    "aic": _SOC,
    "aiv": "hw-native-sys/simpler@6ebaf771:src/a2a3/docs/hardware.md (1 AIC : 2 AIV a cluster)",
    "mat": f"{_PERF_GUIDE}; {_INI_B2}",
    "left": f"{_PERF_GUIDE}; {_INI_B2}",
    "right": f"{_PERF_GUIDE}; {_INI_B2}",
    "acc": f"{_PERF_GUIDE}; {_INI_B2}",
    "vec": "hw-native-sys/pypto PR #1804 (184 KiB of 192 KiB; 8 KiB reserved)",
    "l2": f"hw-native-sys/pypto-lib@33a17741:docs/debug-and-tune/l2-prefetch.md; {_INI_B2}",
    "l2_usable": "calibrated, from 1.0",
    "l2_ramp": "calibrated, from 0.5",
    "line": f"{_INCORE} (PH001)",
    "fractal_rows": "hw-native-sys/pto-isa@3186c381 (16 x 16 x 16 fp16 fractal a cycle)",
    "fractal_bytes": _COSTMODEL,
    "min_row": f"{_INI_B2} (32-byte block)",
    "repeat": _FORMULA,
    "fp32_passes": _COSTMODEL,
    "cross_slots": "hw-native-sys/pypto PR #2378 (7226a964f)",
    "launch_us": "calibrated, from a floor of about 10 µs for a decode projection",
    "block": "calibrated, from 0",
    "load_start": f"calibrated, from {_ARCH} (Hill form: half-size / peak)",
    "load_wait": "hw-native-sys/pto-isa@3186c381:tests/costmodel/st/testcase/tload (264 cycles a transfer, less load_start)",
    "load_row": "calibrated, from hw-native-sys/pypto-lib PR #628 (strided ND2NZ loads are transaction bound)",
    "load_byte": "a port of 128 B/cycle; with load_row and load_stride it comes to about 135 GiB/s for rows of 512 B "
    f"({_ARCH}, GM_TO_L1)",
    "l2_us": f"{_INI_B2} (l2_read 110 B/cycle/core x 24 cores)",
    "load_stride": "calibrated, from 0 (16384-wide rows of the step sweep cost more than 8192-wide ones)",
    "page": "64 KiB: twice the widest stride of the published rows",
    "hbm_us": "calibrated, from 1.6 TB/s (hw-native-sys/pypto-lib PR #584)",
    "refetch_us": "calibrated, from hbm_us (unswizzled 16384-wide rows against those with M = 128)",
    "writeback_us": "fitted to the copies of memory_streaming_910b4 (half the HBM rate, as for hbm_us)",
    "miss_byte": "calibrated, from about 74 GB/s seen by one core on a cold stream",
    "store_start": "calibrated with load_start: the same start-up is assumed",
    "store_byte": f"{_ARCH} (UB_TO_GM 188.46 GiB/s)",
    "atomic_byte": "assumed equal to store_byte: an atomic reads what it adds to",
    "move_start": "calibrated, from cube_head: no figure is published",
    "left_byte": f"calibrated, from {_COSTMODEL}: 129.7 B/cycle",
    "right_byte": f"calibrated, from {_COSTMODEL}: 85.4 B/cycle",
    "cube_fractal": "hw-native-sys/pto-isa@3186c381 (4096 MAC a cycle, fp16)",
    "cube_head": f"calibrated, from {_COSTMODEL}: 21 cycles",
    "drain_start": f"{_COSTMODEL}: 164 cycles",
    "drain_row": f"{_COSTMODEL}: 4.45 cycles",
    "drain_byte": f"{_COSTMODEL}: 118 B/cycle",
    "drain_odd": f"{_COSTMODEL}: 2.6 cycles",
    "vector_start": "hw-native-sys/pto-isa@3186c381:include/pto/costmodel/a2a3/formula_costmodel/formula_params.csv",
    "vector_repeat": _FORMULA,
    "barrier": "calibrated, from 100",
}
_DIE = ("910B1", "910B2", "910B3", "910B4")


def a2a3(die: str = "910B2") -> Hardware:
    """One die of an Ascend A2 or A3 card: ``die`` is 910B1, 910B2, 910B3 or 910B4.

    >>> a2a3("910B4").counts.aic
    20
    """
    if die not in _DIE:
        raise ValueError(f"`die` must be one of {', '.join(_DIE)}; got {die!r}")
    aic = {"910B1": 24, "910B2": 24, "910B3": 20, "910B4": 20}[die]
    clock = {"910B1": 1850.0, "910B2": 1800.0, "910B3": 1800.0, "910B4": 1500.0}[die]
    slow = 2.0 if die == "910B4" else 1.0  # half the HBM rate: fa_cost_model.py, gm_scale
    return Hardware(
        name=f"a2a3/{die}",
        clock_mhz=clock,
        counts=Counts(aic=aic, aiv=2 * aic),
        sizes=Sizes(
            mat=524288,
            left=65536,
            right=65536,
            acc=131072,
            vec=188416,
            l2=100663296 if die == "910B4" else 201326592,
            l2_usable=0.6783,
            l2_ramp=0.5526,
            line=512,
            fractal_rows=16,
            fractal_bytes=32,
            page=65536,
            min_row=32,
            repeat=256,
            fp32_passes=2.0,
            cross_slots=2,
        ),
        times=Times(
            launch_us=9.70,
            block=0.0,
            load_start=17.25,
            load_wait=245.0,
            load_row=0.2231,
            load_stride=8.971e-05,
            load_byte=1 / 128.0,
            l2_us=1 / (110 * 24 * 1800.0),
            hbm_us=slow * 5.201e-07,
            refetch_us=slow * 4.005e-07,
            writeback_us=slow * 0.95e-6,
            miss_byte=0.005758,
            store_start=100.0,
            store_byte=1800.0 / (188.46 * 1.073741824e3),
            atomic_byte=1800.0 / (188.46 * 1.073741824e3),
            move_start=20.56,
            left_byte=0.005548,
            right_byte=0.007526,
            cube_fractal=1.0,
            cube_head=22.94,
            drain_start=164.0,
            drain_row=4.45,
            drain_byte=1 / 118.0,
            drain_odd=2.6,
            vector_start=25.0,
            vector_repeat=1.0,
            barrier=190.8,
        ),
        sources=_SOURCES,
        basis="calibrated on published device rows (docs/calibration.md)",
        seen={"row_bytes": (256, 1024), "stride_bytes": (4096, 32768), "cores": (6, 24)},
    )


_A5_SOURCES = _SOURCES | {
    "clock_mhz": _INI_A5,
    "aic": _A5_HW,
    "aiv": _A5_HW,
    "mat": _INI_A5,
    "acc": _INI_A5,
    "vec": "hw-native-sys/pypto PR #1804 (240 KiB of 248 KiB)",
    "l2": _INI_A5,
    "load_byte": f"{_INI_A5}: l2 100 B/cycle/core, a planning constant",
    "l2_us": f"{_INI_A5}: l2 100 B/cycle/core x 36 cores",
    "hbm_us": f"{_INI_A5}: ddr 27 B/cycle/core x 36 cores",
    "writeback_us": "assumed equal to hbm_us",
    "left_byte": f"{_A5_SIM}: 206.3 B/cycle",
    "right_byte": f"{_A5_SIM}: 223.8 B/cycle",
    "cube_head": f"{_A5_SIM}: 25 cycles",
    "fp32_passes": f"{_A5_SIM}: 8",
    "drain_start": f"{_A5_SIM}: 343.4 cycles",
    "drain_row": f"{_A5_SIM}: 4.59 cycles",
    "drain_byte": f"{_A5_SIM}: 30 B/cycle (known 4x gap between simulator and device)",
    "drain_odd": f"{_A5_SIM}: 0.26 cycles",
    **dict.fromkeys(
        (
            "launch_us",
            "load_start",
            "load_wait",
            "load_row",
            "load_stride",
            "miss_byte",
            "barrier",
            "l2_usable",
            "l2_ramp",
        ),
        "taken over from a2a3; no figure is published for a5",
    ),
}


def a5() -> Hardware:
    """An Ascend A5 (950) device of two dies. Few of its numbers are measured: not calibrated.

    >>> a5().counts.aic
    36
    """
    base = a2a3("910B2")
    cores, clock = 36, 1650.0
    return Hardware(
        name="a5/950",
        clock_mhz=clock,
        counts=Counts(aic=cores, aiv=2 * cores),
        sizes=dataclasses.replace(base.sizes, acc=262144, vec=245760, l2=117440512, fp32_passes=8.0),
        times=dataclasses.replace(
            base.times,
            load_byte=1 / 100.0,
            l2_us=1 / (100 * cores * clock),
            hbm_us=1 / (27 * cores * clock),
            refetch_us=1 / (27 * cores * clock),
            writeback_us=1 / (27 * cores * clock),
            left_byte=1 / 206.3,
            right_byte=1 / 223.8,
            cube_head=25.0,
            drain_start=343.4,
            drain_row=4.59,
            drain_byte=1 / 30.0,
            drain_odd=0.26,
        ),
        sources=_A5_SOURCES,
        basis="vendor planning constants and simulator fits; not calibrated on a device",
    )


PUBLISHED = {
    "launch_us": 10.0,
    "load_start": 20.0,
    "load_row": 0.2,
    "load_stride": 1e-5,
    "hbm_us": 1 / 1.6e6,
    "refetch_us": 1 / 1.6e6,
    "miss_byte": 0.01,
    "move_start": 21.0,
    "left_byte": 1 / 170.0,
    "right_byte": 1 / 112.0,
    "cube_head": 21.0,
    "barrier": 100.0,
    "l2_usable": 1.0,
    "l2_ramp": 0.5,
}
"""Where the calibration of ``a2a3`` starts from: the published figures, or a guess of the right order."""

PRESETS = ("a2a3", *_DIE, "a5")
"""Names that :func:`preset` knows."""


def preset(name: str) -> Hardware:
    """The chip called ``name``: ``a2a3`` (the same as ``910B2``), ``910B1`` to ``910B4``, or ``a5``.

    >>> preset("910B3").counts.aic
    20
    """
    short = name.removeprefix("a2a3/").removeprefix("a5/")
    if short in ("a2a3", *_DIE):
        return a2a3() if short == "a2a3" else a2a3(short)
    if short in ("a5", "950"):
        return a5()
    raise ValueError(f"`hardware` must be one of {', '.join(PRESETS)}; got {name!r}")
