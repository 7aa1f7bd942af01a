"""How many threads compiled code uses. BLAS has its own number.

Threads that meet at each step wait for one that has lost its processor to another program: on two cores, beside two
busy processes, two threads took up to 2.5 times as long as one. So after some teams that lost time, one works alone for
a while.
"""

from __future__ import annotations

import os
import time
import types
from typing import Final

from pycudnnrnn._checks import shorten
from pycudnnrnn.errors import ArgumentError

VARIABLE: Final = "PYCUDNNRNN_CPU_THREADS"
"""The environment variable with the number of threads. It is read at each call."""

LOST_SHARE: Final = 0.1
LOST_S: Final = 0.2
ALONE_S: Final = 2.0
"""Once the first threads of teams have had no processor for LOST_S, not counting this share of their time, one thread
works alone for ALONE_S. What another program's threads take before they sleep is less."""

_past = types.SimpleNamespace(lost=0.0, alone_until=0.0)


def note(took: float, ran: float) -> None:
    """Note how long a team took, and how long its first thread had a processor; in seconds."""
    _past.lost = max(0, _past.lost + took - ran - LOST_SHARE * took)
    if _past.lost > LOST_S:
        _past.lost, _past.alone_until = 0, time.monotonic() + ALONE_S


def in_team() -> int:
    """Return how many threads may work in a team now."""
    return 1 if time.monotonic() < _past.alone_until else number()


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
