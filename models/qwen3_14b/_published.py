"""Published device measurements of the steps of the ladder, each with its source."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """A measurement of a step, or of the change to it.

    Attributes:
        what: ``layer_us`` and ``step_ms`` compare with a prediction; ``ratio`` is the time after over that before.
        value: in the unit that ``what`` names.
        note: what else the source says.
        source: pull request or file.
    """

    what: str
    value: float
    note: str
    source: str


_LIB = "hw-native-sys/pypto-lib PR #"

PUBLISHED: dict[str, tuple[Measured, ...]] = {
    "task-per-iteration": (Measured("layer_us", 3010.86, "1128 tasks; before the change", f"{_LIB}190"),),
    "own-tiles": (Measured("layer_us", 1497.4, "625 tasks", f"{_LIB}190"),),
    "pipelined": (Measured("layer_us", 1433.74, "625 tasks", f"{_LIB}190"),),
    "aligned": (
        Measured(
            "layer_us",
            1016.66,
            "542 tasks; 1011.98 to 1098.12 in three runs",
            "hw-native-sys/pypto:.github/perf_baselines/qwen3_14b_decode.json@e2d0f78a",
        ),
    ),
    "fused-attention": (Measured("ratio", 35658 / 36441, "step of 40 layers, least of 100 rounds", f"{_LIB}756"),),
    "early-dispatch": (Measured("ratio", 4119 / 4266, "4 layers; one producer flagged", f"{_LIB}602"),),
    "critical-waves": (Measured("step_ms", 37.7, "median, contexts 3338 to 3358", f"{_LIB}795"),),
    "device-sampling": (Measured("ratio", 47.5 / 48.9, "of a token, host included", f"{_LIB}639"),),
}
"""By step, in the order of the ladder; steps that are not here were published without a time. The single layers were
measured with contexts up to 4096."""
