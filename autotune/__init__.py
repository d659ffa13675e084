"""Autotuning: typed spaces, search methods that work on whole batches, and an ask-and-tell engine."""

from ._budget import Budget as Budget
from ._choice import Boolean as Boolean
from ._choice import Choice as Choice
from ._config import Config as Config
from ._constraint import Census as Census
from ._constraint import Constraint as Constraint
from ._constraint import EmptySpaceError as EmptySpaceError
from ._default_space import default_space as default_space
from ._gate import NoCandidatePassedError as NoCandidatePassedError
from ._parameter import AbstractParameter as AbstractParameter
<<<<<<< HEAD
from ._program_result import Change as Change
from ._program_result import Check as Check
from ._program_result import ProgramCandidate as ProgramCandidate
from ._program_result import ProgramResult as ProgramResult
from ._programs import tune_program as tune_program
=======
from ._prefetch import prefetch as prefetch
from ._prefetch_candidates import WarmCandidate as WarmCandidate
from ._prefetch_candidates import WarmScope as WarmScope
from ._prefetch_result import Margin as Margin
from ._prefetch_result import PrefetchResult as PrefetchResult
from ._prefetch_result import Priced as Priced
>>>>>>> main
from ._progress import Progress as Progress
from ._result import Candidate as Candidate
from ._result import Result as Result
from ._rings import rings as rings
from ._rings_result import RingsResult as RingsResult
from ._rings_result import ScopeChoice as ScopeChoice
from ._search._base import AbstractSearch as AbstractSearch
from ._search._base import Found as Found
from ._search._base import minimise as minimise
from ._search._run import Batch as Batch
from ._search._run import Best as Best
from ._search._run import Run as Run
from ._search.exhaustive import Exhaustive as Exhaustive
from ._search.funnel import Funnel as Funnel
from ._search.gradient import Gradient as Gradient
from ._search.local import Local as Local
from ._search.random import Random as Random
from ._size import Integer as Integer
from ._size import Multiple as Multiple
from ._size import PowerOfTwo as PowerOfTwo
from ._space import Space as Space
from ._store import Store as Store
from ._store import write_json as write_json
from ._trial import Status as Status
from ._trial import Trial as Trial
from ._tune import EVALUATIONS as EVALUATIONS
from ._tune import EXHAUSTIVE_LIMIT as EXHAUSTIVE_LIMIT
from ._tune import tune as tune
from ._tuner import Drive as Drive
from ._tuner import DriveProgress as DriveProgress
from ._tuner import Tuner as Tuner
from ._tuner import drive as drive
