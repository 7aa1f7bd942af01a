"""The native side of one device: the library, this process's handles, and what was asked or compiled so far."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _locks
from pycudnnrnn._libcudnn import Library
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines import Results
from pycudnnrnn.engines.cudnn.checks import check_matrices
from pycudnnrnn.engines.cudnn.choices import Choices
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor, RNNDescriptor
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice, in_order, name_of
from pycudnnrnn.engines.cudnn.dropout import PASSES_MAX, DropoutAt, states_nbytes
from pycudnnrnn.engines.cudnn.handles import Handle, HandlePool
from pycudnnrnn.engines.cudnn.layout_query import query_layout, weight_space_nbytes
from pycudnnrnn.engines.cudnn.native_calls import NativeCalls
from pycudnnrnn.engines.cudnn.parts import Part
from pycudnnrnn.engines.cudnn.stream_states import StreamStates
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import Arrays, CallConfig
from pycudnnrnn.schedule import Chunk, Schedule
from pycudnnrnn.spec import RNNSpec

INDICES_MAX: Final = 64
"""Sets of rows kept on the device, of batches in parts."""

STREAMS_MAX: Final = 8
"""Streams whose random states are kept, with copies of them: up to 100 MB each."""

STATES_MAX: Final = 64
"""Addresses of random states whose descriptors are kept."""

REVERSED_MAX: Final = 4
"""Batches whose reversed order is kept on the device: two indices for each step of each sequence."""

LAYOUTS_MAX: Final = 256
"""Layouts kept: a few hundred numbers each."""

Run = Callable[[CallConfig, Arrays], Results]
"""An engine's eager forward of one batch."""

Sent = tuple[Sequence[Any], Any]
"""Indices on the device, and the stream whose memory they are in: as long as it lives no other has its name."""


