"""The layers of TF 1.5 to 1.15: each owns its weights. The same four cells as in `ops`.

`CudnnLSTM`, `CudnnGRU`, `CudnnRNNTanh` and `CudnnRNNRelu` are what a user constructs. Their calls return the others.

Source: tensorflow/contrib/cudnn_rnn/python/layers/cudnn_rnn.py, TF 1.5 to 1.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pycudnnrnn._checks import with_hints
from pycudnnrnn._tf1.arguments import InitializerLike
from pycudnnrnn._tf1.variable import Variable
from pycudnnrnn.layers._forward import LayerForward, LayerGradients, LayerGraph
from pycudnnrnn.layers._layer import RNNLayer, check_canonical
from pycudnnrnn.spec import AlgorithmLike, BiasModeLike, DirectionLike, DTypeLike, InputModeLike, MathTypeLike, RNNMode

if TYPE_CHECKING:
    from pycudnnrnn.convert import Canonical

__all__ = [
    "CudnnGRU",
    "CudnnLSTM",
    "CudnnRNNRelu",
    "CudnnRNNTanh",
    "LayerForward",
    "LayerGradients",
    "LayerGraph",
    "RNNLayer",
    "Variable",
    "from_canonical",
]
__dir__ = __all__.copy


class CudnnLSTM(RNNLayer):
    """Run an LSTM over sequences, with weights that the layer owns.

    Each step computes, from the input x, the hidden state h and the cell state c::

        i  = sigmoid(W_i x + bW_i + R_i h + bR_i)    input gate
        f  = sigmoid(W_f x + bW_f + R_f h + bR_f)    forget gate
        n  = tanh(W_n x + bW_n + R_n h + bR_n)       new value
        o  = sigmoid(W_o x + bW_o + R_o h + bR_o)    output gate
        c' = f * c + i * n                           within the bounds of cell_clip
        h' = o * tanh(c')                            with num_proj: P (o * tanh(c'))

    `*` multiplies element by element. Layer 0 reads the inputs; each other layer reads the h of the layer below.

    Letters: T steps, B sequences, I inputs (the width of the data), L `num_layers`, D directions (1 or 2), U
    `num_units`, P `num_proj`, and S for the width of h: P with a projection, otherwise U. The layer learns I from its
    first inputs.

    The layer has one variable, `params`: a flat array, [all weights ... all biases]. Its name is
    `<name>/opaque_kernel`, as in TensorFlow. For each layer and direction, with the gates in the order i, f, n, o, it
    contains:

    - weights W [U, I] (above layer 0 [U, D * S]), weights R [U, S], and the projection [P, U] if there is one;
    - biases bW [U] and bR [U], as far as `bias_mode` has them.

    `layer.op.layout()` shows the array, and `layer.op.layout().region(...)` finds one matrix or bias in it.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the starting weights and of the dropout masks. From 0 to 2**64 - 1. None: a random seed.
            Default: None.
        dtype: type of data and params: "float16", "bfloat16", "float32" or "float64", or the dtype object of NumPy,
            torch, JAX or TensorFlow. Default: "float32".
        kernel_initializer: how each matrix starts: "glorot_uniform", "glorot_normal", "orthogonal", "random_normal",
            "random_uniform", "zeros", "ones", or a callable (shape, dtype) that returns an array, called once per
            matrix. Each matrix gets its own random numbers. None: "glorot_uniform". Default: None.
        bias_initializer: how each bias starts: the words and callables of `kernel_initializer`. None: "zeros".
            Default: None.
        name: name of the layer, with which its variables' names begin. None: the class's name, in lower case with
            underscores. Default: None.
        device: where the layer runs: "cpu", "cuda" or "cuda:0". None: where its first inputs are, or "cpu" if `build`
            comes before them. Default: None.
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        cell_clip: bounds of an LSTM's cell state c: a positive number x for [-x, x], a pair (low, high), or None for no
            bounds. They are rounded to float32 with every dtype. Default: None.
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

    Shapes:
        inputs: [T, B, I], or [B, T, I] with `time_major=False`.
        outputs: [T, B, D * S] or [B, T, D * S].
        states: the pair (h, c): h is [L * D, B, S], c is [L * D, B, U].

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import CudnnLSTM
        >>> layer = CudnnLSTM(num_layers=2, num_units=8, seed=0)
        >>> x = np.ones((10, 4, 3), "float32")  # 10 steps of 4 sequences, 3 inputs
        >>> outputs, (h, c) = layer(x)
        >>> outputs.shape, h.shape, c.shape
        ((10, 4, 8), (2, 4, 8), (2, 4, 8))

    Source: tf.contrib.cudnn_rnn.CudnnLSTM, TF 1.5 to 1.15.
    """

    _mode = RNNMode.LSTM

    @with_hints
    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: InputModeLike = "linear_input",
        direction: DirectionLike = "unidirectional",
        dropout: float = 0.0,
        seed: int | None = None,
        dtype: DTypeLike = "float32",
        kernel_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        name: str | None = None,
        *,
        device: str | None = None,
        num_proj: int | None = None,
        cell_clip: float | tuple[float, float] | None = None,
        bias_mode: BiasModeLike = "double",
        algo: AlgorithmLike = "standard",
        math_type: MathTypeLike | None = None,
        compute_dtype: DTypeLike | None = None,
    ) -> None:
        self._lstm_only = {"num_proj": num_proj, "cell_clip": cell_clip}
        super().__init__(
            num_layers, num_units, input_mode, direction, dropout, seed, dtype, kernel_initializer, bias_initializer,
            name, device=device, bias_mode=bias_mode, algo=algo, math_type=math_type, compute_dtype=compute_dtype,
        )  # fmt: skip


class CudnnGRU(RNNLayer):
    """Run a GRU over sequences, with weights that the layer owns.

    Each step computes, from the input x and the hidden state h::

        r  = sigmoid(W_r x + bW_r + R_r h + bR_r)     reset gate
        z  = sigmoid(W_z x + bW_z + R_z h + bR_z)     update gate
        n  = tanh(W_n x + bW_n + r * (R_n h + bR_n))  new value
        h' = (1 - z) * n + z * h

    `*` multiplies element by element. The reset gate acts after the recurrent product, as in cuDNN and torch. The two
    biases of n therefore differ in effect. Layer 0 reads the inputs; each other layer reads the h of the layer
    below.

    Letters: T steps, B sequences, I inputs (the width of the data), L `num_layers`, D directions (1 or 2), U
    `num_units`. The layer learns I from its first inputs.

    The layer has one variable, `params`: a flat array, [all weights ... all biases]. Its name is
    `<name>/opaque_kernel`, as in TensorFlow. For each layer and direction, with the gates in the order r, z, n, it
    contains:

    - weights W [U, I] (above layer 0 [U, D * U]) and weights R [U, U];
    - biases bW [U] and bR [U], as far as `bias_mode` has them.

    `layer.op.layout()` shows the array, and `layer.op.layout().region(...)` finds one matrix or bias in it.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the starting weights and of the dropout masks. From 0 to 2**64 - 1. None: a random seed.
            Default: None.
        dtype: type of data and params: "float16", "bfloat16", "float32" or "float64", or the dtype object of NumPy,
            torch, JAX or TensorFlow. Default: "float32".
        kernel_initializer: how each matrix starts: "glorot_uniform", "glorot_normal", "orthogonal", "random_normal",
            "random_uniform", "zeros", "ones", or a callable (shape, dtype) that returns an array, called once per
            matrix. Each matrix gets its own random numbers. None: "glorot_uniform". Default: None.
        bias_initializer: how each bias starts: the words and callables of `kernel_initializer`. None: "zeros".
            Default: None.
        name: name of the layer, with which its variables' names begin. None: the class's name, in lower case with
            underscores. Default: None.
        device: where the layer runs: "cpu", "cuda" or "cuda:0". None: where its first inputs are, or "cpu" if `build`
            comes before them. Default: None.
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

    Shapes:
        inputs: [T, B, I], or [B, T, I] with `time_major=False`.
        outputs: [T, B, D * U] or [B, T, D * U].
        states: the tuple (h,): h is [L * D, B, U].

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import CudnnGRU
        >>> layer = CudnnGRU(num_layers=2, num_units=8, seed=0)
        >>> x = np.ones((10, 4, 3), "float32")  # 10 steps of 4 sequences, 3 inputs
        >>> outputs, (h,) = layer(x)
        >>> outputs.shape, h.shape
        ((10, 4, 8), (2, 4, 8))

    Source: tf.contrib.cudnn_rnn.CudnnGRU, TF 1.5 to 1.15.
    """

    _mode = RNNMode.GRU


class CudnnRNNTanh(RNNLayer):
    """Run a plain RNN with tanh over sequences, with weights that the layer owns.

    Each step computes, from the input x and the hidden state h::

        h' = tanh(W x + bW + R h + bR)

    Layer 0 reads the inputs; each other layer reads the h of the layer below.

    Letters: T steps, B sequences, I inputs (the width of the data), L `num_layers`, D directions (1 or 2), U
    `num_units`. The layer learns I from its first inputs.

    The layer has one variable, `params`: a flat array, [all weights ... all biases]. Its name is
    `<name>/opaque_kernel`, as in TensorFlow. For each layer and direction, it contains:

    - weights W [U, I] (above layer 0 [U, D * U]) and weights R [U, U];
    - biases bW [U] and bR [U], as far as `bias_mode` has them.

    `layer.op.layout()` shows the array, and `layer.op.layout().region(...)` finds one matrix or bias in it.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the starting weights and of the dropout masks. From 0 to 2**64 - 1. None: a random seed.
            Default: None.
        dtype: type of data and params: "float16", "bfloat16", "float32" or "float64", or the dtype object of NumPy,
            torch, JAX or TensorFlow. Default: "float32".
        kernel_initializer: how each matrix starts: "glorot_uniform", "glorot_normal", "orthogonal", "random_normal",
            "random_uniform", "zeros", "ones", or a callable (shape, dtype) that returns an array, called once per
            matrix. Each matrix gets its own random numbers. None: "glorot_uniform". Default: None.
        bias_initializer: how each bias starts: the words and callables of `kernel_initializer`. None: "zeros".
            Default: None.
        name: name of the layer, with which its variables' names begin. None: the class's name, in lower case with
            underscores. Default: None.
        device: where the layer runs: "cpu", "cuda" or "cuda:0". None: where its first inputs are, or "cpu" if `build`
            comes before them. Default: None.
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

    Shapes:
        inputs: [T, B, I], or [B, T, I] with `time_major=False`.
        outputs: [T, B, D * U] or [B, T, D * U].
        states: the tuple (h,): h is [L * D, B, U].

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import CudnnRNNTanh
        >>> layer = CudnnRNNTanh(num_layers=2, num_units=8, seed=0)
        >>> x = np.ones((10, 4, 3), "float32")  # 10 steps of 4 sequences, 3 inputs
        >>> outputs, (h,) = layer(x)
        >>> outputs.shape, h.shape
        ((10, 4, 8), (2, 4, 8))

    Source: tf.contrib.cudnn_rnn.CudnnRNNTanh, TF 1.5 to 1.15.
    """

    _mode = RNNMode.RNN_TANH


class CudnnRNNRelu(RNNLayer):
    """Run a plain RNN with relu over sequences, with weights that the layer owns.

    Each step computes, from the input x and the hidden state h::

        h' = relu(W x + bW + R h + bR)    relu(a) = max(a, 0)

    Layer 0 reads the inputs; each other layer reads the h of the layer below.

    Letters: T steps, B sequences, I inputs (the width of the data), L `num_layers`, D directions (1 or 2), U
    `num_units`. The layer learns I from its first inputs.

    The layer has one variable, `params`: a flat array, [all weights ... all biases]. Its name is
    `<name>/opaque_kernel`, as in TensorFlow. For each layer and direction, it contains:

    - weights W [U, I] (above layer 0 [U, D * U]) and weights R [U, U];
    - biases bW [U] and bR [U], as far as `bias_mode` has them.

    `layer.op.layout()` shows the array, and `layer.op.layout().region(...)` finds one matrix or bias in it.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the starting weights and of the dropout masks. From 0 to 2**64 - 1. None: a random seed.
            Default: None.
        dtype: type of data and params: "float16", "bfloat16", "float32" or "float64", or the dtype object of NumPy,
            torch, JAX or TensorFlow. Default: "float32".
        kernel_initializer: how each matrix starts: "glorot_uniform", "glorot_normal", "orthogonal", "random_normal",
            "random_uniform", "zeros", "ones", or a callable (shape, dtype) that returns an array, called once per
            matrix. Each matrix gets its own random numbers. None: "glorot_uniform". Default: None.
        bias_initializer: how each bias starts: the words and callables of `kernel_initializer`. None: "zeros".
            Default: None.
        name: name of the layer, with which its variables' names begin. None: the class's name, in lower case with
            underscores. Default: None.
        device: where the layer runs: "cpu", "cuda" or "cuda:0". None: where its first inputs are, or "cpu" if `build`
            comes before them. Default: None.
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

    Shapes:
        inputs: [T, B, I], or [B, T, I] with `time_major=False`.
        outputs: [T, B, D * U] or [B, T, D * U].
        states: the tuple (h,): h is [L * D, B, U].

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import CudnnRNNRelu
        >>> layer = CudnnRNNRelu(num_layers=2, num_units=8, seed=0)
        >>> x = np.ones((10, 4, 3), "float32")  # 10 steps of 4 sequences, 3 inputs
        >>> outputs, (h,) = layer(x)
        >>> outputs.shape, h.shape
        ((10, 4, 8), (2, 4, 8))

    Source: tf.contrib.cudnn_rnn.CudnnRNNRelu, TF 1.5 to 1.15.
    """

    _mode = RNNMode.RNN_RELU


KINDS: Final = {kind._mode: kind for kind in RNNLayer.__subclasses__()}  # noqa: SLF001  of these four
"""The layer of each cell."""


def from_canonical(canonical: Canonical, *, name: str | None = None, device: str | None = None) -> RNNLayer:
    """Return a built layer with the cell, the sizes and the weights of a converted model.

    Args:
        canonical: a `convert.Canonical`, such as `convert.pytorch.to_canonical` returns.
        name: name of the layer. None: TF's default. Default: None.
        device: "cpu", "cuda" or "cuda:<index>". None: "cpu". Default: None.

    Returns:
        A `CudnnLSTM`, `CudnnGRU`, `CudnnRNNTanh` or `CudnnRNNRelu`.

    Raises:
        ArgumentTypeError: not a `Canonical`.

    Example:
        >>> from pycudnnrnn import convert, layers, ops
        >>> op = ops.CudnnGRU(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> type(layers.from_canonical(c)).__name__
        'CudnnGRU'
    """
    return KINDS[check_canonical(canonical).spec.mode].from_canonical(canonical, name=name, device=device)
