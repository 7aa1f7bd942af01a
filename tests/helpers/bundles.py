"""TensorFlow's checkpoints as files, for what reads them."""

from pycudnnrnn import _atomic
from pycudnnrnn.checkpoint import _bundle


def write_bundle(prefix, tensors):
    """Write arrays of any names as a checkpoint; a `Saver` has only those of its things."""
    _atomic.write_together(_bundle.images(prefix, tensors))
