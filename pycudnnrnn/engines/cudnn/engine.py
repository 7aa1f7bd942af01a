"""The engine for CUDA arrays: checks, plans, memory and the order of native calls; see `engines.Engine`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

from pycudnnrnn._libcudnn import Library
from pycudnnrnn.engines import DropoutState, Memory
from pycudnnrnn.engines.cudnn.calls import AddressedCalls, CudnnCalls
from pycudnnrnn.engines.cudnn.descriptors import ALIGNMENT_NBYTES, check_sizes
from pycudnnrnn.engines.cudnn.device import CudaDevice, finally_do, in_order
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout, states_nbytes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.passes import GRADIENTS, RESULTS, CallConfig, nbytes, slots
from pycudnnrnn.spec import TIME_MAX, RNNSpec


class CudnnEngine:
    """Run RNNs by libcudnn on one CUDA device.

    `runtime` has the state.
    """

    name = "cudnn"
    alignment = ALIGNMENT_NBYTES
    steps_max = TIME_MAX
    takes_empty = False

    def __init__(self, library: Library, device: CudaDevice) -> None:
        self.library, self.device = library, f"cuda:{device.index}"
        self.arrays, self.active = device, device.active
        self.runtime = Runtime(library, device)
        self.choices, self.layout, self.ordered = self.runtime.choices, self.runtime.layout, self.runtime.ordered

    @property
    def xp(self) -> Any:
        return self.arrays.xp

    def dropout(self, spec: RNNSpec, state: DropoutState) -> CudnnDropout:
        with self.runtime.launching("setting up dropout states") as handle:
            return CudnnDropout(self.arrays, self.runtime.launching, handle, spec, state)

    def plan(self, config: CallConfig) -> CudnnCalls:
        check_sizes(config)
        if config.schedule.has_empty:
            raise ArgumentError("sequence_lengths", "one native call: no empty sequence", "a length of 0")
        if self.steps_max < config.schedule.T:
            raise ArgumentError("T", f"one native call: at most {self.steps_max} steps", config.schedule.T)
        return self.calls(config).prepare()

    def dropout_states_nbytes(self) -> int:
        """Return the bytes of one model's random states on this device."""
        with self.runtime.launching("asking for the size of dropout states") as handle:
            return states_nbytes(handle)

    def write_dropout_states(self, stream: int, states: int, seed: int) -> None:
        """Write random states from a seed, at an address in another library's memory. cuDNN may synchronise."""
        runtime = self.runtime
        with self.active():
            handle = runtime.handles.on(self.arrays.stream_at(stream))
            dropout = runtime.dropout_at(handle, states, 0.5)  # any rate but 0: states do not contain it
            with dropout.lock:
                dropout.descriptor.seed(handle, seed)

    def addressed(self, stream: int, config: CallConfig, *, drops: bool) -> AddressedCalls:
        """Prepare repeated calls of one configuration on another library's memory and streams."""
        check_sizes(config)
        return AddressedCalls(self.runtime, stream, config, drops=drops)

    @contextlib.contextmanager
    def on_stream(self, address: int | None, others: Collection[int | None], *, wait: bool) -> Iterator[int]:
        device = self.arrays
        with device.active():
            stream, *around = (device.stream() if a is None else device.stream_at(a) for a in (address, *others))
            waiting = finally_do(device, lambda: device.synchronize(stream)) if wait else contextlib.nullcontext()
            with waiting, in_order(device, stream, around), device.using(stream):
                yield int(stream.ptr)

    def memory(self, config: CallConfig, *, adds: bool = False) -> Memory:  # noqa: ARG002  all arrays count at any time
        of_call = slots(config.spec, config.schedule, self.layout(config.spec).size)
        gradients = nbytes(of_call, (*GRADIENTS, "d_params")) if config.training else 0
        with self.runtime.launching() as handle:
            native = self.runtime.native_calls(handle, config)
        return Memory(native.workspace_nbytes, native.reserve_nbytes, nbytes(of_call, RESULTS), gradients)

    def calls(self, config: CallConfig) -> CudnnCalls:
        return CudnnCalls(self.runtime, config)
