"""From a Keras LSTM's file to a running op, on a machine without Keras.

python examples/keras_to_op.py model.keras [LAYER ...]
"""

import sys

import numpy as np

from pycudnnrnn import convert, ops

read = convert.keras.read_keras if sys.argv[1].endswith(".keras") else convert.keras.read_h5
arrays = read(sys.argv[1])
c = convert.keras.to_canonical(arrays, layers=sys.argv[2:] or None)
op = ops.from_spec(c.spec)
params = op.canonical_to_params(c.weights, c.biases)
x = np.linspace(-1, 1, 5 * 2 * op.input_size).reshape(5, 2, -1).astype(c.spec.dtype)  # [T, B, input_size]
output, h, cell = op(x, None, None, params, is_training=False)
print(c.spec)
print("output", output.shape, "mean", f"{output.mean():.6f}")
