"""The functions of TF's `cudnn_rnn_ops`: the calls of the op classes, with the RNN described in each call.

All four RNN functions take their arguments in the same order (TF's relu had another one).

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pycudnnrnn._arrays import ArrayT, kind_of
from pycudnnrnn._checks import check_word
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.ops._op import CudnnRNN
from pycudnnrnn.schedule import Lengths
from pycudnnrnn.spec import DirectionLike, DType, DTypeLike, InputModeLike, ModeLike, RNNMode, RNNSpec, parse_dtype


def cudnn_lstm(
    inputs: ArrayT,
    input_h: Any,
    input_c: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Lengths | None = None,
    time_major: bool = True,
    input_mode: InputModeLike = "linear_input",
    direction: DirectionLike = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> tuple[ArrayT, ArrayT, ArrayT]:
    """Run an LSTM whose sizes are read from the arrays.

    The class `CudnnLSTM` explains the equations and returns gradients.

    Letters: T steps, B sequences, I inputs, L layers, D directions, U units, S the width of h
    (P with a projection, otherwise U).

    Args:
        inputs: the input, [T, B, I], or [B, T, I] with `time_major=False`. The call runs where this array is.
        input_h: the initial h of each layer and direction, [L * D, B, S], or None for zeros.
        input_c: the initial c of each layer and direction, [L * D, B, U].
        params: the flat buffer of all weights and biases, as `init_params` of the op makes it.
        is_training: whether dropout acts between the layers.
        sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. Outputs
            after the end of a sequence are 0; its final states are those of its last step. None: all sequences have T
            steps. Default: None.
        time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
            states does not depend on it. Default: True.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, from 0 to 2**64 - 1. Each call starts from it. Default: 0.
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        name: ignored. TF called its graph node by this name. Default: None.

    Returns:
        (outputs, output_h, output_c), arrays of the same kind as `inputs`. The output is [T, B, D * S] or
        [B, T, D * S]; the final states have the shapes of `input_h` and `input_c`.

    Raises:
        ArgumentError: an array of a wrong shape, dtype or device, a sequence length outside 0 to T, or a value that
            cuDNN does not support.
        ArgumentTypeError: an argument of a wrong type.
        EngineError: no engine runs where the arrays are.
        MissingDependencyError: CUDA arrays without CuPy, or bfloat16 without ml_dtypes.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> params = ops.CudnnLSTM(1, num_units=8, input_size=4).init_params(seed=1)
        >>> x, zeros = np.ones((5, 3, 4), np.float32), np.zeros((1, 3, 8), np.float32)
        >>> output, h, c = ops.cudnn_lstm(x, zeros, zeros, params, is_training=False)
        >>> output.shape, h.shape
        ((5, 3, 8), (1, 3, 8))
    """
    op = _op_of(RNNMode.LSTM, inputs, input_c, "input_c", input_mode, direction, dropout, seed, num_proj)
    return op.run(inputs, input_h, input_c, params, is_training, sequence_lengths, time_major)[1:]


def cudnn_gru(
    inputs: ArrayT,
    input_h: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Lengths | None = None,
    time_major: bool = True,
    input_mode: InputModeLike = "linear_input",
    direction: DirectionLike = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    name: str | None = None,  # noqa: ARG001
) -> tuple[ArrayT, ArrayT]:
    """Run a GRU whose sizes are read from the arrays.

    The class `CudnnGRU` explains the equations and returns gradients.

    Letters: T steps, B sequences, I inputs, L layers, D directions, U units.

    Args:
        inputs: the input, [T, B, I], or [B, T, I] with `time_major=False`. The call runs where this array is.
        input_h: the initial h of each layer and direction, [L * D, B, U].
        params: the flat buffer of all weights and biases, as `init_params` of the op makes it.
        is_training: whether dropout acts between the layers.
        sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. Outputs
            after the end of a sequence are 0; its final states are those of its last step. None: all sequences have T
            steps. Default: None.
        time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
            states does not depend on it. Default: True.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, from 0 to 2**64 - 1. Each call starts from it. Default: 0.
        name: ignored. TF called its graph node by this name. Default: None.

    Returns:
        (outputs, output_h), arrays of the same kind as `inputs`. The output is [T, B, D * U] or [B, T, D * U]; the
        final state has the shape of `input_h`.

    Raises:
        ArgumentError: an array of a wrong shape, dtype or device, a sequence length outside 0 to T, or a value that
            cuDNN does not support.
        ArgumentTypeError: an argument of a wrong type.
        EngineError: no engine runs where the arrays are.
        MissingDependencyError: CUDA arrays without CuPy, or bfloat16 without ml_dtypes.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> params = ops.CudnnGRU(1, num_units=8, input_size=4).init_params(seed=1)
        >>> x, zeros = np.ones((5, 3, 4), np.float32), np.zeros((1, 3, 8), np.float32)
        >>> output, h = ops.cudnn_gru(x, zeros, params, is_training=False)
        >>> output.shape, h.shape
        ((5, 3, 8), (1, 3, 8))
    """
    op = _op_of(RNNMode.GRU, inputs, input_h, "input_h", input_mode, direction, dropout, seed)
    return op.run(inputs, input_h, None, params, is_training, sequence_lengths, time_major)[1:3]


def cudnn_rnn_tanh(
    inputs: ArrayT,
    input_h: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Lengths | None = None,
    time_major: bool = True,
    input_mode: InputModeLike = "linear_input",
    direction: DirectionLike = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    name: str | None = None,  # noqa: ARG001
) -> tuple[ArrayT, ArrayT]:
    """Run a plain RNN with tanh whose sizes are read from the arrays.

    The class `CudnnRNNTanh` explains the equations and returns gradients.

    Letters: T steps, B sequences, I inputs, L layers, D directions, U units.

    Args:
        inputs: the input, [T, B, I], or [B, T, I] with `time_major=False`. The call runs where this array is.
        input_h: the initial h of each layer and direction, [L * D, B, U].
        params: the flat buffer of all weights and biases, as `init_params` of the op makes it.
        is_training: whether dropout acts between the layers.
        sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. Outputs
            after the end of a sequence are 0; its final states are those of its last step. None: all sequences have T
            steps. Default: None.
        time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
            states does not depend on it. Default: True.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, from 0 to 2**64 - 1. Each call starts from it. Default: 0.
        name: ignored. TF called its graph node by this name. Default: None.

    Returns:
        (outputs, output_h), arrays of the same kind as `inputs`. The output is [T, B, D * U] or [B, T, D * U]; the
        final state has the shape of `input_h`.

    Raises:
        ArgumentError: an array of a wrong shape, dtype or device, a sequence length outside 0 to T, or a value that
            cuDNN does not support.
        ArgumentTypeError: an argument of a wrong type.
        EngineError: no engine runs where the arrays are.
        MissingDependencyError: CUDA arrays without CuPy, or bfloat16 without ml_dtypes.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> params = ops.CudnnRNNTanh(1, num_units=8, input_size=4).init_params(seed=1)
        >>> x, zeros = np.ones((5, 3, 4), np.float32), np.zeros((1, 3, 8), np.float32)
        >>> output, h = ops.cudnn_rnn_tanh(x, zeros, params, is_training=False)
        >>> output.shape, h.shape
        ((5, 3, 8), (1, 3, 8))
    """
    op = _op_of(RNNMode.RNN_TANH, inputs, input_h, "input_h", input_mode, direction, dropout, seed)
    return op.run(inputs, input_h, None, params, is_training, sequence_lengths, time_major)[1:3]


def cudnn_rnn_relu(
    inputs: ArrayT,
    input_h: Any,
    params: Any,
    is_training: bool,
    sequence_lengths: Lengths | None = None,
    time_major: bool = True,
    input_mode: InputModeLike = "linear_input",
    direction: DirectionLike = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    name: str | None = None,  # noqa: ARG001
) -> tuple[ArrayT, ArrayT]:
    """Run a plain RNN with relu whose sizes are read from the arrays.

    The class `CudnnRNNRelu` explains the equations and returns gradients.

    Letters: T steps, B sequences, I inputs, L layers, D directions, U units.

    Args:
        inputs: the input, [T, B, I], or [B, T, I] with `time_major=False`. The call runs where this array is.
        input_h: the initial h of each layer and direction, [L * D, B, U].
        params: the flat buffer of all weights and biases, as `init_params` of the op makes it.
        is_training: whether dropout acts between the layers.
        sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. Outputs
            after the end of a sequence are 0; its final states are those of its last step. None: all sequences have T
            steps. Default: None.
        time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
            states does not depend on it. Default: True.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, from 0 to 2**64 - 1. Each call starts from it. Default: 0.
        name: ignored. TF called its graph node by this name. Default: None.

    Returns:
        (outputs, output_h), arrays of the same kind as `inputs`. The output is [T, B, D * U] or [B, T, D * U]; the
        final state has the shape of `input_h`.

    Raises:
        ArgumentError: an array of a wrong shape, dtype or device, a sequence length outside 0 to T, or a value that
            cuDNN does not support.
        ArgumentTypeError: an argument of a wrong type.
        EngineError: no engine runs where the arrays are.
        MissingDependencyError: CUDA arrays without CuPy, or bfloat16 without ml_dtypes.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> params = ops.CudnnRNNRelu(1, num_units=8, input_size=4).init_params(seed=1)
        >>> x, zeros = np.ones((5, 3, 4), np.float32), np.zeros((1, 3, 8), np.float32)
        >>> output, h = ops.cudnn_rnn_relu(x, zeros, params, is_training=False)
        >>> output.shape, h.shape
        ((5, 3, 8), (1, 3, 8))
    """
    op = _op_of(RNNMode.RNN_RELU, inputs, input_h, "input_h", input_mode, direction, dropout, seed)
    return op.run(inputs, input_h, None, params, is_training, sequence_lengths, time_major)[1:3]


def cudnn_rnn_opaque_params_size(
    rnn_mode: ModeLike,
    num_layers: int,
    num_units: int,
    input_size: int,
    input_mode: InputModeLike = "linear_input",
    direction: DirectionLike = "unidirectional",
    dtype: DTypeLike = "float32",
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> int:
    """Return the number of elements of an RNN's params buffer.

    Args:
        rnn_mode: the cell: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dtype: type of data and params: "float16", "bfloat16", "float32" or "float64", or the dtype object of NumPy,
            torch, JAX or TensorFlow. Default: "float32".
        dropout: accepted for TF's callers; it does not change the params. Default: 0.0.
        seed: accepted for TF's callers; it does not change the params. Default: 0.
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        name: ignored. TF called its graph node by this name. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops
        >>> ops.cudnn_rnn_opaque_params_size("lstm", num_layers=1, num_units=8, input_size=4)
        448
    """
    op = _op(rnn_mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed, num_proj)
    return op.params_size()


def cudnn_rnn_opaque_params_to_canonical(
    rnn_mode: ModeLike,
    num_layers: int,
    num_units: int,
    input_size: int,
    params: Any,
    input_mode: InputModeLike = "linear_input",
    direction: DirectionLike = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> tuple[list[Any], list[Any]]:
    """Split a params buffer into separate weights and biases, as `params_to_canonical` of an op does.

    Args:
        rnn_mode: the cell: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        params: the flat buffer of all weights and biases; its dtype is the RNN's.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: accepted for TF's callers; it does not change the params. Default: 0.0.
        seed: accepted for TF's callers; it does not change the params. Default: 0.
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        name: ignored. TF called its graph node by this name. Default: None.

    Returns:
        (weights, biases), two lists in cuDNN's order. That is layer by layer, then direction by direction, then gate by
        gate. A weight is [output width, input width], a bias [output width].

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support, or an array that is
            not its params buffer.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops
        >>> params = ops.CudnnGRU(1, num_units=8, input_size=4).init_params(seed=1)
        >>> weights, biases = ops.cudnn_rnn_opaque_params_to_canonical("gru", 1, 8, 4, params)
        >>> len(weights), weights[0].shape, biases[0].shape
        (6, (8, 4), (8,))
    """
    dtype = _dtype_of("params", params)
    op = _op(rnn_mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed, num_proj)
    return op.params_to_canonical(params)


def cudnn_rnn_canonical_to_opaque_params(
    rnn_mode: ModeLike,
    num_layers: int,
    num_units: int,
    input_size: int,
    weights: Sequence[Any],
    biases: Sequence[Any],
    input_mode: InputModeLike = "linear_input",
    direction: DirectionLike = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> Any:
    """Join weights and biases into one params buffer, as `canonical_to_params` of an op does.

    Args:
        rnn_mode: the cell: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        weights: the weights, in the order of `cudnn_rnn_opaque_params_to_canonical`; their dtype is the RNN's.
        biases: the biases, in the same order.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: accepted for TF's callers; it does not change the params. Default: 0.0.
        seed: accepted for TF's callers; it does not change the params. Default: 0.
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        name: ignored. TF called its graph node by this name. Default: None.

    Returns:
        A new buffer, where the arrays are.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support, a wrong number of
            arrays, or an array of a wrong shape or dtype.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops
        >>> params = ops.CudnnGRU(1, num_units=8, input_size=4).init_params(seed=1)
        >>> lists = ops.cudnn_rnn_opaque_params_to_canonical("gru", 1, 8, 4, params)
        >>> ops.cudnn_rnn_canonical_to_opaque_params("gru", 1, 8, 4, *lists).shape
        (336,)
    """
    dtype = _dtype_of("weights[0]", weights[0]) if len(weights) else DType.FLOAT32
    op = _op(rnn_mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed, num_proj)
    return op.canonical_to_params(weights, biases)


def _op(rnn_mode: ModeLike, *described: Any) -> CudnnRNN:
    return CudnnRNN(RNNSpec(check_word(RNNMode, "rnn_mode", rnn_mode), *described))


def _op_of(
    mode: RNNMode, inputs: Any, state: Any, state_name: str, input_mode: InputModeLike, direction: DirectionLike,
    *described: Any,
) -> CudnnRNN:  # fmt: skip
    """Return the op that the arrays describe. The width of `state` is num_units."""
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
    return _op(mode, rows // num_dirs, num_units, inputs.shape[2], input_mode, direction, dtype, *described)


def _dtype_of(name: str, array: Any) -> DType:
    kind_of(name, array)
    return parse_dtype(f"{name} dtype", array.dtype)
