"""Convert the caller's arrays to packed rows and sorted states, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pycudnnrnn._arrays import new
from pycudnnrnn.engines.numpy_engine.weights import Array
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

Outs = Sequence[Array | None]
"""The caller's arrays for data, h and c. None: a new array is made."""

NO_OUTS: Final[Outs] = (None, None, None)


def pack(data: Array, schedule: Schedule, dtype: np.dtype[Any]) -> Array:
    """Convert [T, B, F], [B, T, F] or packed rows to packed rows [N, F]."""
    by_time = data if schedule.time_major else data.swapaxes(0, 1)
    if schedule.lengths is None or schedule.packed:
        return np.ascontiguousarray(by_time, dtype).reshape(-1, data.shape[-1])
    return by_time[schedule.rows].astype(dtype, copy=False)


def new_rows(schedule: Schedule, width: int, dtype: np.dtype[Any], out: Array | None = None) -> Array:
    """Return an array of packed rows to write: the caller's own if it has their layout."""
    if out is not None and schedule.has_rows_in_order and out.dtype == dtype:
        return out.reshape(schedule.num_rows, width)
    rows: Array = new((schedule.num_rows, width), dtype)
    return rows


def _unpack(rows: Array, schedule: Schedule, dtype: np.dtype[Any], out: Array | None) -> Array:
    """Convert packed rows to the caller's [T, B, F], [B, T, F] or packed rows, with zeros past the sequences' ends."""
    shape = schedule.data_shape(rows.shape[1])
    if schedule.has_rows_in_order:
        return _in_dtype(rows.reshape(shape), dtype, out)
    data: Array = new(shape, dtype, zeros=True) if out is None else out
    if out is not None and schedule.lengths is not None:
        out[...] = 0
    by_time = data if schedule.time_major else data.swapaxes(0, 1)
    by_time[schedule.rows] = rows
    return data


def sorted_states(
    spec: RNNSpec, schedule: Schedule, h: Array | None, c: Array | None, outs: Outs = NO_OUTS
) -> tuple[Array, Array]:
    """Return arrays of h and c, or of their gradients, to update: longest sequence first, zeros for None.

    They are the caller's `outs` if these have the same order and dtype, otherwise new arrays. Every cell has a c here.
    """
    dtype, states = spec.compute_dtype.numpy, (spec.num_pseudo_layers, schedule.B)

    def made(given: Array | None, width: int, out: Array | None) -> Array:
        shape = *states, width
        found: Array = new(shape, dtype) if out is None or not schedule.is_sorted or out.dtype != dtype else out
        found[...] = 0 if given is None else given[:, schedule.order]
        return found

    return made(h, spec.state_size, outs[1]), made(c, spec.num_units, outs[2])


def _unsorted_states(states: Array, schedule: Schedule, dtype: np.dtype[Any], out: Array | None) -> Array:
    if schedule.is_sorted:
        return _in_dtype(states, dtype, out)
    unsorted: Array = new(states.shape, dtype) if out is None else out
    unsorted[:, schedule.order] = states
    return unsorted


def _in_dtype(array: Array, dtype: np.dtype[Any], out: Array | None) -> Array:
    if array.dtype == dtype and (out is None or np.shares_memory(array, out)):
        return array
    cast: Array = new(array.shape, dtype) if out is None else out
    cast[...] = array
    return cast


def results(
    rows: Array, h: Array, c: Array, spec: RNNSpec, schedule: Schedule, outs: Outs = NO_OUTS
) -> tuple[Array, Array, Array | None]:
    """Return packed rows and sorted states, or their gradients, in the caller's layout: in `outs`, or in new arrays."""
    dtype = spec.dtype.numpy
    data, states_h, states_c = outs
    cell_states = _unsorted_states(c, schedule, dtype, states_c) if spec.has_cell_state else None
    return _unpack(rows, schedule, dtype, data), _unsorted_states(h, schedule, dtype, states_h), cell_states
