"""Gates: what a comparison must satisfy, as values that compose."""

from ._base import AbstractGate as AbstractGate
from ._base import All as All
from ._base import ByLeaf as ByLeaf
from ._base import Finding as Finding
from ._base import GateError as GateError
from ._base import Verdict as Verdict
from ._base import judge as judge
from ._base import require as require
from ._default import default_gate as default_gate
from ._elementwise import Allclose as Allclose
from ._elementwise import BitEqual as BitEqual
from ._elementwise import FiniteMatch as FiniteMatch
from ._elementwise import PassRate as PassRate
from ._elementwise import Ratio as Ratio
from ._elementwise import RelDiff as RelDiff
from ._named import GATES as GATES
from ._named import gate_named as gate_named
from ._named import gates_named as gates_named
from ._region import Region as Region
from ._topk import TopK as TopK
from ._whole import RelL2 as RelL2
from ._whole import Ulp as Ulp
from ._whole import VersusBaseline as VersusBaseline
from ._whole import without_baseline as without_baseline
