"""Rounding, and the comparison of a kernel's values with float64."""

from .._rounding import GRADIENTS as GRADIENTS
from .._rounding import TOOLCHAIN as TOOLCHAIN
from .._rounding import Rounding as Rounding
from .._rounding import cast as cast
from .._rounding import round_to as round_to
from ._check import PrecisionReport as PrecisionReport
from ._check import TooLargeError as TooLargeError
from ._check import check as check
from ._check import sample_inputs as sample_inputs
from ._shrink import shrink as shrink
