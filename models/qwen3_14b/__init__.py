"""Qwen3-14B, and the dense models of its family: a decode step as a program of tiled kernels.

    model = models.qwen3_14b.from_pretrained(DIR)
    model.generate(token_ids, steps=16)

The same program is read for its values (here), its graph (:func:`pyptox.program.graph`) and its time
(:func:`pyptox.chip.simulate`): :func:`decode_program` with :func:`decode_specs`. :data:`LADDER` holds the published
steps of its optimisation, each a :class:`Variant`.
"""

from ._config import Config as Config
from ._config import ModelError as ModelError
from ._config import config_of as config_of
from ._config import read_config as read_config
from ._model import Model as Model
from ._model import from_pretrained as from_pretrained
from ._model import random as random
from ._program import decode_program as decode_program
from ._program import layer_program as layer_program
from ._published import PUBLISHED as PUBLISHED
from ._published import Measured as Measured
from ._space import best_step as best_step
from ._space import graph_of as graph_of
from ._space import space_of as space_of
from ._space import tune as tune
from ._space import tuned as tuned
from ._space import values_of as values_of
from ._space import variant_of as variant_of
from ._specs import decode_specs as decode_specs
from ._specs import layer_specs as layer_specs
from ._variant import LADDER as LADDER
from ._variant import Early as Early
from ._variant import Projection as Projection
from ._variant import Variant as Variant
from ._variant import variant_named as variant_named
from ._weights import Weights as Weights
from ._weights import checked_tensors as checked_tensors
from ._weights import load_weights as load_weights
from ._weights import random_weights as random_weights
