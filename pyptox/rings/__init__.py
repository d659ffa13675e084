"""Rings: what the tasks of a program take of them and give back, whether they pass, and what is the least that does.

A task is on ring ``min(depth of its scope, 3)``. A ring gives out slots, bytes of its heap and entries of its
dependency pool in the order of submission, and takes them back in that order: a block goes when its readers are done,
its scope has closed, and all before it have gone.
"""

from ._deadlock import Deadlock as Deadlock
from ._deadlock import DeadlockError as DeadlockError
from ._deadlock import deadlock as deadlock
from ._deadlock import passes as passes
from ._gates import Storage as Storage
from ._gates import gates as gates
from ._limits import CODES as CODES
from ._limits import RINGS as RINGS
from ._limits import VISIBLE_BYTES as VISIBLE_BYTES
from ._limits import Limits as Limits
from ._limits import parse_limits as parse_limits
from ._limits import show_bytes as show_bytes
from ._needs import Needs as Needs
from ._needs import needs as needs
from ._orchestrate import orchestrate as orchestrate
from ._orchestrate import unlimited as unlimited
from ._place import Placed as Placed
from ._place import as_it_is as as_it_is
from ._place import crossing as crossing
from ._place import last_uses as last_uses
from ._place import place as place
from ._run import Held as Held
from ._run import Run as Run
from ._smallest import Smallest as Smallest
from ._smallest import smallest as smallest
from ._stats import Amounts as Amounts
from ._stats import Boundary as Boundary
from ._stats import Peak as Peak
from ._stats import ScopeStats as ScopeStats
from ._stats import Site as Site
from ._stats import Visit as Visit
from ._submissions import NEVER as NEVER
from ._submissions import Submissions as Submissions
from ._submissions import submissions as submissions
