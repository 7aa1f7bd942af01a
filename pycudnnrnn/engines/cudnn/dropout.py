"""Dropout: a model's random states, those at an address, and a stream's own for callers that give each forward a seed.

cuDNN writes states from a seed by initialising a random generator for each thread of the device. That takes longer than
many a forward, and may synchronise. So a forward continues from the states that the one before left. Copies of the
states, a few megabytes made in microseconds, are kept by seed, so that a forward can be repeated with the same masks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn import _locks
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice, finally_do
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.stream_memory import StreamMemory
from pycudnnrnn.errors import ArgumentError, EngineError
from pycudnnrnn.spec import RNNSpec

Launching = Callable[[str], contextlib.AbstractContextManager[Handle]]
"""See `Runtime.launching`."""

NATIVES_MAX: Final = 64
"""RNNs, and sizes of batches, whose native objects are kept: a few small ones each."""

KEPT_MAX: Final = 16
"""Forwards of a stream whose states are kept. A model has a few layers with dropout, and activation checkpointing
repeats each in the backward pass of a step. About 6 MB each on a large GPU, 100 MB in all."""


def seed_at(seed: int, position: int) -> int:
    """Return the seed that cuDNN gets for a position, for callers that cannot carry states between forwards."""
    return int(np.random.SeedSequence([seed, position]).generate_state(1, np.uint64)[0])


def states_nbytes(handle: Handle) -> int:
    """Ask cuDNN for the bytes of the random states on a handle's device."""
    return int(handle.library.cudnnDropoutGetStatesSize.read(handle)["sizeInBytes"])


@contextlib.contextmanager
def put_back(device: CudaDevice, states: Any) -> Iterator[None]:
    """Restore the states after the work that the block launches on the current stream."""
    before = device.copy(states)
    with finally_do(device, lambda: device.copy_bytes(states, before)):
        yield


class Natives:
    """The native objects that were made with one dropout descriptor, or without one: by RNN, and by size of batch."""

    def __init__(self) -> None:
        self.rnns: Recent[Any] = Recent(NATIVES_MAX)
        self.calls: Recent[Any] = Recent(NATIVES_MAX)


class DropoutAt:
    """The descriptor of the random states at one address, and the native objects made with it.

    Hold `lock` while launching work that advances or writes the states.
    """

    def __init__(self, descriptor: DropoutDescriptor) -> None:
        self.descriptor, self.lock = descriptor, _locks.rlock()
        self.natives = Natives()

    @contextlib.contextmanager
    def forward(self, handle: Handle) -> Iterator[None]:
        """Continue from the states in memory in the forward that the block launches."""
        with self.lock:
            self.descriptor.restore(handle)
            yield


class CudnnDropout(DropoutAt):
    """The random states of one model on one device. Forwards launch one at a time, each after the one before.

    Source: cudnnDropoutGetStatesSize, cudnnSetDropoutDescriptor, cudnnRestoreDropoutDescriptor (cudnn_ops.h, 9.28).
    """

    def __init__(
        self, device: CudaDevice, launching: Launching, handle: Handle, spec: RNNSpec, state: DropoutState, *,
        states: Any | None = None,
    ) -> None:  # fmt: skip
        """Continue from a saved state, or from `states` in device memory, which this object then owns."""
        self._device, self._launching, self._spec = device, launching, spec
        self.position, self.seed = state.position, state.seed
        self.chunk_nbytes = nbytes = states_nbytes(handle)
        restore = states is not None or bool(state.data)
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
        device, launching, states = self._device, self._launching, self._snapshot()

        def again() -> CudnnDropout:
            with launching("setting up dropout states") as handle:
                start = DropoutState("cudnn", self.seed)
                return CudnnDropout(device, launching, handle, self._spec, start, states=device.copy(states))

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


class Masks(NamedTuple):
    """What determines a forward's masks if it uses a stream's own states.

    `chain()` returns a key; it is called when the forward is launched. Forwards with the same key continue from each
    other's states, and the first of them on a stream gets states written from its `seed`. With a key that no other
    forward has, the masks depend on the seed alone. None means that this repeats an earlier forward with the same seed.
    """

    seed: int
    chain: Callable[[], Hashable | None]


NOT_KEPT: Final = (
    "dropout in a forward inside a backward: only a forward that runs again (activation checkpointing) has masks "
    f"there, those of its seed, which are kept for the latest {KEPT_MAX} forwards on a stream. This seed is not among "
    "them: run the backward after fewer forwards, with preserve_rng_state=True, or without checkpointing this module"
)


class _Start(NamedTuple):
    chain: Hashable
    states: Any


class StreamStates:
    """The random states of one stream, and copies of the states with which its latest forwards began, by seed.

    A stream runs its work in order, so a forward's reads and writes of the states do not overlap another's.
    """

    def __init__(self, device: CudaDevice, stream: int, nbytes: int) -> None:
        self._device, self._stream = device, device.stream_at(stream)
        with device.using(self._stream):  # memory is allocated on it
            self._states = device.empty((nbytes,), BYTES)
        self.address = device.address(self._states)
        self._lock = _locks.rlock()
        self._chain: Hashable = None
        self._starts: Recent[_Start] = Recent(KEPT_MAX)

    @contextlib.contextmanager
    def forward(self, handle: Handle, dropout: DropoutAt, masks: Masks) -> Iterator[None]:
        """Prepare the states for the forward that the block launches; `dropout` describes these states.

        If the seed was used before in this chain and is still kept, the forward gets the states of that time, and the
        chain continues from them. A repetition (chain of None) does not change the chain's states.

        Raises:
            EngineError: a repetition of a forward whose states are no longer kept.
        """
        device, states = self._device, self._states
        with dropout.lock, self._lock, device.using(self._stream):
            chain, start = masks.chain(), self._starts.get(masks.seed)
            if chain is None:
                if start is None:
                    raise EngineError(NOT_KEPT)
                with put_back(device, states):
                    device.copy_bytes(states, start.states)
                    yield
                return
            if start is not None and start.chain == chain:
                device.copy_bytes(states, start.states)
            else:
                if chain != self._chain:
                    dropout.descriptor.seed(handle, masks.seed)
                self._starts.keep(masks.seed, _Start(chain, device.copy(states)))
            self._chain = chain
            yield
