"""Eager calls: each allocates its results, reserve and workspace. Everything else is prepared once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

from pycudnnrnn.engines import Results
from pycudnnrnn.engines.cudnn.native_calls import NativeCalls
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, RESULTS, UPSTREAM, Arrays, CallConfig, Pass
from pycudnnrnn.schedule import Schedule

MADE: Final = (*RESULTS, "reserve", "workspace")
"""The arrays that a forward allocates."""

BACKWARD: Final = "an eager backward, which takes memory"


class EagerCalls:
    """Run forwards of one configuration; see `engines.EagerForward`."""

    def __init__(
        self, runtime: Runtime, config: CallConfig, resolved: Callable[[CallConfig, Arrays], CallConfig]
    ) -> None:
        """Leave the preparation to the first call: `resolved` may measure algorithms on its arrays."""
        self._runtime, self._config, self._resolved = runtime, config, resolved
        self._native: NativeCalls | None = None

    def __call__(self, schedule: Schedule, inputs: Arrays, at: Sequence[int | None]) -> Results:
        runtime, device, config = self._runtime, self._runtime.device, self._config
        stream = device.stream()
        device.refuse_capture(stream, "an eager forward, which takes memory")
        handle = runtime.handles.on(stream)
        native = self._native
        if native is None:
            native = self._native = runtime.native_calls(handle, self._resolved(config, inputs))
        y, hy, cy, reserve, workspace = map(native.new(*MADE).get, MADE)
        workspace_at, *results_at = device.addresses(workspace, y, hy, cy, reserve)
        launch = native.launch if config.dropout is None else config.dropout.launching(stream, native.launch)
        launch(FORWARD, handle, native.data(handle, schedule), workspace_at, (*at, *results_at))
        if not config.keep_reserve:
            return y, hy, cy, None
        return y, hy, cy, CudnnReserve(runtime, native, schedule, inputs | {"y": y, "reserve": reserve}, (stream,))


@dataclasses.dataclass
class CudnnReserve:
    """The reserve of a forward, and the other arrays that its backward reads.

    `streams`: the streams on which its memory was allocated, the forward's first. `touched`: a backward has begun to
    overwrite it. A backward that fails before that leaves it unchanged.
    """

    runtime: Runtime
    native: NativeCalls
    schedule: Schedule
    arrays: Arrays
    streams: tuple[Any, ...]
    touched: bool = False

    def copy(self) -> CudnnReserve:
        reserve = self.arrays["reserve"]
        with self.runtime.ordered(self.streams, "copying a reserve, which takes memory") as stream:
            copied = {"reserve": None if reserve is None else self.runtime.device.copy(reserve)}
            return dataclasses.replace(self, arrays=self.arrays | copied, streams=(*self.streams, stream))

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> tuple[Any, Any, Any | None]:
        native, given = self.native, dict(zip(UPSTREAM, (dy, dhy, dcy), strict=True))
        with self.runtime.ordered(self.streams, BACKWARD) as stream:
            given |= native.new(*(name for name, array in given.items() if array is None), zeros=True)
            found = native.new("dx", "dhx", "dcx")
            self._run(BACKWARD_DATA, stream, given | found)
            return found["dx"], found["dhx"], found.get("dcx")

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        with self.runtime.ordered(self.streams, BACKWARD) as stream:
            self._run(BACKWARD_WEIGHTS, stream, {"d_params": out}, accumulate=accumulate)

    def _run(self, which: Pass, stream: Any, arrays: Arrays, *, accumulate: bool = True) -> None:
        native, handle = self.native, self.runtime.handles.on(stream)
        arrays = self.arrays | arrays | native.new("workspace")
        self.touched = True
        native.run(which, handle, native.data(handle, self.schedule), arrays, accumulate=accumulate)
