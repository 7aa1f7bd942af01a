"""Read a tf.contrib.cudnn_rnn model out of a TensorFlow checkpoint, and run it; TensorFlow is not needed.

python examples/tf_checkpoint.py model.ckpt-1000 [SCOPE [ACTIVATION]]

The checkpoint is named by its prefix, its .index or its folder. SCOPE is what stands before "rnn/" or
"stack_bidirectional_rnn/" in the variables' names, "cudnn_lstm" most often; `pycudnnrnn inspect` lists those that are
there. ACTIVATION, "tanh" or "relu", has to be said for CudnnRNNTanh and CudnnRNNRelu, which write the same names.
"""

import sys

import numpy as np

from pycudnnrnn import checkpoint, convert, ops

path, scope, activation = (*sys.argv[1:], *["", None][len(sys.argv) - 2 :])

arrays = checkpoint.read_tensorflow(path)
c = convert.tensorflow.to_canonical(arrays, prefix=scope, activation=activation)  # a warning names what it leaves out
op = ops.from_spec(c.spec)
params = op.canonical_to_params(c.weights, c.biases)
print(c.spec)

x = np.linspace(-1, 1, 6 * 2 * op.input_size).reshape(6, 2, -1).astype(c.spec.dtype)  # [T, B, input_size]
output, *states = op(x, *([None] * (2 if c.spec.has_cell_state else 1)), params, is_training=False)
print("output", output.shape, "mean", f"{output.mean():.6f}")
