"""A chart in plain text: one line of bars for each ring."""

from collections.abc import Mapping

import numpy as np

from ._limits import show_bytes

_BARS = " ▁▂▃▄▅▆▇█"


def bars(values: np.ndarray, top: float, width: int = 72) -> str:
    """The largest value of each column, as a share of ``top``.

    >>> bars(np.array([0.0, 4.0, 8.0, 2.0]), 8.0)
    ' ▄█▂'
    """
    columns = np.array_split(np.asarray(values, float), min(width, len(values)) or 1)
    shares = [float(column.max(initial=0.0)) / top if top else 0.0 for column in columns]
    return "".join(_BARS[min(len(_BARS) - 1, int(np.ceil(share * (len(_BARS) - 1))))] for share in shares)


def heap_chart(held: Mapping[int, np.ndarray], across: str) -> str:
    """Bytes held by ring, each against its own largest.

    Args:
        held: by ring, in the order of ``across``.
        across: what the columns are.
    """
    lines = [f"bytes held, {across} from left to right; the full height is each ring's largest"]
    for ring, values in held.items():
        top = float(np.max(values, initial=0.0))
        lines.append(f"ring {ring} {show_bytes(top):>10} |{bars(values, top)}|")
    return "\n".join(lines)
