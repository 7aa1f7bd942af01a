"""A batch that takes several native calls: chunk by chunk through time, on the sequences that are still running.

All memory is taken before the first launch, so that running out of it changes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from pycudnnrnn.engines.cudnn.device import scratch, started
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.parts import Part
from pycudnnrnn.engines.cudnn.passes import Inputs
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Gradients, Piece
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.schedule import Chunk, Schedule
from pycudnnrnn.spec import RNNSpec


def forward(
    runtime: Runtime,
    spec: RNNSpec,
    schedule: Schedule,
    chunks: Sequence[Chunk],
    inputs: Inputs,
    *,
    dropout: CudnnDropout | None,
    keep_reserve: bool,
) -> tuple[Any, Any, Any | None, ChunkedReserve | None]:
    """Run the chunks; "auto" runs the standard algorithm, and nothing is tuned. See `engines.Engine.forward`."""
    params, x, hx, cx = inputs
    device, dtype, states = runtime.device, spec.dtype.numpy, (spec.num_pseudo_layers, schedule.B)
    training = keep_reserve or dropout is not None
    with runtime.launching("a batch in parts, which takes memory") as (handle, stream):
        y = device.zeros(schedule.data_shape(spec.output_size), dtype)
        h = started(device, hx, (*states, spec.state_size), dtype)
        c = started(device, cx, (*states, spec.num_units), dtype) if spec.has_cell_state else None
        pieces, results = [], []
        for chunk in chunks:
            part = runtime.part(schedule, chunk, stream)
            passes = runtime.passes(handle, spec, part.schedule, training=training, dropout=dropout)
            arrays = part.buffer(x), part.state_buffer(h), part.state_buffer(c), part.buffer(y)
            pieces.append(ChunkPiece(passes, part.schedule, *arrays, scratch(device, passes.reserve_nbytes), part))
            results.append((part.state_buffer(h), part.state_buffer(c)))
        reserve = ChunkedReserve(runtime, spec, schedule, params, pieces, (stream,))
        workspace = reserve.workspace()
        with contextlib.nullcontext() if dropout is None else dropout.forward_on(stream):
            for piece, (hy, cy) in zip(pieces, results, strict=True):
                part = piece.part
                part.cut(x, piece.x)
                part.cut_states(h, piece.hx)
                part.cut_states(c, piece.cx)
                piece.passes.forward(
                    handle, piece.data(), params, piece.x, piece.hx, piece.cx, piece.y, hy, cy, workspace, piece.space
                )
                part.put(y, piece.y)
                part.put_states(h, hy)
                part.put_states(c, cy)
        return y, h, c, reserve if keep_reserve else None


@dataclasses.dataclass
class ChunkPiece(Piece):
    """A chunk's forward, and its place in the batch."""

    part: Part


@dataclasses.dataclass
class ChunkedReserve(CudnnReserve[ChunkPiece]):
    """The reserves of the chunks, in time order."""

    def _back(self, handle: Handle, dy: Any, dhy: Any, dcy: Any | None, workspace: Any | None) -> Gradients:
        """Go back through the chunks, from the gradients of the final states to those of the initial ones."""
        device = self.runtime.device
        dx = device.zeros(self.schedule.data_shape(self.spec.input_size), self.spec.dtype.numpy)
        dh, dc = device.copy(dhy), None if dcy is None else device.copy(dcy)
        backwards = [
            (piece, piece.part.buffer(dy), piece.part.buffer(dx), *map(piece.part.state_buffer, (dh, dh, dc, dc)))
            for piece in reversed(self.pieces)
        ]
        self.touched = True
        for piece, dy_part, dx_part, dhy_part, dhx_part, dcy_part, dcx_part in backwards:
            part = piece.part
            part.cut(dy, dy_part)
            part.cut_states(dh, dhy_part)
            part.cut_states(dc, dcy_part)
            piece.passes.backward_data(
                handle, piece.data(), self.params, piece.y, dy_part, piece.hx, dhy_part, dhx_part, piece.cx, dcy_part,
                dcx_part, dx_part, workspace, piece.space,
            )  # fmt: skip
            part.put(dx, dx_part)
            part.put_states(dh, dhx_part)
            part.put_states(dc, dcx_part)
        return dx, dh, dc
