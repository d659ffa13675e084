"""pyptox: a differentiable modelling framework for tiled accelerator kernels.

Its other packages, such as ``pyptox.precision``, are imported when they are first asked for.
"""

import importlib
from types import ModuleType

from . import cost as cost
from . import hardware as hardware
from . import lang as lang
from ._errors import KernelError as KernelError
from ._errors import PyptoxError as PyptoxError
from ._errors import VerifierError as VerifierError
from .lang._kernel import Kernel as Kernel
from .lang._kernel import kernel as kernel
from .lang._regions import Regions as Regions
from .lang._regions import regions as regions
from .lang._run import reference as reference
from .lang._run import run as run
from .lang._types import Spec as Spec
from .lang._types import control as control
from .lang._types import spec as spec

from . import kernels as kernels  # isort: skip

__version__ = "0.1.0"

_LAZY = ("artifacts", "calibration", "chip", "phases", "pmu", "precision", "program", "rings", "trace", "validation")


def __getattr__(name: str) -> ModuleType:
    if name not in _LAZY:
        raise AttributeError(f"module 'pyptox' has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
