"""Prepared calls on cuDNN: they use the caller's arrays and a workspace made once, and allocate nothing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from pycudnnrnn.engines.cudnn.device import same_stream, stream_key
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.native_calls import DataDescriptors, NativeCalls
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.engines.cudnn.stream_memory import StreamMemory
from pycudnnrnn.errors import StateError
from pycudnnrnn.passes import FORWARD, Arrays, CallConfig, Pass

_NOTHING: Final = contextlib.nullcontext()


class CudnnPlan:
    """See `engines.EnginePlan`. It owns one workspace and one pair of data descriptors, and belongs to one stream.

    The workspace is allocated on the stream that is current when the plan is prepared. The first call may run on
    another stream, which depends on the library of the arrays. That stream then waits for the first, and the workspace
    is freed on the first.
    """

    def __init__(self, runtime: Runtime, native: NativeCalls, config: CallConfig) -> None:
        self._runtime, self._native, self._dropout = runtime, native, config.dropout
        self._data = native.data_descriptors(config.schedule)
        self._device = native.device
        self.spec = native.spec
        self.workspace_nbytes, self.reserve_nbytes = native.workspace_nbytes, native.reserve_nbytes
        workspace = native.new("workspace").get("workspace")
        (self._workspace_at,) = self._device.addresses(workspace)
        self._stream_memory, self._stream = StreamMemory(self._device, self, workspace), None

    def bind(self, which: Pass, arrays: Arrays, at: Sequence[int | None]) -> Callable[..., None]:  # noqa: ARG002
        return functools.partial(self._run, which, at)

    def _run(self, which: Pass, at: Sequence[int | None], *, accumulate: bool = False) -> None:
        stream = self._device.stream()
        if stream is not self._stream:
            self._belong_to(stream)
        self._stream_memory.on(stream)
        handle = self._runtime.handles.on(stream)
        drops, launch = self._dropout if which is FORWARD else None, self._native.launch
        launch = launch if drops is None else drops.launching(stream, launch)
        launch(which, handle, self._data, self._workspace_at, at, accumulate=accumulate)

    def _belong_to(self, stream: Any) -> None:
        """Bind this plan to the stream of its first call.

        Raises:
            StateError: a call on another stream.
        """
        if self._stream is not None and not same_stream(stream, self._stream):
            own, current = map(stream_key, (self._stream, stream))
            raise StateError(
                f"this plan belongs to stream {own:#x}, on which its first call ran, and the current stream is "
                f"{current:#x}: prepare a plan for each stream"
            )
        self._stream = stream

    def hold(self, params: Any | None) -> None:
        """Do nothing: cuDNN reads params as they are."""

    def capture(self, params: Any, *, carry_state: bool) -> CudnnGraph:
        return CudnnGraph(self._runtime, self._native, self._data, self._dropout, params, carry_state=carry_state)


class CudnnGraph:
    """See `engines.EngineGraph`: all passes of one batch, captured once on the graph's own arrays."""

    def __init__(
        self, runtime: Runtime, native: NativeCalls, data: DataDescriptors, dropout: CudnnDropout | None, params: Any,
        *, carry_state: bool,
    ) -> None:  # fmt: skip
        self._runtime, self._native, self._data, self._dropout = runtime, native, data, dropout
        device = self._device = native.device
        with device.active():
            device.refuse_capture(device.stream(), "capturing a plan")
            self.arrays = native.step(params=params, **native.new("x", "hx", "cx", zeros=True))
            pairs = (("hx", "hy"), ("cx", "cy")) if carry_state else ()
            self._carried = [(self.arrays[to], self.arrays[of]) for to, of in pairs if to in self.arrays]
            stay = _NOTHING if dropout is None else dropout.left_alone(device.stream())
            with stay:
                self._graph = device.capture(self._work)
                self._stream_memory = StreamMemory(device, self, *self.arrays.values(), self._graph)
            for state, _ in self._carried:  # written by the run before the capture
                device.zero_at(device.address(state), state.nbytes, device.stream().ptr)

    def _work(self) -> None:
        """Launch on the current stream what a replay repeats. This neither allocates nor waits."""
        self._native.run_all(self._runtime.handles.on(self._device.stream()), self._data, self.arrays)
        for state, result in self._carried:
            self._device.copy_bytes(state, result)

    def replay(self) -> None:
        self._runtime.handles.check_process()
        with self._device.active():
            stream = self._device.stream()
            self._stream_memory.on(stream)
            launch = self._graph.launch
            launch = launch if self._dropout is None else self._dropout.launching(stream, launch)
            launch()