class Runtime:
    """What is made once for a device, and shared by all that runs there.

    State: the handle pool; layouts, compiled passes, indices and streams' random states, the latest of each; the
    algorithms chosen.
    """

    def __init__(self, library: Library, device: CudaDevice) -> None:
        self.library, self.device = library, device
        self.handles = HandlePool(library)
        self.choices = Choices(device.gpu, library.version)
        self.compiled: Recent[NativeCalls] = Recent(PASSES_MAX)
        self._layouts: Recent[ParamLayout] = Recent(LAYOUTS_MAX)
        self._own_states: Recent[StreamStates] = Recent(STREAMS_MAX)
        self._dropouts: Recent[DropoutAt] = Recent(STATES_MAX)
        self._lock = _locks.lock()
        self._rows: Recent[Sent] = Recent(INDICES_MAX)
        self._reversed: Recent[Sent] = Recent(REVERSED_MAX)

    @contextlib.contextmanager
    def launching(self, what: str = "") -> Iterator[tuple[Handle, Any]]:
        """Give this thread's handle, set to the current stream, and that stream; `what` cannot be part of a CUDA graph.

        Raises:
            CaptureError: `what` is to be done while the stream is captured.
        """
        with self.device.active():
            stream = self.device.stream()
            if what:
                self.device.refuse_capture(stream, what)
            yield self.handle_on(stream), stream

    @contextlib.contextmanager
    def following(self, earlier: Sequence[Any]) -> Iterator[Handle]:
        """Launch a backward on the current stream, after those that the memory it uses is from, and goes back to."""
        what = "an eager backward, which takes memory"
        with self.launching(what) as (handle, stream), in_order(self.device, stream, earlier):
            yield handle

    def handle_on(self, stream: Any) -> Handle:
        """Give this thread's handle, set to a stream."""
        handle = self.handles.get()
        handle.use(stream, self.device.stream_address(stream))
        return handle

    def layout(self, spec: RNNSpec) -> ParamLayout:
        """Ask cuDNN for a layout, once."""
        spec = spec.without_dropout
        known = self._layouts.get(spec)
        if known is not None:
            return known
        check_matrices(spec)
        with (
            self.launching("asking for a layout") as (handle, _),
            DropoutDescriptor.of_none(handle) as dropout,
            RNNDescriptor(self.library, spec, dropout, algo=spec.untuned_algo) as rnn,
        ):
            nbytes = weight_space_nbytes(handle, rnn)
            base = self.device.empty((nbytes,), BYTES)
            layout = query_layout(handle, rnn, spec, self.device.address(base), nbytes)
        return self._layouts.keep(spec, layout)

    def native_calls(self, handle: Handle, config: CallConfig, dropout: DropoutAt | None = None) -> NativeCalls:
        """Return what runs batches like this one, compiled now or before; with dropout it is for those states."""
        dropout = dropout or config.dropout
        compiled = self.compiled if dropout is None else dropout.compiled
        spec, schedule, training = config.spec, config.schedule, config.training
        sizes = schedule.T, schedule.B, schedule.is_ragged, schedule.time_major, schedule.packed
        key = (spec, config.backward_algo, *sizes, training)
        found = compiled.get(key)
        if found is not None:
            return found
        descriptor = None if dropout is None else dropout.descriptor
        return compiled.keep(key, NativeCalls(handle, self.device, config, descriptor))

    def states_on(self, handle: Handle, stream: int) -> StreamStates:
        """Return the random states of a stream, by its address."""
        with self._lock:  # two of one stream would not know of each other's forwards
            found = self._own_states.get(stream)
            if found is None:
                found = self._own_states.keep(stream, StreamStates(self.device, stream, states_nbytes(handle)))
        return found

    def dropout_at(self, handle: Handle, address: int | None, rate: float) -> DropoutAt:
        """Return what describes the random states at an address; None stands for any, to ask for sizes."""
        found = self._dropouts.get((address, rate))
        if found is None:
            nbytes = 0 if address is None else states_nbytes(handle)
            restore = bool(address)  # which leaves the states as they are
            descriptor = DropoutDescriptor(
                handle, rate, None, address=address or 0, states_nbytes=nbytes, seed=0, restore=restore
            )
            found = self._dropouts.keep((address, rate), DropoutAt(descriptor))
        return found

    def part(self, schedule: Schedule, chunk: Chunk, stream: Any) -> Part:
        """Return a chunk's place in a batch, for work on `stream`; its rows' indices are sent to the device once."""
        if chunk.rows is None:
            return Part(self.device, schedule, chunk, None)
        (indices,) = self._sent(self._rows, chunk.rows, stream, lambda: [np.array(chunk.rows)])
        return Part(self.device, schedule, chunk, indices)

    def reversed_in_time(self, schedule: Schedule, data: Any) -> Any:
        """Return data with each sequence reversed within its length; padding stays where it is."""
        indices = self._sent(self._reversed, schedule, self.device.stream(), lambda: _reversed_steps(schedule))
        return self.device.gather(data, *indices)

    def _sent(
        self, kept: Recent[Sent], key: Hashable, stream: Any, make: Callable[[], Sequence[npt.NDArray[np.int_]]]
    ) -> Sequence[Any]:
        """Return indices on the device, for work on `stream`, the current one; each stream is sent those of a key once.

        Streams share none: they would have to wait for each other before the memory could be given to anybody else.
        """
        key = name_of(stream), key
        found = kept.get(key)
        if found is None:
            found = kept.keep(key, ([self.device.from_host(indices) for indices in make()], stream))
        return found[0]


def _reversed_steps(schedule: Schedule) -> list[npt.NDArray[np.int_]]:
    """Which step of which sequence each place over time and batch has, once each sequence is reversed."""
    lengths = np.full(schedule.B, schedule.T) if schedule.lengths is None else np.array(schedule.lengths)
    step, sequence = np.arange(schedule.T)[:, None], np.arange(schedule.B)
    step = np.where(step < lengths, lengths - 1 - step, step)
    return [step, sequence] if schedule.time_major else [sequence[:, None], step.T.copy()]
