"""A chunk's part of a call's arrays: memory for it, copies out of the arrays, and copies back."""

from __future__ import annotations

from typing import Any

from pycudnnrnn.engines.cudnn.checks import ALIGNMENT_NBYTES
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.passes import shapes
from pycudnnrnn.schedule import Chunk, Schedule
from pycudnnrnn.spec import RNNSpec


class Part:
    """The place of one chunk in a call's arrays over time and batch, and in its states.

    A part that is contiguous in its array, and aligned, is used where it is. None stands for an array that is absent.
    `rows` are the indices of the chunk's sequences on the device, None where it has them all.
    """

    def __init__(self, device: CudaDevice, schedule: Schedule, chunk: Chunk, rows: Any | None) -> None:
        self.schedule = chunk.within(schedule)
        self._device, self._chunk = device, chunk
        self._batch_axis = 1 if schedule.time_major else 0
        self._rows = rows

    def buffer(self, data: Any) -> Any:
        """Return where this part of a padded array goes: a piece of that array, or memory of its own."""
        steps = self._steps(data)
        aligned = not self._device.address(steps) % ALIGNMENT_NBYTES
        if self._rows is None and steps.flags.c_contiguous and aligned:
            return steps
        return self._device.empty(self.schedule.data_shape(data.shape[2]), data.dtype)

    def state_buffer(self, states: Any | None) -> Any:
        """Return memory for this part of states."""
        if states is None:
            return None
        return self._device.empty((states.shape[0], self.schedule.B, states.shape[2]), states.dtype)

    def cut(self, data: Any, into: Any | None = None) -> Any:
        """Return this part of a padded array, contiguous: in `into`, or in a buffer made for it."""
        into = self.buffer(data) if into is None else into
        self._gather(self._steps(data), self._batch_axis, into)
        return into

    def cut_states(self, states: Any | None, into: Any | None = None) -> Any:
        """Return a copy of this part of states."""
        into = self.state_buffer(states) if into is None else into
        self._gather(states, 1, into)
        return into

    def put(self, data: Any, values: Any) -> None:
        """Write this part of a padded array."""
        self._scatter(self._steps(data), self._batch_axis, values)

    def put_states(self, states: Any | None, values: Any | None) -> None:
        self._scatter(states, 1, values)

    def _steps(self, data: Any) -> Any:
        steps = slice(self._chunk.start, self._chunk.stop)
        return data[steps] if self._batch_axis else data[:, steps]

    def _gather(self, source: Any | None, axis: int, into: Any) -> None:
        if source is None or self._device.address(source) == self._device.address(into):
            return
        if self._rows is None:
            self._device.copy_into(into, source)
        else:
            self._device.take(source, self._rows, axis, into)

    def _scatter(self, target: Any | None, axis: int, values: Any) -> None:
        if target is None or self._device.address(target) == self._device.address(values):
            return
        if self._rows is None:
            self._device.copy_into(target, values)
        else:
            self._device.put(target, self._rows, axis, values)


def states_to_work_on(
    device: CudaDevice, spec: RNNSpec, schedule: Schedule, h: Any | None, c: Any | None
) -> tuple[Any, Any | None]:
    """Return h and c to be worked on: copies of those given, or zeros; c is None where the cell has none."""
    wanted = shapes(spec, schedule.data_axes, schedule.B)

    def made(given: Any | None, shape: tuple[int, ...] | None) -> Any | None:
        if given is None and shape is not None:
            return device.zeros(shape, spec.dtype.numpy)
        return None if given is None else device.copy(given)

    return made(h, wanted["hx"]), made(c, wanted["cx"])
