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
            _, passes, dropout = self._ready(stream, "preparing a batch")
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
            handle, passes, dropout = self._ready(stream, "an eager forward, which takes memory")
            head = handle.pointer, *passes.data(schedule).pointers, workspace
            with _NOTHING if dropout is None else dropout.lock:
                if dropout is not None and seed is not None:
                    dropout.descriptor.seed(handle, seed)
                passes.call_forward(*head, x, y, hx, hy, cx, cy, params, reserve)

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
            handle, passes, dropout = self._ready(stream, "an eager backward, which takes memory")
            head = handle.pointer, *passes.data(schedule).pointers, workspace
            with _NOTHING if dropout is None else dropout.lock:  # nobody seeds the descriptor meanwhile
                passes.clear(dx, stream)
                passes.call_backward_data(*head, y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, reserve)
                if d_params is not None:
                    passes.call_backward_weights(*head, x, hx, y, d_params, reserve)

    def _ready(self, address: int, what: str) -> tuple[Handle, Passes, CudnnDropout | None]:
        """Return what runs on a stream: this thread's handle, the passes, and the stream's random states."""
        runtime, spec = self._runtime, self._spec
        stream = runtime.device.stream_at(address)
        runtime.device.refuse_capture(stream, what)
        handle = runtime.handle_on(stream)
        if self._plain is not None:
            return handle, self._plain, None
        dropout = runtime.dropout_on(handle, address, spec) if self._drops else None
        return handle, runtime.passes(handle, spec, self._like, training=self._training, dropout=dropout), dropout
