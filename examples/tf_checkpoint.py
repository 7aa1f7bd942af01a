"""Read a tf.contrib.cudnn_rnn model from a TensorFlow checkpoint and run it, without TensorFlow.

python examples/tf_checkpoint.py model.ckpt-1000 [SCOPE [ACTIVATION]]

The checkpoint is named by its prefix, its .index or its folder. SCOPE is the part of the variables' names before "rnn/"
or "stack_bidirectional_rnn/", often "cudnn_lstm". A file with one RNN does not need it. ACTIVATION, "tanh" or "relu",
is required for CudnnRNNTanh and CudnnRNNRelu, because both write the same names.
"""

import argparse

import numpy as np

from pycudnnrnn import checkpoint, convert, ops

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("checkpoint")
parser.add_argument("scope", nargs="?")
parser.add_argument("activation", nargs="?", choices=["tanh", "relu"])
options = parser.parse_args()

scopes = list(checkpoint.inspect(options.checkpoint).items)
if options.scope is None and len(scopes) != 1:
    problem = f"give the scope of one of its {len(scopes)} RNNs: {', '.join(scopes)}"
    parser.error(problem if scopes else "the file has no RNN")
scope = scopes[0] if options.scope is None else options.scope

arrays = checkpoint.read_tensorflow(options.checkpoint)
c = convert.tensorflow.to_canonical(  # a warning names what it leaves out
    arrays, prefix=scope, activation=options.activation
)
op = ops.from_spec(c.spec)
params = op.canonical_to_params(c)
print(c.spec)

x = np.linspace(-1, 1, 6 * 2 * op.input_size).reshape(6, 2, -1).astype(c.spec.dtype)  # [T, B, input_size]
output, *states = op(x, *([None] * (2 if c.spec.has_cell_state else 1)), params, is_training=False)
print("output", output.shape, "mean", f"{output.mean():.6f}")
