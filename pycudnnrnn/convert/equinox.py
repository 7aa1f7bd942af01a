"""Equinox: `eqx.nn.LSTMCell` and `eqx.nn.GRUCell`, one or a stack of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pycudnnrnn.convert._canonical import Array, Canonical, PseudoLayer, assemble, split
from pycudnnrnn.convert._gates import from_rows, to_rows
from pycudnnrnn.convert._named import Named, mode_of
from pycudnnrnn.convert._stack import find_cells, path_of
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

_LEAVES: Final = frozenset({"weight_ih", "weight_hh", "bias", "bias_n"})
_JOINTS: Final = re.compile(r"[/.\[\]'\"]+")


def to_canonical(arrays: Any, *, layers: Sequence[str] | None = None, bidirectional: bool | None = None) -> Canonical:
    """Read `weight_ih`, `weight_hh`, `bias` and `bias_n` of one cell, or of cells under paths.

    Paths may be nested dicts or strings, joined by slashes or as `jax.tree_util.keystr` writes them (".cells[0].bias").
    `layers` names them in order; `bidirectional=True` reads two cells per layer, forward first, where the paths do not
    say it. The LSTM's one bias becomes cuDNN's single input bias; the GRU keeps `bias_n` apart, so its biases are
    double. `use_bias=False` is bias mode none.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, or layers that have no order.

    Source: equinox.nn (0.13).
    """
    named = Named("equinox", arrays, joints=_JOINTS)
    cells, num_dirs = find_cells(named, _leaf, layers, bidirectional)
    first = cells[0].keys
    if "weight_hh" not in first:
        named.refuse(f"{cells[0].path}/weight_hh", "missing")
    rows, U = named.shape(first["weight_hh"], 2)
    mode = mode_of("equinox", first["weight_hh"], rows, U, "tanh")
    if mode not in (RNNMode.LSTM, RNNMode.GRU):
        named.refuse(first["weight_hh"], "has one gate, and Equinox has no such cell")
    inputs = named.shape(cells[0].key("weight_ih"), 2)[1]
    found = []
    for p, cell in enumerate(cells):
        columns = inputs if p < num_dirs else num_dirs * U
        W = from_rows("equinox", mode, named.take(cell.key("weight_ih"), rows, columns))
        R = from_rows("equinox", mode, named.take(cell.key("weight_hh"), rows, U))
        bW = bR = None
        if "bias" in first or (mode is RNNMode.GRU and "bias_n" in first):
            bW = from_rows("equinox", mode, named.take(cell.key("bias"), rows))
        if mode is RNNMode.GRU and bW is not None:
            new = named.take(cell.key("bias_n"), U)
            bR = from_rows("equinox", mode, np.concatenate([np.zeros(2 * U, new.dtype), new]))
        found.append(PseudoLayer(W, R, bW, bR))
    named.finish()
    return assemble("equinox", mode, found, num_dirs)


def from_canonical(c: Canonical) -> dict[str, Array]:
    """Write the cells: "weight_ih" for one, "0/weight_ih" for a stack, "0/forward/weight_ih" for both directions.

    Biases are summed but for the GRU's new gate; skip input becomes identity matrices.

    Raises:
        ConvertError: a plain cell, a projection, or cell clipping.
    """
    layers = split("equinox", c)
    mode = c.spec.mode
    if mode not in (RNNMode.LSTM, RNNMode.GRU):
        raise ConvertError("equinox", "mode", f"it has only LSTMCell and GRUCell, and this is {str(mode)!r}")
    found: dict[str, Array] = {}
    for p, layer in enumerate(layers):
        path = path_of(*divmod(p, c.spec.num_dirs), c.spec.num_layers, c.spec.num_dirs)
        found[f"{path}weight_ih"] = to_rows("equinox", mode, layer.W)
        found[f"{path}weight_hh"] = to_rows("equinox", mode, layer.R)
        if not layer.biases:
            continue
        bias = to_rows("equinox", mode, layer.sum_of_biases)
        if mode is RNNMode.GRU:
            U = c.spec.num_units
            bias[2 * U :] = to_rows("equinox", mode, layer.input_bias)[2 * U :]
            found[f"{path}bias_n"] = to_rows("equinox", mode, layer.recurrent_bias)[2 * U :].copy()
        found[f"{path}bias"] = bias
    return found


def _leaf(key: str) -> tuple[str, str] | None:
    path, _, leaf = key.rpartition("/")
    return (path, leaf) if leaf in _LEAVES else None
