"""What a chip is: a pytree of constants, with presets."""

from ._base import Counts as Counts
from ._base import Hardware as Hardware
from ._base import Sizes as Sizes
from ._base import Times as Times
from ._presets import PRESETS as PRESETS
from ._presets import PUBLISHED as PUBLISHED
from ._presets import a2a3 as a2a3
from ._presets import a5 as a5
from ._presets import preset as preset
