"""Runs on cuDNN that keep states now and then, and run each chunk of time again inside backward.

A chunk is a batch with carried states, in training mode both times, so that its second run gives what the first gave.
With dropout the random states are kept beside the others: masks cannot be computed from a position.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from pycudnnrnn.engines import DropoutState, Engine
from pycudnnrnn.engines.cudnn.device import started
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.native import Native
from pycudnnrnn.engines.cudnn.parts import Part
from pycudnnrnn.schedule import Chunk, Schedule
from pycudnnrnn.spec import RNNSpec


@dataclasses.dataclass(frozen=True)
class Start:
    """Where a chunk starts from: the states of its sequences, and dropout's random states."""

    part: Part
    h: Any
    c: Any | None
    random: Any | None


@dataclasses.dataclass
class RecomputeReserve:
    """What such a forward leaves for its backward; `gradient`, of params, is there once that is done."""

    spec: RNNSpec
    schedule: Schedule
    params: Any
    x: Any
    starts: list[Start]
    seed: int
    stream: Any
    gradient: Any | None = None
    touched: bool = False
    """Whether a backward has used it up; one that failed on the way left it as it was."""

    def copy(self) -> RecomputeReserve:
        return dataclasses.replace(self, gradient=None)


def forward(
    engine: Engine,
    native: Native,
    spec: RNNSpec,
    schedule: Schedule,
    chunks: list[Chunk],
    params: Any,
    x: Any,
    hx: Any | None,
    cx: Any | None,
    *,
    dropout: CudnnDropout | None,
) -> tuple[Any, Any, Any | None, RecomputeReserve]:
    """Run chunk by chunk, keeping where each starts; see `engines.Engine.forward`."""
    device, dtype = native.device, spec.dtype.numpy
    states = (spec.num_pseudo_layers, schedule.B)
    lock = contextlib.nullcontext() if dropout is None else dropout.lock
    with native.launching("a forward that recomputes, which takes memory") as (_, stream), lock:
        y = device.zeros(schedule.data_shape(spec.output_size), dtype)
        h = started(device, hx, (*states, spec.state_size), dtype)
        c = started(device, cx, (*states, spec.num_units), dtype) if spec.has_cell_state else None
        position = 0 if dropout is None else dropout.position
        starts = []
        for chunk in chunks:
            part = native.part(schedule, chunk, stream)
            random = None if dropout is None else dropout.snapshot(stream)
            start = Start(part, part.cut_states(h), part.cut_states(c), random)
            y_part, hy, cy, _ = engine.forward(
                spec, part.schedule, params, part.cut(x), start.h, start.c, dropout=dropout, keep_reserve=True
            )
            part.put(y, y_part)
            part.put_states(h, hy)
            part.put_states(c, cy)
            starts.append(start)
        if dropout is not None:
            dropout.position = position + 1  # the chunks are one forward
    seed = 0 if dropout is None else dropout.seed
    return y, h, c, RecomputeReserve(spec, schedule, params, x, starts, seed, stream)


def backward_data(
    engine: Engine, native: Native, reserve: RecomputeReserve, dy: Any | None, dhy: Any | None, dcy: Any | None
) -> tuple[Any, Any, Any | None]:
    """Run each chunk again and go back through it, weights too; see `engines.Engine.backward_data`."""
    spec, schedule = reserve.spec, reserve.schedule
    device, dtype = native.device, spec.dtype.numpy
    states = (spec.num_pseudo_layers, schedule.B)
    with native.following(reserve.stream) as handle:
        random = reserve.starts[0].random
        dropout = None
        if random is not None:
            # One of its own: the model's dropout stays where the forward left it.
            state = DropoutState("cudnn", reserve.seed)
            dropout = CudnnDropout(handle, device, spec, state, states=device.copy(random))
        dx = device.zeros(schedule.data_shape(spec.input_size), dtype)
        dh = started(device, dhy, (*states, spec.state_size), dtype)
        dc = started(device, dcy, (*states, spec.num_units), dtype) if spec.has_cell_state else None
        gradient = device.zeros(reserve.params.shape, dtype)
        for start in reversed(reserve.starts):
            part = start.part
            if dropout is not None:
                dropout.rewind(start.random)
            *_, again = engine.forward(
                spec, part.schedule, reserve.params, part.cut(reserve.x), start.h, start.c,
                dropout=dropout, keep_reserve=True,
            )  # fmt: skip
            dy_part = None if dy is None else part.cut(dy)
            dx_part, dhx_part, dcx_part = engine.backward_data(again, dy_part, part.cut_states(dh), part.cut_states(dc))
            engine.backward_weights(again, gradient, accumulate=True)
            part.put(dx, dx_part)
            part.put_states(dh, dhx_part)
            part.put_states(dc, dcx_part)
        reserve.gradient, reserve.touched = gradient, True
    return dx, dh, dc


def backward_weights(native: Native, reserve: RecomputeReserve, out: Any, *, accumulate: bool) -> None:
    """Hand over what backward-data has summed; see `engines.Engine.backward_weights`."""
    with native.following(reserve.stream):
        write = native.device.add_into if accumulate else native.device.copy_into
        write(out, reserve.gradient)
