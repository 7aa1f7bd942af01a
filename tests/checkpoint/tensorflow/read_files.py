"""TensorFlow reads: `python -m tests.checkpoint.tensorflow.read_files PREFIX OUT.npz` says what is under a prefix.

The arrays come in the order of their names, as bytes; the names, types and shapes are printed.
"""

import json
import sys

import numpy as np

from tests.checkpoint.tensorflow import process  # noqa: F401  before TensorFlow

import tensorflow as tf  # isort: skip


def main():
    prefix, out = sys.argv[1:]
    reader = tf.train.load_checkpoint(prefix)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    names = sorted(shapes)
    np.savez(out, *[np.ascontiguousarray(reader.get_tensor(name)).reshape(-1).view(np.uint8) for name in names])
    print(json.dumps([[name, dtypes[name].name, shapes[name]] for name in names]))


if __name__ == "__main__":
    main()
