"""Summarise a tensor in a few numbers."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

PIECE: Final = 1 << 18
"""Elements that are looked at together, so that their copies in double precision take little memory."""


class Summary(NamedTuple):
    """A summary of a tensor: its size, the range and mean of its finite elements, and the number of the others.

    `least`, `most` and `mean` are None if no element is finite. For complex numbers they describe the absolute values.
    """

    size: int
    least: float | None
    most: float | None
    mean: float | None
    nan: int
    infinite: int


def summary_of(tensor: npt.NDArray[Any]) -> Summary:
    """Summarise a tensor."""
    least, most, total, nan, count = math.inf, -math.inf, 0.0, 0, 0
    for at in range(0, tensor.size, PIECE):
        piece = tensor.reshape(-1)[at : at + PIECE]
        values = np.abs(piece.astype(complex)) if np.iscomplexobj(piece) else piece.astype(float)
        finite = values[np.isfinite(values)]
        nan += int(np.isnan(values).sum())
        count += finite.size
        if finite.size:
            least, most = min(least, float(finite.min())), max(most, float(finite.max()))
            with np.errstate(over="ignore"):
                total += float(finite.sum())
    infinite = tensor.size - count - nan
    if not count:
        return Summary(tensor.size, None, None, None, nan, infinite)
    return Summary(tensor.size, least, most, total / count, nan, infinite)
