"""The native side of one device: the library, this process's handles, and the layouts and plans asked for so far."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final

from pycudnnrnn._libcudnn import Library
from pycudnnrnn.engines.cudnn.checks import check_matrices
from pycudnnrnn.engines.cudnn.choices import ChoiceBook
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle, HandlePool
from pycudnnrnn.engines.cudnn.layout_query import query_layout, weight_space_nbytes
from pycudnnrnn.engines.cudnn.plan import Plan
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.schedule import Chunk, Schedule
from pycudnnrnn.spec import RNNSpec

PLANS_MAX: Final = 64
"""Plans kept, oldest dropped first: a plan is a few small native objects."""


class Native:
    """What is made once for a device, and shared by all that runs there.

    State: the handle pool; layouts and plans, under a lock; the algorithms chosen.
    """

    def __init__(self, library: Library, device: CudaDevice) -> None:
        self.library, self.device = library, device
        self.handles = HandlePool(library)
        self.choices = ChoiceBook(device.gpu, library.version)
        self.plans: dict[Any, Plan] = {}
        self._layouts: dict[RNNSpec, ParamLayout] = {}
        self._lock = threading.Lock()

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
        """Launch a backward on the current stream after its forward's, which then waits, whatever became of it.

        The memory that was used goes back to the earlier stream's pool.
        """
        with self.launching("an eager backward, which takes memory") as (handle, stream):
            self.device.wait(stream, earlier)
            try:
                with self.device.watch:  # it has to know first whether there is a device left to wait on
                    yield handle
            finally:
                if not self.device.watch.lost:
                    self.device.wait(earlier, stream)

    def handle_on(self, stream: Any) -> Handle:
        """Give this thread's handle, set to a stream."""
        handle = self.handles.get()
        handle.set_stream(self.device.stream_address(stream))
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
            RNNDescriptor(self.library, spec, algo=spec.untuned_algo) as rnn,
        ):
            nbytes = weight_space_nbytes(handle, rnn)
            base = self.device.empty((nbytes,), BYTES)
            layout = query_layout(handle, rnn, spec, self.device.address(base), nbytes)
        self._layouts[spec] = layout
        return layout

    def plan(
        self,
        handle: Handle,
        spec: RNNSpec,
        schedule: Schedule,
        chunk: Chunk,
        *,
        training: bool,
        dropout: CudnnDropout | None,
    ) -> Plan:
        """Return the plan of a chunk, made now or before; those with dropout belong to the model's own."""
        native = chunk.within(schedule)
        plans = self.plans if dropout is None else dropout.plans
        key = (spec, native, training)
        with self._lock:
            plan = plans.pop(key, None)
        if plan is None:
            descriptor = None if dropout is None else dropout.descriptor
            plan = Plan(handle, self.device, spec, native, training=training, dropout=descriptor)
        with self._lock:
            plans[key] = plan
            while len(plans) > PLANS_MAX:
                del plans[next(iter(plans))]
        return plan

    def sizes(
        self, spec: RNNSpec, schedule: Schedule, chunks: list[Chunk], *, training: bool, dropout: CudnnDropout | None
    ) -> list[tuple[int, int]]:
        """Ask cuDNN for the workspace and the reserve of each chunk, in bytes."""
        with self.launching() as (handle, _):
            plans = [self.plan(handle, spec, schedule, chunk, training=training, dropout=dropout) for chunk in chunks]
        return [(plan.workspace_nbytes, plan.reserve_nbytes) for plan in plans]
