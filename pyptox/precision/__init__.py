"""Comparison of a kernel's values with float64."""

from ._check import PrecisionReport as PrecisionReport
from ._check import TooLargeError as TooLargeError
from ._check import check as check
from ._check import sample_inputs as sample_inputs
from ._shrink import shrink as shrink
