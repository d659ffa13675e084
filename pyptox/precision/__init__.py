"""Comparison of a kernel's values with float64, and where the error comes from."""

from ._attribute import Attribution as Attribution
from ._attribute import Functional as Functional
from ._attribute import Share as Share
from ._attribute import along_error as along_error
from ._attribute import attribute as attribute
from ._attribute import element as element
from ._attribute import mean_error as mean_error
from ._attribute_program import attribute_program as attribute_program
from ._check import PrecisionReport as PrecisionReport
from ._check import TooLargeError as TooLargeError
from ._check import check as check
from ._check import sample_inputs as sample_inputs
from ._shrink import shrink as shrink
from ._walker import Site as Site
