"""The native side of one device: the library, this process's handles, and what was asked or compiled so far."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from pycudnnrnn._libcudnn import Library
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines.cudnn.checks import check_matrices
from pycudnnrnn.engines.cudnn.choices import ChoiceBook
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor, RNNDescriptor
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice, in_order
from pycudnnrnn.engines.cudnn.dropout import PASSES_MAX, CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle, HandlePool
from pycudnnrnn.engines.cudnn.layout_query import query_layout, weight_space_nbytes
from pycudnnrnn.engines.cudnn.parts import Part
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.schedule import Chunk, Schedule
from pycudnnrnn.spec import RNNSpec

INDICES_MAX: Final = 64
"""Sets of rows kept on the device, of batches in parts."""

LAYOUTS_MAX: Final = 256
"""Layouts kept: a few hundred numbers each."""


class Runtime:
    """What is made once for a device, and shared by all that runs there.

    State: the handle pool; layouts, compiled passes and indices, the latest of each; the algorithms chosen.
    """

    def __init__(self, library: Library, device: CudaDevice) -> None:
        self.library, self.device = library, device
        self.handles = HandlePool(library)
        self.choices = ChoiceBook(device.gpu, library.version)
        self.compiled: Recent[Passes] = Recent(PASSES_MAX)
        self._layouts: Recent[ParamLayout] = Recent(LAYOUTS_MAX)
        self._indices: Recent[tuple[Any, Any]] = Recent(INDICES_MAX)

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
    def following(self, earlier: Any) -> Iterator[Handle]:
        """Launch a backward on the current stream, after its forward's: where the memory used goes back to its pool."""
        what = "an eager backward, which takes memory"
        with self.launching(what) as (handle, stream), in_order(self.device, stream, [earlier]):
            yield handle

    def handle_on(self, stream: Any) -> Handle:
        """Give this thread's handle, set to a stream."""
        handle = self.handles.get()
        handle.use(self.device.stream_address(stream))
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

    def passes(
        self, handle: Handle, spec: RNNSpec, schedule: Schedule, *, training: bool, dropout: CudnnDropout | None
    ) -> Passes:
        """Return what runs batches like this one, compiled now or before; with dropout it is the model's own."""
        compiled = self.compiled if dropout is None else dropout.compiled
        key = (spec, schedule.T, schedule.B, schedule.lengths is not None, schedule.time_major, training)
        found = compiled.get(key)
        if found is not None:
            return found
        descriptor = None if dropout is None else dropout.descriptor
        return compiled.keep(key, Passes(handle, self.device, spec, schedule, training=training, dropout=descriptor))

    def part(self, schedule: Schedule, chunk: Chunk, stream: Any) -> Part:
        """Return a chunk's place in a batch, for work on `stream`; its rows' indices are sent to the device once."""
        if chunk.rows is None:
            return Part(self.device, schedule, chunk, None)
        found = self._indices.get(chunk.rows)
        if found is None:
            sent = self.device.from_host(np.array(chunk.rows))
            found = self._indices.keep(chunk.rows, (sent, self.device.event(stream)))
        indices, event = found
        self.device.wait_for(stream, event)
        return Part(self.device, schedule, chunk, indices)
