"""Weights in and out of other frameworks: plain dicts of arrays, on a machine that has none of them.

Each module has `to_canonical(arrays, ...) -> Canonical` and `from_canonical(canonical, ...) -> dict`. No framework is
imported, no file is opened and no argument is changed; results are NumPy arrays of their own. `ConvertError` is the
only error: it says what cannot be converted, and why.
"""

from __future__ import annotations

from pycudnnrnn.convert import chainer, equinox, flax, gluon, jax_rnn, keras, onnx, pytorch, tensorflow
from pycudnnrnn.convert._exchange import Canonical
from pycudnnrnn.errors import ConvertError

__all__ = [
    "Canonical",
    "ConvertError",
    "chainer",
    "equinox",
    "flax",
    "gluon",
    "jax_rnn",
    "keras",
    "onnx",
    "pytorch",
    "tensorflow",
]
__dir__ = __all__.copy
