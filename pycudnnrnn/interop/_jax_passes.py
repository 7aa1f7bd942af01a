"""What XLA calls for an RNN: the passes over its buffers, by the engine of the platform that a trace is for.

A pass gets XLA's inputs and outputs where they are, and takes no other memory on a GPU: what an engine needs beside the
results are outputs of bytes, some kept for the backward, the rest dropped by XLA.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import jax
import numpy as np
import numpy.typing as npt

from pycudnnrnn._checks import check_int
from pycudnnrnn.engines import POSITION_MAX, DropoutState, EnginePlan, engine_for
from pycudnnrnn.errors import EngineError
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

try:
    _buffer_callback: Any = importlib.import_module("jax.experimental.buffer_callback").buffer_callback
except ImportError:
    _buffer_callback = None

HAS_BUFFERS: Final = _buffer_callback is not None
"""Whether XLA's buffers can be used in place: JAX has had that since 0.6.2. If not, there is only the host path."""

Array = npt.NDArray[Any]

Aliases = dict[int, int] | None
"""Inputs whose memory is that of an output."""


class Shape(Protocol):
    """What an output will be, as XLA has to know it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


def _shape(shape: tuple[int, ...], dtype: Any) -> Shape:
    found: Shape = jax.ShapeDtypeStruct(shape, dtype)
    return found


def _scratch(nbytes: int) -> Shape:
    return _shape((nbytes,), np.uint8)


@dataclasses.dataclass(frozen=True)
class Traced:
    """What is fixed about a call while it is traced; hashable.

    Its first argument is dropout's: the position, or, where it `carries` them, the states, and then the moved ones are
    its last result. `position` is the position where that has to be known.
    """

    spec: RNNSpec
    schedule: Schedule
    training: bool
    runner: Runner
    position: int | None = None
    carries: bool = False

    @property
    def drops(self) -> bool:
        return self.training and self.spec.dropout > 0 and self.spec.num_layers > 1

    @property
    def states(self) -> list[Shape]:
        """Those of h and, for LSTM, of c."""
        spec, batch = self.spec, (self.spec.num_pseudo_layers, self.schedule.B)
        widths = (spec.state_size, spec.num_units) if spec.has_cell_state else (spec.state_size,)
        return [_shape((*batch, width), spec.dtype.numpy) for width in widths]

    @property
    def data(self) -> Shape:
        return _shape(self.schedule.data_shape(self.spec.input_size), self.spec.dtype.numpy)

    @property
    def results(self) -> list[Shape]:
        output = _shape(self.schedule.data_shape(self.spec.output_size), self.spec.dtype.numpy)
        carried = [_scratch(self.runner.states_nbytes)] if self.carries else []
        return [output, *self.states, *carried]

    @functools.cached_property
    def params(self) -> Shape:
        return _shape((self.runner.engine.layout(self.spec).size,), self.spec.dtype.numpy)

    def widened(self, count: int) -> Traced:
        """The call on `count` batches side by side."""
        lengths, batch = self.schedule.lengths, self.schedule.B * count
        wide = dataclasses.replace(self.schedule, B=batch, lengths=None if lengths is None else lengths * count)
        return dataclasses.replace(self, schedule=wide)


Pass = Callable[..., None]
"""What XLA calls with its context, outputs and inputs; it compiles equal ones once."""


class Runner(Protocol):
    """An engine at work on XLA's buffers; hashable."""

    @property
    def engine(self) -> Any: ...

    @property
    def states_nbytes(self) -> int:
        """The bytes of dropout's states as a value."""

    def states_from(self, seed: int) -> Any:
        """Return the dropout states of a model's first forward."""

    def forward(self, call: Traced, dropout: Any, arguments: Sequence[Any], *, keep: bool) -> tuple[Any, Any]:
        """Return the results, and what a backward needs beside them and the arguments."""

    def backward(
        self, call: Traced, arguments: Sequence[Any], output: Any, upstream: Sequence[Any], kept: Sequence[Any]
    ) -> Sequence[Any]:
        """Return the gradients of the arguments: params, input_data and the states."""


