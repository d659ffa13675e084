"""Cost of a kernel: traffic, occupancy, the in-core machine, and predictions for one or many candidates."""

from ..lang.rules import PIPES as PIPES
from ..lang.rules import RuleContext as RuleContext
from ._attribute import attribute as attribute
from ._batch import evaluate as evaluate
from ._batch import trace_count as trace_count
from ._batch import value_and_grad as value_and_grad
from ._evaluate import cost_of as cost_of
from ._evaluate import predict as predict
from ._explain import Explanation as Explanation
from ._explain import explain as explain
from ._machine import Event as Event
from ._machine import closed_form as closed_form
from ._machine import full_cycles as full_cycles
from ._machine import simulate as simulate
from ._nest import Nest as Nest
from ._nest import Options as Options
from ._nest import record as record
from ._occupancy import occupancy as occupancy
from ._occupancy import uses as uses
from ._summary import Cost as Cost
from ._verify import Verification as Verification
from ._verify import verify as verify
