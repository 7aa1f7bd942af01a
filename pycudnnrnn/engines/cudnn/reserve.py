"""What a forward on cuDNN leaves for its backward, and the way back through it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.native_calls import NativeCalls
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, UPSTREAM, Arrays, Pass, shapes
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

Gradients = tuple[Any, Any, Any | None]
"""dx, dhx and dcx."""


@dataclasses.dataclass
class Piece:
    """One native forward, and the arrays that its backward reads again."""

    passes: NativeCalls
    schedule: Schedule
    arrays: Arrays

    def run(self, which: Pass, handle: Handle, workspace: Any | None, arrays: Arrays) -> None:
        data = self.passes.data(handle, self.schedule)
        self.passes.run(which, handle, data, workspace, self.arrays | arrays)


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
    pieces: Sequence[PieceT]
    streams: tuple[Any, ...]
    touched: bool = False

    def copy(self) -> Self:
        device = self.runtime.device
        with self.runtime.following(self.streams):
            spaces = [piece.arrays["reserve"] for piece in self.pieces]
            copies = [
                dataclasses.replace(piece, arrays=piece.arrays | {"reserve": None if s is None else device.copy(s)})
                for piece, s in zip(self.pieces, spaces, strict=True)
            ]
            return dataclasses.replace(self, pieces=copies, streams=(*self.streams, device.stream()))

    def workspace(self) -> Any | None:
        """Return scratch memory for the calls, which come one after the other."""
        return scratch(self.runtime.device, max((piece.passes.workspace_nbytes for piece in self.pieces), default=0))

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> Gradients:
        device, spec, schedule = self.runtime.device, self.spec, self.schedule
        with self.runtime.following(self.streams) as handle:
            given = dict(zip(UPSTREAM, (dy, dhy, dcy), strict=True))
            for name, shape in shapes(spec, schedule.data_axes, schedule.B).items():
                if name in given and given[name] is None and shape is not None:
                    given[name] = device.zeros(shape, spec.dtype.numpy)
            return self._back(handle, given, self.workspace())

    def _back(self, handle: Handle, given: Arrays, workspace: Any | None) -> Gradients:
        (piece,) = self.pieces
        found = piece.passes.new("dx", "dhx", "dcx")
        self.touched = True
        piece.run(BACKWARD_DATA, handle, workspace, given | found)
        return found["dx"], found["dhx"], found.get("dcx")

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        with self.runtime.following(self.streams) as handle:
            workspace = self.workspace()
            if not accumulate:
                self.runtime.device.fill_zero(out)
            for piece in self.pieces:
                piece.run(BACKWARD_WEIGHTS, handle, workspace, {"d_params": out})
