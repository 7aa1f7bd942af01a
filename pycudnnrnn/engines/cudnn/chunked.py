"""A batch that takes several native calls: chunk by chunk through time, on the sequences that are still running.

All memory is taken before the first launch, so that running out of it changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.parts import batch_axis, window
from pycudnnrnn.engines.cudnn.plan import Plan
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Piece
from pycudnnrnn.schedule import Chunk, Schedule


@dataclasses.dataclass
class ForwardPart:
    """A chunk's forward, with the memory for it."""

    piece: Piece
    hy: Any
    cy: Any | None


def prepare_forward(
    device: CudaDevice,
    schedule: Schedule,
    plans: Sequence[tuple[Plan, Chunk, Any | None]],
    x: Any,
    y: Any,
    h: Any,
    c: Any | None,
) -> list[ForwardPart]:
    """Take the memory for all chunks, each given with its plan and its reserve."""
    return [
        ForwardPart(
            Piece(
                plan,
                chunk,
                _buffer(device, schedule, chunk, x),
                _states(device, chunk, h),
                None if c is None else _states(device, chunk, c),
                _buffer(device, schedule, chunk, y),
                space,
                None if chunk.rows is None else device.from_host(np.array(chunk.rows)),
            ),
            _states(device, chunk, h),
            None if c is None else _states(device, chunk, c),
        )
        for plan, chunk, space in plans
    ]


def run_forward(
    device: CudaDevice,
    handle: Handle,
    schedule: Schedule,
    parts: Sequence[ForwardPart],
    params: Any,
    x: Any,
    y: Any,
    h: Any,
    c: Any | None,
    workspace: Any | None,
) -> None:
    """Run the chunks one after another from the states in `h` and `c`; leave theirs there, and their output in `y`."""
    for part in parts:
        piece = part.piece
        _gather(device, window(schedule, piece.chunk, x), piece.rows, batch_axis(schedule), piece.x)
        _gather(device, h, piece.rows, 1, piece.hx)
        _gather(device, c, piece.rows, 1, piece.cx)
        piece.plan.forward(
            handle, params, piece.x, piece.hx, piece.cx, piece.y, part.hy, part.cy, workspace, piece.space
        )
        _scatter(device, window(schedule, piece.chunk, y), piece.rows, batch_axis(schedule), piece.y)
        _scatter(device, h, piece.rows, 1, part.hy)
        _scatter(device, c, piece.rows, 1, part.cy)


@dataclasses.dataclass
class BackwardPart:
    """A chunk's way back, with the memory for it."""

    piece: Piece
    dy: Any
    dx: Any
    dhy: Any
    dhx: Any
    dcy: Any | None
    dcx: Any | None


def prepare_backward(
    device: CudaDevice, reserve: CudnnReserve, dy: Any, dx: Any, dh: Any, dc: Any | None
) -> list[BackwardPart]:
    """Take the memory for all chunks, the last one first."""
    schedule = reserve.schedule
    return [
        BackwardPart(
            piece,
            _buffer(device, schedule, piece.chunk, dy),
            _buffer(device, schedule, piece.chunk, dx),
            _states(device, piece.chunk, dh),
            _states(device, piece.chunk, dh),
            None if dc is None else _states(device, piece.chunk, dc),
            None if dc is None else _states(device, piece.chunk, dc),
        )
        for piece in reversed(reserve.pieces)
    ]


def run_backward(
    device: CudaDevice,
    handle: Handle,
    reserve: CudnnReserve,
    parts: Sequence[BackwardPart],
    dy: Any,
    dx: Any,
    dh: Any,
    dc: Any | None,
    workspace: Any | None,
) -> None:
    """Go back through the chunks, from the state gradients in `dh` and `dc` to those before the batch."""
    schedule = reserve.schedule
    axis = batch_axis(schedule)
    for part in parts:
        piece = part.piece
        _gather(device, window(schedule, piece.chunk, dy), piece.rows, axis, part.dy)
        _gather(device, dh, piece.rows, 1, part.dhy)
        _gather(device, dc, piece.rows, 1, part.dcy)
        piece.plan.backward_data(
            handle, reserve.params, piece.y, part.dy, piece.hx, part.dhy, part.dhx, piece.cx, part.dcy, part.dcx,
            part.dx, workspace, piece.space,
        )  # fmt: skip
        _scatter(device, window(schedule, piece.chunk, dx), piece.rows, axis, part.dx)
        _scatter(device, dh, piece.rows, 1, part.dhx)
        _scatter(device, dc, piece.rows, 1, part.dcx)


def _buffer(device: CudaDevice, schedule: Schedule, chunk: Chunk, data: Any) -> Any:
    """Where a chunk's part of a padded array goes: the array itself, if the part is contiguous in it."""
    steps = window(schedule, chunk, data)
    if chunk.rows is None and steps.flags.c_contiguous:
        return steps
    return device.empty(chunk.within(schedule).data_shape(data.shape[2]), data.dtype)


def _states(device: CudaDevice, chunk: Chunk, states: Any) -> Any:
    batch = states.shape[1] if chunk.rows is None else len(chunk.rows)
    return device.empty((states.shape[0], batch, states.shape[2]), states.dtype)


def _gather(device: CudaDevice, source: Any, rows: Any | None, axis: int, target: Any) -> None:
    """Copy some rows, or all, into memory of their own; nothing where that is the same memory."""
    if source is None or device.address(source) == device.address(target):
        return
    if rows is None:
        device.copy_into(target, source)
    else:
        device.take(source, rows, axis, target)


def _scatter(device: CudaDevice, target: Any, rows: Any | None, axis: int, values: Any) -> None:
    if target is None or device.address(target) == device.address(values):
        return
    if rows is None:
        device.copy_into(target, values)
    else:
        device.put(target, rows, axis, values)
