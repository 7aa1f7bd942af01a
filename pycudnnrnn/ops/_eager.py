"""The short way through a forward: kinds of calls that have run once, and what was found out about each."""

from __future__ import annotations

import marshal
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn._arrays import Kind
from pycudnnrnn.engines import EagerCall, Engine, engine_for
from pycudnnrnn.schedule import Schedule

KINDS_MAX: Final = 64
"""Kinds of calls that an op remembers; then it begins anew."""


class EagerKind(NamedTuple):
    """A kind of call that has run once: what was found out about it, and the short way through it."""

    engine: Engine
    kind: Kind
    schedule: Schedule
    call: EagerCall


class EagerCalls:
    """The kinds of calls that one op has run."""

    def __init__(self) -> None:
        self._known: dict[Any, EagerKind] = {}

    def find(self, key: Any) -> EagerKind | None:
        """Return what is known of a kind of call, unless another engine runs it now."""
        known = self._known.get(key)
        return known if known is not None and engine_for(known.kind.device) is known.engine else None

    def add(self, key: Any, known: EagerKind) -> None:
        if len(self._known) >= KINDS_MAX:
            self._known = {}
        self._known[key] = known

    def clear(self) -> None:
        self._known = {}


def key_of(x: Any, is_training: Any, lengths: Any, time_major: Any, keep_reserve: Any) -> Any:
    """Return what tells one kind of call from another, types included; None leaves all to the slower checks.

    NumPy's arrays have no short way. Lengths count by their bytes: marshal's second version writes only types and
    values, and refuses what is not Python's own.
    """
    shape = getattr(x, "shape", None)
    if type(shape) is not tuple or type(x) is np.ndarray:
        return None
    if not (type(is_training) is type(time_major) is bool and (keep_reserve is None or type(keep_reserve) is bool)):
        return None
    if isinstance(lengths, np.ndarray):
        lengths = (lengths.dtype.str, lengths.shape, lengths.tobytes())
    elif lengths is not None:
        try:
            lengths = marshal.dumps(lengths, 2)
        except ValueError:
            return None
    return type(x), shape, is_training, lengths, time_major, keep_reserve
