"""A batch in another library's memory: raw addresses on its stream, with all scratch memory its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pycudnnrnn.engines.cudnn.checks import PARAMS_ALIGNMENT_NBYTES
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor
from pycudnnrnn.engines.cudnn.dropout import seed_at, states_nbytes
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec


class InPlace:
    """One kind of batch that one native call takes, on addresses; it takes no device memory and waits for nothing.

    Workspace, reserve and dropout states are the caller's, of the sizes given here, None where that is 0. Where it
    drops, each forward moves the states on: from where they are, or, with a `position`, from the seed that stands for
    it, with which it writes them anew first; for that cuDNN itself may wait.

    Units:
        workspace_nbytes, reserve_nbytes, states_nbytes: bytes. Streams and arrays are addresses.
    """

    def __init__(
        self,
        runtime: Runtime,
        spec: RNNSpec,
        schedule: Schedule,
        *,
        training: bool,
        drops: bool,
        position: int | None,
    ) -> None:
        self._runtime, self._spec, self._schedule, self._training = runtime, spec, schedule, training
        self._drops, self._seed = drops, None if position is None else seed_at(spec.seed, position)
        with runtime.launching("preparing a batch") as (handle, _):
            self.states_nbytes = states_nbytes(handle) if drops else 0
            passes = self._passes(handle, None)
        self.workspace_nbytes, self.reserve_nbytes = passes.workspace_nbytes, passes.reserve_nbytes

    def forward(
        self,
        stream: int,
        params: int,
        x: int,
        hx: int | None,
        cx: int | None,
        y: int,
        hy: int | None,
        cy: int | None,
        reserve: int | None,
        states: int | None,
        workspace: int | None,
    ) -> None:
        """Write the results and the reserve, and move the dropout states on."""
        _check_params("params", params)
        with self._on(stream, states, workspace, seed=self._seed) as (passes, head):
            passes.call_forward(*head, x, y, hx, hy, cx, cy, params, reserve)

    def backward_data(
        self,
        stream: int,
        params: int,
        y: int,
        dy: int,
        hx: int | None,
        dhy: int,
        dhx: int | None,
        cx: int | None,
        dcy: int | None,
        dcx: int | None,
        dx: int,
        reserve: int,
        states: int | None,
        workspace: int | None,
    ) -> None:
        """Write the gradients of x and the states, rewriting the reserve."""
        _check_params("params", params)
        with self._on(stream, states, workspace) as (passes, head):
            passes.call_backward_data(*head, y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, reserve)

    def backward_weights(
        self,
        stream: int,
        x: int,
        hx: int | None,
        y: int,
        d_params: int,
        reserve: int,
        states: int | None,
        workspace: int | None,
    ) -> None:
        """Add the gradient of params to `d_params`."""
        _check_params("d_params", d_params)
        with self._on(stream, states, workspace) as (passes, head):
            passes.call_backward_weights(*head, x, hx, y, d_params, reserve)

    @contextlib.contextmanager
    def _on(
        self, stream: int, states: int | None, workspace: int | None, *, seed: int | None = None
    ) -> Iterator[tuple[Passes, tuple[Any, ...]]]:
        """Give what runs on another library's stream, and what its calls take before the arrays."""
        device = self._runtime.device
        with device.active():
            handle = self._runtime.handle_on(device.stream_at(stream))
            passes = self._passes(handle, states, seed)
            yield passes, (handle.pointer, *passes.data(self._schedule).pointers, workspace)

    def _passes(self, handle: Handle, states: int | None, seed: int | None = None) -> Passes:
        """Return what runs it; where it drops it is this call's own, on states as they are, or written from a seed."""
        runtime, spec = self._runtime, self._spec
        if not self._drops:
            return runtime.passes(handle, spec, self._schedule, training=self._training, dropout=None)
        descriptor = DropoutDescriptor(
            handle,
            spec.dropout,
            None,
            address=states or 0,
            states_nbytes=self.states_nbytes if states else 0,
            seed=seed or 0,
            restore=states is not None and seed is None,
        )
        return Passes(handle, runtime.device, spec, self._schedule, training=True, dropout=descriptor)


def write_states(runtime: Runtime, stream: int, states: int, seed: int) -> None:
    """Write dropout states from a seed, for which cuDNN itself may wait; no probability is kept in them."""
    device = runtime.device
    with device.active():
        handle = runtime.handle_on(device.stream_at(stream))
        nbytes = states_nbytes(handle)
        DropoutDescriptor(handle, 0.0, None, address=states, states_nbytes=nbytes, seed=seed).close()


def _check_params(name: str, address: int) -> None:
    if address % PARAMS_ALIGNMENT_NBYTES:
        raise ArgumentError(name, f"memory aligned to {PARAMS_ALIGNMENT_NBYTES} bytes", hex(address))
