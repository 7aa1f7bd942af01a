"""The engines on XLA's arrays: NumPy's in the buffers of a CPU or on copies, cuDNN on addresses, on XLA's stream."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from operator import gt
from typing import Any, Final

import jax
import numpy as np

from pycudnnrnn._checks import check_int
from pycudnnrnn.engines import POSITION_MAX, Calls, DropoutState, engine_for
from pycudnnrnn.engines.cudnn.dropout import Masks
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop._jax_rules import Shapes, Traced, XlaCall, in_place, named, scratch
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, INPUTS, RESULTS, UPSTREAM, Arrays, CallConfig
from pycudnnrnn.schedule import Schedule

_STATES: Final = np.dtype(np.uint64)
"""The dropout states are a seed and a position, as bytes, since JAX may have no 64-bit numbers."""


@dataclasses.dataclass(frozen=True)
class NumpyRunner:
    """The NumPy engine: in the buffers of XLA's CPU, or on copies of any XLA device's buffers.

    `forward` returns the results, and what a backward reads, if it is kept; `backward` the gradients of params (if
    `weights`), of x and of the states. XLA then calls `run`. `states_from` gives the dropout states of a first forward.
    """

    engine: Any
    copies: bool = False

    states_nbytes = 2 * _STATES.itemsize

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
        return self.engine.plan(CallConfig(call.spec, schedule, keep, drawn))  # type: ignore[no-any-return]

    def run(self, run: XlaCall, context: Any, buffers: Arrays) -> None:  # noqa: ARG002  the CPU has no stream
        """Run a pass. Lengths that are an operand leave a part of the reserve unused."""
        call = run.call
        try:
            arrays = {name: np.asarray(buffer) for name, buffer in buffers.items()}
        except jax.errors.JaxRuntimeError as error:
            raise EngineError("this was traced for the CPU and runs on another device: platform= says which") from error
        schedule = call.schedule_of(arrays["lengths"]) if "lengths" in arrays else call.schedule
        plan = self._plan(call, schedule, _dropout_state(call, arrays), keep=run.training)
        for result, which in (("y", FORWARD), ("dx", BACKWARD_DATA), ("d_params", BACKWARD_WEIGHTS)):
            if result in run.outs:
                plan.bind(which, arrays, ())()


def _dropout_state(call: Traced, arrays: Arrays) -> DropoutState | None:
    """Return the dropout state of a forward, if it has one; a backward has none. Carried states are advanced."""
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


# --- cuDNN ------------------------------------------------------------------------------------------------------------

_SIZES: Final = ("states_nbytes", "reserve_nbytes", "workspace_nbytes")


@dataclasses.dataclass(frozen=True)
class CudnnRunner:
    """cuDNN on XLA's buffers and stream. `engine` reports sizes; each device's own engine runs."""

    engine: Any

    @property
    def states_nbytes(self) -> int:
        return int(self.engine.dropout_states_nbytes())

    def states_from(self, seed: int) -> Any:
        return in_place(_Seeding(self, seed), {}, {"states": scratch(self.states_nbytes)})["states"]

    def forward(self, call: Traced, ins: Arrays, *, keep: bool) -> Arrays:
        batch = _batch(self.engine, call, training=keep or call.drops)
        sizes = {"states": 0, "reserve": batch.reserve_nbytes, "workspace": batch.workspace_nbytes}
        outs = call.of_cell(*RESULTS) | {name: scratch(nbytes) for name, nbytes in sizes.items()} | call.results
        results = in_place(XlaCall(call, tuple(ins), tuple(outs), training=keep or call.drops), ins, outs)
        del results["workspace"]
        return results

    def backward(self, call: Traced, ins: Arrays, *, weights: bool) -> Arrays:
        read = {"lengths", "states", *INPUTS, "y", *UPSTREAM, "reserve"}
        ins = {name: array for name, array in ins.items() if name in read}
        if weights:  # cuDNN adds to the present values
            ins["d_params"] = jax.numpy.zeros_like(ins["params"])
        sizes = {"reserve": ins["reserve"].size, "workspace": _batch(self.engine, call, training=True).workspace_nbytes}
        outs = call.gradients(weights=weights) | {name: scratch(nbytes) for name, nbytes in sizes.items()}
        return in_place(XlaCall(call, tuple(ins), tuple(outs), training=True), ins, outs)

    def run(self, run: XlaCall, context: Any, buffers: Arrays) -> None:
        call = run.call
        engine, stream, at = self.at(context, buffers)
        schedule = call.schedule
        if "lengths" in at:
            with engine.active():
                lengths = engine.arrays.read_at(at["lengths"], 4 * schedule.B, stream)
            schedule = call.schedule_of(lengths.view(np.int32))
        batch, states = _batch(engine, call, training=run.training), at["states"]
        if "dx" in at:
            batch.backward(stream, schedule, at, states=states)
        else:
            masks = None if call.seed is None else Masks(call.seed, lambda: call.seed)
            batch.forward(stream, schedule, at, states=states, masks=masks)

    def at(self, context: Any, buffers: Arrays) -> tuple[Any, int, dict[str, int | None]]:
        """Return the engine of the device that the buffers are on, XLA's stream, and the buffers' addresses."""
        try:
            at, stream = {name: _address(buffer) for name, buffer in buffers.items()}, _stream(context)
        except jax.errors.JaxRuntimeError as error:
            raise EngineError("this was traced for CUDA and runs on another device: platform= says which") from error
        _, index = next(iter(buffers.values())).__dlpack_device__()
        engine = self.engine if self.engine.device == f"cuda:{index}" else engine_for(f"cuda:{index}")
        return engine, stream, at


@functools.lru_cache(maxsize=256)
def _batch(engine: Any, call: Traced, *, training: bool) -> Any:
    """Prepare the native calls on a device. Raise if it differs from the one whose sizes and layout were traced."""
    asked, schedule = call.runner.engine, call.schedule
    if "lengths" in call.operands and schedule.T > 1:
        schedule = schedule.longest_ragged()
    batch = engine.addressed(0, CallConfig(call.spec, schedule, training), drops=call.drops)
    if engine is not asked:
        here, told = ([getattr(b, size) for size in _SIZES] for b in (batch, _batch(asked, call, training=training)))
        if any(map(gt, here, told)) or engine.layout(call.spec) != asked.layout(call.spec):
            needs = "needs more memory than this was traced with, or another layout of params"
            raise EngineError(f"{engine.device} {needs}: trace it with {engine.device} as the current device")
    return batch


def _address(buffer: Any) -> int | None:
    """Return the address of a buffer in device memory; None if it has no bytes."""
    return int(buffer.__cuda_array_interface__["data"][0]) if math.prod(buffer.shape) else None


def _stream(context: Any) -> int:
    """Return the stream of XLA's own work."""
    return int(context.stream)


@dataclasses.dataclass(frozen=True)
class _Seeding:
    """The function that XLA calls for new dropout states."""

    runner: CudnnRunner
    seed: int

    def __call__(self, context: Any, outs: Sequence[Any]) -> None:
        engine, stream, at = self.runner.at(context, {"states": outs[0]})
        engine.write_dropout_states(stream, at["states"], self.seed)
