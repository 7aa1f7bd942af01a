"""TensorFlow 1.x: the variables of `CudnnCompatibleLSTMCell`, `CudnnCompatibleGRUCell`, `BasicRNNCell` and `LSTMCell`.

The names of the compatible cells are those that tf.contrib.cudnn_rnn wrote to checkpoints. Beside them stand, where
there are two biases per gate, TF 1.3's `bias_cudnn_0` and `bias_cudnn_1`: TF keeps only the sum, and with them the way
back is bit for bit. Names and stitching are those of layers and saveables.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn._tf1.models import LSTM_CELLS
from pycudnnrnn._tf1.tensors import STACKED_GATES, from_tf, tf_tensors
from pycudnnrnn._tf1.tensors import to_tf as stitched
from pycudnnrnn.convert._exchange import Canonical, check_target
from pycudnnrnn.convert._named import flag, under
from pycudnnrnn.convert.tensorflow.variables import read
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import BiasMode, LSTMGate, RNNMode

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy


def to_canonical(
    arrays: Any, *, prefix: str = "", activation: str | None = None, forget_bias: float | None = None
) -> Canonical:
    """Read the variables of a checkpoint under a scope.

    One bias per gate becomes cuDNN's single input bias. The GRU's candidate has two, so its biases are double: the
    gates' go into the input bias whole. So they are where the pair `bias_cudnn_0`, `bias_cudnn_1` stands beside `bias`;
    it counts when its sum is `bias`, which a cell trained further changes. A `projection/kernel` gives the LSTM a
    projection. A first layer whose kernel has no rows for the input is skip input.

    What is of no cell is left out, and a warning names it: slots of optimizers, `opaque_kernel`, other layers.

    Args:
        arrays: the variables by name, as `checkpoint.read_tensorflow` gives them.
        prefix: the scope, with or without its slash: "cudnn_lstm".
        activation: "tanh" or "relu", which has to be said for `BasicRNNCell`: CudnnRNNTanh and CudnnRNNRelu write the
            same names.
        forget_bias: what `LSTMCell`, `BasicLSTMCell` and `LSTMBlockCell` add to the forget gate when they run, which is
            added to its bias here. None is their own default, 1.0, and a warning says so.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen; another activation; `GRUCell`, whose reset gate
            comes before the product.

    Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (r1.15), r1.3 for the pair;
    tensorflow/python/ops/rnn_cell_impl.py (r1.15).
    """
    spec, cell, tensors, aside = read(arrays, prefix, activation)
    if aside:
        warnings.warn(f"left out, since they are of no cell: {aside}", UserWarning, stacklevel=2)
    dtype = next(iter(tensors.values())).dtype
    weights, biases = from_tf(spec, tensors, halve=False)
    if cell in LSTM_CELLS:
        biases = _with_forget_bias(biases, cell, forget_bias)
    elif forget_bias is not None:
        raise ConvertError("tensorflow", "forget_bias", f"{cell} adds nothing to its forget gate")
    return Canonical(spec.replace(dtype=dtype), tuple(map(np.array, weights)), tuple(map(np.array, biases)))


def from_canonical(c: Canonical, *, prefix: str = "", keep_biases_apart: bool = True) -> dict[str, Array]:
    """Write the variables of the cells; `prefix` (a scope, with or without its slash) goes before every name.

    `keep_biases_apart=False` leaves out `bias_cudnn_0` and `bias_cudnn_1`, which TF's cells do not have.

    Raises:
        ConvertError: cell clipping.
    """
    check_target("tensorflow", c, projection=True)
    apart = flag("tensorflow", "keep_biases_apart", keep_biases_apart) and c.spec.bias_mode is BiasMode.DOUBLE
    if c.spec.mode is RNNMode.GRU and c.biases:
        c = c.double_biases()  # its candidate has two biases in TF, whatever the gates have
    arrays = stitched(c.spec, c.weights, c.biases)
    found = {t.name: arrays[t.name] for t in tf_tensors(c.spec) if t.kind != "pair" or apart}
    return under("tensorflow", prefix, found)


def _with_forget_bias(biases: list[Array], cell: str, forget_bias: float | None) -> list[Array]:
    """Add what the cell adds when it runs; its one bias per gate is the input's."""
    if forget_bias is None:
        forget_bias = 1.0
        text = (
            f"{cell} adds forget_bias to its forget gate when it runs: 1.0, its default, was added to that gate's bias"
        )
        warnings.warn(f"{text}; forget_bias=... says another", UserWarning, stacklevel=3)
    if not isinstance(forget_bias, (int, float)) or isinstance(forget_bias, bool) or not math.isfinite(forget_bias):
        raise ConvertError("tensorflow", f"forget_bias {shorten(forget_bias)}", "expecting a finite number")
    each = len(STACKED_GATES[RNNMode.LSTM])
    forget = range(int(LSTMGate.FORGET), len(biases), each)
    return [(b + b.dtype.type(forget_bias)) if i in forget else b for i, b in enumerate(biases)]
