"""A batch that takes several native calls: chunk by chunk through time, on the sequences that are still running.

All memory is taken before the first launch, so that running out of it changes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from pycudnnrnn.engines.cudnn.device import CudaDevice, scratch, started
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.parts import Part
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Piece
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.schedule import Chunk, Schedule
from pycudnnrnn.spec import RNNSpec


def forward(
    runtime: Runtime,
    spec: RNNSpec,
    schedule: Schedule,
    chunks: Sequence[Chunk],
    params: Any,
    x: Any,
    hx: Any | None,
    cx: Any | None,
    *,
    dropout: CudnnDropout | None,
    keep_reserve: bool,
) -> tuple[Any, Any, Any | None, CudnnReserve | None]:
    """Run the chunks; "auto" runs the standard algorithm, and nothing is tuned. See `engines.Engine.forward`."""
    device, dtype, states = runtime.device, spec.dtype.numpy, (spec.num_pseudo_layers, schedule.B)
    training = keep_reserve or dropout is not None
    with runtime.launching("a batch in parts, which takes memory") as (handle, stream):
        parts = [runtime.part(schedule, chunk, stream) for chunk in chunks]
        passes = [runtime.passes(handle, spec, p.schedule, training=training, dropout=dropout) for p in parts]
        y = device.zeros(schedule.data_shape(spec.output_size), dtype)
        h = started(device, hx, (*states, spec.state_size), dtype)
        c = started(device, cx, (*states, spec.num_units), dtype) if spec.has_cell_state else None
        workspace = scratch(device, max((own.workspace_nbytes for own in passes), default=0))
        forwards = [_prepare_forward(device, part, own, x, y, h, c) for part, own in zip(parts, passes, strict=True)]
        with contextlib.nullcontext() if dropout is None else dropout.forward_on(stream):
            _run_forward(handle, forwards, params, x, y, h, c, workspace)
        if not keep_reserve:
            return y, h, c, None
        return y, h, c, CudnnReserve(spec, schedule, params, [forward.piece for forward in forwards], stream, device)


def backward_data(
    device: CudaDevice, handle: Handle, reserve: CudnnReserve, dy: Any, dhy: Any, dcy: Any | None, workspace: Any | None
) -> tuple[Any, Any, Any | None]:
    """Go back through the chunks; see `engines.Engine.backward_data`."""
    spec = reserve.spec
    dx = device.zeros(reserve.schedule.data_shape(spec.input_size), spec.dtype.numpy)
    dh, dc = device.copy(dhy), None if dcy is None else device.copy(dcy)
    parts = _prepare_backward(reserve, dy, dx, dh, dc)
    reserve.touched = True
    _run_backward(handle, reserve.params, parts, dy, dx, dh, dc, workspace)
    return dx, dh, dc


@dataclasses.dataclass
class ForwardPart:
    """A chunk's forward, with the memory for it."""

    part: Part
    piece: Piece
    hy: Any
    cy: Any | None


def _prepare_forward(
    device: CudaDevice, part: Part, passes: Passes, x: Any, y: Any, h: Any, c: Any | None
) -> ForwardPart:
    """Take the memory for a chunk."""
    arrays = part.buffer(x), part.state_buffer(h), part.state_buffer(c), part.buffer(y)
    piece = Piece(passes, part.schedule, *arrays, scratch(device, passes.reserve_nbytes), part)
    return ForwardPart(part, piece, part.state_buffer(h), part.state_buffer(c))


def _run_forward(
    handle: Handle, parts: Sequence[ForwardPart], params: Any, x: Any, y: Any, h: Any, c: Any | None, workspace: Any
) -> None:
    """Run the chunks one after another from the states in `h` and `c`; leave theirs there, and their output in `y`."""
    for forward in parts:
        part, piece = forward.part, forward.piece
        part.cut(x, piece.x)
        part.cut_states(h, piece.hx)
        part.cut_states(c, piece.cx)
        piece.passes.forward(
            handle, piece.data(), params, piece.x, piece.hx, piece.cx, piece.y, forward.hy, forward.cy,
            workspace, piece.space,
        )  # fmt: skip
        part.put(y, piece.y)
        part.put_states(h, forward.hy)
        part.put_states(c, forward.cy)


@dataclasses.dataclass
class BackwardPart:
    """A chunk's way back, with the memory for it."""

    part: Part
    piece: Piece
    dy: Any
    dx: Any
    dhy: Any
    dhx: Any
    dcy: Any | None
    dcx: Any | None


def _prepare_backward(reserve: CudnnReserve, dy: Any, dx: Any, dh: Any, dc: Any | None) -> list[BackwardPart]:
    """Take the memory for all chunks, the last one first."""
    h, c = (dh, dh), (dc, dc)  # the gradients that come, and those that are left
    return [
        BackwardPart(part, piece, part.buffer(dy), part.buffer(dx), *map(part.state_buffer, (*h, *c)))
        for piece in reversed(reserve.pieces)
        if (part := piece.part) is not None
    ]


def _run_backward(
    handle: Handle,
    params: Any,
    parts: Sequence[BackwardPart],
    dy: Any,
    dx: Any,
    dh: Any,
    dc: Any | None,
    workspace: Any,
) -> None:
    """Go back through the chunks, from the state gradients in `dh` and `dc` to those before the batch."""
    for back in parts:
        part, piece = back.part, back.piece
        part.cut(dy, back.dy)
        part.cut_states(dh, back.dhy)
        part.cut_states(dc, back.dcy)
        if piece.passes.ragged:
            piece.passes.device.fill_zero(back.dx)
        piece.passes.backward_data(
            handle, piece.data(), params, piece.y, back.dy, piece.hx, back.dhy, back.dhx, piece.cx, back.dcy, back.dcx,
            back.dx, workspace, piece.space,
        )  # fmt: skip
        part.put(dx, back.dx)
        part.put_states(dh, back.dhx)
        part.put_states(dc, back.dcx)
