"""LSTM, GRU and plain RNNs as ops, which hold no weights, and the functions of TF 1.x's `cudnn_rnn_ops`.

An op has a description and a dropout state, but no weights: you own the flat buffer `params` and pass it to each call.
CUDA arrays run on cuDNN (not yet run on a GPU), CPU arrays on the NumPy engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pycudnnrnn._arrays import ArrayT
from pycudnnrnn._checks import not_here, with_hints
from pycudnnrnn.engines import DropoutState, Memory
from pycudnnrnn.engines.cudnn.choices import AlgorithmChoice, AlgorithmTrial, algorithm_choices
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.ops._forward import Forward, Gradients
from pycudnnrnn.ops._functional import (
    cudnn_gru,
    cudnn_lstm,
    cudnn_rnn_canonical_to_opaque_params,
    cudnn_rnn_opaque_params_size,
    cudnn_rnn_opaque_params_to_canonical,
    cudnn_rnn_relu,
    cudnn_rnn_tanh,
)
from pycudnnrnn.ops._op import CudnnRNN
from pycudnnrnn.ops._plan import Graph, Plan
from pycudnnrnn.ops._stream import Stream
from pycudnnrnn.schedule import Lengths
from pycudnnrnn.spec import (
    AlgorithmLike,
    BiasModeLike,
    DirectionLike,
    DType,
    DTypeLike,
    InputModeLike,
    MathTypeLike,
    RNNMode,
    RNNSpec,
)

__all__ = [
    "AlgorithmChoice",
    "AlgorithmTrial",
    "CudnnGRU",
    "CudnnLSTM",
    "CudnnRNN",
    "CudnnRNNRelu",
    "CudnnRNNTanh",
    "DropoutState",
    "Forward",
    "Gradients",
    "Graph",
    "Memory",
    "Plan",
    "Stream",
    "algorithm_choices",
    "cudnn_gru",
    "cudnn_lstm",
    "cudnn_rnn_canonical_to_opaque_params",
    "cudnn_rnn_opaque_params_size",
    "cudnn_rnn_opaque_params_to_canonical",
    "cudnn_rnn_relu",
    "cudnn_rnn_tanh",
    "from_spec",
]
__dir__ = __all__.copy

if not TYPE_CHECKING:  # type checkers would take any name for an attribute

    def __getattr__(name: str) -> Any:
        raise not_here(__name__, name)


class CudnnLSTM(CudnnRNN):
    """Run an LSTM over a batch of sequences, with all gradients; optionally with a projection and a clipped cell state.

    Each step computes, from the input x, the hidden state h and the cell state c::

        i  = sigmoid(W_i x + bW_i + R_i h + bR_i)    input gate
        f  = sigmoid(W_f x + bW_f + R_f h + bR_f)    forget gate
        n  = tanh(W_n x + bW_n + R_n h + bR_n)       new value
        o  = sigmoid(W_o x + bW_o + R_o h + bR_o)    output gate
        c' = f * c + i * n                           within the bounds of cell_clip
        h' = o * tanh(c')                            with num_proj: P (o * tanh(c'))

    `*` multiplies element by element. Layer 0 reads the input data; each other layer reads the h of the layer below.

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `num_units`, P `num_proj`,
    and S for the width of h: P with a projection, otherwise U.

    The op holds no weights. Each call takes `params`, one flat buffer: [all weights ... all biases]. For each layer and
    direction, with the gates in the order i, f, n, o, it contains:

    - weights W [U, I] (above layer 0 [U, D * S]), weights R [U, S], and the projection [P, U] if there is one;
    - biases bW [U] and bR [U], as far as `bias_mode` has them.

    `init_params()` makes this buffer, `layout()` shows it, `layout().region(...)` finds one matrix or bias in it, and
    `params_to_canonical()` splits it into separate arrays.

    An op runs on cuDNN for CUDA arrays and on the NumPy engine for CPU arrays. Several threads may call one op; they
    share only its dropout state. A number in place of `dtype` is read in TF r1.2's order: (..., direction, dropout,
    seed).

    Args:
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
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, and of `init_params` if that gets none. From 0 to 2**64 - 1. Default: 0.
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        cell_clip: bounds of an LSTM's cell state c: a positive number x for [-x, x], a pair (low, high), or None for no
            bounds. They are rounded to float32 with every dtype. Default: None.
        algo: algorithm of cuDNN; the NumPy engine ignores it. "standard" runs everything. "persist_static",
            "persist_dynamic" and "persist_static_small_h" need sequences of equal length, double biases, no
            projection and no float16 arithmetic. Of these three, only "persist_dynamic" runs float64. "auto" measures
            all that can run and takes the fastest. Default: "standard".
        math_type: what cuDNN may use for matrix products; the NumPy engine ignores it. "fma": fused multiply-add,
            without TF32. "default": cuDNN's choice, which may be TF32. "tensor_op": tensor cores.
            "tensor_op_allow_conversion": tensor cores, also after conversion to a narrower type. None: "fma" for
            float32 and float64, "tensor_op" for 16-bit types. Default: None.
        compute_dtype: type of the arithmetic: "float32" or "float16" for float16; the other dtypes have one choice.
            None: "float32" for 16-bit types, otherwise `dtype`. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> op = ops.CudnnLSTM(num_layers=2, num_units=8, input_size=4)
        >>> params = op.init_params(seed=1)
        >>> x = np.ones((5, 3, 4), np.float32)  # 5 steps of 3 sequences
        >>> output, output_h, output_c = op(x, None, None, params, is_training=False)
        >>> output.shape, output_h.shape, output_c.shape
        ((5, 3, 8), (2, 3, 8), (2, 3, 8))
        >>> gradients = op.forward(x, None, None, params).backward(d_output=output)
        >>> gradients.params.shape == params.shape
        True

    Source: tf.contrib.cudnn_rnn r1.4 for the signature, cudnn_adv.h (9.x) for the arguments after `seed`.
    """

    @with_hints
    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: InputModeLike = "linear_input",
        direction: DirectionLike = "unidirectional",
        dtype: DTypeLike = "float32",
        dropout: float = 0.0,
        seed: int = 0,
        num_proj: int | None = None,
        *,
        bias_mode: BiasModeLike = "double",
        cell_clip: float | tuple[float, float] | None = None,
        algo: AlgorithmLike = "standard",
        math_type: MathTypeLike | None = None,
        compute_dtype: DTypeLike | None = None,
    ) -> None:
        dtype, dropout, seed = _tf12_order(dtype, dropout, seed)
        super().__init__(
            RNNSpec(
                RNNMode.LSTM, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed,
                num_proj, bias_mode, cell_clip, algo, math_type, compute_dtype,
            )
        )  # fmt: skip

    @property
    def num_proj(self) -> int | None:
        """The width P of the projected h, or None without a projection."""
        return self.spec.num_proj

    @with_hints
    def forward(
        self,
        input_data: ArrayT,
        input_h: Any,
        input_c: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Lengths | None = None,
        time_major: bool = True,
        keep_reserve: bool | None = None,
        checkpoint_every: int | None = None,
    ) -> Forward[ArrayT]:
        """Run the LSTM and return its results, with the methods for the backward pass.

        Args:
            input_data: the input, [T, B, I], or [B, T, I] with `time_major=False`. The call runs where this array is.
            input_h: the initial h of each layer and direction, [L * D, B, S], or None for zeros.
            input_c: the initial c of each layer and direction, [L * D, B, U], or None for zeros.
            params: the flat buffer of all weights and biases, [params_size()].
            is_training: whether dropout acts between the layers. Default: True.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. Outputs
                after the end of a sequence are 0; its final states are those of its last step. None: all sequences
                have T steps. Default: None.
            time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
                states does not depend on it. Default: True.
            keep_reserve: whether to keep the reserve: the intermediate results that a backward pass needs. None: the
                same as `is_training`. Default: None.
            checkpoint_every: number of steps between kept states. If given, only these states are kept in place of
                the reserve, and the backward pass computes the rest again. This saves memory and takes about the time
                of one more forward; see `memory`. For one direction only. None: keep the reserve. Default: None.

        Returns:
            A `Forward` with arrays of the same kind as `input_data`. Its `output` is [T, B, D * S] or [B, T, D * S];
            `output_h` and `output_c` have the shapes of `input_h` and `input_c`. Its `backward` methods compute
            gradients.

        Raises:
            ArgumentError: an array of a wrong shape, dtype or device, or a sequence length outside 0 to T.
            ArgumentTypeError: an argument of a wrong type.
            EngineError: no engine runs where the arrays are.
            MissingDependencyError: CUDA arrays without CuPy, or bfloat16 without ml_dtypes.
        """
        call = self.run(
            input_data, input_h, input_c, params, is_training, sequence_lengths, time_major,
            keep_reserve=keep_reserve, checkpoint_every=checkpoint_every,
        )  # fmt: skip
        return Forward(*call)

    @with_hints
    def __call__(
        self,
        input_data: ArrayT,
        input_h: Any,
        input_c: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Lengths | None = None,
        time_major: bool = True,
    ) -> tuple[ArrayT, ArrayT, ArrayT]:
        """Run the LSTM and keep nothing for a backward pass. For gradients, call `forward`.

        Args:
            input_data: the input, [T, B, I], or [B, T, I] with `time_major=False`. The call runs where this array is.
            input_h: the initial h of each layer and direction, [L * D, B, S], or None for zeros.
            input_c: the initial c of each layer and direction, [L * D, B, U], or None for zeros.
            params: the flat buffer of all weights and biases, [params_size()].
            is_training: whether dropout acts between the layers. Default: True.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. Outputs
                after the end of a sequence are 0; its final states are those of its last step. None: all sequences
                have T steps. Default: None.
            time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
                states does not depend on it. Default: True.

        Returns:
            (output, output_h, output_c), arrays of the same kind as `input_data`. The output is [T, B, D * S] or
            [B, T, D * S]; the final states have the shapes of `input_h` and `input_c`.

        Raises:
            ArgumentError: an array of a wrong shape, dtype or device, or a sequence length outside 0 to T.
            ArgumentTypeError: an argument of a wrong type.
            EngineError: no engine runs where the arrays are.
            MissingDependencyError: CUDA arrays without CuPy, or bfloat16 without ml_dtypes.
        """
        return self.run(input_data, input_h, input_c, params, is_training, sequence_lengths, time_major)[1:]


class _WithoutCellState(CudnnRNN):
    """The constructor, `forward` and `__call__` of an op without a cell state c."""

    _mode: ClassVar[RNNMode]

    @with_hints
    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: InputModeLike = "linear_input",
        direction: DirectionLike = "unidirectional",
        dtype: DTypeLike = "float32",
        dropout: float = 0.0,
        seed: int = 0,
        *,
        bias_mode: BiasModeLike = "double",
        algo: AlgorithmLike = "standard",
        math_type: MathTypeLike | None = None,
        compute_dtype: DTypeLike | None = None,
    ) -> None:
        dtype, dropout, seed = _tf12_order(dtype, dropout, seed)
        super().__init__(
            RNNSpec(
                self._mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed,
                bias_mode=bias_mode, algo=algo, math_type=math_type, compute_dtype=compute_dtype,
            )
        )  # fmt: skip

    @with_hints
    def forward(
        self,
        input_data: ArrayT,
        input_h: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Lengths | None = None,
        time_major: bool = True,
        keep_reserve: bool | None = None,
        checkpoint_every: int | None = None,
    ) -> Forward[ArrayT]:
        """Run the RNN and return its results, with the methods for the backward pass.

        Args:
            input_data: the input, [T, B, I], or [B, T, I] with `time_major=False`. The call runs where this array is.
            input_h: the initial h of each layer and direction, [L * D, B, U], or None for zeros.
            params: the flat buffer of all weights and biases, [params_size()].
            is_training: whether dropout acts between the layers. Default: True.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. Outputs
                after the end of a sequence are 0; its final states are those of its last step. None: all sequences
                have T steps. Default: None.
            time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
                states does not depend on it. Default: True.
            keep_reserve: whether to keep the reserve: the intermediate results that a backward pass needs. None: the
                same as `is_training`. Default: None.
            checkpoint_every: number of steps between kept states. If given, only these states are kept in place of
                the reserve, and the backward pass computes the rest again. This saves memory and takes about the time
                of one more forward; see `memory`. For one direction only. None: keep the reserve. Default: None.

        Returns:
            A `Forward` with arrays of the same kind as `input_data`. Its `output` is [T, B, D * U] or [B, T, D * U];
            `output_h` has the shape of `input_h`. Its `backward` methods compute gradients.

        Raises:
            ArgumentError: an array of a wrong shape, dtype or device, or a sequence length outside 0 to T.
            ArgumentTypeError: an argument of a wrong type.
            EngineError: no engine runs where the arrays are.
            MissingDependencyError: CUDA arrays without CuPy, or bfloat16 without ml_dtypes.
        """
        call = self.run(
            input_data, input_h, None, params, is_training, sequence_lengths, time_major,
            keep_reserve=keep_reserve, checkpoint_every=checkpoint_every,
        )  # fmt: skip
        return Forward(*call)

    @with_hints
    def __call__(
        self,
        input_data: ArrayT,
        input_h: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Lengths | None = None,
        time_major: bool = True,
    ) -> tuple[ArrayT, ArrayT]:
        """Run the RNN and keep nothing for a backward pass. For gradients, call `forward`.

        Args:
            input_data: the input, [T, B, I], or [B, T, I] with `time_major=False`. The call runs where this array is.
            input_h: the initial h of each layer and direction, [L * D, B, U], or None for zeros.
            params: the flat buffer of all weights and biases, [params_size()].
            is_training: whether dropout acts between the layers. Default: True.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. Outputs
                after the end of a sequence are 0; its final states are those of its last step. None: all sequences
                have T steps. Default: None.
            time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of the
                states does not depend on it. Default: True.

        Returns:
            (output, output_h), arrays of the same kind as `input_data`. The output is [T, B, D * U] or [B, T, D * U];
            the final state has the shape of `input_h`.

        Raises:
            ArgumentError: an array of a wrong shape, dtype or device, or a sequence length outside 0 to T.
            ArgumentTypeError: an argument of a wrong type.
            EngineError: no engine runs where the arrays are.
            MissingDependencyError: CUDA arrays without CuPy, or bfloat16 without ml_dtypes.
        """
        return self.run(input_data, input_h, None, params, is_training, sequence_lengths, time_major)[1:3]


class CudnnGRU(_WithoutCellState):
    """Run a GRU over a batch of sequences, with all gradients.

    Each step computes, from the input x and the hidden state h::

        r  = sigmoid(W_r x + bW_r + R_r h + bR_r)     reset gate
        z  = sigmoid(W_z x + bW_z + R_z h + bR_z)     update gate
        n  = tanh(W_n x + bW_n + r * (R_n h + bR_n))  new value
        h' = (1 - z) * n + z * h

    `*` multiplies element by element. The reset gate acts after the recurrent product, as in cuDNN and torch. The two
    biases of n therefore differ in effect. Layer 0 reads the input data; each other layer reads the h of the layer
    below.

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `num_units`.

    The op holds no weights. Each call takes `params`, one flat buffer: [all weights ... all biases]. For each layer and
    direction, with the gates in the order r, z, n, it contains:

    - weights W [U, I] (above layer 0 [U, D * U]) and weights R [U, U];
    - biases bW [U] and bR [U], as far as `bias_mode` has them.

    `init_params()` makes this buffer, `layout()` shows it, `layout().region(...)` finds one matrix or bias in it, and
    `params_to_canonical()` splits it into separate arrays.

    An op runs on cuDNN for CUDA arrays and on the NumPy engine for CPU arrays. Several threads may call one op; they
    share only its dropout state. A number in place of `dtype` is read in TF r1.2's order: (..., direction, dropout,
    seed).

    Args:
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
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, and of `init_params` if that gets none. From 0 to 2**64 - 1. Default: 0.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        algo: algorithm of cuDNN; the NumPy engine ignores it. "standard" runs everything. "persist_static",
            "persist_dynamic" and "persist_static_small_h" need sequences of equal length, double biases, no
            projection and no float16 arithmetic. Of these three, only "persist_dynamic" runs float64. "auto" measures
            all that can run and takes the fastest. Default: "standard".
        math_type: what cuDNN may use for matrix products; the NumPy engine ignores it. "fma": fused multiply-add,
            without TF32. "default": cuDNN's choice, which may be TF32. "tensor_op": tensor cores.
            "tensor_op_allow_conversion": tensor cores, also after conversion to a narrower type. None: "fma" for
            float32 and float64, "tensor_op" for 16-bit types. Default: None.
        compute_dtype: type of the arithmetic: "float32" or "float16" for float16; the other dtypes have one choice.
            None: "float32" for 16-bit types, otherwise `dtype`. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> op = ops.CudnnGRU(num_layers=2, num_units=8, input_size=4)
        >>> params = op.init_params(seed=1)
        >>> x = np.ones((5, 3, 4), np.float32)  # 5 steps of 3 sequences
        >>> output, output_h = op(x, None, params, is_training=False)
        >>> output.shape, output_h.shape
        ((5, 3, 8), (2, 3, 8))
        >>> gradients = op.forward(x, None, params).backward(d_output=output)
        >>> gradients.params.shape == params.shape
        True

    Source: tf.contrib.cudnn_rnn r1.4 for the signature, cudnn_adv.h (9.x) for the arguments after `seed`.
    """

    _mode = RNNMode.GRU


class CudnnRNNTanh(_WithoutCellState):
    """Run a plain RNN with tanh over a batch of sequences, with all gradients.

    Each step computes, from the input x and the hidden state h::

        h' = tanh(W x + bW + R h + bR)

    Layer 0 reads the input data; each other layer reads the h of the layer below.

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `num_units`.

    The op holds no weights. Each call takes `params`, one flat buffer: [all weights ... all biases]. For each layer and
    direction, it contains:

    - weights W [U, I] (above layer 0 [U, D * U]) and weights R [U, U];
    - biases bW [U] and bR [U], as far as `bias_mode` has them.

    `init_params()` makes this buffer, `layout()` shows it, `layout().region(...)` finds one matrix or bias in it, and
    `params_to_canonical()` splits it into separate arrays.

    An op runs on cuDNN for CUDA arrays and on the NumPy engine for CPU arrays. Several threads may call one op; they
    share only its dropout state. A number in place of `dtype` is read in TF r1.2's order: (..., direction, dropout,
    seed).

    Args:
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
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, and of `init_params` if that gets none. From 0 to 2**64 - 1. Default: 0.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        algo: algorithm of cuDNN; the NumPy engine ignores it. "standard" runs everything. "persist_static",
            "persist_dynamic" and "persist_static_small_h" need sequences of equal length, double biases, no
            projection and no float16 arithmetic. Of these three, only "persist_dynamic" runs float64. "auto" measures
            all that can run and takes the fastest. Default: "standard".
        math_type: what cuDNN may use for matrix products; the NumPy engine ignores it. "fma": fused multiply-add,
            without TF32. "default": cuDNN's choice, which may be TF32. "tensor_op": tensor cores.
            "tensor_op_allow_conversion": tensor cores, also after conversion to a narrower type. None: "fma" for
            float32 and float64, "tensor_op" for 16-bit types. Default: None.
        compute_dtype: type of the arithmetic: "float32" or "float16" for float16; the other dtypes have one choice.
            None: "float32" for 16-bit types, otherwise `dtype`. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> op = ops.CudnnRNNTanh(num_layers=2, num_units=8, input_size=4)
        >>> params = op.init_params(seed=1)
        >>> x = np.ones((5, 3, 4), np.float32)  # 5 steps of 3 sequences
        >>> output, output_h = op(x, None, params, is_training=False)
        >>> output.shape, output_h.shape
        ((5, 3, 8), (2, 3, 8))
        >>> gradients = op.forward(x, None, params).backward(d_output=output)
        >>> gradients.params.shape == params.shape
        True

    Source: tf.contrib.cudnn_rnn r1.4 for the signature, cudnn_adv.h (9.x) for the arguments after `seed`.
    """

    _mode = RNNMode.RNN_TANH


class CudnnRNNRelu(_WithoutCellState):
    """Run a plain RNN with relu over a batch of sequences, with all gradients.

    Each step computes, from the input x and the hidden state h::

        h' = relu(W x + bW + R h + bR)    relu(a) = max(a, 0)

    Layer 0 reads the input data; each other layer reads the h of the layer below.

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `num_units`.

    The op holds no weights. Each call takes `params`, one flat buffer: [all weights ... all biases]. For each layer and
    direction, it contains:

    - weights W [U, I] (above layer 0 [U, D * U]) and weights R [U, U];
    - biases bW [U] and bR [U], as far as `bias_mode` has them.

    `init_params()` makes this buffer, `layout()` shows it, `layout().region(...)` finds one matrix or bias in it, and
    `params_to_canonical()` splits it into separate arrays.

    An op runs on cuDNN for CUDA arrays and on the NumPy engine for CPU arrays. Several threads may call one op; they
    share only its dropout state. A number in place of `dtype` is read in TF r1.2's order: (..., direction, dropout,
    seed).

    Args:
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
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, and of `init_params` if that gets none. From 0 to 2**64 - 1. Default: 0.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        algo: algorithm of cuDNN; the NumPy engine ignores it. "standard" runs everything. "persist_static",
            "persist_dynamic" and "persist_static_small_h" need sequences of equal length, double biases, no
            projection and no float16 arithmetic. Of these three, only "persist_dynamic" runs float64. "auto" measures
            all that can run and takes the fastest. Default: "standard".
        math_type: what cuDNN may use for matrix products; the NumPy engine ignores it. "fma": fused multiply-add,
            without TF32. "default": cuDNN's choice, which may be TF32. "tensor_op": tensor cores.
            "tensor_op_allow_conversion": tensor cores, also after conversion to a narrower type. None: "fma" for
            float32 and float64, "tensor_op" for 16-bit types. Default: None.
        compute_dtype: type of the arithmetic: "float32" or "float16" for float16; the other dtypes have one choice.
            None: "float32" for 16-bit types, otherwise `dtype`. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> op = ops.CudnnRNNRelu(num_layers=2, num_units=8, input_size=4)
        >>> params = op.init_params(seed=1)
        >>> x = np.ones((5, 3, 4), np.float32)  # 5 steps of 3 sequences
        >>> output, output_h = op(x, None, params, is_training=False)
        >>> output.shape, output_h.shape
        ((5, 3, 8), (2, 3, 8))
        >>> gradients = op.forward(x, None, params).backward(d_output=output)
        >>> gradients.params.shape == params.shape
        True

    Source: tf.contrib.cudnn_rnn r1.4 for the signature, cudnn_adv.h (9.x) for the arguments after `seed`.
    """

    _mode = RNNMode.RNN_RELU


def from_spec(spec: RNNSpec) -> CudnnRNN:
    """Return the op of a spec: a `CudnnLSTM`, `CudnnGRU`, `CudnnRNNTanh` or `CudnnRNNRelu`.

    Calls of an LSTM take `input_c` between `input_h` and `params`; calls of the other ops do not.

    Args:
        spec: the RNN to run, for example that of a converted model.

    Raises:
        ArgumentTypeError: not an `RNNSpec`.

    Example:
        >>> from pycudnnrnn import RNNSpec, ops
        >>> ops.from_spec(RNNSpec("gru", 1, 8, 4))
        ops.CudnnGRU(1, 8, 4)
    """
    if not isinstance(spec, RNNSpec):
        raise ArgumentTypeError("spec", "an RNNSpec (of a convert.Canonical c it is c.spec)", type(spec))
    kinds: dict[RNNMode, Callable[..., CudnnRNN]] = {RNNMode.LSTM: CudnnLSTM}
    kinds |= {kind._mode: kind for kind in (CudnnGRU, CudnnRNNTanh, CudnnRNNRelu)}  # noqa: SLF001
    arguments = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.name != "mode"}
    if spec.mode is not RNNMode.LSTM:
        del arguments["num_proj"], arguments["cell_clip"]
    return kinds[spec.mode](**arguments)


def _tf12_order(dtype: Any, dropout: Any, seed: Any) -> tuple[Any, Any, Any]:
    """Read TF r1.2's order (dropout, seed) if the place of dtype holds a number."""
    if isinstance(dtype, bool) or not isinstance(dtype, (int, float, np.number)):
        return dtype, dropout, seed
    if dropout and seed:
        raise ArgumentError("dtype", "a dtype, or TF r1.2's order (dropout, seed) with no third number", dtype)
    return DType.FLOAT32, dtype, seed or dropout or 0
