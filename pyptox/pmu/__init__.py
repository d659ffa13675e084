"""The PMU view: the hardware counters that the cost model determines, as ``pmu.csv``, beside measured ones."""

from ._compare import Comparison as Comparison
from ._compare import Line as Line
from ._compare import compare as compare
from ._file import CORES as CORES
from ._file import Capture as Capture
from ._file import Row as Row
from ._file import read as read
from ._file import write as write
from ._groups import PIPE_UTIL as PIPE_UTIL
from ._groups import Group as Group
from ._groups import group as group
from ._rollup import Measured as Measured
from ._rollup import roll_up as roll_up
from ._survey import Survey as Survey
from ._survey import survey as survey
from ._view import View as View
from ._view import capture_of as capture_of
from ._view import view as view
