"""Phase profiling of multi-core kernels: exact partitions of a task, in integer cycles, from per-core timestamps.

Each core writes one cache line (eight 64-bit words) with the cycle at which it passed each boundary.
:func:`profile` reduces such a matrix to global boundaries and to the pieces between them, which add up to the whole
exactly; :func:`compare` sets one merged task against the tasks it was split into; :func:`emit` makes a matrix from
durations, so that all of it can be tried without a device.
"""

from ._collective import Collective as Collective
from ._compare import Chain as Chain
from ._compare import Comparison as Comparison
from ._compare import compare as compare
from ._emit import Emission as Emission
from ._emit import emit as emit
from ._files import read_rounds as read_rounds
from ._files import write_rounds as write_rounds
from ._findings import Finding as Finding
from ._layout import STAMPS as STAMPS
from ._layout import Layout as Layout
from ._masks import Slots as Slots
from ._masks import mask as mask
from ._partition import Boundary as Boundary
from ._partition import Partition as Partition
from ._partition import Piece as Piece
from ._profile import Profile as Profile
from ._profile import Task as Task
from ._profile import profile as profile
from ._report import Report as Report
from ._report import report as report
