"""Predictions against published measurements."""

from ._problem import NotCovered as NotCovered
from ._problem import Problem as Problem
from ._report import Report as Report
from ._report import observations as observations
from ._report import validate as validate
