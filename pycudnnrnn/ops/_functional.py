"""TF's functional API of `cudnn_rnn_ops`: the same calls as the op classes, described anew each time.

All four RNN functions take their arguments in one order (TF's relu had an order of its own). Sizes are read from the
arrays. Dropout starts from `seed` at each call; an op object moves on from call to call. `name` is TF's graph name:
accepted for old callers, and of no effect without a graph.

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pycudnnrnn._arrays import ArrayT, kind_of
from pycudnnrnn._checks import check_word
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.ops._op import CudnnRNN
from pycudnnrnn.spec import Direction, DType, InputMode, RNNMode, RNNSpec, parse_dtype


def cudnn_lstm(
    inputs: ArrayT,
    input_h: Any,
    input_c: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Sequence[int] | None = None,
    time_major: bool = True,
    input_mode: str = InputMode.LINEAR_INPUT,
    direction: str = Direction.UNIDIRECTIONAL,
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> tuple[ArrayT, ArrayT, ArrayT]:
    """Run an LSTM; return (outputs, output_h, output_c).

    Shapes:
        inputs: [T, B, I], or [B, T, I] with `time_major=False`; input_h: [L * D, B, num_proj or U];
        input_c: [L * D, B, U]; params: [params_size].
    """
    op = CudnnRNN(_spec_of(RNNMode.LSTM, inputs, input_c, "input_c", input_mode, direction, dropout, seed, num_proj))
    fwd = op.run(
        inputs, input_h, input_c, params, is_training,
        sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=False,
    )  # fmt: skip
    return fwd.output, fwd.output_h, fwd.output_c


def cudnn_gru(
    inputs: ArrayT,
    input_h: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Sequence[int] | None = None,
    time_major: bool = True,
    input_mode: str = InputMode.LINEAR_INPUT,
    direction: str = Direction.UNIDIRECTIONAL,
    dropout: float = 0.0,
    seed: int = 0,
    name: str | None = None,  # noqa: ARG001
) -> tuple[ArrayT, ArrayT]:
    """Run a GRU; return (outputs, output_h).

    Shapes:
        inputs: [T, B, I], or [B, T, I] with `time_major=False`; input_h: [L * D, B, U]; params: [params_size].
    """
    return _without_cell_state(
        RNNMode.GRU, inputs, input_h, params, is_training, sequence_lengths, time_major,
        input_mode, direction, dropout, seed,
    )  # fmt: skip


def cudnn_rnn_tanh(
    inputs: ArrayT,
    input_h: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Sequence[int] | None = None,
    time_major: bool = True,
    input_mode: str = InputMode.LINEAR_INPUT,
    direction: str = Direction.UNIDIRECTIONAL,
    dropout: float = 0.0,
    seed: int = 0,
    name: str | None = None,  # noqa: ARG001
) -> tuple[ArrayT, ArrayT]:
    """Run a tanh RNN; shapes and result as `cudnn_gru`."""
    return _without_cell_state(
        RNNMode.RNN_TANH, inputs, input_h, params, is_training, sequence_lengths, time_major,
        input_mode, direction, dropout, seed,
    )  # fmt: skip


def cudnn_rnn_relu(
    inputs: ArrayT,
    input_h: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Sequence[int] | None = None,
    time_major: bool = True,
    input_mode: str = InputMode.LINEAR_INPUT,
    direction: str = Direction.UNIDIRECTIONAL,
    dropout: float = 0.0,
    seed: int = 0,
    name: str | None = None,  # noqa: ARG001
) -> tuple[ArrayT, ArrayT]:
    """Run a relu RNN; shapes and result as `cudnn_gru`."""
    return _without_cell_state(
        RNNMode.RNN_RELU, inputs, input_h, params, is_training, sequence_lengths, time_major,
        input_mode, direction, dropout, seed,
    )  # fmt: skip


def cudnn_rnn_opaque_params_size(
    rnn_mode: str,
    num_layers: int,
    num_units: int,
    input_size: int,
    input_mode: str = InputMode.LINEAR_INPUT,
    direction: str = Direction.UNIDIRECTIONAL,
    dtype: Any = DType.FLOAT32,
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> int:
    """Return the elements of the params buffer."""
    op = _op(rnn_mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed, num_proj)
    return op.params_size()


def cudnn_rnn_opaque_params_to_canonical(
    rnn_mode: str,
    num_layers: int,
    num_units: int,
    input_size: int,
    params: Any,
    input_mode: str = InputMode.LINEAR_INPUT,
    direction: str = Direction.UNIDIRECTIONAL,
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> tuple[list[Any], list[Any]]:
    """Return (weights, biases) as `CudnnRNN.params_to_canonical`, for params of any dtype."""
    dtype = _dtype_of("params", params)
    op = _op(rnn_mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed, num_proj)
    return op.params_to_canonical(params)


def cudnn_rnn_canonical_to_opaque_params(
    rnn_mode: str,
    num_layers: int,
    num_units: int,
    input_size: int,
    weights: Sequence[Any],
    biases: Sequence[Any],
    input_mode: str = InputMode.LINEAR_INPUT,
    direction: str = Direction.UNIDIRECTIONAL,
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> Any:
    """Return one params buffer as `CudnnRNN.canonical_to_params`, of the weights' dtype."""
    dtype = _dtype_of("weights[0]", weights[0]) if len(weights) else DType.FLOAT32
    op = _op(rnn_mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed, num_proj)
    return op.canonical_to_params(weights, biases)


def _op(rnn_mode: str, *described: Any) -> CudnnRNN:
    return CudnnRNN(RNNSpec(check_word(RNNMode, "rnn_mode", rnn_mode), *described))


def _without_cell_state(
    mode: RNNMode,
    inputs: Any,
    input_h: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Sequence[int] | None,
    time_major: bool,
    input_mode: str,
    direction: str,
    dropout: float,
    seed: int,
) -> tuple[Any, Any]:
    op = CudnnRNN(_spec_of(mode, inputs, input_h, "input_h", input_mode, direction, dropout, seed, None))
    fwd = op.run(
        inputs, input_h, None, params, is_training,
        sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=False,
    )  # fmt: skip
    return fwd.output, fwd.output_h


def _spec_of(
    mode: RNNMode,
    inputs: Any,
    state: Any,
    state_name: str,
    input_mode: str,
    direction: str,
    dropout: float,
    seed: int,
    num_proj: int | None,
) -> RNNSpec:
    """Describe the RNN by its arrays; `state` is the one whose width is num_units."""
    dtype = _dtype_of("inputs", inputs)
    kind_of(state_name, state)
    if inputs.ndim != 3:
        raise ArgumentError("inputs", "three axes, [T, B, I]", tuple(inputs.shape), aspect="shape")
    if state.ndim != 3:
        raise ArgumentError(state_name, "three axes, [L * D, B, U]", tuple(state.shape), aspect="shape")
    rows, _, num_units = state.shape
    num_dirs = RNNSpec(mode, 1, 1, 1, direction=direction).num_dirs
    if rows == 0 or rows % num_dirs:
        raise ArgumentError(state_name, f"a multiple of {num_dirs} rows, L * D", tuple(state.shape), aspect="shape")
    return RNNSpec(
        mode, rows // num_dirs, num_units, inputs.shape[2], input_mode, direction, dtype, dropout, seed, num_proj
    )


def _dtype_of(name: str, array: Any) -> DType:
    kind_of(name, array)
    return parse_dtype(f"{name} dtype", array.dtype)
