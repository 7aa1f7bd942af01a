"""TensorFlow's checkpoints as files, for what reads them."""

from pycudnnrnn.checkpoint import _bundle


def write_bundle(prefix, tensors):
    """Write arrays of any names as a checkpoint; a `Saver` has only those of its things."""
    _bundle.write(prefix, tensors)
