"""`jax.experimental.rnn`: the flat weights of its LSTM."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pycudnnrnn.convert._canonical import Array, Canonical, PseudoLayer, assemble, split
from pycudnnrnn.convert._gates import from_rows, to_rows
from pycudnnrnn.convert._named import Named, flag
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

_MOST: Final = 2**20
"""Largest size or layer count that is believed: beyond it the vector's length would not fit a machine."""


def to_canonical(
    arrays: Any, *, input_size: int, hidden_size: int, num_layers: int = 1, bidirectional: bool = False
) -> Canonical:
    """Read {"weights": vector}. The sizes are the arguments that `rnn.lstm` takes: the vector does not say them.

    Shapes:
        weights: [all elements]: W and R of each pseudo-layer, then bW and bR of each.

    Raises:
        ConvertError: another key, a vector of another length, or a size that is not one.

    Source: jax.experimental.rnn.unpack_lstm_weights (0.10).
    """
    for name, size in {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 0 < size <= _MOST:
            raise ConvertError("jax_rnn", name, f"expecting a positive integer, got {size!r}")
    bidirectional = flag("jax_rnn", "bidirectional", bidirectional)
    named = Named("jax_rnn", arrays)
    I, U, D, rows = int(input_size), int(hidden_size), 1 + bidirectional, 4 * int(hidden_size)
    shapes = [(rows, D * U if layer else I) for layer in range(num_layers) for _ in range(D)]
    total = sum(rows * columns + rows * U + 2 * rows for _, columns in shapes)
    flat = named.take("weights", total)
    named.finish()
    position = 0

    def take(*shape: int) -> Array:
        nonlocal position
        start, position = position, position + int(np.prod(shape))
        return from_rows("jax_rnn", RNNMode.LSTM, flat[start:position].reshape(shape))

    matrices = [(take(*shape), take(rows, U)) for shape in shapes]
    biases = [(take(rows), take(rows)) for _ in shapes]
    layers = [PseudoLayer(*pair, *bias) for pair, bias in zip(matrices, biases, strict=True)]
    return assemble("jax_rnn", RNNMode.LSTM, layers, D)


def from_canonical(c: Canonical) -> dict[str, Array]:
    """Write {"weights": vector}; absent biases become zeros and skip input identity matrices, equal in value.

    Raises:
        ConvertError: not an LSTM, a projection, or cell clipping.
    """
    layers = split("jax_rnn", c)
    if c.spec.mode is not RNNMode.LSTM:
        raise ConvertError("jax_rnn", "mode", f"it has only the LSTM, and this is {str(c.spec.mode)!r}")
    parts = [gates for layer in layers for gates in (layer.W, layer.R)]
    parts += [gates for layer in layers for gates in (layer.input_bias, layer.recurrent_bias)]
    return {"weights": np.concatenate([to_rows("jax_rnn", RNNMode.LSTM, gates).reshape(-1) for gates in parts])}
