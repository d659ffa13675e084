"""The named tiles of a kernel beside their float64 values: the first one that is bad."""

from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import PyptoxError
from .._float64 import float64_scope
from ..hardware import Hardware
from ..lang import _run
from ..lang._kernel import Kernel
from ._shadow import COUNT, FLIPS, LARGEST, SQUARES, shadow_of
from ._walker import Site


@dataclass(frozen=True)
class NamedTile:
    """A named tile over all iterations and blocks.

    Attributes:
        title: its name.
        site: where it was named.
        relative_l2: ``|stored - float64| / |float64|`` in the 2-norm.
        largest: the largest absolute error.
        elements: how many were compared.
        good: its error is within the tolerance.
    """

    title: str
    site: Site
    relative_l2: float
    largest: float
    elements: int
    good: bool

    def __str__(self) -> str:
        return (
            f"{'good' if self.good else 'BAD':>5}  relative L2 {self.relative_l2:8.1e}  max abs {self.largest:8.1e}  "
            f"{self.title} {self.site.after}, {self.site.where}"
        )


@dataclass(frozen=True)
class Intermediates:
    """The named tiles of a kernel in the order of its text; ``first`` is the first bad one."""

    tiles: tuple[NamedTile, ...]
    tolerance: float

    @property
    def first(self) -> NamedTile | None:
        """All tiles that are named before it are good: the fault lies between them and this one."""
        return next((tile for tile in self.tiles if not tile.good), None)

    def to_dict(self) -> dict[str, Any]:
        first = self.first
        return {"tolerance": self.tolerance, "first": first and first.title, "tiles": [asdict(t) for t in self.tiles]}

    def __str__(self) -> str:
        first = self.first
        head = f"every named tile is within {self.tolerance:g}" if first is None else f"first bad tile: {first.title}"
        return "\n".join([head, *map(str, self.tiles)])


def intermediates(
    kernel: Kernel, *inputs: Any, tolerance: float = 1e-2, hardware: Hardware | None = None, **parameters: Any
) -> Intermediates:
    """Compare every tile that ``kernel`` names by :func:`pyptox.lang.named` with its float64 value.

    Tiles come in the order of the text, in which each depends on earlier ones only.

    Args:
        kernel: a kernel.
        inputs: one array per input; a control input as ``px.control(values)``.
        tolerance: the relative 2-norm of the error that is still good.
        hardware: the chip whose staging limits apply.
        parameters: tile sizes and other parameters; defaults where left out.

    >>> import numpy as np, pyptox as px
    >>> from pyptox import lang as pl
    >>> @pl.kernel(outputs={"out": lambda x: x}, tile={"m": 16})
    ... def kernel(x, out, *, tile):
    ...     def block(i):
    ...         part = pl.named(pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec), "loaded")
    ...         coarse = pl.named(pl.cast(pl.cast(part, "int8"), "fp32"), "quantised")
    ...         pl.store(out, (i * tile.m, 0), pl.add(coarse, part))
    ...
    ...     pl.grid((pl.cdiv(x.shape[0], tile.m),), block)
    >>> found = intermediates(kernel, np.random.default_rng(0).standard_normal((20, 32)).astype(np.float32))
    >>> [(tile.title, tile.good) for tile in found.tiles], found.first.title
    ([('loaded', True), ('quantised', False)], 'quantised')
    """
    if not tolerance > 0:
        raise PyptoxError(f"`tolerance` must be above 0; got {tolerance!r}")
    arrays, specs = _run._arrays_and_specs(kernel, inputs)
    with float64_scope():
        shadow = shadow_of(kernel, specs, parameters, frozenset(), hardware)
        given = {name: jnp.asarray(array) for name, array in zip(kernel.inputs, arrays, strict=True)}
        statistics = np.asarray(shadow.forward(given, {}, jnp.zeros(shadow.capacity, jnp.float64))[2])
    found = []
    for site, number in shadow.sites.items():
        if site.title:
            row = statistics[number]
            error = float(np.sqrt(row[SQUARES] / row[FLIPS])) if row[FLIPS] else float(np.sqrt(row[SQUARES]))
            good = bool(error <= tolerance)  # a NaN is not
            found.append(NamedTile(site.title, site, error, float(row[LARGEST]), int(row[COUNT]), good))
    if not found:
        raise PyptoxError(f"`{kernel.name}` names no tiles; write pl.named(tile, 'scores') in its text")
    return Intermediates(tuple(found), tolerance)
