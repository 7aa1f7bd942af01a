"""Runs on cuDNN that keep states now and then, and run each chunk of time again inside backward.

A chunk is a batch with carried states, in training mode both times, so that its second run gives what the first gave.
With dropout the random states are kept beside the others: masks cannot be computed from a position.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from pycudnnrnn.engines import DropoutState, Results
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.parts import Part, states_to_work_on
from pycudnnrnn.engines.cudnn.runtime import Run, Runtime
from pycudnnrnn.passes import Arrays, CallConfig
from pycudnnrnn.schedule import Chunk


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

    run: Run
    runtime: Runtime
    config: CallConfig
    params: Any
    x: Any
    starts: list[Start]
    seed: int
    streams: tuple[Any, ...]
    gradient: Any | None = None
    touched: bool = False
    """Whether a backward has used it up; one that failed on the way left it as it was."""

    def copy(self) -> RecomputeReserve:
        return dataclasses.replace(self, gradient=None)

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> tuple[Any, Any, Any | None]:
        """Run each chunk again and go back through it, weights too."""
        device, spec, schedule = self.runtime.device, *self.config[:2]
        with self.runtime.following(self.streams) as handle:
            random, dropout = self.starts[0].random, None
            if random is not None:
                # One of its own: the model's dropout stays where the forward left it.
                state = DropoutState("cudnn", self.seed)
                dropout = CudnnDropout(handle, device, spec, state, states=device.copy(random))
            dx = device.zeros(schedule.data_shape(spec.input_size), spec.dtype.numpy)
            dh, dc = states_to_work_on(device, spec, schedule, dhy, dcy)
            gradient = device.zeros(self.params.shape, spec.dtype.numpy)
            for start in reversed(self.starts):
                part = start.part
                if dropout is not None:
                    dropout.rewind(start.random)
                config = CallConfig(spec, part.schedule, keep_reserve=True, dropout=dropout)
                *_, again = self.run(
                    config, {"params": self.params, "x": part.cut(self.x), "hx": start.h, "cx": start.c}
                )
                dy_part = None if dy is None else part.cut(dy)
                dx_part, dhx_part, dcx_part = again.backward_data(dy_part, part.cut_states(dh), part.cut_states(dc))
                again.backward_weights(gradient, accumulate=True)
                part.put(dx, dx_part)
                part.put_states(dh, dhx_part)
                part.put_states(dc, dcx_part)
            self.gradient, self.touched, self.streams = gradient, True, (*self.streams, device.stream())
        return dx, dh, dc

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        """Hand over what backward-data has summed."""
        device = self.runtime.device
        with self.runtime.following(self.streams):
            write = device.add_into if accumulate else device.copy_into
            write(out, self.gradient)


def forward(run: Run, runtime: Runtime, config: CallConfig, chunks: Sequence[Chunk], inputs: Arrays) -> Results:
    """Run chunk by chunk, keeping where each starts; see `engines.Engine.forward`."""
    x = inputs["x"]
    device, spec, schedule, dropout = runtime.device, *config[:2], config.dropout
    with (
        runtime.launching("a forward that recomputes, which takes memory") as (_, stream),
        contextlib.nullcontext() if dropout is None else dropout.as_one(stream),
    ):
        y = device.zeros(schedule.data_shape(spec.output_size), spec.dtype.numpy)
        h, c = states_to_work_on(device, spec, schedule, inputs["hx"], inputs["cx"])
        starts = []
        for chunk in chunks:
            part = runtime.part(schedule, chunk, stream)
            random = None if dropout is None else dropout.snapshot(stream)
            start = Start(part, part.cut_states(h), part.cut_states(c), random)
            one = config._replace(schedule=part.schedule, checkpoint_every=None)
            y_part, hy, cy, _ = run(one, inputs | {"x": part.cut(x), "hx": start.h, "cx": start.c})
            part.put(y, y_part)
            part.put_states(h, hy)
            part.put_states(c, cy)
            starts.append(start)
    seed = 0 if dropout is None else dropout.seed
    return y, h, c, RecomputeReserve(run, runtime, config, inputs["params"], x, starts, seed, (stream,))
