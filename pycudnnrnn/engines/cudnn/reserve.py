"""What a forward on cuDNN leaves for its backward."""

from __future__ import annotations

import dataclasses
from typing import Any

from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.cudnn.parts import Part
from pycudnnrnn.engines.cudnn.passes import DataDescriptors, Passes
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec


@dataclasses.dataclass
class Piece:
    """One native forward: what its backward reads again. `part`: its place in the batch; None where it is all of it."""

    passes: Passes
    schedule: Schedule
    x: Any
    hx: Any | None
    cx: Any | None
    y: Any
    space: Any | None
    part: Part | None = None

    def data(self) -> DataDescriptors:
        """Descriptors of its data, in this thread."""
        return self.passes.data(self.schedule)


@dataclasses.dataclass
class CudnnReserve:
    """What a forward leaves for its backward, and what must live until its kernels are done.

    `touched`: a backward has begun to rewrite it. One that failed before that left it as it was.
    """

    spec: RNNSpec
    schedule: Schedule
    params: Any
    pieces: list[Piece]
    stream: Any
    device: CudaDevice
    touched: bool = False

    @property
    def whole(self) -> bool:
        """Whether one native call took the batch as it stands."""
        return len(self.pieces) == 1 and self.pieces[0].part is None

    @property
    def workspace_nbytes(self) -> int:
        """What the calls of a backward need, one after the other."""
        return max((piece.passes.workspace_nbytes for piece in self.pieces), default=0)

    def copy(self) -> CudnnReserve:
        with self.device.active():
            copies = [
                dataclasses.replace(piece, space=None if piece.space is None else self.device.copy(piece.space))
                for piece in self.pieces
            ]
        return dataclasses.replace(self, pieces=copies)
