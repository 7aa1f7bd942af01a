"""A chunk's part of a call's arrays, cut out and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.schedule import Chunk, Schedule


def cut(device: CudaDevice, schedule: Schedule, chunk: Chunk) -> Callable[[Any], Any]:
    """Return what gives a chunk's part of a padded array as a new contiguous one."""

    def cut(data: Any) -> Any:
        time, batch = (0, 1) if schedule.time_major else (1, 0)
        if (chunk.start, chunk.stop) != (0, schedule.T):
            data = device.take(data, np.arange(chunk.start, chunk.stop), time)
        return data if chunk.rows is None else device.take(data, np.array(chunk.rows), batch)

    return cut


def put(device: CudaDevice, schedule: Schedule, chunk: Chunk, target: Any, part: Any) -> None:
    """Write a chunk's part into a padded array."""
    window = slice(chunk.start, chunk.stop)
    axis = 1 if schedule.time_major else 0
    rows = np.arange(schedule.B) if chunk.rows is None else np.array(chunk.rows)
    device.put(target[window] if schedule.time_major else target[:, window], rows, axis, part)


def rows(device: CudaDevice, states: Any, chunk: Chunk) -> Any:
    return device.copy(states) if chunk.rows is None else device.take(states, np.array(chunk.rows), 1)


def put_rows(device: CudaDevice, chunk: Chunk, states: Any, part: Any) -> None:
    rows = np.arange(states.shape[1]) if chunk.rows is None else np.array(chunk.rows)
    device.put(states, rows, 1, part)
