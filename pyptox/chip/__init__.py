"""The chip simulator: when every task of a program runs, what it waited for, and what the makespan is made of."""

from ._constants import Schedule as Schedule
from ._constants import a2a3_schedule as a2a3_schedule
from ._edits import AbstractEdit as AbstractEdit
from ._edits import AddDummy as AddDummy
from ._edits import AddEdge as AddEdge
from ._edits import FlagProducer as FlagProducer
from ._edits import Merge as Merge
from ._edits import RemoveEdge as RemoveEdge
from ._edits import Scenario as Scenario
from ._edits import SetBlocks as SetBlocks
from ._edits import SetConstant as SetConstant
from ._edits import SetCores as SetCores
from ._edits import SetDuration as SetDuration
from ._edits import Split as Split
from ._path import Piece as Piece
from ._simulate import makespan as makespan
from ._simulate import simulate as simulate
from ._timeline import StaticPath as StaticPath
from ._timeline import Timeline as Timeline
from ._what_if import Move as Move
from ._what_if import WhatIf as WhatIf
from ._what_if import what_if as what_if
from ._workload import Workload as Workload
from ._workload import workload as workload
