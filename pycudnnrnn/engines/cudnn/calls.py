"""The calls of one configuration: eager ones, those of a plan, and those on another library's memory.

All of them are made by `native`, bound to addresses, and run on a stream. They differ in who allocates: an eager call
takes all arrays from CuPy's pool, a plan owns a workspace, and another library passes addresses of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pycudnnrnn import passes
from pycudnnrnn.engines import Results
from pycudnnrnn.engines.cudnn.algorithms import resolved
from pycudnnrnn.engines.cudnn.descriptors import ALIGNMENT_NBYTES
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout, Masks, states_nbytes
from pycudnnrnn.engines.cudnn.native import DataDescriptors, NativeCalls
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.engines.cudnn.stream_memory import StreamMemory
from pycudnnrnn.errors import ArgumentError, EngineError, StateError
from pycudnnrnn.passes import Arrays, CallConfig, Name, Pass
from pycudnnrnn.schedule import Schedule

ALLOCATED: Final = (*passes.RESULTS, "reserve", "workspace")
"""The arrays that an eager forward allocates."""

BACKWARD: Final = "an eager backward, which takes memory"

_NOTHING: Final = contextlib.nullcontext()

Addresses = Mapping[Name, int | None]
"""Addresses of the arrays of a call and of its workspace, by name; None or no entry for an array that is absent."""


class CudnnCalls:
    """Eager calls and plans; see `engines.Calls`.

    A plan owns one workspace and one pair of data descriptors, and belongs to one stream. The workspace is allocated on
    the stream that is current when the plan is prepared. The first call may run on another stream, which depends on the
    library of the arrays. That stream then waits for the first, and the workspace is freed on the first.
    """

    def __init__(self, runtime: Runtime, config: CallConfig) -> None:
        """Leave all else to `prepare`, or to the first forward, on whose arrays algorithms may be measured."""
        self._runtime, self._device, self._config = runtime, runtime.device, config
        dropout: CudnnDropout | None = config.dropout
        self._around = {} if dropout is None else {passes.FORWARD: dropout.forward}
        self._native: NativeCalls | None = None

    def prepare(self) -> CudnnCalls:
        """Make everything that a plan needs."""
        config = self._config
        with self._runtime.launching("preparing a plan") as handle:
            native = self._native = self._runtime.native_calls(handle, resolved(self._runtime, config))
            self._data = native.data_descriptors(config.schedule)
            self.spec = native.spec
            self.workspace_nbytes, self.reserve_nbytes = native.workspace_nbytes, native.reserve_nbytes
            workspace = native.new("workspace").get("workspace")
            (self._workspace_at,) = self._device.addresses(workspace)
            self._stream_memory, self._stream = StreamMemory(self._device, self, workspace), None
        return self

    def forward(self, schedule: Schedule, inputs: Arrays, at: Sequence[int | None]) -> Results:
        runtime, device, config = self._runtime, self._device, self._config
        stream = device.stream()
        device.refuse_capture(stream, "an eager forward, which takes memory")
        handle = runtime.handles.on(stream)
        native = self._native
        if native is None:
            native = self._native = runtime.native_calls(handle, resolved(runtime, config, inputs))
        y, hy, cy, reserve, workspace = map(native.new(*ALLOCATED).get, ALLOCATED)
        workspace_at, *results_at = device.addresses(workspace, y, hy, cy, reserve)
        data, around = native.data(handle, schedule), self._around.get(passes.FORWARD)
        native.run(passes.FORWARD, data, workspace_at, (*at, *results_at), handle, around)
        if not config.keep_reserve:
            return y, hy, cy, None
        return y, hy, cy, CudnnReserve(runtime, native, schedule, inputs | {"y": y, "reserve": reserve}, (stream,))

    def bind(self, which: Pass, arrays: Arrays, at: Sequence[int | None]) -> Callable[..., None]:  # noqa: ARG002
        return functools.partial(self._run, which, at)

    def _run(self, which: Pass, at: Sequence[int | None], *, accumulate: bool = False) -> None:
        stream = self._device.stream()
        if stream is not self._stream:
            if self._stream is not None and self._stream.ptr != stream.ptr:
                raise StateError(
                    f"this plan belongs to stream {self._stream.ptr:#x}, on which its first call ran, and the current "
                    f"stream is {stream.ptr:#x}: prepare a plan for each stream"
                )
            self._stream = stream
        self._stream_memory.on(stream)
        native: Any = self._native  # prepared
        handle, around = self._runtime.handles.on(stream), self._around.get(which)
        native.run(which, self._data, self._workspace_at, at, handle, around, accumulate=accumulate)

    def hold(self, params: Any | None) -> None:
        """Do nothing: cuDNN reads params as they are."""

    def capture(self, params: Any, *, carry_state: bool) -> CudnnGraph:
        native: Any = self._native
        return CudnnGraph(self._runtime, native, self._data, self._config.dropout, params, carry_state=carry_state)


@dataclasses.dataclass
class CudnnReserve:
    """The reserve of an eager forward, and the other arrays that its backward reads.

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
        native, upstream = self.native, dict(zip(passes.UPSTREAM, (dy, dhy, dcy), strict=True))
        with self.runtime.ordered(self.streams, BACKWARD) as stream:
            upstream |= native.new(*(name for name, array in upstream.items() if array is None), zeros=True)
            gradients = native.new("dx", "dhx", "dcx")
            self._run(passes.BACKWARD_DATA, stream, upstream | gradients)
            return gradients["dx"], gradients["dhx"], gradients.get("dcx")

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        with self.runtime.ordered(self.streams, BACKWARD) as stream:
            self._run(passes.BACKWARD_WEIGHTS, stream, {"d_params": out}, accumulate=accumulate)

    def _run(self, which: Pass, stream: Any, arrays: Arrays, *, accumulate: bool = True) -> None:
        native, handle = self.native, self.runtime.handles.on(stream)
        arrays = self.arrays | arrays | native.new("workspace")
        self.touched = True
        native.run_on(which, native.data(handle, self.schedule), arrays, handle, accumulate=accumulate)


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
            with _NOTHING if dropout is None else dropout.left_alone(device.stream()):
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
            with _NOTHING if self._dropout is None else self._dropout.launching(stream):
                self._graph.launch()


