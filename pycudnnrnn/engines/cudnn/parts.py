"""A chunk's part of a call's arrays, cut out and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.schedule import Chunk, Schedule


def batch_axis(schedule: Schedule) -> int:
    return 1 if schedule.time_major else 0


def window(schedule: Schedule, chunk: Chunk, data: Any) -> Any:
    """A view of a chunk's steps, of all sequences."""
    steps = slice(chunk.start, chunk.stop)
    return data[steps] if schedule.time_major else data[:, steps]


def cut(device: CudaDevice, schedule: Schedule, chunk: Chunk) -> Callable[[Any], Any]:
    """Return what gives a chunk's part of a padded array as a new contiguous one."""

    def cut(data: Any) -> Any:
        batch = batch_axis(schedule)
        if (chunk.start, chunk.stop) != (0, schedule.T):
            data = device.take(data, np.arange(chunk.start, chunk.stop), 1 - batch)
        return data if chunk.rows is None else device.take(data, np.array(chunk.rows), batch)

    return cut


def put(device: CudaDevice, schedule: Schedule, chunk: Chunk, target: Any, part: Any) -> None:
    """Write a chunk's part into a padded array."""
    rows = np.arange(schedule.B) if chunk.rows is None else np.array(chunk.rows)
    device.put(window(schedule, chunk, target), rows, batch_axis(schedule), part)


def rows(device: CudaDevice, states: Any, chunk: Chunk) -> Any:
    return device.copy(states) if chunk.rows is None else device.take(states, np.array(chunk.rows), 1)


def put_rows(device: CudaDevice, chunk: Chunk, states: Any, part: Any) -> None:
    rows = np.arange(states.shape[1]) if chunk.rows is None else np.array(chunk.rows)
    device.put(states, rows, 1, part)
