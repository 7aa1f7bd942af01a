"""Converters of weights from and to other frameworks, which need not be installed.

Each module has `to_canonical(arrays, ...)`, which reads a dict of arrays into a `Canonical`, and
`from_canonical(c, ...)`, which writes one. They import no framework, open no file and change no argument. Results are
new NumPy arrays. They raise only `ConvertError`, which names the array and the reason. To move weights from PyTorch to
Keras::

    c = convert.pytorch.to_canonical(module.state_dict())
    arrays = convert.keras.from_canonical(c)
"""

from __future__ import annotations

from pycudnnrnn.convert import chainer, equinox, flax, gluon, jax_rnn, keras, onnx, pytorch, tensorflow
from pycudnnrnn.convert.exchange import Canonical
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
