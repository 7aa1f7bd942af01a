"""TF 1.5+'s layers, which own their variable: the same four cells as in `ops`.

`_layer.RNNLayer` has what they share, and says what their arguments mean.

Source: tensorflow/contrib/cudnn_rnn/python/layers/cudnn_rnn.py, TF 1.5 to 1.15.
"""

from __future__ import annotations

from typing import Any

from pycudnnrnn._keywords import told
from pycudnnrnn._tf1.variable import Variable
from pycudnnrnn.layers._forward import LayerForward, LayerGradients, Stream
from pycudnnrnn.layers._graph import LayerGraph
from pycudnnrnn.layers._layer import RNNLayer
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, RNNMode

__all__ = [
    "CudnnGRU",
    "CudnnLSTM",
    "CudnnRNNRelu",
    "CudnnRNNTanh",
    "LayerForward",
    "LayerGradients",
    "LayerGraph",
    "RNNLayer",
    "Stream",
    "Variable",
]
__dir__ = __all__.copy


class CudnnLSTM(RNNLayer):
    """The LSTM layer, with cuDNN's projection and cell clipping by keyword; `RNNLayer` says what arguments mean."""

    _mode = RNNMode.LSTM

    @told
    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: str = InputMode.LINEAR_INPUT,
        direction: str = Direction.UNIDIRECTIONAL,
        dropout: float = 0.0,
        seed: int | None = None,
        dtype: Any = DType.FLOAT32,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        *,
        device: str | None = None,
        num_proj: int | None = None,
        cell_clip: float | tuple[float, float] | None = None,
        bias_mode: str = BiasMode.DOUBLE,
        algo: str = Algorithm.STANDARD,
        math_type: str | None = None,
        compute_dtype: Any = None,
    ) -> None:
        self._lstm_only = {"num_proj": num_proj, "cell_clip": cell_clip}
        super().__init__(
            num_layers, num_units, input_mode, direction, dropout, seed, dtype, kernel_initializer, bias_initializer,
            name, device=device, bias_mode=bias_mode, algo=algo, math_type=math_type, compute_dtype=compute_dtype,
        )  # fmt: skip


class CudnnGRU(RNNLayer):
    """The GRU layer, reset after the recurrent product; `RNNLayer` says what arguments mean."""

    _mode = RNNMode.GRU


class CudnnRNNTanh(RNNLayer):
    """The tanh RNN layer; `RNNLayer` says what arguments mean."""

    _mode = RNNMode.RNN_TANH


class CudnnRNNRelu(RNNLayer):
    """The relu RNN layer; `RNNLayer` says what arguments mean."""

    _mode = RNNMode.RNN_RELU
