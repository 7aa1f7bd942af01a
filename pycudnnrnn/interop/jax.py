"""The RNN as a JAX function with gradients: `jit`, `grad`, `vmap`, `scan` and what is built of them.

The numbers are the NumPy engine's, by a callback on the host; arrays on a GPU are brought there and back. The function
is pure: nothing is kept between its calls, so that JAX may run it again, or not at all. What a backward needs of its
forward is computed again in it, which costs a forward and keeps no memory but the arguments.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, ops
from pycudnnrnn._checks import check_int, plain
from pycudnnrnn.engines import POSITION_MAX, DropoutState
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, EngineError, MissingDependencyError
from pycudnnrnn.schedule import check_lengths
from pycudnnrnn.spec import DType, RNNSpec

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise MissingDependencyError("JAX", "jax", "pycudnnrnn.interop.jax", "jax") from error

Array = npt.NDArray[Any]


def rnn(
    params: Any,
    input_data: Any,
    input_h: Any = None,
    input_c: Any = None,
    *,
    spec: RNNSpec | ops.CudnnRNN,
    sequence_lengths: Sequence[int] | None = None,
    is_training: bool = True,
    time_major: bool = True,
    dropout_position: Any = None,
) -> tuple[Any, ...]:
    """Run an RNN; return (output, output_h, output_c) for LSTM, (output, output_h) for the rest.

    `params` comes first, because it is what `jax.grad` is usually asked for. `spec` describes the RNN; an op stands for
    its spec. It, `sequence_lengths`, `is_training` and `time_major` are fixed while a trace is made. `input_h` and
    `input_c` may be None: zeros.

    Where dropout acts, `dropout_position` is an integer, traced or not, that has to differ from step to step: the masks
    are a function of `spec.seed` and of it, those of an op whose dropout stands there.

    `vmap` over data and states runs as one larger batch; over params, and in a backward, one element after the other.

    Shapes:
        params: [params_size]; the rest as in the op's forward.

    Raises:
        ArgumentError: a wrong shape or dtype, a bad length, or dropout without a position; when the call is traced.
        EngineError: second derivatives are asked for.
    """
    spec = _spec_of(spec)
    time_major, is_training = _flag("time_major", time_major), _flag("is_training", is_training)
    params, input_data = _array("params", params, spec), _array("input_data", input_data, spec)
    if input_data.ndim != 3 or input_data.shape[2] != spec.input_size:
        axes = "[T, B, input_size]" if time_major else "[B, T, input_size]"
        raise ArgumentError("input_data", f"{axes} with input_size={spec.input_size}", input_data.shape, "shape")
    T, B = input_data.shape[:2] if time_major else input_data.shape[1::-1]
    call = _Call(spec, check_lengths(sequence_lengths, T, B), time_major, is_training)
    _arrays.check_shape("params", params, (call.op.params_size(),), "one flat buffer of params_size() elements")
    states = (spec.num_pseudo_layers, B)
    h = _state("input_h", input_h, spec, (*states, spec.state_size))
    if not spec.has_cell_state and input_c is not None:
        raise ArgumentError("input_c", f"None: rnn_mode {str(spec.mode)!r} has no c", "an array")
    c = (_state("input_c", input_c, spec, (*states, spec.num_units)),) if spec.has_cell_state else ()
    found: tuple[Any, ...] = _rnn(call, _position(call, dropout_position), params, input_data, h, *c)
    return found


@dataclasses.dataclass(frozen=True)
class _Call:
    """What is fixed about a call while it is traced; hashable."""

    spec: RNNSpec
    lengths: tuple[int, ...] | None
    time_major: bool
    training: bool

    @property
    def drops(self) -> bool:
        return self.training and self.spec.dropout > 0 and self.spec.num_layers > 1

    @property
    def op(self) -> ops.CudnnRNN:
        return _op(self.spec)

    def run(self, position: Array, arguments: Sequence[Array], *, keep_reserve: bool) -> ops.Forward:
        """Run on the host; `arguments` are params, input_data and the states."""
        params, x, h, *c = (np.asarray(array) for array in arguments)
        op = self.op
        if self.drops:  # an op of this call's own: its position moves
            op = ops.from_spec(self.spec)
            at = check_int("dropout_position", int(position), 0, POSITION_MAX)
            op.set_dropout_state(DropoutState("numpy", self.spec.seed, at))
        return op.run(
            x, h, c[0] if c else None, params, self.training,
            sequence_lengths=self.lengths, time_major=self.time_major, keep_reserve=keep_reserve,
        )  # fmt: skip

    def widened(self, count: int) -> _Call:
        """The call on `count` batches side by side."""
        return self if self.lengths is None else dataclasses.replace(self, lengths=self.lengths * count)


@functools.lru_cache(maxsize=64)
def _op(spec: RNNSpec) -> ops.CudnnRNN:
    return ops.from_spec(spec)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rnn(call: _Call, position: Any, *arguments: Any) -> Any:
    return _forward(call)(position, *arguments)


def _rnn_fwd(call: _Call, position: Any, *arguments: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return _primal(call, position, *arguments), (position, *arguments)


def _rnn_bwd(call: _Call, kept: tuple[Any, ...], upstream: tuple[Any, ...]) -> tuple[Any, ...]:
    return None, *_backward(call, kept, upstream)


_rnn.defvjp(_rnn_fwd, _rnn_bwd)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _primal(call: _Call, position: Any, *arguments: Any) -> Any:
    """The forward inside a derivative: to differentiate it is to ask for a second one."""
    return _forward(call)(position, *arguments)


@functools.lru_cache(maxsize=256)
def _forward(call: _Call) -> Any:
    """Return the traceable forward of a call, which knows what `vmap` means."""

    def on_host(position: Array, *arguments: Array) -> tuple[Any, ...]:
        fwd = call.run(position, arguments, keep_reserve=False)
        return (fwd.output, fwd.output_h, fwd.output_c)[: len(arguments) - 1]

    @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator]
    def forward(position: Any, *arguments: Any) -> tuple[Any, ...]:
        _, x, *states = arguments
        output = jax.ShapeDtypeStruct((*x.shape[:2], call.spec.output_size), x.dtype)
        shapes = (output, *(jax.ShapeDtypeStruct(state.shape, state.dtype) for state in states))
        found: tuple[Any, ...] = jax.pure_callback(on_host, shapes, position, *arguments)
        return found

    @forward.def_vmap  # type: ignore[untyped-decorator]
    def batched(size: int, mapped: Sequence[bool], position: Any, *arguments: Any) -> Any:
        params, *data = (
            array if is_mapped else jnp.broadcast_to(array, (size, *array.shape))
            for array, is_mapped in zip(arguments, mapped[1:], strict=True)
        )
        if mapped[0] or mapped[1] or call.drops:  # a larger batch would have other masks
            positions = position if mapped[0] else jnp.broadcast_to(position, (size,))
            found = jax.lax.map(lambda each: forward(*each), (positions, params, *data))
        else:
            axes = (1 if call.time_major else 0, *(1 for _ in data[1:]))
            wide = (_joined(array, axis) for array, axis in zip(data, axes, strict=True))
            results = _forward(call.widened(size))(position, arguments[0], *wide)
            found = tuple(
                _split(array, axis, size, one.shape[axis + 1])
                for array, axis, one in zip(results, axes, data, strict=True)
            )
        return found, tuple(True for _ in found)

    return forward


def _joined(array: Any, axis: int) -> Any:
    """[N, ...] to one array with the N side by side along `axis`."""
    moved = jnp.moveaxis(array, 0, axis)
    return moved.reshape(*moved.shape[:axis], moved.shape[axis] * moved.shape[axis + 1], *moved.shape[axis + 2 :])


def _split(array: Any, axis: int, size: int, each: int) -> Any:
    """Undo `_joined`, of `size` arrays that were `each` long along `axis`."""
    parts = array.reshape(*array.shape[:axis], size, each, *array.shape[axis + 1 :])
    return jnp.moveaxis(parts, axis, 0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _backward(call: _Call, kept: tuple[Any, ...], upstream: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the gradients of params, input_data and the states."""

    def on_host(kept: tuple[Array, ...], upstream: tuple[Array, ...]) -> tuple[Any, ...]:
        fwd = call.run(kept[0], kept[1:], keep_reserve=True)
        grads = fwd.backward(*(np.asarray(array) for array in upstream))
        return (grads.params, grads.input, grads.input_h, grads.input_c)[: len(kept) - 1]

    shapes = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in kept[1:])
    found: tuple[Any, ...] = jax.pure_callback(on_host, shapes, kept, upstream, vmap_method="sequential")
    return found


