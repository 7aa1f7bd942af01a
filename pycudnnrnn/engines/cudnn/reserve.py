"""What a forward on cuDNN leaves for its backward, and the way back through it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

from pycudnnrnn.engines.cudnn.checks import aligned, check_array
from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.passes import DataDescriptors, Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

Gradients = tuple[Any, Any, Any | None]
"""dx, dhx and dcx."""


@dataclasses.dataclass
class Piece:
    """One native forward: what its backward reads again."""

    passes: Passes
    schedule: Schedule
    x: Any
    hx: Any | None
    cx: Any | None
    y: Any
    space: Any | None

    def data(self) -> DataDescriptors:
        """Descriptors of its data, in this thread."""
        return self.passes.data(self.schedule)


PieceT = TypeVar("PieceT", bound=Piece)


@dataclasses.dataclass
class CudnnReserve(Generic[PieceT]):
    """What a forward leaves for its backward, and what must live until its kernels are done: of one native call.

    `streams`: those that its memory is from, the forward's first. `touched`: a backward has begun to rewrite it. One
    that failed before that left it as it was.
    """

    runtime: Runtime
    spec: RNNSpec
    schedule: Schedule
    params: Any
    pieces: Sequence[PieceT]
    streams: tuple[Any, ...]
    touched: bool = False

    def copy(self) -> Self:
        device = self.runtime.device
        with self.runtime.following(self.streams):
            copies = [
                dataclasses.replace(piece, space=None if piece.space is None else device.copy(piece.space))
                for piece in self.pieces
            ]
            return dataclasses.replace(self, pieces=copies, streams=(*self.streams, device.stream()))

    def workspace(self) -> Any | None:
        """Return scratch memory for the calls, which come one after the other."""
        return scratch(self.runtime.device, max((piece.passes.workspace_nbytes for piece in self.pieces), default=0))

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> Gradients:
        device, spec, schedule = self.runtime.device, self.spec, self.schedule
        dtype, states = spec.dtype.numpy, (spec.num_pseudo_layers, schedule.B)
        for name, array in (("d_output", dy), ("d_output_h", dhy), ("d_output_c", dcy)):
            check_array(name, array, device)
        with self.runtime.following(self.streams) as handle:
            dy, dhy, dcy = aligned(device, dy, dhy, dcy)
            dy = device.zeros(schedule.data_shape(spec.output_size), dtype) if dy is None else dy
            dhy = device.zeros((*states, spec.state_size), dtype) if dhy is None else dhy
            if spec.has_cell_state and dcy is None:
                dcy = device.zeros((*states, spec.num_units), dtype)
            return self._back(handle, dy, dhy, dcy, self.workspace())

    def _back(self, handle: Handle, dy: Any, dhy: Any, dcy: Any | None, workspace: Any | None) -> Gradients:
        (piece,) = self.pieces
        passes, device, dtype = piece.passes, self.runtime.device, self.spec.dtype.numpy
        dx, dhx = device.empty(passes.x_shape, dtype), device.empty(passes.h_shape, dtype)
        dcx = None if passes.c_shape is None else device.empty(passes.c_shape, dtype)
        self.touched = True
        passes.backward_data(
            handle, piece.data(), self.params, piece.y, dy, piece.hx, dhy, dhx, piece.cx, dcy, dcx, dx, workspace,
            piece.space,
        )  # fmt: skip
        return dx, dhx, dcx

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        with self.runtime.following(self.streams) as handle:
            workspace = self.workspace()
            if not accumulate:
                self.runtime.device.fill_zero(out)
            for piece in self.pieces:
                piece.passes.backward_weights(
                    handle, piece.data(), piece.x, piece.hx, piece.y, out, workspace, piece.space
                )
