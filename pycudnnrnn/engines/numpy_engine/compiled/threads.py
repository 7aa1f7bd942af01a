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

AWAKE_S: Final = 0.001
AWAKE_AFTER: Final = 16
"""Threads without work stay awake for about as long. They are worth waking for less work once so many pieces of work
have followed one another within that time."""

_past = types.SimpleNamespace(lost=0.0, alone_until=0.0, end=0.0, pieces=0)


def note(start: float, ran: float, number: int) -> None:
    """Note that a piece of work has ended, done by a team of so many threads.

    It began at `start` on the clock, and its first thread has had a processor for `ran` seconds.
    """
    end = time.monotonic()
    _past.pieces = _past.pieces + 1 if start - _past.end < AWAKE_S else 0
    _past.end = end
    if number > 1:
        _past.lost = max(0, _past.lost + (end - start) * (1 - LOST_SHARE) - ran)
    if _past.lost > LOST_S:
        _past.lost, _past.alone_until = 0, end + ALONE_S


def are_awake() -> bool:
    """Return whether a team's other threads are probably awake, or will be for long."""
    return bool(_past.pieces >= AWAKE_AFTER)


def in_team() -> int:
    """Return how many threads may work in a team now."""
    return 1 if time.monotonic() < _past.alone_until else number()


def number() -> int:
    """Return the number in VARIABLE, else in OMP_NUM_THREADS, at most that of processors which this process may use.

    Raises:
        ArgumentError: VARIABLE is not a number, or less than 1.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get(VARIABLE)
    if asked:
        if not _is_number(asked):
            raise ArgumentError(VARIABLE, "a number of threads, 1 or more", shorten(asked))
        return min(int(asked), processors)
    level = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # others are those of nested loops
    return min(int(level), processors) if _is_number(level) else processors


def _is_number(word: str) -> bool:
    return word.isdecimal() and int(word) > 0
