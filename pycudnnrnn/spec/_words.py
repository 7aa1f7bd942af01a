"""The words that describe an RNN, and cuDNN's limits."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, Final, Literal

import numpy as np

from pycudnnrnn._checks import check_word, needs, one_of, shorten
from pycudnnrnn.errors import ArgumentTypeError

INT32_MAX: Final = 2**31 - 1
"""Largest size that cuDNN takes. Source: `int` arguments of cudnnSetRNNDescriptor_v8 (cudnn_adv.h)."""

SEED_MAX: Final = 2**64 - 1
"""Largest dropout seed. Source: `unsigned long long seed` of cudnnSetDropoutDescriptor (cudnn_ops.h)."""

TIME_MAX: Final = 65535
"""Most time steps of one cuDNN call. Source: cudnnSetRNNDataDescriptor (cudnn_adv.h; observed, 8.9.7 to 9.28)."""


class RNNMode(StrEnum):
    """The four cells, by TF's names (tf.contrib.cudnn_rnn)."""

    LSTM = "lstm"
    GRU = "gru"
    RNN_TANH = "rnn_tanh"
    RNN_RELU = "rnn_relu"


class Direction(StrEnum):
    """The directions in which a layer reads a sequence: forward, or forward and backward."""

    UNIDIRECTIONAL = "unidirectional"
    BIDIRECTIONAL = "bidirectional"


class InputMode(StrEnum):
    """How layer 0 uses its input: multiply it by matrices, or add it to every gate unchanged."""

    LINEAR_INPUT = "linear_input"
    SKIP_INPUT = "skip_input"


class BiasMode(StrEnum):
    """The biases of each gate. Source: cudnnRNNBiasMode_t (cudnn_adv.h)."""

    NONE = "none"
    SINGLE_INPUT = "single_input"
    DOUBLE = "double"
    SINGLE_RECURRENT = "single_recurrent"


class DType(StrEnum):
    """Element types of data and params."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype. bfloat16 needs the package `ml_dtypes`.

        Raises:
            MissingDependencyError: bfloat16 without ml_dtypes.
        """
        if self is not DType.BFLOAT16:
            return np.dtype(self)
        with needs("ml_dtypes", "bfloat16", "bfloat16 on NumPy arrays"):
            import ml_dtypes  # noqa: PLC0415  optional
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return 2 if self is DType.BFLOAT16 else self.numpy.itemsize


class MathType(StrEnum):
    """The arithmetic that cuDNN may use; "default" permits TF32. Source: cudnnMathType_t (cudnn_graph.h)."""

    DEFAULT = "default"
    TENSOR_OP = "tensor_op"
    TENSOR_OP_ALLOW_CONVERSION = "tensor_op_allow_conversion"
    FMA = "fma"


class Algorithm(StrEnum):
    """cuDNN's algorithms, and "auto": the fastest by measurement. Source: cudnnRNNAlgo_t (cudnn_adv.h)."""

    STANDARD = "standard"
    PERSIST_STATIC = "persist_static"
    PERSIST_DYNAMIC = "persist_dynamic"
    PERSIST_STATIC_SMALL_H = "persist_static_small_h"
    AUTO = "auto"


class LSTMGate(IntEnum):
    """linLayerID of an LSTM gate's input matrix; the recurrent one is 4 higher. Source: cudnnGetRNNWeightParams."""

    INPUT = 0
    FORGET = 1
    NEW = 2
    OUTPUT = 3


class GRUGate(IntEnum):
    """linLayerID of a GRU gate's input matrix; the recurrent one is 3 higher. Source: cudnnGetRNNWeightParams."""

    RESET = 0
    UPDATE = 1
    NEW = 2


class PlainGate(IntEnum):
    """linLayerID of the tanh or relu cell's input matrix; the recurrent one is 1 higher."""

    HIDDEN = 0


GATES: Final[dict[RNNMode, type[LSTMGate | GRUGate | PlainGate]]] = {
    RNNMode.LSTM: LSTMGate,
    RNNMode.GRU: GRUGate,
    RNNMode.RNN_TANH: PlainGate,
    RNNMode.RNN_RELU: PlainGate,
}

LSTM_PROJECTION_ID: Final = 8
"""linLayerID of the LSTM projection matrix. Source: cudnnGetRNNWeightParams (cudnn_adv.h)."""

COMPUTE_DTYPES: Final[dict[DType, tuple[DType, ...]]] = {
    DType.FLOAT16: (DType.FLOAT32, DType.FLOAT16),
    DType.BFLOAT16: (DType.FLOAT32,),
    DType.FLOAT32: (DType.FLOAT32,),
    DType.FLOAT64: (DType.FLOAT64,),
}
"""Types of arithmetic for each dtype, the default first: cudnnSetRNNDescriptor_v8's mathPrec (observed, 9.28)."""

FLOAT64_ALGORITHMS: Final = (Algorithm.STANDARD, Algorithm.PERSIST_DYNAMIC, Algorithm.AUTO)
"""Algorithms that run float64. Source: cudnnSetRNNDescriptor_v8 (observed, 8.9.7 to 9.28)."""

STANDARD_ALGORITHMS: Final = (Algorithm.STANDARD, Algorithm.AUTO)
"""Algorithms for projection, bias modes other than double, and float16 arithmetic (observed, 8.9.7 to 9.28)."""

AUTO_SELECT: Final = "auto_select"
"""TF's third input mode: "skip_input" if input_size == num_units, otherwise "linear_input"."""

ModeLike = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"] | RNNMode
"""A cell, as its word or its `RNNMode`."""

DirectionLike = Literal["unidirectional", "bidirectional"] | Direction
"""A direction, as its word or its `Direction`."""

InputModeLike = Literal["linear_input", "skip_input", "auto_select"] | InputMode
"""An input mode, as its word or its `InputMode`; "auto_select" has a word only."""

BiasModeLike = Literal["none", "single_input", "double", "single_recurrent"] | BiasMode
"""A bias mode, as its word or its `BiasMode`."""

DTypeLike = Literal["float16", "bfloat16", "float32", "float64"] | Any
"""A dtype, as its word, its `DType`, or the dtype object of NumPy, torch, JAX or TensorFlow."""

AlgorithmLike = Literal["standard", "persist_static", "persist_dynamic", "persist_static_small_h", "auto"] | Algorithm
"""An algorithm, as its word or its `Algorithm`."""

MathTypeLike = Literal["default", "tensor_op", "tensor_op_allow_conversion", "fma"] | MathType
"""A math type, as its word or its `MathType`."""


def parse_dtype(name: str, value: Any) -> DType:
    """Return the `DType` of a dtype by any library.

    Args:
        name: name of the argument in error texts.
        value: a word, a `DType`, a NumPy dtype or scalar type, or the dtype object of torch, JAX or TensorFlow.

    Raises:
        ArgumentError: a dtype that cuDNN's RNNs do not have.
        ArgumentTypeError: None, a number or a bool.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn.spec import parse_dtype
        >>> str(parse_dtype("dtype", np.float32))
        'float32'
    """
    if not isinstance(value, str):
        if value is None or isinstance(value, (bool, int, float)):
            raise ArgumentTypeError(name, one_of([str(d) for d in DType]), shorten(value))
        try:
            value = np.dtype(value).name
        except TypeError:  # torch.float32 prints as "torch.float32", tf.float32 has a name
            value = getattr(value, "name", str(value)).rpartition(".")[2]
    return check_word(DType, name, value)
