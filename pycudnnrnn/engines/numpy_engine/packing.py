"""Convert the caller's arrays to packed rows and sorted states, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn._arrays import new
from pycudnnrnn.engines.numpy_engine.cells import Array
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

ZERO: Final = np.zeros((), bool)


class Copy(NamedTuple):
    """One copy between arrays: target[at] = source[of]."""

    target: Array
    source: Array
    at: Any = ...
    of: Any = ...


def copy_all(copies: Iterable[Copy]) -> None:
    for target, source, at, of in copies:
        target[at] = source[of]


class Packing:
    """The caller's arrays of one kind of call, as packed rows and sorted states in the compute dtype.

    A caller's array that already has this form is used in place. Otherwise there is a new array, and a copy to do
    `before` a run reads it or `after` a run has written it.
    """

    def __init__(self, spec: RNNSpec, schedule: Schedule) -> None:
        same = spec.dtype is spec.compute_dtype
        self._schedule, self._dtype = schedule, spec.compute_dtype.numpy
        self.num_rows, self._states = schedule.num_rows, (spec.num_pseudo_layers, schedule.B)
        self._rows_in_place = same and schedule.has_rows_in_order
        self._states_in_place = same and schedule.is_sorted
        self._place: Any = ... if schedule.lengths is None or schedule.packed else schedule.rows

    def new_rows(self, width: int) -> Array:
        """Return a new array of packed rows."""
        rows: Array = new((self.num_rows, width), self._dtype)
        return rows

    def read(self, data: Array, before: list[Copy]) -> Array:
        """Return packed rows of the caller's [T, B, F], [B, T, F] or packed rows."""
        width = data.shape[-1]
        if self._rows_in_place and data.flags.c_contiguous:
            return data.reshape(self.num_rows, width)
        rows, by_time = self.new_rows(width), data if self._schedule.time_major else data.swapaxes(0, 1)
        before.append(Copy(rows.reshape(by_time.shape) if self._place is ... else rows, by_time, of=self._place))
        return rows

    def write(self, data: Array, after: list[Copy]) -> Array:
        """Return packed rows to write, which become the caller's data, with zeros past the sequences' ends."""
        width = data.shape[-1]
        if self._rows_in_place:
            return data.reshape(self.num_rows, width)
        rows, by_time = self.new_rows(width), data if self._schedule.time_major else data.swapaxes(0, 1)
        if self._place is ...:
            after.append(Copy(by_time, rows.reshape(by_time.shape)))
        else:
            after += Copy(data, ZERO), Copy(by_time, rows, self._place)
        return rows

    def states(
        self, initial: Array | None, out: Array | None, width: int, before: list[Copy], after: list[Copy]
    ) -> Array:
        """Return states to update, longest sequence first. They begin as `initial` (None: zeros) and end in `out`."""
        schedule = self._schedule
        order = ... if schedule.is_sorted else (slice(None), schedule.order)
        states = out
        if states is None or not self._states_in_place:
            states = new((*self._states, width), self._dtype)
            if out is not None:
                after.append(Copy(out, states, at=order))
        before.append(Copy(states, ZERO) if initial is None else Copy(states, initial, of=order))
        return states
