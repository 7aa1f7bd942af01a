"""Layers to test, with random weights and biases."""

import numpy as np

from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnRNNRelu, CudnnRNNTanh

OF_MODE = {"lstm": CudnnLSTM, "gru": CudnnGRU, "rnn_tanh": CudnnRNNTanh, "rnn_relu": CudnnRNNRelu}
ALL = list(OF_MODE.values())


def layer_of(spec, **keywords):
    """Return the layer that a spec describes, not built."""
    lstm = {"num_proj": spec.num_proj, "cell_clip": spec.cell_clip} if spec.mode == "lstm" else {}
    return OF_MODE[spec.mode](
        spec.num_layers, spec.num_units, spec.input_mode, spec.direction, spec.dropout, spec.seed, spec.dtype,
        bias_mode=spec.bias_mode, **lstm, **keywords,
    )  # fmt: skip


def built(kind=CudnnLSTM, input_size=5, seed=1, dtype="float64", **keywords):
    """Return a layer of two layers and three units."""
    layer = kind(2, 3, seed=seed, dtype=dtype, **keywords)
    layer.build((None, None, input_size))
    layer.params += np.random.default_rng(seed).normal(scale=0.3, size=layer.params.shape).astype(layer.params.dtype)
    return layer


def batch(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)
