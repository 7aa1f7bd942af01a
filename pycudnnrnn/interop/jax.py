"""The RNN as a JAX function with gradients, for `jit`, `grad`, `vmap`, `scan`, `shard_map` and code built on them.

It runs where XLA's arrays are, in XLA's own buffers: with the NumPy engine on the CPU, with cuDNN on XLA's stream on a
GPU. The function is pure: it keeps nothing between calls, so JAX may run it again, or not at all. The reserve that a
backward reads is a result of its forward, and XLA keeps it. `jax.checkpoint` computes it again instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from pycudnnrnn import _arrays, ops
from pycudnnrnn._checks import check_bool, check_int, check_type, needs, plain, shorten, with_hints
from pycudnnrnn.engines import POSITION_MAX, check_size, engine_for
from pycudnnrnn.engines.cudnn.dropout import seed_at
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.schedule import Lengths, Schedule, check_lengths
from pycudnnrnn.spec import SEED_MAX, TIME_MAX, Algorithm, DType, RNNSpec

with needs("JAX 0.10 or newer", "jax", "pycudnnrnn.interop.jax", "'jax>=0.10'"):
    import jax
    import jax.numpy as jnp
    from jax.core import Tracer

    from pycudnnrnn.interop._jax_rules import Traced, axes_of, run, varying, wait_at_exit
    from pycudnnrnn.interop._jax_runners import CudnnRunner, NumpyRunner

__all__ = ["PLATFORMS", "dropout_states", "rnn"]
__dir__ = __all__.copy

PLATFORMS: Final = ("cpu", "cuda", "host")
"""The words that `platform` takes. "host" is the NumPy engine on copies, on every platform that JAX has."""


@with_hints
def rnn(
    params: Any,
    input_data: Any,
    input_h: Any = None,
    input_c: Any = None,
    *,
    spec: RNNSpec | ops.CudnnRNN,
    sequence_lengths: Lengths | jax.Array | None = None,
    is_training: bool = True,
    time_major: bool = True,
    dropout_position: Any = None,
    dropout_states: Any = None,
    platform: Literal["cpu", "cuda", "host"] | None = None,
) -> tuple[Any, ...]:
    """Run an RNN as a pure function: `jit`, `grad`, `vmap`, `scan` and `shard_map` work on it.

    `jax.grad` differentiates `params`, the first argument, and any other array on request. T steps, B sequences,
    I inputs, L layers, D directions, U units, P projected units.

    `vmap` over data and states runs as one larger batch, and so does its gradient. The elements run one after the
    other if params are mapped, if dropout is active, and in `vmap` of a gradient: no engine computes a separate
    gradient of params for each element in one call.

    Args:
        params: the weights, a flat array [params_size] in the layout of the engine that runs.
        input_data: [T, B, I], or [B, T, I] with `time_major=False`.
        input_h: h before the first step, [L * D, B, U], or [L * D, B, P] with a projection. None: zeros.
            Default: None.
        input_c: the LSTM's c before the first step, [L * D, B, U]. None: zeros. Default: None.
        spec: the description of the RNN, an `RNNSpec` or an op. It is fixed while JAX traces, and so are
            `is_training`, `time_major` and `platform`.
        sequence_lengths: number of steps of each sequence, from 0 to T: a list or NumPy array of B integers, which is
            fixed while JAX traces; or a JAX array, int32 [B], so that one compiled function takes all lengths. On CUDA
            each pass then waits for the array once. Outputs after the end of a sequence are 0; its final states are
            those of its last step. None: all sequences have T steps. Default: None.
        is_training: whether dropout acts between the layers. Default: True.
        time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
            states does not depend on it. Default: True.
        dropout_position: an integer that differs from step to step and selects the masks. On the CPU it may be
            traced; the masks are those of an op with this dropout position. On CUDA it must be known while JAX
            traces, because cuDNN's states are seeded from the host, with `engines.cudnn.dropout.seed_at`; the states
            of the latest 16 positions are kept. None: use `dropout_states`. Default: None.
        dropout_states: the dropout states, from `dropout_states()` or from the previous call, which returns the
            updated ones last. The masks are those of an op with this seed, forward by forward; but a batch without
            steps leaves the states as they are. A model with active dropout needs this or `dropout_position`. None:
            use `dropout_position`. Default: None.
        platform: where the traced function will run: "cpu", "cuda", or "host" for the NumPy engine on copies of the
            arrays. None: where the arrays are, or JAX's default device while JAX traces. Default: None.

    Returns:
        (output, output_h, output_c) for the LSTM, (output, output_h) for the others; then the updated dropout states
        if `dropout_states` was given. The output is [T, B, D * U] (D * P with a projection; B first with
        `time_major=False`); states have the shapes of `input_h` and `input_c`.

    Raises:
        ArgumentError: a wrong shape or dtype, a bad length, active dropout without position or states, or a feature
            that `platform` does not have. It is raised while JAX traces. A bad length in a JAX array raises JAX's own
            error, with this text, when the call runs.
        EngineError: second or forward-mode derivatives. A compiled function that runs on another platform raises it
            as JAX's own error.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from pycudnnrnn import ops
        >>> from pycudnnrnn.interop.jax import rnn
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=8, input_size=3)
        >>> params, x = jnp.asarray(op.init_params(seed=0)), jnp.ones((10, 4, 3))
        >>> output, h, c = rnn(params, x, spec=op)
        >>> output.shape, h.shape, c.shape
        ((10, 4, 8), (1, 4, 8), (1, 4, 8))
        >>> loss = lambda params: rnn(params, x, spec=op)[0].sum()
        >>> jax.grad(loss)(params).shape == params.shape
        True
    """
    spec = _spec_of(spec)
    time_major, is_training = check_bool("time_major", time_major), check_bool("is_training", is_training)
    arrays = [array for array in (params, input_data, input_h, input_c) if array is not None]
    params, input_data = _array("params", params, spec), _array("input_data", input_data, spec)
    if input_data.ndim != 3 or input_data.shape[2] != spec.input_size:
        axes = "[T, B, input_size]" if time_major else "[B, T, input_size]"
        raise ArgumentError("input_data", f"{axes} with input_size={spec.input_size}", input_data.shape, "shape")
    T, B = input_data.shape[:2] if time_major else input_data.shape[1::-1]
    traced_lengths = isinstance(sequence_lengths, jax.Array)
    fixed = check_lengths(None if traced_lengths else sequence_lengths, T, B)
    call = Traced(spec, Schedule(T, B, fixed, time_major), is_training, _runner_of(platform, spec, arrays))
    check_size("params", params, spec, call.runner.engine)
    _arrays.check_shape("params", params, call.shapes["params"].shape, "one flat buffer of params_size() elements")
    operands = {"params": params, "x": input_data, "hx": _state("input_h", input_h, spec, call.shapes["hx"].shape)}
    if spec.has_cell_state:
        operands["cx"] = _state("input_c", input_c, spec, call.shapes["cx"].shape)
    elif input_c is not None:
        raise ArgumentError("input_c", f"None: rnn_mode {str(spec.mode)!r} has no c", "an array")
    if isinstance(sequence_lengths, jax.Array):
        if sequence_lengths.dtype != np.int32 or sequence_lengths.shape != (B,):
            got = f"{sequence_lengths.dtype} of shape {sequence_lengths.shape}"
            raise ArgumentError("sequence_lengths", f"int32 of shape ({B},), if they are a JAX array", got)
        call = dataclasses.replace(call, operands=("lengths",))
        operands["lengths"] = sequence_lengths
    call, dropout = _dropout(call, dropout_position, dropout_states)
    operands |= dropout
    mesh_axes = axes_of(operands.values())  # here JAX sums the gradients over them
    operands = {name: varying(array, mesh_axes) for name, array in operands.items()}
    if not T * B or (fixed is not None and not any(fixed)):
        results = {"y": jnp.zeros(call.shapes["y"].shape, input_data.dtype), "hy": operands["hx"]}
        results |= {result: operands[name] for result, name in (("cy", "cx"), ("states", "states")) if name in operands}
    elif isinstance(call.runner, CudnnRunner):
        results = _on_cudnn(call, operands)
    else:
        results = run(call, operands)
    if traced_lengths and "states" in results:  # a batch without steps leaves them, as one that is known while tracing
        results["states"] = jnp.where(operands["lengths"].any(), results["states"], operands["states"])
    unchanged = () if dropout_states is None or "states" in results else (jnp.asarray(dropout_states),)
    return *results.values(), *unchanged


def dropout_states(
    spec: RNNSpec | ops.CudnnRNN, seed: int | None = None, *, platform: Literal["cpu", "cuda", "host"] | None = None
) -> Any:
    """Create the dropout states for the first call of `rnn`, which returns updated ones with each call.

    They are a value: carry them through a loop, and save them with the params. On CUDA cuDNN writes them from the
    seed, which may take time: create them once, outside of loops.

    Args:
        spec: the description of the RNN, an `RNNSpec` or an op.
        seed: seed of the masks, from 0 to 2**64 - 1. Give each device, and each element of a `vmap`, a different one.
            None: the spec's. Default: None.
        platform: where `rnn` will run: "cpu", "cuda" or "host". None: JAX's default device. Default: None.

    Returns:
        The states, a uint8 array [nbytes]. The size depends on the platform.

    Raises:
        ArgumentError: not a seed, or a feature that `platform` does not have.

    Example:
        >>> import jax.numpy as jnp
        >>> from pycudnnrnn import ops
        >>> from pycudnnrnn.interop.jax import dropout_states, rnn
        >>> op = ops.CudnnGRU(num_layers=2, num_units=8, input_size=3, dropout=0.5)
        >>> params, x = jnp.asarray(op.init_params(seed=0)), jnp.ones((10, 4, 3))
        >>> states = dropout_states(op, seed=1)
        >>> for step in range(3):
        ...     output, h, states = rnn(params, x, spec=op, dropout_states=states)
        >>> output.shape, states.dtype
        ((10, 4, 8), dtype('uint8'))
    """
    spec = _spec_of(spec)
    seed = spec.seed if seed is None else check_int("seed", seed, 0, SEED_MAX)
    return _runner_of(platform, spec, ()).states_from(seed)


def _on_cudnn(call: Traced, operands: dict[str, Any]) -> dict[str, Any]:
    """Run on cuDNN, which takes no length of 0. Such sequences run one step of zeros, and its results are replaced.

    Raises:
        ArgumentError: more steps than cuDNN takes.
    """
    schedule = call.schedule
    if schedule.T > TIME_MAX:
        expected = f"at most {TIME_MAX} steps on CUDA: run parts, each from the states before, or platform='host'"
        raise ArgumentError("T", expected, schedule.T)
    lengths = operands.get("lengths", schedule.lengths)
    if lengths is None or (schedule.lengths is not None and 0 not in schedule.lengths):
        return run(call, operands)
    if schedule.lengths is None:
        operands = operands | {"lengths": jnp.where(lengths == 0, 1, lengths)}
    else:
        at_least_one = check_lengths([max(length, 1) for length in schedule.lengths], schedule.T, schedule.B)
        call = dataclasses.replace(call, schedule=dataclasses.replace(schedule, lengths=at_least_one))
    empty = (jnp.asarray(lengths) == 0)[:, None]
    of_data = empty if schedule.time_major else empty[..., None]
    results = run(call, operands | {"x": jnp.where(of_data, 0, operands["x"])})
    results["y"] = jnp.where(of_data, 0, results["y"])
    initial = {name: operands[f"{name[0]}x"] for name in ("hy", "cy") if name in results}
    return results | {name: jnp.where(empty, state, results[name]) for name, state in initial.items()}


def _runner_of(platform: Any, spec: RNNSpec, arrays: Sequence[Any]) -> NumpyRunner | CudnnRunner:
    """Choose the engine while JAX traces, because the sizes of XLA's outputs depend on it.

    Raises:
        ArgumentError: an unknown platform, or a spec that cannot be traced for it.
    """
    wait_at_exit()
    if platform is None:
        traced = any(isinstance(array, Tracer) for array in arrays)
        placed = () if traced else (array for array in arrays if isinstance(array, jax.Array))
        places = {place.platform for array in placed for place in array.devices()}
        usual: Any = getattr(jax.config, "jax_default_device") or jax.default_backend()  # noqa: B009  set at run time
        platform = places.pop() if len(places) == 1 else str(getattr(usual, "platform", usual))
        platform = {"gpu": "cuda"}.get(platform, platform)
    if platform not in PLATFORMS:
        expected = f"one of {', '.join(map(repr, PLATFORMS))}, of which 'host' runs everywhere, or None"
        raise ArgumentError("platform", expected, shorten(platform))
    if platform != "cuda":
        return NumpyRunner(engine_for("cpu"), copies=platform == "host")
    if spec.algo is Algorithm.AUTO:
        raise ArgumentError("spec algo", "one algorithm: 'auto' is found by runs, which a trace cannot make", "'auto'")
    return CudnnRunner(engine_for("cuda"))


def _spec_of(spec: RNNSpec | ops.CudnnRNN) -> RNNSpec:
    if isinstance(spec, ops.CudnnRNN):
        spec = spec.spec
    check_type("spec", spec, RNNSpec, "an RNNSpec or an op")
    if spec.dtype is DType.FLOAT64 and not getattr(jax.config, "jax_enable_x64"):  # noqa: B009  set by JAX at run time
        raise ArgumentError("spec dtype", "a dtype that JAX has: jax_enable_x64 is off", str(spec.dtype))
    return spec


def _array(name: str, array: Any, spec: RNNSpec) -> Any:
    expected = "a JAX or NumPy array; the order is params, input_data, input_h, input_c"
    check_type(name, array, (jax.Array, np.ndarray), expected)
    if isinstance(array, np.ndarray):
        array = plain(name, array)
    _arrays.check_dtype(name, array, spec.dtype.numpy)
    array = jnp.asarray(array)
    # Sharded over the axes of an Explicit mesh, which the user manages.
    sharded: Any = jax.typeof(array).sharding.spec
    if any(axis is not None for axis in sharded):
        expected = "no axis: jax.shard_map divides work over a mesh, and jax.sharding.reshard brings an array together"
        raise ArgumentError(name, expected, sharded, aspect="sharding")
    return array


def _state(name: str, state: Any, spec: RNNSpec, shape: tuple[int, ...]) -> Any:
    if state is None:
        return jnp.zeros(shape, spec.dtype.numpy)
    state = _array(name, state, spec)
    _arrays.check_shape(name, state, shape, "[L * D, B, width]")
    return state


def _dropout(call: Traced, position: Any, states: Any) -> tuple[Traced, dict[str, Any]]:
    """Check the dropout arguments; return the call that knows which one was given, and its operand, if it has one.

    Raises:
        ArgumentError: neither, both, or a position that only the device will know.
    """
    if position is not None and states is not None:
        raise ArgumentError("dropout_position", "None beside dropout_states", "a position")
    name, value = ("position", _position(call, position)) if states is None else ("states", _states(call, states))
    if not call.drops:
        return call, {}
    if states is not None or not isinstance(call.runner, CudnnRunner):
        return dataclasses.replace(call, operands=(name, *call.operands)), {name: jnp.asarray(value)}
    if isinstance(value, Tracer):
        expected = (
            "an integer known while tracing, because cuDNN is seeded from the host: dropout_states may be traced, and "
            "so may a position with platform='host'"
        )
        raise ArgumentError("dropout_position", expected, "a traced value")
    return dataclasses.replace(call, seed=seed_at(call.spec.seed, int(value))), {}


def _states(call: Traced, states: Any) -> Any:
    check_type("dropout_states", states, (jax.Array, np.ndarray), "what interop.jax.dropout_states made")
    shape = (call.runner.states_nbytes,)
    if states.shape != shape or states.dtype != np.uint8:
        expected = f"uint8 of shape {shape}, as interop.jax.dropout_states makes them for {call.runner.engine.name}"
        raise ArgumentError("dropout_states", expected, f"{states.dtype} of shape {states.shape}")
    return jnp.asarray(states)


def _position(call: Traced, position: Any) -> Any:
    """Check the dropout position; return an int, or an array with one integer."""
    if position is None:
        if call.drops:
            expected = "an integer that differs from step to step, or dropout_states"
            raise ArgumentError("dropout_position", expected, None)
        return 0
    if not isinstance(position, (jax.Array, np.ndarray)):
        return check_int("dropout_position", position, 0, _position_max(np.int64))
    if position.shape != () or not jnp.issubdtype(position.dtype, jnp.integer):
        expected = "one integer, such as jax.random.bits(key)"
        raise ArgumentError("dropout_position", expected, f"{position.dtype} of shape {position.shape}")
    if not isinstance(position, Tracer):
        check_int("dropout_position", int(position), 0, _position_max(position.dtype))
    return position


def _position_max(dtype: Any) -> int:
    """Return the largest position that an array of this dtype holds in JAX."""
    return min(POSITION_MAX, int(jnp.iinfo(jax.dtypes.canonicalize_dtype(dtype)).max))
