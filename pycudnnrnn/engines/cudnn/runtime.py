"""What the calls on one device share: the library, handles, and caches of layouts, native calls and random states."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pycudnnrnn import _locks
from pycudnnrnn._libcudnn import Library
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines.cudnn.choices import Choices
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor, RNNDescriptor, check_params
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice, in_order
from pycudnnrnn.engines.cudnn.dropout import DropoutAt, Natives, StreamStates, states_nbytes
from pycudnnrnn.engines.cudnn.handles import Handle, HandlePool
from pycudnnrnn.engines.cudnn.layout_query import query_layout, weight_space_nbytes
from pycudnnrnn.engines.cudnn.native import NativeCalls, NativeRNN
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.spec import RNNSpec

STREAMS_MAX: Final = 8
"""Streams whose random states are kept, with copies of them: up to 100 MB each."""

STATES_MAX: Final = 64
"""Addresses of random states whose descriptors are kept."""

LAYOUTS_MAX: Final = 256
"""Layouts kept: a few hundred numbers each."""


class Runtime:
    """Objects that are made once for a device and shared by all calls on it.

    State: the handle pool; the latest layouts, native calls and streams' random states; the algorithms chosen.
    """

    def __init__(self, library: Library, device: CudaDevice) -> None:
        self.library, self.device = library, device
        self.handles = HandlePool(library)
        self.choices = Choices(device.gpu, library.version)
        self.natives = Natives()
        self._layouts: Recent[ParamLayout] = Recent(LAYOUTS_MAX)
        self._stream_states: Recent[StreamStates] = Recent(STREAMS_MAX)
        self._dropouts: Recent[DropoutAt] = Recent(STATES_MAX)
        self._lock = _locks.lock()

    @contextlib.contextmanager
    def launching(self, what: str = "", stream: Any = None) -> Iterator[Handle]:
        """Yield this thread's handle, set to a stream (None: the current one). `what`: work that no graph can contain.

        Raises:
            CaptureError: `what` is given, and the stream is being captured.
        """
        with self.device.active():
            stream = self.device.stream() if stream is None else stream
            if what:
                self.device.refuse_capture(stream, what)
            yield self.handles.on(stream)

    @contextlib.contextmanager
    def ordered(self, streams: Sequence[Any], what: str) -> Iterator[Any]:
        """See `Engine.ordered`. The memory that the block uses was allocated on `streams`, and is freed there."""
        with self.launching(what) as handle, in_order(self.device, stream := handle.stream, streams):
            yield stream

    def layout(self, spec: RNNSpec) -> ParamLayout:
        """Ask cuDNN for a layout, once."""
        spec = spec.without_dropout
        known = self._layouts.get(spec)
        if known is not None:
            return known
        check_params(spec)
        with (
            self.launching("asking for a layout") as handle,
            DropoutDescriptor.of_none(handle) as dropout,
            RNNDescriptor(self.library, spec, dropout) as rnn,
        ):
            nbytes = weight_space_nbytes(handle, rnn)
            base = self.device.empty((nbytes,), BYTES)
            layout = query_layout(handle, rnn, spec, self.device.address(base), nbytes)
        return self._layouts.keep(spec, layout)

    def native_calls(self, handle: Handle, config: CallConfig, dropout: DropoutAt | None = None) -> NativeCalls:
        """Return the native calls of a configuration, made once; with `dropout`, those that use its random states."""
        dropout = dropout or config.dropout
        natives, schedule = self.natives if dropout is None else dropout.natives, config.schedule
        of_rnn = NativeRNN.key(config)
        key = *of_rnn, schedule.T, schedule.B, schedule.is_ragged, schedule.time_major, config.training
        calls: NativeCalls | None = natives.calls.get(key)
        if calls is not None:
            return calls
        rnn = natives.rnns.get(of_rnn)
        if rnn is None:
            descriptor = None if dropout is None else dropout.descriptor
            rnn = natives.rnns.keep(of_rnn, NativeRNN(handle, config, descriptor))
        return natives.calls.keep(key, NativeCalls(handle, self.device, config, rnn))  # type: ignore[no-any-return]

    def states_on(self, handle: Handle, stream: int) -> StreamStates:
        """Return the random states of a stream, by its address."""
        with self._lock:  # a stream must not get two
            states = self._stream_states.get(stream)
            return states or self._stream_states.keep(stream, StreamStates(self.device, stream, states_nbytes(handle)))

    def dropout_at(self, handle: Handle, address: int | None, rate: float) -> DropoutAt:
        """Return the descriptor of the random states at an address. None: one without states, to ask for sizes."""
        with self._lock:  # one address has one lock
            dropout = self._dropouts.get((address, rate))
            if dropout is None:
                at = {"address": address or 0, "states_nbytes": 0 if address is None else states_nbytes(handle)}
                descriptor = DropoutDescriptor(handle, rate, None, **at, seed=0, restore=bool(address))
                dropout = self._dropouts.keep((address, rate), DropoutAt(descriptor))  # which keeps the states
            return dropout
