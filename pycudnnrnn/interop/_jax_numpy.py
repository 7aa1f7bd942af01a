"""The NumPy engine on XLA's arrays."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import jax
import numpy as np

from pycudnnrnn._checks import check_int
from pycudnnrnn.engines import POSITION_MAX, Calls, DropoutState
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop._jax_rules import Shapes, Traced, XlaCall, in_place, named, scratch
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, UPSTREAM, Arrays, CallConfig
from pycudnnrnn.schedule import Schedule

_STATES: Final = np.dtype(np.uint64)
"""The dropout states are a seed and a position, as bytes, since JAX may have no 64-bit numbers."""


@dataclasses.dataclass(frozen=True)
class NumpyRunner:
    """The NumPy engine: in the buffers of XLA's CPU, or on copies of any XLA device's buffers."""

    engine: Any
    copies: bool = False

    @property
    def states_nbytes(self) -> int:
        return 2 * _STATES.itemsize

    def states_from(self, seed: int) -> Any:
        return jax.numpy.asarray(np.array([seed, 0], _STATES).view(np.uint8))

    def forward(self, call: Traced, ins: Arrays, *, keep: bool) -> Arrays:
        reserve = {"reserve": scratch(self._plan(call, call.schedule, keep=True).reserve_nbytes)} if keep else {}
        return self._call(call, ins, call.results | reserve, training=keep)

    def backward(self, call: Traced, ins: Arrays, *, weights: bool) -> Arrays:
        read = ("lengths", "params", "x", *UPSTREAM, "reserve")  # the reserve has the part of y that is needed
        outs = call.gradients(weights=weights) | {"reserve": scratch(ins["reserve"].size)}
        return self._call(call, {name: ins[name] for name in read if name in ins}, outs, training=True)

    def _call(self, call: Traced, ins: Arrays, outs: Shapes, *, training: bool) -> Arrays:
        run = XlaCall(call, tuple(ins), tuple(outs), training)
        if not self.copies:
            return in_place(run, ins, outs)
        on_copies = _OnCopies(run, tuple(outs.values()))
        results = jax.pure_callback(on_copies, on_copies.shapes, *ins.values(), vmap_method="sequential")
        return named(outs, results, ins)

    def _plan(self, call: Traced, schedule: Schedule, state: DropoutState | None = None, *, keep: bool) -> Calls:
        drawn = self.engine.dropout(call.spec, state or DropoutState("numpy", call.spec.seed)) if call.drops else None
        plan: Calls = self.engine.plan(CallConfig(call.spec, schedule, keep, drawn))
        return plan

    def run(self, run: XlaCall, context: Any, buffers: Arrays) -> None:  # noqa: ARG002  the CPU has no stream
        """Run a pass. Lengths that are an operand leave a part of the reserve unused."""
        call = run.call
        try:
            arrays = {name: np.asarray(buffer) for name, buffer in buffers.items()}
        except jax.errors.JaxRuntimeError as error:
            raise EngineError("this was traced for the CPU and runs on another device: platform= says which") from error
        schedule = call.schedule_of(arrays["lengths"]) if "lengths" in arrays else call.schedule
        state = None if run.is_backward else _dropout_state(call, arrays)
        plan = self._plan(call, schedule, state, keep=run.training)
        for which in (BACKWARD_DATA, BACKWARD_WEIGHTS) if run.is_backward else (FORWARD,):
            if which is not BACKWARD_WEIGHTS or "d_params" in arrays:
                plan.bind(which, arrays, ())()


def _dropout_state(call: Traced, arrays: Arrays) -> DropoutState | None:
    """Return the dropout state of a forward, if it has one. Carried states are advanced."""
    if "states" in arrays:
        carried = arrays["states"].view(_STATES)
        seed, position = map(int, carried)
        check_int("position in dropout_states", position, 0, POSITION_MAX)
        carried[1] = position + 1
        return DropoutState("numpy", seed, position)
    if "position" in arrays:
        position = check_int("dropout_position", int(arrays["position"]), 0, POSITION_MAX)
        return DropoutState("numpy", call.spec.seed, position)
    return None


@dataclasses.dataclass(frozen=True)
class _OnCopies:
    """A pass on copies of the arrays in host memory."""

    run: XlaCall
    shapes: tuple[Any, ...]

    def __call__(self, *ins: Any) -> list[Any]:
        arrays = dict(zip(self.run.ins, map(np.asarray, ins), strict=True))
        outs = [
            arrays[name].copy() if name in arrays else np.empty(shape.shape, shape.dtype)
            for name, shape in zip(self.run.outs, self.shapes, strict=True)
        ]
        self.run(None, outs, *arrays.values())
        return outs