class AddressedCalls:
    """Calls on another library's memory and streams, by addresses. A repeated call makes no objects and asks no sizes.

    The caller allocates workspace and reserve, of the sizes below; None where a size is 0. With dropout the caller may
    pass random states, which each forward advances. Without them a forward uses the stream's own states, and `masks`
    says which; see `StreamStates`.

    Units:
        workspace_nbytes, reserve_nbytes, states_nbytes: bytes; the reserve is 0 without training, the states are 0
        without dropout. Streams are addresses, too.
    """

    def __init__(self, runtime: Runtime, stream: int, config: CallConfig, *, drops: bool) -> None:
        """Make calls with T and B of `config`. If its lengths are ragged, each call may have other ones.

        Raises:
            CaptureError: the stream is being captured.
        """
        self._runtime, self._config, self._drops = runtime, config, drops
        with runtime.launching("preparing a batch", runtime.device.stream_at(stream)) as handle:
            self.states_nbytes = states_nbytes(handle) if drops else 0
            dropout = runtime.dropout_at(handle, None, config.spec.dropout) if drops else None
            self._native = runtime.native_calls(handle, config, dropout)
        self.slots = self._native.slots
        self.workspace_nbytes, self.reserve_nbytes = self._native.workspace_nbytes, self._native.reserve_nbytes

    def forward(
        self, stream: int, schedule: Schedule, at: Addresses, *, states: int | None = None, masks: Masks | None = None
    ) -> None:
        """Write the results and the reserve, and advance the random states.

        Raises:
            ArgumentError: params that cuDNN cannot read where they are.
            CaptureError: the stream is being captured.
            EngineError: cuDNN asks for more memory with these random states than it did when this was made; or a
                repeated forward, whose random states are no longer kept.
        """
        self._run((passes.FORWARD,), "an eager forward, which takes memory", stream, schedule, at, states, masks)

    def backward(self, stream: int, schedule: Schedule, at: Addresses, *, states: int | None = None) -> None:
        """Write the gradients, and add the gradient of params to `d_params` if given. This uses up the reserve.

        The masks are in the reserve, so the current random states do not matter.

        Raises:
            ArgumentError: params that cuDNN cannot read where they are.
            CaptureError: the stream is being captured.
            EngineError: cuDNN asks for more memory with these random states than it did when this was made.
        """
        which = (passes.BACKWARD_DATA,) if at.get("d_params") is None else passes.PASSES[1:]
        self._run(which, BACKWARD, stream, schedule, at, states)

    def _run(
        self, which: Sequence[Pass], what: str, stream: int, schedule: Schedule, at: Addresses, states: int | None,
        masks: Masks | None = None,
    ) -> None:  # fmt: skip
        address, runtime, rate = at["params"] or 0, self._runtime, self._config.spec.dropout
        if address % ALIGNMENT_NBYTES:
            raise ArgumentError("params", f"memory aligned to {ALIGNMENT_NBYTES} bytes", hex(address))
        with runtime.launching(what, runtime.device.stream_at(stream)) as handle:
            native, around = self._native, None
            if self._drops:
                streams_own = runtime.states_on(handle, stream) if states is None else None
                dropout = runtime.dropout_at(handle, streams_own.address if streams_own else states, rate)
                native = runtime.native_calls(handle, self._config, dropout)
                if native.workspace_nbytes > self.workspace_nbytes or native.reserve_nbytes > self.reserve_nbytes:
                    asked, told = (
                        f"{each.workspace_nbytes} and {each.reserve_nbytes} bytes" for each in (native, self)
                    )
                    raise EngineError(f"cuDNN asks for workspace and reserve of {asked} here, of {told} before")
                around = dropout.forward if passes.FORWARD in which else lambda _: dropout.lock
                if streams_own and masks:
                    around = functools.partial(streams_own.forward, dropout=dropout, masks=masks)
            data = native.data(handle, schedule)
            for each in which:
                native.run(each, data, at["workspace"], [at.get(name) for name in each.names], handle, around)
