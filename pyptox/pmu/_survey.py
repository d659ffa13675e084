"""One kernel's prediction, and the comparison with a capture where there is one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cost import Options
from ..hardware import Hardware
from ..lang._kernel import Kernel
from ..lang._types import Spec
from ._compare import Comparison, compare
from ._file import Capture, read, write
from ._groups import PIPE_UTIL
from ._view import View, capture_of, view


@dataclass(frozen=True)
class Survey:
    """A prediction, and the comparison with a capture; None without one."""

    prediction: View
    comparison: Comparison | None

    def save(self, path: str | Path) -> None:
        """Write the prediction as a ``pmu.csv``, all or nothing."""
        write(path, capture_of([self.prediction]))

    def to_dict(self) -> dict[str, Any]:
        """Both parts."""
        compared = self.comparison.to_dict() if self.comparison else None
        return {"prediction": self.prediction.to_dict(), "comparison": compared}

    def __str__(self) -> str:
        return str(self.prediction) + (f"\n\n{self.comparison}" if self.comparison else "")


def survey(
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    hardware: Hardware,
    options: Options = Options(warm=4),  # noqa: B008  (frozen)
    *,
    event_type: int | None = None,
    func_id: int | None = None,
    capture: str | Path | None = None,
) -> Survey:
    """Predict a kernel's counters and compare them with a measured file.

    Args:
        kernel, specs, values, hardware, options: as for :func:`pyptox.pmu.view`.
        event_type: that of the capture by default, 2 (``PIPE_UTIL``) without one.
        func_id: which kernel of the capture; may be left out where it has only one. 0 without a capture.
        capture: a measured ``pmu.csv``.
    """
    measured = read(capture) if capture is not None else None
    if event_type is None:
        event_type = measured.event_type if measured else PIPE_UTIL
    func_id = _function(measured, func_id)
    one = view(kernel, specs, values, hardware, options, event_type=event_type, func_id=func_id)
    return Survey(one, compare([one], measured) if measured else None)


def _function(capture: Capture | None, func_id: int | None) -> int:
    if func_id is not None:
        return func_id
    if capture is None:
        return 0
    first, *others = capture.functions
    if others:
        known = ", ".join(map(str, capture.functions))
        raise ValueError(f"`func_id` must say which kernel of the capture it is: {known}; got none. Try --func {first}")
    return first
