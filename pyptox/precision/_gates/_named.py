"""Gates from text, for the command line."""

import dataclasses
from collections.abc import Sequence

from ..._checks import text as checked_text
from ..._errors import PyptoxError
from ._base import AbstractGate, All
from ._elementwise import Allclose, BitEqual, FiniteMatch, PassRate, Ratio, RelDiff
from ._whole import RelL2, Ulp, VersusBaseline

GATES: dict[str, type] = {
    "allclose": Allclose,
    "ratio": Ratio,
    "reldiff": RelDiff,
    "pass_rate": PassRate,
    "ulp": Ulp,
    "rel_l2": RelL2,
    "bit_equal": BitEqual,
    "finite_match": FiniteMatch,
    "versus_baseline": VersusBaseline,
}
"""Gates by their names on the command line."""


def gate_named(text: str) -> AbstractGate:
    """The gate that ``text`` describes: a name, and fields in order or by name.

    >>> print(gate_named("ratio:0.01,max_bad=1e-4"), gate_named("ulp:max=2"))
    Ratio(rtol=0.01, atol=rms, max_bad=0.0001) Ulp(max=2)
    """
    checked_text("gate", text, "allclose:rtol=1e-2")
    name, _, rest = text.partition(":")
    if name not in GATES:
        raise PyptoxError(f"`gate` must be one of {', '.join(GATES)}; got {name!r}. Try allclose:rtol=1e-2")
    kind = GATES[name]
    fields = [field.name for field in dataclasses.fields(kind) if field.repr]
    given: dict[str, object] = {}
    for position, part in enumerate(piece for piece in rest.split(",") if piece):
        key, equals, value = part.partition("=")
        if not equals:
            if position >= len(fields):
                raise PyptoxError(f"`gate` {name} has {', '.join(fields) or 'no fields'}; got {text!r}")
            key, value = fields[position], part
        if key not in fields or key in given:
            raise PyptoxError(f"`gate` {name} takes each of {', '.join(fields) or 'nothing'} once; got {key!r}")
        given[key] = _value(value)
    try:
        return kind(**given)
    except TypeError:
        needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.repr]
        advice = f"Try {name}:{needed[0]}=..." if needed else "Leave out what it has no field for"
        raise PyptoxError(f"`gate` {name} needs {', '.join(needed) or 'nothing'}; got {text!r}. {advice}") from None


def gates_named(texts: Sequence[str]) -> AbstractGate | None:
    """All of the gates that are described; None where there are none."""
    gates = tuple(map(gate_named, texts))
    return All(gates) if len(gates) > 1 else gates[0] if gates else None


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
