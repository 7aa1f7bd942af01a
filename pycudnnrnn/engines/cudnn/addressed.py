"""Calls on another library's memory and stream, by addresses. That library also allocates workspace and reserve."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pycudnnrnn.engines.cudnn.checks import ALIGNMENT_NBYTES
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.native_calls import NativeCalls
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.engines.cudnn.stream_states import DropoutAt, Masks, StreamStates, states_nbytes
from pycudnnrnn.errors import ArgumentError, EngineError
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, CallConfig, Name, Pass
from pycudnnrnn.schedule import Schedule

_NOTHING: Final = contextlib.nullcontext()

Addresses = Mapping[Name, int | None]
"""Addresses of the arrays of a call and of its workspace, by name; None or no entry for an array that is absent."""


class Addressed:
    """Native calls of one configuration, on addresses. A repeated call makes no objects and asks for no sizes.

    The caller allocates workspace and reserve, of the sizes below; None where a size is 0. With dropout the caller may
    pass random states, which each forward advances. Without them a forward uses the stream's own states, and `masks`
    says which; see `StreamStates`.

    Units:
        workspace_nbytes, reserve_nbytes, states_nbytes: bytes; the reserve is 0 without training, the states are 0
        without dropout. Streams are addresses, too.
    """

    def __init__(self, runtime: Runtime, stream: int, config: CallConfig, *, drops: bool) -> None:
        """Prepare calls with T and B of `config`. If its lengths are ragged, each call may have other ones.

        Raises:
            CaptureError: the stream is being captured.
        """
        self._runtime, self._config, self._drops = runtime, config, drops
        with runtime.device.active():
            handle = self._handle(stream, "preparing a batch")
            self.states_nbytes = states_nbytes(handle) if drops else 0
            dropout = runtime.dropout_at(handle, None, config.spec.dropout) if drops else None
            self._native = runtime.native_calls(handle, config, dropout)
        self.slots = self._native.slots
        self.workspace_nbytes, self.reserve_nbytes = self._native.workspace_nbytes, self._native.reserve_nbytes

    def forward(
        self, stream: int, schedule: Schedule, at: Addresses, *, states: int | None = None, masks: Masks | None = None
    ) -> None:
        """Write the results and the reserve, and advance the random states.

        Raises:
            ArgumentError: params that cuDNN cannot read where they are.
            CaptureError: the stream is being captured.
            EngineError: cuDNN asks for more memory with these random states than it did when this was made; or a
                repeated forward, whose random states are no longer kept.
        """
        self._run((FORWARD,), "an eager forward, which takes memory", stream, schedule, at, states, masks)

    def backward(self, stream: int, schedule: Schedule, at: Addresses, *, states: int | None = None) -> None:
        """Write the gradients, and add the gradient of params to `d_params` if given. This uses up the reserve.

        The masks are in the reserve, so the current random states do not matter.

        Raises:
            ArgumentError: params that cuDNN cannot read where they are.
            CaptureError: the stream is being captured.
            EngineError: cuDNN asks for more memory with these random states than it did when this was made.
        """
        which = (BACKWARD_DATA,) if at.get("d_params") is None else (BACKWARD_DATA, BACKWARD_WEIGHTS)
        self._run(which, "an eager backward, which takes memory", stream, schedule, at, states)

    def _run(
        self, which: Sequence[Pass], what: str, stream: int, schedule: Schedule, at: Addresses, states: int | None,
        masks: Masks | None = None,
    ) -> None:  # fmt: skip
        """Launch passes on a stream. Before a forward, prepare the random states for it."""
        address = at["params"] or 0
        if address % ALIGNMENT_NBYTES:
            raise ArgumentError("params", f"memory aligned to {ALIGNMENT_NBYTES} bytes", hex(address))
        with self._runtime.device.active():
            handle, native, dropout, own = self._ready(stream, what, states)
            data = native.data(handle, schedule)
            with _NOTHING if dropout is None else _held(handle, dropout, own, masks, starts=FORWARD in which):
                for each in which:
                    native.launch(each, handle, data, at["workspace"], [at.get(name) for name in each.names])

    def _handle(self, address: int, what: str) -> Handle:
        """Return this thread's handle, set to a stream."""
        stream = self._runtime.device.stream_at(address)
        self._runtime.device.refuse_capture(stream, what)
        return self._runtime.handles.on(stream)

    def _ready(
        self, stream: int, what: str, states: int | None
    ) -> tuple[Handle, NativeCalls, DropoutAt | None, StreamStates | None]:
        """Return the handle, the native calls, the dropout descriptor, and the stream's own random states if used."""
        handle = self._handle(stream, what)
        if not self._drops:
            return handle, self._native, None, None
        runtime, own = self._runtime, None
        if states is None:
            own = runtime.states_on(handle, stream)
            states = own.address
        dropout = runtime.dropout_at(handle, states, self._config.spec.dropout)
        native = runtime.native_calls(handle, self._config, dropout)
        if native.workspace_nbytes > self.workspace_nbytes or native.reserve_nbytes > self.reserve_nbytes:
            found, told = (f"{p.workspace_nbytes} and {p.reserve_nbytes} bytes" for p in (native, self))
            raise EngineError(f"cuDNN asks for workspace and reserve of {found} here, of {told} before")
        return handle, native, dropout, own


@contextlib.contextmanager
def _held(
    handle: Handle, dropout: DropoutAt, own: StreamStates | None, masks: Masks | None, *, starts: bool
) -> Iterator[None]:
    """Hold the lock of the random states during the block; if a forward `starts`, prepare the states for it."""
    with dropout.lock:
        if own is not None and masks is not None:
            with own.forward(handle, dropout, masks):
                yield
        else:
            if starts:
                dropout.start(handle, None)
            yield
