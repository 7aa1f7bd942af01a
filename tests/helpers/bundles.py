"""TensorFlow's checkpoints as files, for what reads them."""

from pycudnnrnn.checkpoint import bundle


def write_bundle(prefix, tensors):
    """Write arrays of any names as a checkpoint; a `Saver` has only those of its things."""
    bundle.write(prefix, tensors)
