"""The chip simulator: when every task of a program runs, what it waited for, and what the makespan is made of."""

from ._constants import Schedule as Schedule
from ._constants import a2a3_schedule as a2a3_schedule
from ._constants import a5_schedule as a5_schedule
from ._costs import workload as workload
from ._memory import Memory as Memory
from ._memory import Slopes as Slopes
from ._path import Piece as Piece
from ._simulate import makespan as makespan
from ._simulate import simulate as simulate
from ._timeline import StaticPath as StaticPath
from ._timeline import Timeline as Timeline
from ._workload import Workload as Workload
