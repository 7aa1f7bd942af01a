"""A kind of batch in another library's memory: raw addresses on its stream, with all scratch memory its own."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from pycudnnrnn.engines.cudnn.checks import ALIGNMENT_NBYTES
from pycudnnrnn.engines.cudnn.dropout import DropoutAt, states_nbytes
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.errors import ArgumentError, EngineError
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, Batch
from pycudnnrnn.schedule import Schedule

_NOTHING: Final = contextlib.nullcontext()

Addresses = Sequence[int | None]


class Addressed:
    """One kind of batch that one native call takes, on addresses; nothing is made or asked at a repeated call.

    Workspace and reserve are the caller's, of the sizes given here, None where that is 0. Where it drops, so may the
    random states be: a forward moves them on from where they are. Without such states it uses the device's own, those
    of its stream. From a `seed` either are written anew first, for which cuDNN itself may wait.

    Units:
        workspace_nbytes, reserve_nbytes, states_nbytes: bytes; the reserve is 0 without training, the states are 0
        without dropout. Streams are addresses, too.
    """

    def __init__(self, runtime: Runtime, stream: int, batch: Batch, *, drops: bool) -> None:
        """Prepare batches as long and as wide as `batch`; with other lengths where its own are ragged.

        Raises:
            CaptureError: the stream is being captured.
        """
        self._runtime, self._batch, self._drops = runtime, batch, drops
        with runtime.device.active():
            handle = self._handle(stream, "preparing a batch")
            self.states_nbytes = states_nbytes(handle) if drops else 0
            dropout = runtime.dropout_at(handle, None, batch.spec.dropout) if drops else None
            self._passes = runtime.passes(handle, batch, dropout)
        self.slots = self._passes.slots
        self.workspace_nbytes, self.reserve_nbytes = self._passes.workspace_nbytes, self._passes.reserve_nbytes

    def forward(
        self, stream: int, schedule: Schedule, at: Addresses, workspace: int | None, *, states: int | None = None,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        """Write the results and the reserve, and move the random states on; `at` is in the order of `FORWARD`.

        Raises:
            ArgumentError: params that cuDNN cannot read where they are.
            CaptureError: the stream is being captured.
            EngineError: cuDNN asks for more memory with these random states than it did when this was made.
        """
        _check_params("params", at[0])
        with self._runtime.device.active():
            handle, passes, dropout = self._ready(stream, "an eager forward, which takes memory", states)
            data = passes.data(schedule)
            with _NOTHING if dropout is None else dropout.lock:
                if dropout is not None:
                    dropout.start(handle, seed)
                passes.launch(FORWARD, handle, data, workspace, at)

    def backward(
        self, stream: int, schedule: Schedule, at: Addresses, x: int | None, d_params: int | None,
        workspace: int | None, *, states: int | None = None,
    ) -> None:  # fmt: skip
        """Write the gradients, rewriting the reserve, and add that of params to `d_params`, unless that is None.

        `at` is in the order of `BACKWARD_DATA`. The masks are in the reserve, so that what the random states are by now
        does not matter.

        Raises:
            ArgumentError: params, or their gradient, that cuDNN cannot use where they are.
            CaptureError: the stream is being captured.
            EngineError: cuDNN asks for more memory with these random states than it did when this was made.
        """
        _check_params("params", at[0])
        _check_params("d_params", d_params)
        with self._runtime.device.active():
            handle, passes, dropout = self._ready(stream, "an eager backward, which takes memory", states)
            data = passes.data(schedule)
            with _NOTHING if dropout is None else dropout.lock:  # nobody seeds the descriptor meanwhile
                passes.launch(BACKWARD_DATA, handle, data, workspace, at)
                if d_params is not None:
                    _, y, _, hx, *_, reserve = at
                    passes.launch(BACKWARD_WEIGHTS, handle, data, workspace, (x, hx, y, d_params, reserve))

    def _handle(self, address: int, what: str) -> Handle:
        """Return this thread's handle, set to a stream."""
        stream = self._runtime.device.stream_at(address)
        self._runtime.device.refuse_capture(stream, what)
        return self._runtime.handle_on(stream)

    def _ready(self, stream: int, what: str, states: int | None) -> tuple[Handle, Passes, DropoutAt | None]:
        """Return what runs on a stream, and the random states."""
        handle = self._handle(stream, what)
        if not self._drops:
            return handle, self._passes, None
        runtime, rate = self._runtime, self._batch.spec.dropout
        if states is None:
            dropout = runtime.dropout_on(handle, stream, rate)
        else:
            dropout = runtime.dropout_at(handle, states, rate)
        passes = runtime.passes(handle, self._batch, dropout)
        if passes.workspace_nbytes > self.workspace_nbytes or passes.reserve_nbytes > self.reserve_nbytes:
            found, told = (f"{p.workspace_nbytes} and {p.reserve_nbytes} bytes" for p in (passes, self))
            raise EngineError(f"cuDNN asks for workspace and reserve of {found} here, of {told} before")
        return handle, passes, dropout


def _check_params(name: str, address: int | None) -> None:
    if (address or 0) % ALIGNMENT_NBYTES:
        raise ArgumentError(name, f"memory aligned to {ALIGNMENT_NBYTES} bytes", hex(address or 0))
