"""A kind of batch that comes again and again in another library's memory: nothing is made or asked at a call."""

from __future__ import annotations

import contextlib
from typing import Final

from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

_NOTHING: Final = contextlib.nullcontext()

Address = int | None


class Addressed:
    """One kind of batch that one native call takes, on addresses that the caller has checked.

    Workspace and reserve are the caller's, of the sizes given here. Where it drops, random states are the device's own:
    those of a stream, written anew from a seed before each forward.

    Units:
        workspace_nbytes, reserve_nbytes: bytes; the reserve is 0 without training. Streams are addresses, too.
    """

    def __init__(
        self, runtime: Runtime, stream: int, spec: RNNSpec, like: Schedule, *, training: bool, drops: bool
    ) -> None:
        """Prepare batches as long and as wide as `like`; with other lengths where its own are ragged.

        Raises:
            CaptureError: the stream is being captured.
        """
        self._runtime, self._spec, self._like, self._drops = runtime, spec, like, drops
        self._training = training
        self._plain: Passes | None = None
        with runtime.device.active():
            passes, dropout = self._passes_on(self._handle_on(stream, "preparing a batch"), stream)
        self._plain = passes if dropout is None else None
        self.params_size = passes.params_nbytes // spec.dtype.itemsize
        self.workspace_nbytes, self.reserve_nbytes = passes.workspace_nbytes, passes.reserve_nbytes

    def forward(
        self, stream: int, schedule: Schedule, seed: int | None, x: Address, y: Address, hx: Address, hy: Address,
        cx: Address, cy: Address, params: Address, workspace: Address, reserve: Address,
    ) -> None:  # fmt: skip
        """Write the results and the reserve; `seed` is dropout's, None without.

        Raises:
            CaptureError: the stream is being captured.
        """
        with self._runtime.device.active():
            handle = self._handle_on(stream, "an eager forward, which takes memory")
            passes, dropout = self._passes_on(handle, stream)
            descriptors = passes.data(schedule).pointers
            with _NOTHING if dropout is None else dropout.lock:
                if dropout is not None and seed is not None:
                    dropout.descriptor.seed(handle, seed)
                passes.call_forward(handle.pointer, *descriptors, workspace, x, y, hx, hy, cx, cy, params, reserve)

    def backward(
        self, stream: int, schedule: Schedule, x: Address, y: Address, dy: Address, dx: Address, hx: Address,
        dhy: Address, dhx: Address, cx: Address, dcy: Address, dcx: Address, params: Address, d_params: Address,
        workspace: Address, reserve: Address,
    ) -> None:  # fmt: skip
        """Write the gradients, rewriting the reserve, and add that of params to `d_params`, unless that is None.

        The masks are in the reserve, so that what the random states are by now does not matter.

        Raises:
            CaptureError: the stream is being captured.
        """
        with self._runtime.device.active():
            handle = self._handle_on(stream, "an eager backward, which takes memory")
            passes, dropout = self._passes_on(handle, stream)
            descriptors = passes.data(schedule).pointers
            with _NOTHING if dropout is None else dropout.lock:  # nobody seeds the descriptor meanwhile
                head = handle.pointer, *descriptors, workspace
                passes.call_backward_data(*head, y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, reserve)
                if d_params is not None:
                    passes.call_backward_weights(*head, x, hx, y, d_params, reserve)

    def _handle_on(self, address: int, what: str) -> Handle:
        device = self._runtime.device
        stream = device.stream_at(address)
        device.refuse_capture(stream, what)
        return self._runtime.handle_on(stream)

    def _passes_on(self, handle: Handle, stream: int) -> tuple[Passes, CudnnDropout | None]:
        if self._plain is not None:
            return self._plain, None
        runtime, spec = self._runtime, self._spec
        dropout = runtime.dropout_on(handle, stream, spec) if self._drops else None
        return runtime.passes(handle, spec, self._like, training=self._training, dropout=dropout), dropout