@_primal.defjvp  # type: ignore[untyped-decorator]
@_backward.defjvp  # type: ignore[untyped-decorator]
def _second(call: _Call, *_: Any) -> Any:
    raise EngineError(f"second derivatives of {call.spec.mode} were asked for: no engine computes them")


def _spec_of(spec: Any) -> RNNSpec:
    if isinstance(spec, ops.CudnnRNN):
        spec = spec.spec
    if not isinstance(spec, RNNSpec):
        raise ArgumentTypeError("spec", "an RNNSpec or an op", type(spec))
    wide: bool = getattr(jax.config, "jax_enable_x64")  # noqa: B009  set by JAX at run time
    if spec.dtype is DType.FLOAT64 and not wide:
        raise ArgumentError("spec dtype", "a dtype that JAX has: jax_enable_x64 is off", str(spec.dtype))
    return spec


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(name, "a Python bool: it is fixed while a trace is made", repr(value))
    return bool(value)


def _array(name: str, array: Any, spec: RNNSpec) -> Any:
    if not isinstance(array, (jax.Array, np.ndarray)):
        raise ArgumentTypeError(name, "a JAX or NumPy array", type(array))
    if isinstance(array, np.ndarray):
        array = plain(name, array)
    if array.dtype != spec.dtype.numpy:
        raise ArgumentError(name, f"{spec.dtype}, the model's", array.dtype, aspect="dtype")
    return jnp.asarray(array)


def _state(name: str, state: Any, spec: RNNSpec, shape: tuple[int, ...]) -> Any:
    if state is None:
        return jnp.zeros(shape, spec.dtype.numpy)
    state = _array(name, state, spec)
    _arrays.check_shape(name, state, shape, "[L * D, B, width]")
    return state


def _position(call: _Call, position: Any) -> Any:
    if position is None:
        if call.drops:
            raise ArgumentError("dropout_position", "an integer that differs from step to step", None)
        return jnp.zeros((), jnp.int32)
    if isinstance(position, (jax.Array, np.ndarray)):
        if position.shape != () or not jnp.issubdtype(position.dtype, jnp.integer):
            raise ArgumentError("dropout_position", "one integer", f"{position.dtype} of shape {position.shape}")
        if isinstance(position, jax.core.Tracer):
            return position
        position = int(position)
    most = min(POSITION_MAX, int(jnp.iinfo(jax.dtypes.canonicalize_dtype(np.int64)).max))
    return jnp.asarray(check_int("dropout_position", position, 0, most))
