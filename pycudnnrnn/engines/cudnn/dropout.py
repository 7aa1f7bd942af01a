"""cuDNN's dropout: random states in device memory, which every training forward advances."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor
from pycudnnrnn.engines.cudnn.device import BYTES
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.engines.cudnn.stream_memory import StreamMemory
from pycudnnrnn.engines.cudnn.stream_states import DropoutAt, put_back, states_nbytes
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import RNNSpec


def seed_at(seed: int, position: int) -> int:
    """Return the seed that cuDNN gets for a position, for callers that cannot carry states between forwards."""
    return int(np.random.SeedSequence([seed, position]).generate_state(1, np.uint64)[0])


class CudnnDropout(DropoutAt):
    """The random states of one model on one device. Forwards launch one at a time, each after the one before.

    Source: cudnnDropoutGetStatesSize, cudnnSetDropoutDescriptor, cudnnRestoreDropoutDescriptor (cudnn_ops.h, 9.28).
    """

    def __init__(
        self, runtime: Runtime, handle: Handle, spec: RNNSpec, state: DropoutState, *, states: Any | None = None
    ) -> None:
        """Continue from a saved state, or from `states` in device memory, which this object then owns."""
        self._runtime, self._device, self._spec = runtime, runtime.device, spec
        self.position, self.seed = state.position, state.seed
        self.chunk_nbytes = nbytes = states_nbytes(handle)
        device, restore = self._device, states is not None or bool(state.data)
        if states is None and state.data:
            if len(state.data) != nbytes:
                got = f"{len(state.data)} bytes"
                raise ArgumentError("state", f"{nbytes} bytes, which this GPU's states have", got)
            states = device.from_host(np.frombuffer(state.data, np.uint8))
        elif states is None:
            if state.position:
                raise ArgumentError("state", "the states' data with a position: cuDNN cannot compute them", "none")
            states = device.empty((nbytes,), BYTES)
        self._states, self._stream_memory = states, StreamMemory(device, self, states)
        at = {"address": device.address(states), "states_nbytes": nbytes}
        super().__init__(DropoutDescriptor(handle, spec.dropout, states, **at, seed=state.seed, restore=restore))

    def forward(self, handle: Handle) -> Any:
        return self.launching(handle.stream)

    @contextlib.contextmanager
    def launching(self, stream: Any) -> Iterator[None]:
        """Order the forward that the block launches after the one before. It counts if the block succeeds.

        Raises:
            CaptureError: the stream is being captured: a graph's runs would not be counted or ordered.
        """
        self._device.refuse_capture(stream, "a forward with dropout")
        with self.lock:
            self._stream_memory.on(stream)
            yield
            self.position += 1

    @contextlib.contextmanager
    def as_one(self) -> Iterator[CudnnDropout]:
        """Count the block's forwards, all on the current stream, as one. If the block fails, restore the states."""
        with self.lock:
            position, before = self.position, self._snapshot()
            try:
                yield self
            except BaseException:
                self.position = position
                self._device.copy_into(self._states, before)
                raise
            self.position = position + 1

    def chunk(self, first_row: int) -> tuple[CudnnDropout, Callable[[], CudnnDropout]]:  # noqa: ARG002  no row matters
        """See `engines.ChunkMasks`. A copy of the states is kept, because they cannot be computed from a position."""
        kept, runtime = self._snapshot(), self._runtime

        def again() -> CudnnDropout:
            with runtime.launching("setting up dropout states") as handle:
                start = DropoutState("cudnn", self.seed)
                return CudnnDropout(runtime, handle, self._spec, start, states=self._device.copy(kept))

        return self, again

    def _snapshot(self) -> Any:
        """Copy the states with which the next launch on the current stream begins. The caller holds the lock."""
        self._stream_memory.on(self._device.stream())
        return self._device.copy(self._states)

    @contextlib.contextmanager
    def left_alone(self, stream: Any) -> Iterator[None]:
        """Restore the states after the block, whose work runs on `stream` or on streams ordered with it."""
        with self.lock:
            self._stream_memory.on(stream)
            with put_back(self._device, self._states):
                yield

    def state(self) -> DropoutState:
        with self.lock, self._device.active():
            stream = self._device.stream()
            self._device.refuse_capture(stream, "reading dropout states")
            self._stream_memory.on(stream)
            data = self._device.to_host(self._states).tobytes()
            return DropoutState("cudnn", self.seed, self.position, data)
