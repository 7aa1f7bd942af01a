"""Frameworks with rows = output, gates stacked, two biases and one name per stack: PyTorch and Gluon."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pycudnnrnn.convert._canonical import Array, Canonical, PseudoLayer, assemble, split
from pycudnnrnn.convert._gates import from_rows, to_rows
from pycudnnrnn.convert._named import Named, mode_of
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

Naming = Callable[[str, int, int], str]
"""(kind, layer, direction) to a name; kind is "W", "R", "bW", "bR" or "projection"."""


def read(
    framework: str, named: Named, name: Naming, num_layers: int, num_dirs: int, activation: str, *, has_biases: bool
) -> Canonical:
    """Take every array of the model, and nothing else.

    Raises:
        ConvertError: an array is missing, left over or misshapen.
    """
    first, projection = name("R", 0, 0), name("projection", 0, 0)
    rows, P = named.shape(first, 2)
    U = named.shape(projection, 2)[1] if projection in named else P
    if projection in named and rows != 4 * U:
        named.refuse(projection, f"expecting {rows} / 4 columns (only the LSTM projects), got {U}")
    mode = mode_of(framework, first, rows, U, activation)
    if activation == "relu" and mode in (RNNMode.LSTM, RNNMode.GRU) and framework == "pytorch":
        raise ConvertError(framework, "nonlinearity", f"'relu' belongs to the plain cell, and this is {str(mode)!r}")
    I = named.shape(name("W", 0, 0), 2)[1]
    layers = []
    for layer in range(num_layers):
        for direction in range(num_dirs):

            def take(kind: str, *shape: int, at: tuple[int, int] = (layer, direction)) -> Array:
                return named.take(name(kind, *at), *shape)

            W = take("W", rows, I if layer == 0 else num_dirs * P)
            R = take("R", rows, P)
            bW = from_rows(framework, mode, take("bW", rows)) if has_biases else None
            bR = from_rows(framework, mode, take("bR", rows)) if has_biases else None
            projected = take("projection", P, U) if projection in named else None
            W, R = from_rows(framework, mode, W), from_rows(framework, mode, R)
            layers.append(PseudoLayer(W, R, bW, bR, projected))
    named.finish()
    return assemble(framework, mode, layers, num_dirs)


def write(framework: str, c: Canonical, name: Naming) -> dict[str, Array]:
    """Return every array under its name, in the framework's order.

    Raises:
        ConvertError: what the framework cannot hold.
    """
    found: dict[str, Array] = {}
    for p, pseudo_layer in enumerate(split(framework, c, projection=True)):
        layer, direction = divmod(p, c.spec.num_dirs)
        arrays = {"W": pseudo_layer.W, "R": pseudo_layer.R}
        if pseudo_layer.biases:
            arrays |= {"bW": pseudo_layer.input_bias, "bR": pseudo_layer.recurrent_bias}
        for kind, gates in arrays.items():
            found[name(kind, layer, direction)] = to_rows(framework, c.spec.mode, gates)
        if pseudo_layer.projection is not None:
            found[name("projection", layer, direction)] = np.array(pseudo_layer.projection)
    return found
