"""Read a tf.contrib.cudnn_rnn model out of a TensorFlow checkpoint, and run it without TensorFlow.

python examples/tf_checkpoint.py model.ckpt-1000 SCOPE/       # on a machine with TensorFlow, any version
python examples/tf_checkpoint.py model.npz SCOPE/             # on any machine

The first form also writes model.npz, which is all that the second one needs. SCOPE/ is what stands before "rnn/" or
"stack_bidirectional_rnn/" in the variables' names, "cudnn_lstm/" most often.
"""

import sys
from pathlib import Path

import numpy as np

from pycudnnrnn import convert, ops

OPTIMIZERS = ("/Adam", "/Adam_1", "/Momentum", "/RMSProp", "/RMSProp_1", "/Adadelta", "/Adagrad")  # their slots

path, scope = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
if path.suffix == ".npz":
    arrays = dict(np.load(path, allow_pickle=False))
else:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(path))
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    arrays = {name: a for name, a in arrays.items() if name.startswith(scope) and not name.endswith(OPTIMIZERS)}
    np.savez("model.npz", **arrays)

c = convert.tensorflow.to_canonical(arrays, prefix=scope)
op = ops.from_spec(c.spec)
params = op.canonical_to_params(c.weights, c.biases)
print(c.spec)

x = np.linspace(-1, 1, 6 * 2 * op.input_size).reshape(6, 2, -1).astype(c.spec.dtype)  # [T, B, input_size]
output, *states = op(x, *([None] * (2 if c.spec.has_cell_state else 1)), params, is_training=False)
print("output", output.shape, "mean", f"{output.mean():.6f}")
