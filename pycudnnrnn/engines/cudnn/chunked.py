"""A batch that takes several native calls: chunk by chunk through time, on the sequences that are still running.

All memory is taken before the first launch, so that running out of it changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.parts import Part
from pycudnnrnn.engines.cudnn.plan import Plan
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Piece


@dataclasses.dataclass
class ForwardPart:
    """A chunk's forward, with the memory for it."""

    part: Part
    piece: Piece
    hy: Any
    cy: Any | None


def prepare_forward(
    plans: Sequence[tuple[Plan, Part, Any | None]], x: Any, y: Any, h: Any, c: Any | None
) -> list[ForwardPart]:
    """Take the memory for all chunks, each given with its plan and its reserve."""
    return [
        ForwardPart(
            part,
            Piece(plan, part.buffer(x), part.state_buffer(h), part.state_buffer(c), part.buffer(y), space, part),
            part.state_buffer(h),
            part.state_buffer(c),
        )
        for plan, part, space in plans
    ]


def run_forward(
    handle: Handle,
    parts: Sequence[ForwardPart],
    params: Any,
    x: Any,
    y: Any,
    h: Any,
    c: Any | None,
    workspace: Any | None,
) -> None:
    """Run the chunks one after another from the states in `h` and `c`; leave theirs there, and their output in `y`."""
    for forward in parts:
        part, piece = forward.part, forward.piece
        part.cut(x, piece.x)
        part.cut_states(h, piece.hx)
        part.cut_states(c, piece.cx)
        piece.plan.forward(
            handle, params, piece.x, piece.hx, piece.cx, piece.y, forward.hy, forward.cy, workspace, piece.space
        )
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


def prepare_backward(reserve: CudnnReserve, dy: Any, dx: Any, dh: Any, dc: Any | None) -> list[BackwardPart]:
    """Take the memory for all chunks, the last one first."""
    return [
        BackwardPart(
            part,
            piece,
            part.buffer(dy),
            part.buffer(dx),
            part.state_buffer(dh),
            part.state_buffer(dh),
            part.state_buffer(dc),
            part.state_buffer(dc),
        )
        for piece in reversed(reserve.pieces)
        if (part := piece.part) is not None
    ]


def run_backward(
    handle: Handle,
    params: Any,
    parts: Sequence[BackwardPart],
    dy: Any,
    dx: Any,
    dh: Any,
    dc: Any | None,
    workspace: Any | None,
) -> None:
    """Go back through the chunks, from the state gradients in `dh` and `dc` to those before the batch."""
    for back in parts:
        part, piece = back.part, back.piece
        part.cut(dy, back.dy)
        part.cut_states(dh, back.dhy)
        part.cut_states(dc, back.dcy)
        piece.plan.backward_data(
            handle, params, piece.y, back.dy, piece.hx, back.dhy, back.dhx, piece.cx, back.dcy, back.dcx,
            back.dx, workspace, piece.space,
        )  # fmt: skip
        part.put(dx, back.dx)
        part.put_states(dh, back.dhx)
        part.put_states(dc, back.dcx)