def varying_like(results: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Say of results that they vary over the mesh axes that any argument varies over; XLA's calls do not."""
    return tuple(map(functools.partial(varying, axes=axes_of(arguments)), results))


def axes_of(arrays: Sequence[Any]) -> frozenset[Any]:
    """The mesh axes that any of the arrays varies over, under `shard_map`."""
    return frozenset().union(*map(_axes, arrays))


def _axes(array: Any) -> frozenset[Any]:
    kind: Any = jax.typeof(array)
    axes: frozenset[Any] = kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma  # 0.10.2
    return axes


def varying(array: Any, axes: frozenset[Any]) -> Any:
    missing = axes - _axes(array)
    return jax.lax.pcast(array, tuple(missing), to="varying") if missing else array


def in_place(run: Pass, shapes: Sequence[Shape], arrays: Sequence[Any], aliases: Aliases = None) -> Any:
    """Run on XLA's own buffers."""
    call = _buffer_callback(run, tuple(shapes), vmap_method="sequential", input_output_aliases=aliases)
    return varying_like(call(*arrays), arrays)


# --- the NumPy engine -------------------------------------------------------------------------------------------------

_STATES: Final = np.dtype(np.uint64)
"""Dropout's states as a value are a seed and a position, as bytes: JAX may be without 64-bit numbers."""


@dataclasses.dataclass(frozen=True)
class NumpyRunner:
    """The NumPy engine: in the buffers of XLA's CPU, or on copies of them, wherever XLA runs."""

    engine: Any
    copies: bool = False

    @property
    def states_nbytes(self) -> int:
        return 2 * _STATES.itemsize

    def states_from(self, seed: int) -> Any:
        return jax.numpy.asarray(np.array([seed, 0], _STATES).view(np.uint8))

    def forward(self, call: Traced, dropout: Any, arguments: Sequence[Any], *, keep: bool) -> tuple[Any, Any]:
        run = _NumpyForward(call, keep)
        kept = [_scratch(run.plan.reserve_nbytes)] if keep else []
        ins = [dropout, *arguments] if call.drops else arguments
        found = self._run(run, [*call.results, *kept], ins)
        results = len(call.results)
        return found[:results], found[results:]

    def backward(
        self, call: Traced, arguments: Sequence[Any], output: Any, upstream: Sequence[Any], kept: Sequence[Any]
    ) -> Sequence[Any]:
        del output  # what of it is needed is in the reserve
        params, x, *_ = arguments
        gradients = [call.params, call.data, *call.states]
        ins = (params, x, *upstream, *kept)
        shapes = [*gradients, _scratch(kept[0].size)]
        found: Sequence[Any] = self._run(_NumpyBackward(call), shapes, ins, {len(ins) - 1: len(gradients)})
        return found[: len(gradients)]

    def _run(self, run: Pass, shapes: Sequence[Shape], ins: Sequence[Any], aliases: Aliases = None) -> Any:
        if not self.copies:
            return in_place(run, shapes, ins, aliases)
        on_copies = _OnCopies(run, tuple(shapes), tuple((aliases or {}).items()))
        return varying_like(jax.pure_callback(on_copies, on_copies.shapes, *ins, vmap_method="sequential"), ins)


@dataclasses.dataclass(frozen=True)
class _OnCopies:
    """A pass on arrays of the host's own; equal ones are compiled once."""

    run: Pass
    shapes: tuple[Shape, ...]
    aliases: tuple[tuple[int, int], ...]

    def __call__(self, *ins: Any) -> list[Array]:
        arrays = [np.asarray(array) for array in ins]
        outs = [np.empty(shape.shape, shape.dtype) for shape in self.shapes]
        for source, target in self.aliases:
            outs[target] = arrays[source] = arrays[source].copy()
        self.run(None, outs, *arrays)
        return outs


def _numpy(buffers: Sequence[Any]) -> list[Array]:
    """NumPy's views of buffers in host memory."""
    try:
        return [np.asarray(buffer) for buffer in buffers]
    except jax.errors.JaxRuntimeError as error:
        raise EngineError(
            "this was traced for the CPU and runs on another device: platform='cuda' says so where a trace cannot tell"
        ) from error


@dataclasses.dataclass(frozen=True)
class _NumpyPass:
    call: Traced

    def _plan(self, dropout: DropoutState | None = None, *, keep: bool) -> EnginePlan:
        call, engine = self.call, self.call.runner.engine
        state = dropout or DropoutState("numpy", call.spec.seed)
        drawn = engine.dropout(call.spec, state) if call.drops else None
        plan: EnginePlan = engine.plan(call.spec, call.schedule, training=keep, dropout=drawn)
        return plan


@dataclasses.dataclass(frozen=True)
class _NumpyForward(_NumpyPass):
    keep: bool

    @functools.cached_property
    def plan(self) -> EnginePlan:
        """The plan of every such call, but for where dropout stands."""
        return self._plan(keep=self.keep)

    def __call__(self, _: Any, outs: Sequence[Any], *ins: Any) -> None:
        arrays, plan = _numpy(ins), self.plan
        if self.call.drops:  # where dropout stands moves: each call has its own
            state = self._state(arrays.pop(0))
            plan = self._plan(state, keep=self.keep)
        params, x, hx, *cx = arrays
        y, hy, *rest = _numpy(outs)
        cy = rest.pop(0) if cx else None
        if self.call.carries:
            rest.pop(0).view(_STATES)[:] = state.seed, state.position + 1
        plan.forward(params, x, hx, cx[0] if cx else None, y, hy, cy, rest[0] if rest else None)

    def _state(self, dropout: Array) -> DropoutState:
        """Where dropout stands, by what the call was given."""
        if self.call.carries:
            seed, position = map(int, dropout.view(_STATES))
            check_int("position in dropout_states", position, 0, POSITION_MAX)
            return DropoutState("numpy", seed, position)
        position = check_int("dropout_position", int(dropout), 0, POSITION_MAX)
        return DropoutState("numpy", self.call.spec.seed, position)


@dataclasses.dataclass(frozen=True)
class _NumpyBackward(_NumpyPass):
    @functools.cached_property
    def plan(self) -> EnginePlan:
        """The plan of every such call: the masks are in the reserve."""
        return self._plan(keep=True)

    def __call__(self, _: Any, outs: Sequence[Any], *ins: Any) -> None:
        params, x, dy, dhy, *rest = _numpy(ins)
        d_params, dx, dhx, *more = _numpy(outs)
        dcy, dcx = (rest[0], more[0]) if self.call.spec.has_cell_state else (None, None)
        reserve = more[-1]
        self.plan.backward_data(params, None, dy, None, dhy, dhx, None, dcy, dcx, dx, reserve)
        self.plan.backward_weights(x, None, None, d_params, reserve, accumulate=False)


# --- cuDNN ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class CudnnRunner:
    """cuDNN on the buffers and the stream of XLA's GPU; `engine` is asked for sizes, each device's own runs."""

    engine: Any

    @property
    def states_nbytes(self) -> int:
        nbytes: int = self.engine.dropout_states_nbytes()
        return nbytes

    def states_from(self, seed: int) -> Any:
        return in_place(_CudnnSeed(self, seed), [_scratch(self.states_nbytes)], ())[0]

    def forward(self, call: Traced, dropout: Any, arguments: Sequence[Any], *, keep: bool) -> tuple[Any, Any]:
        run = _CudnnForward(call, keep)
        batch = run.batch(self.engine)
        plain = [call.results[0], *call.states]
        shapes = [*plain, *map(_scratch, (batch.states_nbytes, batch.reserve_nbytes, batch.workspace_nbytes))]
        ins, aliases = ([dropout, *arguments], {0: len(plain)}) if call.carries else (arguments, None)
        found = in_place(run, shapes, ins, aliases)
        return found[: len(call.results)], found[len(plain) : -1]

    def backward(
        self, call: Traced, arguments: Sequence[Any], output: Any, upstream: Sequence[Any], kept: Sequence[Any]
    ) -> Sequence[Any]:
        run = _CudnnBackward(call)
        gradients = [call.params, call.data, *call.states]
        zeros = jax.numpy.zeros(call.params.shape, call.params.dtype)  # cuDNN adds to what is there
        _, reserve = kept
        ins = (zeros, *arguments, output, *upstream, *kept)
        shapes = [*gradients, _scratch(reserve.size), _scratch(run.batch(self.engine).workspace_nbytes)]
        found: Sequence[Any] = in_place(run, shapes, ins, {0: 0, len(ins) - 1: len(gradients)})
        return found[: len(gradients)]

    def at(self, context: Any, outs: Sequence[Any], ins: Sequence[Any]) -> tuple[Any, int, Any, Any]:
        """Return the engine of the device that the buffers are on, XLA's stream, and the buffers' addresses."""
        try:
            sources, targets = ([_address(buffer) for buffer in buffers] for buffers in (ins, outs))
            stream = _stream(context)
        except jax.errors.JaxRuntimeError as error:
            raise EngineError("this was traced for CUDA and runs on another device: platform= says which") from error
        engine = self.engine
        index = engine.device_of(next(address for address in targets if address is not None))
        if engine.device != f"cuda:{index}":
            engine = engine_for(f"cuda:{index}")
        return engine, stream, sources, targets


@dataclasses.dataclass(frozen=True)
class _CudnnPass:
    call: Traced

    def batch(self, engine: Any) -> Any:
        """What runs it on one device."""
        return _batch(engine, self)

    @property
    def training(self) -> bool:
        return True

    def at(self, context: Any, outs: Sequence[Any], ins: Sequence[Any]) -> tuple[Any, int, Any, Any]:
        runner: Any = self.call.runner
        engine, *rest = runner.at(context, outs, ins)
        return self.batch(engine), *rest


@functools.lru_cache(maxsize=256)
def _batch(engine: Any, run: _CudnnForward | _CudnnBackward) -> Any:
    call, training = run.call, run.training
    return engine.in_place(call.spec, call.schedule, training=training, drops=call.drops, position=call.position)


def _address(buffer: Any) -> int | None:
    """Where a buffer is in device memory; None if it has no bytes."""
    return int(buffer.__cuda_array_interface__["data"][0]) if math.prod(buffer.shape) else None


def _stream(context: Any) -> int:
    """The stream that XLA puts its own work on."""
    return int(context.stream)


@dataclasses.dataclass(frozen=True)
class _CudnnSeed:
    runner: CudnnRunner
    seed: int

    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        engine, stream, _, (states,) = self.runner.at(context, outs, ins)
        engine.write_dropout_states(stream, states, self.seed)


@dataclasses.dataclass(frozen=True)
class _CudnnForward(_CudnnPass):
    keep: bool

    @property
    def training(self) -> bool:
        return self.keep or self.call.drops

    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        batch, stream, sources, (y, hy, *more) = self.at(context, outs, ins)
        if self.call.carries:
            del sources[0]  # the states' memory is that of the moved ones
        params, x, hx, *cx = sources
        cy = more.pop(0) if cx else None
        states, reserve, workspace = more
        batch.forward(stream, params, x, hx, cx[0] if cx else None, y, hy, cy, reserve, states, workspace)


@dataclasses.dataclass(frozen=True)
class _CudnnBackward(_CudnnPass):
    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        batch, stream, (_, params, x, hx, *rest), (d_params, dx, dhx, *more) = self.at(context, outs, ins)
        cx = dcy = dcx = None
        if self.call.spec.has_cell_state:
            cx, y, dy, dhy, dcy, states, _ = rest
            dcx, reserve, workspace = more
        else:
            y, dy, dhy, states, _ = rest
            reserve, workspace = more
        batch.backward_data(stream, params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, reserve, states, workspace)
        batch.backward_weights(stream, x, hx, y, d_params, reserve, states, workspace)
