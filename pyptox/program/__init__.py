"""Programs: functions that submit kernels, and what follows from the tasks and their dependencies."""

from ._findings import Finding as Finding
from ._findings import false_serialisation as false_serialisation
from ._findings import missing_orderings as missing_orderings
from ._findings import redundant_edges as redundant_edges
from ._graph import Edge as Edge
from ._graph import Graph as Graph
from ._graph import graph as graph
from ._program import Program as Program
from ._program import program as program
from ._run import orders as orders
from ._run import reference as reference
from ._run import run as run
from ._scope import Scope as Scope
from ._scope import loop as loop
from ._scope import scope as scope
from ._submit import dummy as dummy
from ._submit import empty as empty
from ._submit import no_dep as no_dep
from ._submit import submit as submit
from ._task import Arg as Arg
from ._task import Task as Task
from ._tensor import Tensor as Tensor
from ._warm import warm as warm
