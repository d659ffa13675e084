"""The gate that a type and a reduction length ask for."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..._dtypes import format_of
from ..._errors import PyptoxError
from .._chunks import Pair, root_mean_square
from ._base import AbstractGate, AbstractLeafGate, Finding
from ._elementwise import BitEqual
from ._exceed import exceeding

_U32 = 2.0**-24
_TAIL = 6.0
"""Standard deviations: of 100 million normal numbers one is beyond 5.7."""


@final
@dataclass(frozen=True)
class Expected(AbstractLeafGate):
    """What rounding may cost: the output once, a sum of ``reduction`` terms in float32, and ``casts`` inside.

    ``|error| <= u |reference| + (K u32 + 6 sqrt(casts) u) RMS`` with ``u`` the unit roundoff of the output. A sum of K
    terms errs by about ``sqrt(K) u32 |a||b|`` (Higham and Mary 2019), and ``|a||b|`` is about ``sqrt(K)`` times the
    RMS of the sum. A value that was narrowed to ``u`` inside errs by ``u / sqrt(3)`` of it.
    """

    dtype: str
    reduction: int = 1
    casts: int = 0

    def judge_leaf(self, pair: Pair) -> Finding:
        u = format_of(self.dtype).unit_roundoff
        rms = root_mean_square(pair)
        floor = (self.reduction * _U32 + _TAIL * np.sqrt(self.casts) * u) * rms
        # half a unit in the last place is u |reference| for normal numbers, and more below them
        found = exceeding(pair, lambda chunk: floor + np.maximum(u * chunk.magnitude, 0.5 * chunk.ulp))
        said = f"{u:.3g} |reference| + {floor:.3g}, the default for {self.dtype} and K = {self.reduction}"
        said += f" with {self.casts} narrowed inside" if self.casts else ""
        return Finding(pair.name, "default", found.count == 0, found.said(pair, 0, said))


def default_gate(dtype: Any, reduction: int = 1, casts: int = 0) -> AbstractGate:
    """The gate of an output of ``dtype`` that sums ``reduction`` terms: :class:`Expected`, or every bit of an integer.

    Args:
        dtype: of the output.
        reduction: terms of a sum, K; 1 where nothing is summed.
        casts: how many intermediate values are narrowed to ``dtype`` on the way.

    >>> from pyptox.precision import judge
    >>> judge(default_gate("bf16", 4), np.asarray([0.1], format_of("bf16").jax), np.asarray([0.1])).passed
    True
    """
    kind = format_of(dtype)
    if reduction < 1 or casts < 0:
        raise PyptoxError(f"`reduction` must be at least 1 and `casts` at least 0; got {reduction} and {casts}")
    return Expected(kind.name, reduction, casts) if kind.floating else BitEqual()
