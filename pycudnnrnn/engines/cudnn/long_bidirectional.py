"""Bidirectional runs in more than one chunk of time: each direction of each layer by itself.

The backward direction starts at a sequence's end, so that time cannot be cut across both directions at once. As one
direction of one layer it is a forward run on reversed sequences, and that can be cut. Params are repacked for it, once
per call.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pycudnnrnn.engines import Reserve, Results
from pycudnnrnn.engines.cudnn.runtime import Run, Runtime
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import Arrays, CallConfig, shapes
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Direction, InputMode, RNNSpec


@dataclasses.dataclass
class LongReserve:
    """The reserves of the parts, pseudo-layer by pseudo-layer."""

    run: Run
    runtime: Runtime
    spec: RNNSpec
    schedule: Schedule
    parts: list[Reserve]

    @property
    def touched(self) -> bool:
        return any(part.touched for part in self.parts)

    def copy(self) -> LongReserve:
        return dataclasses.replace(self, parts=[part.copy() for part in self.parts])

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> tuple[Any, Any, Any | None]:
        """Go back through every pseudo-layer."""
        device, spec, schedule = self.runtime.device, self.spec, self.schedule
        with device.active():
            dhx, dcx = _states(self.runtime, spec, schedule)
            for layer in reversed(range(spec.num_layers)):
                below = None
                for direction in range(2):
                    p = 2 * layer + direction
                    own = None if dy is None else device.copy(_half(dy, spec, direction))
                    reversed_x = None if own is None else _reversed_in_time(self.runtime, schedule, own, direction)
                    given = (None if s is None else device.copy(s[p : p + 1]) for s in (dhy, dcy))
                    dx, dh, dc = self.parts[p].backward_data(reversed_x, *given)
                    device.copy_into(dhx[p : p + 1], dh)
                    if dcx is not None:
                        device.copy_into(dcx[p : p + 1], dc)
                    dx = _reversed_in_time(self.runtime, schedule, dx, direction)
                    below = dx if below is None else device.add_into(below, dx)
                dy = below
            return dy, dhx, dcx

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        """Collect every pseudo-layer's gradient."""
        runtime, device, spec = self.runtime, self.runtime.device, self.spec
        with device.active():
            gradients = []
            for p, part in enumerate(self.parts):
                layout = runtime.layout(one_direction(spec, p // 2))
                gradient = device.empty((layout.size,), spec.dtype.numpy)
                part.backward_weights(gradient, accumulate=False)
                gradients.append((p, layout, gradient))
            if not accumulate:  # here and not before: what fails above leaves `out` as it was
                device.fill_zero(out)
            for p, layout, gradient in gradients:
                for theirs, ours in _matching(runtime.layout(spec), layout, p):
                    device.add_into(out[theirs], gradient[ours])


def forward(run: Run, runtime: Runtime, config: CallConfig, inputs: Arrays) -> Results:
    """Run every pseudo-layer by itself; see `engines.Engine.forward`."""
    x, states = inputs["x"], (inputs["hx"], inputs["cx"])
    device, spec, schedule = runtime.device, *config[:2]
    with device.active():
        hy, cy = _states(runtime, spec, schedule)
        reserve = LongReserve(run, runtime, spec, schedule, [])
        for layer in range(spec.num_layers):
            part = config._replace(spec=one_direction(spec, layer))
            y = device.empty((*x.shape[:2], spec.output_size), spec.dtype.numpy)
            for direction in range(2):
                p = 2 * layer + direction
                own = _repacked(runtime, spec, part.spec, p, inputs["params"])
                h, c = (None if s is None else device.copy(s[p : p + 1]) for s in states)
                reversed_x = _reversed_in_time(runtime, schedule, x, direction)
                given = {"params": own, "x": reversed_x, "hx": h, "cx": c}
                out, h, c, kept = run(part, given)
                device.copy_into(_half(y, spec, direction), _reversed_in_time(runtime, schedule, out, direction))
                device.copy_into(hy[p : p + 1], h)
                if cy is not None:
                    device.copy_into(cy[p : p + 1], c)
                reserve.parts.append(kept)
            x = y
        return x, hy, cy, reserve if config.keep_reserve else None


def _states(runtime: Runtime, spec: RNNSpec, schedule: Schedule) -> tuple[Any, Any | None]:
    wanted, dtype = shapes(spec, schedule.data_axes, schedule.B), spec.dtype.numpy
    h, c = (None if shape is None else runtime.device.empty(shape, dtype) for shape in (wanted["hx"], wanted["cx"]))
    return h, c


def one_direction(spec: RNNSpec, layer: int) -> RNNSpec:
    """One direction of one layer."""
    return spec.replace(
        num_layers=1,
        input_size=spec.layer_input_size(layer),
        input_mode=spec.input_mode if layer == 0 else InputMode.LINEAR_INPUT,
        direction=Direction.UNIDIRECTIONAL,
        dropout=0.0,
        seed=0,
    )


def _repacked(runtime: Runtime, spec: RNNSpec, part: RNNSpec, pseudo_layer: int, params: Any) -> Any:
    """A pseudo-layer's params in the layout of the RNN that it is by itself."""
    layout = runtime.layout(part)
    device = runtime.device
    own = device.zeros((layout.size,), spec.dtype.numpy)
    for theirs, ours in _matching(runtime.layout(spec), layout, pseudo_layer):
        device.copy_into(own[ours], params[theirs])
    return own


def _matching(whole: ParamLayout, part: ParamLayout, pseudo_layer: int) -> list[tuple[slice, slice]]:
    return [
        (whole.region(pseudo_layer, region.lin_layer_id, region.kind).slice, region.slice)
        for region in part.regions
        if region.size
    ]


def _half(data: Any, spec: RNNSpec, direction: int) -> Any:
    return data[..., direction * spec.state_size : (direction + 1) * spec.state_size]


def _reversed_in_time(runtime: Runtime, schedule: Schedule, data: Any, direction: int) -> Any:
    """Reverse each sequence for the backward direction."""
    return runtime.reversed_in_time(schedule, data) if direction else data
