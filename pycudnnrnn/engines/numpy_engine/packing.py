"""A caller's padded arrays to packed rows and sorted states, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycudnnrnn._arrays import new
from pycudnnrnn.engines.numpy_engine.weights import Array
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec


def pack(data: Array, schedule: Schedule, dtype: np.dtype[Any]) -> Array:
    """[T, B, F] or [B, T, F] to packed rows [N, F]."""
    by_time = data if schedule.time_major else data.swapaxes(0, 1)
    if schedule.lengths is None:
        return np.ascontiguousarray(by_time, dtype).reshape(-1, data.shape[2])
    return by_time[schedule.rows].astype(dtype, copy=False)


def _unpack(rows: Array, schedule: Schedule, dtype: np.dtype[Any]) -> Array:
    """Packed rows to [T, B, F] or [B, T, F], zero past the ends."""
    T, B, width = schedule.T, schedule.B, rows.shape[1]
    if schedule.lengths is None and schedule.time_major:
        return _in_dtype(rows.reshape(T, B, width), dtype)
    data: Array = new(schedule.data_shape(width), dtype, zeros=True)
    by_time = data if schedule.time_major else data.swapaxes(0, 1)
    by_time[schedule.rows] = rows
    return data


def sorted_states(states: Array | None, schedule: Schedule, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A fresh array of states [L * D, B, F], longest sequence first; zeros where none are given."""
    own: Array = new(shape, dtype, zeros=states is None)
    if states is not None:
        own[...] = states[:, schedule.order]
    return own


def _unsorted_states(states: Array, schedule: Schedule, dtype: np.dtype[Any]) -> Array:
    if schedule.is_sorted:
        return _in_dtype(states, dtype)
    unsorted: Array = new(states.shape, dtype)
    unsorted[:, schedule.order] = states
    return unsorted


def _in_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype == dtype:
        return array
    cast: Array = new(array.shape, dtype)
    cast[...] = array
    return cast


def results(rows: Array, h: Array, c: Array, spec: RNNSpec, schedule: Schedule) -> tuple[Array, Array, Array | None]:
    """Packed rows and sorted states, or their gradients, as the caller's."""
    dtype = spec.dtype.numpy
    states_c = _unsorted_states(c, schedule, dtype) if spec.has_cell_state else None
    return _unpack(rows, schedule, dtype), _unsorted_states(h, schedule, dtype), states_c
