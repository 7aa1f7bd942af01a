"""Summarise a tensor in a few numbers, piece by piece."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


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


class Summing:
    """A summary to which pieces of a tensor are added."""

    def __init__(self) -> None:
        self._size = self._nan = self._infinite = 0
        self._least, self._most, self._total = math.inf, -math.inf, 0.0

    def add(self, piece: npt.NDArray[Any]) -> None:
        values = piece.astype(np.result_type(piece, np.float64) if np.iscomplexobj(piece) else np.float64)
        finite = values[np.isfinite(values)]
        if np.iscomplexobj(finite):
            finite = np.abs(finite)
        nan = int(np.isnan(values).sum())
        self._size += values.size
        self._nan += nan
        self._infinite += values.size - finite.size - nan
        if finite.size:
            self._least = min(self._least, float(finite.min()))
            self._most = max(self._most, float(finite.max()))
            with np.errstate(over="ignore"):
                self._total += float(finite.sum())

    def summary(self) -> Summary:
        count = self._size - self._nan - self._infinite
        if not count:
            return Summary(self._size, None, None, None, self._nan, self._infinite)
        return Summary(self._size, self._least, self._most, self._total / count, self._nan, self._infinite)
