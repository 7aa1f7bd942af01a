"""Run the LSTM or GRU of a Keras file as an op, without Keras.

python examples/keras_to_op.py model.keras [LAYER ...]
"""

import argparse

import numpy as np

from pycudnnrnn import convert, ops

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("file")
parser.add_argument("layers", nargs="*", metavar="LAYER", default=None)
options = parser.parse_args()

arrays = convert.keras.read(options.file)
c = convert.keras.to_canonical(arrays, layers=options.layers or None)
op = ops.from_spec(c.spec)
params = op.canonical_to_params(c)
x = np.linspace(-1, 1, 5 * 2 * op.input_size).reshape(5, 2, -1).astype(c.spec.dtype)  # [T, B, input_size]
zeros = [None] * (2 if c.spec.has_cell_state else 1)
output, *states = op(x, *zeros, params, is_training=False)
print(c.spec)
print("output", output.shape, "mean", f"{output.mean():.6f}")
