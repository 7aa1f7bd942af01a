"""The short way through a forward: kinds of calls that have run once, and what was found out about each."""

from __future__ import annotations

import marshal
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn._arrays import ArrayKind
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines import EagerForward, Engine, engine_for
from pycudnnrnn.schedule import Schedule, check_lengths

KINDS_MAX: Final = 64
"""Kinds of calls that an op remembers."""


class Known(NamedTuple):
    """A kind of call that has run once: what was found out about it, and the short way through it."""

    engine: Engine
    kind: ArrayKind
    call: EagerForward


class ShortWay(Recent[Known]):
    """The kinds of calls that one op has run, and the lengths that came last. Lengths are no part of a kind."""

    def __init__(self) -> None:
        super().__init__(KINDS_MAX)
        self._last: tuple[Any, Schedule | None] = (None, None)

    def find(self, key: Any) -> Known | None:
        """Return what is known of a kind of call, unless another engine runs it now."""
        known = self.get(key)
        return known if known is not None and engine_for(known.kind.device) is known.engine else None

    def key_of(
        self, x: Any, is_training: Any, lengths: Any, time_major: Any, keep_reserve: Any
    ) -> tuple[Any, Schedule | None]:
        """Return what tells one kind of call from another, types included, and the batch.

        (None, None) leaves all to the slower checks. NumPy's arrays have no short way.
        """
        shape = getattr(x, "shape", None)
        if type(shape) is not tuple or type(x) is np.ndarray or len(shape) != 3:
            return None, None
        if not (type(is_training) is type(time_major) is bool and (keep_reserve is None or type(keep_reserve) is bool)):
            return None, None
        try:
            schedule = self._batch(shape, lengths, time_major)
        except ValueError:
            return None, None
        ragged = schedule.lengths is not None
        return (type(x), shape, is_training, ragged, time_major, keep_reserve), schedule

    def _batch(self, shape: tuple[int, ...], lengths: Any, time_major: bool) -> Schedule:
        """Return the batch, the last one again where it has the same lengths: those count by their bytes.

        marshal's second version writes types and values alone, of what is Python's own. What else has a buffer (NumPy's
        scalars) it would write as bytes, without the type.

        Raises:
            ValueError: lengths that cannot be right, or that are not Python's own.
        """
        written: Any = None
        if type(lengths) is np.ndarray:
            written = lengths.dtype, lengths.shape, lengths.tobytes()
        elif lengths is not None:
            if type(lengths) not in {list, tuple} or not {int}.issuperset(map(type, lengths)):
                raise ValueError(lengths)
            written = marshal.dumps(lengths, 2)
        key = (shape[0], shape[1], written, time_major)
        last = self._last
        if last[1] is not None and last[0] == key:
            return last[1]
        T, B = shape[:2] if time_major else shape[1::-1]
        schedule = Schedule(T, B, check_lengths(lengths, T, B), time_major)
        self._last = key, schedule
        return schedule
