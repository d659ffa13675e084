"""Fit the constants of a chip to measured rows."""

from ._fit import FREE as FREE
from ._fit import Calibration as Calibration
from ._fit import calibrate as calibrate
