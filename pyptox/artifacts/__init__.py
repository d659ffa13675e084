"""The toolchain's own files: read, checked and written; and what a capture says from its measured stamps alone.

:func:`read_capture` reads a directory of a run, :func:`report` takes it apart, :func:`validate` names each rule that
its files break. ``chip_swimlane_records.json`` is read in every layout and written in the one of six columns.
"""

from ._args_dump import ArgsDump as ArgsDump
from ._args_dump import DumpedArg as DumpedArg
from ._args_dump import read_args_dump as read_args_dump
from ._args_dump import write_args_dump as write_args_dump
from ._args_stages import dump_of as dump_of
from ._args_stages import dumped_stages as dumped_stages
from ._args_stages import task_ids as task_ids
from ._capture import Capture as Capture
from ._capture import read_capture as read_capture
from ._deps import Argument as Argument
from ._deps import Deps as Deps
from ._deps import Edge as Edge
from ._deps import Task as Task
from ._deps import Tensor as Tensor
from ._deps import View as View
from ._deps import label as label
from ._deps import read_deps as read_deps
from ._deps import write_deps as write_deps
from ._early import Early as Early
from ._early import early_dispatch as early_dispatch
from ._finding import ArtifactError as ArtifactError
from ._finding import Finding as Finding
from ._gaps import CAUSES as CAUSES
from ._gaps import Gaps as Gaps
from ._gaps import gaps as gaps
from ._gaps import makespan_us as makespan_us
from ._gaps import utilisation as utilisation
from ._lines import Rounds as Rounds
from ._lines import Span as Span
from ._lines import Statistics as Statistics
from ._lines import format_rounds as format_rounds
from ._lines import format_span as format_span
from ._lines import parse_rounds as parse_rounds
from ._lines import parse_spans as parse_spans
from ._names import NameMap as NameMap
from ._names import read_names as read_names
from ._names import read_program as read_program
from ._names import write_names as write_names
from ._names import write_program as write_program
from ._path import Path as Path
from ._path import Piece as Piece
from ._path import observed_path as observed_path
from ._records import read_records as read_records
from ._report import Report as Report
from ._report import report as report
from ._swimlane import swimlane as swimlane
from ._swimlane import write_swimlane as write_swimlane
from ._tables import NO_TASK as NO_TASK
from ._tables import Blocks as Blocks
from ._tables import Phases as Phases
from ._tables import Records as Records
from ._tables import Submits as Submits
from ._validate import check_capture as check_capture
from ._validate import validate as validate
from ._write_records import write_records as write_records
