"""How many threads compiled code uses. BLAS has its own number."""

from __future__ import annotations

import os
from typing import Final

from pycudnnrnn._checks import shorten
from pycudnnrnn.errors import ArgumentError

VARIABLE: Final = "PYCUDNNRNN_CPU_THREADS"
"""The environment variable with the number of threads. It is read at each call."""


def number() -> int:
    """Return the number in VARIABLE, else in OMP_NUM_THREADS, else the number of processors that this process may use.

    Raises:
        ArgumentError: VARIABLE is not a number, or less than 1.
    """
    asked = os.environ.get(VARIABLE)
    if asked:
        if not _is_number(asked):
            raise ArgumentError(VARIABLE, "a number of threads, 1 or more", shorten(asked))
        return int(asked)
    level = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # others are those of nested loops
    if _is_number(level):
        return int(level)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_number(word: str) -> bool:
    return word.isdecimal() and int(word) > 0
