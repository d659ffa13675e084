"""The view inside one core: the full simulation of a kernel, as lanes, bubbles, a chain of waits and what-ifs."""

from ._chrome import read_lanes as read_lanes
from ._chrome import side_by_side as side_by_side
from ._chrome import write as write
from ._trace import LANES as LANES
from ._trace import Trace as Trace
from ._trace import trace as trace
from ._what_if import what_if as what_if
