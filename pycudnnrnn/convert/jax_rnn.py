"""`jax.experimental.rnn`: the flat weights of its LSTM."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array, unstack
from pycudnnrnn.convert.exchange import Canonical, assemble, split
from pycudnnrnn.convert.gates import form_of
from pycudnnrnn.convert.named import Named, flag
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_MOST: Final = 2**20
"""Largest size or layer count that is accepted. Beyond it no machine could hold the vector."""

_FORM: Final = form_of("jax_rnn", RNNMode.LSTM, biases=True, projection=False)
_HALVES: Final = ((0, 1), (2, 3))
"""The vector has the matrices of all cells, then the biases of all cells."""


def to_canonical(
    arrays: Any, *, input_size: int, hidden_size: int, num_layers: int = 1, bidirectional: bool = False
) -> Canonical:
    """Read the weights of `jax.experimental.rnn.lstm`, one flat vector.

    Args:
        arrays: the dict {"weights": vector}. The vector has W and R of each pseudo-layer, then bW and bR of each.
        input_size: width of the input, as in `rnn.lstm`; the vector does not contain the sizes.
        hidden_size: width of the state, as in `rnn.lstm`.
        num_layers: number of layers, as in `rnn.lstm`. Default: 1.
        bidirectional: whether each layer has a backward pass, as in `rnn.lstm`. Default: False.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: another key, a vector of another length, or a size that is not a positive integer.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> vector = np.ones(16 * (3 + 4 + 2), "float32")
        >>> c = convert.jax_rnn.to_canonical({"weights": vector}, input_size=3, hidden_size=4)
        >>> c.spec
        RNNSpec('lstm', 1, 4, 3)

    Source: jax.experimental.rnn.unpack_lstm_weights (0.10).
    """
    for name, size in {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 0 < size <= _MOST:
            raise ConvertError("jax_rnn", name, f"expecting a positive integer, got {shorten(size)}")
    bidirectional = flag("jax_rnn", "bidirectional", bidirectional)
    named = Named("jax_rnn", arrays)
    I, U, D = int(input_size), int(hidden_size), 1 + bidirectional
    shapes = [[t.shape(D * U if layer else I, U, U) for t in _FORM] for layer in range(num_layers) for _ in range(D)]
    in_order = [(p, i) for half in _HALVES for p in range(len(shapes)) for i in half]
    flat = named.take("weights", sum(math.prod(shape) for each in shapes for shape in each))
    named.finish()
    ends = itertools.accumulate(math.prod(shapes[p][i]) for p, i in in_order)
    parts = dict(zip(in_order, np.split(flat, list(ends)[:-1]), strict=True))
    cells = [{t.name: parts[p, i].reshape(each[i]) for i, t in enumerate(_FORM)} for p, each in enumerate(shapes)]
    return assemble("jax_rnn", RNNMode.LSTM, [unstack(_FORM, arrays, 4) for arrays in cells], D)


def from_canonical(c: Canonical) -> dict[str, Array]:
    """Write the weights of `jax.experimental.rnn.lstm`, one flat vector.

    Absent biases become zeros, and skip input becomes identity matrices. The results are equal.

    Args:
        c: the model to write: its spec, weights and biases.

    Returns:
        The dict {"weights": vector}.

    Raises:
        ConvertError: not an LSTM, a projection or cell clipping, which this function does not have.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> arrays = convert.jax_rnn.from_canonical(c)
        >>> {name: array.shape for name, array in arrays.items()}
        {'weights': (144,)}
    """
    layers = split("jax_rnn", c)
    if c.spec.mode is not RNNMode.LSTM:
        raise ConvertError("jax_rnn", "mode", f"it has only the LSTM, and this is {str(c.spec.mode)!r}")
    return {"weights": np.concatenate([_FORM[i].of(layer).reshape(-1) for h in _HALVES for layer in layers for i in h])}
