"""Flax: linen's and nnx's `LSTMCell`, `OptimizedLSTMCell`, `GRUCell` and `SimpleCell`, one or a stack of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pycudnnrnn.convert._canonical import Array, Canonical, PseudoLayer, assemble, split
from pycudnnrnn.convert._gates import FLAX_LETTERS, from_columns, from_list, from_rows, to_columns, to_list, to_rows
from pycudnnrnn.convert._named import Named, flag, mode_of, plain_mode
from pycudnnrnn.convert._stack import Cell, find_cells, named_layers
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import GRUGate, RNNMode

_KEY: Final = re.compile(r"(?:(.*)/)?((?:if_|[ih][ifgorzn]?|dense_[ih])/(?:kernel|bias))")
_APIS: Final = ("linen", "nnx")


def to_canonical(
    arrays: Any,
    *,
    layers: Sequence[str] | None = None,
    bidirectional: bool | None = None,
    activation: str = "tanh",
) -> Canonical:
    """Read the params of cells: linen's `variables["params"]`, or nnx's `nnx.to_pure_dict(nnx.state(m, nnx.Param))`.

    `layers` names the layers in order, where their numbers do not. `bidirectional=True` reads two cells per layer,
    forward first, where the names do not say it, as with linen cells that a compact module made. `activation` is
    SimpleCell's.

    The LSTM's one bias becomes cuDNN's single recurrent bias, SimpleCell's and nnx's GRU's the single input bias. The
    linen GRU keeps the new gate's recurrent bias apart, so its biases are double.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, layers that have no order, or MGUCell.

    Source: flax.linen.recurrent, flax.nnx.nn.recurrent (0.12).
    """
    plain_mode("flax", activation)
    named = Named("flax", arrays)
    cells, num_dirs = find_cells(named, _leaf, layers, bidirectional)
    leaves = cells[0].keys
    if "dense_i/kernel" in leaves or "dense_h/kernel" in leaves:
        mode, found = _read_stacked(named, cells, num_dirs, activation)
    else:
        mode, found = _read_apart(named, cells, num_dirs, activation)
    named.finish()
    return assemble("flax", mode, found, num_dirs)


def from_canonical(
    c: Canonical, *, api: str = "linen", optimized: bool = False, layers: Sequence[str] | None = None
) -> dict[str, Array]:
    """Write the params, names joined by slashes: "cell/ii/kernel", or "forward_rnn/cell/ii/kernel" in Bidirectional.

    A stack has "layers_0/", "layers_1/" before that (linen's names for a list; "layers/0/" in nnx), or the names in
    `layers`. `flax.traverse_util.unflatten_dict(d, sep="/")` makes the tree. `api` is "linen" or "nnx"; `optimized`
    writes nnx's OptimizedLSTMCell (linen's has the same params as its LSTMCell). Biases are summed but for the linen
    GRU's new gate, absent ones become zeros, and skip input identity matrices.

    Raises:
        ConvertError: a projection, cell clipping, relu (SimpleCell takes it as a function, which is not an array), or,
            in nnx, a GRU whose new gate has a recurrent bias.
    """
    if api not in _APIS:
        raise ConvertError("flax", "api", f"expecting 'linen' or 'nnx', got {api!r}")
    optimized = flag("flax", "optimized", optimized)
    pseudo_layers = split("flax", c)
    spec = c.spec
    usual = [f"layers{'_' if api == 'linen' else '/'}{k}/" for k in range(spec.num_layers)]
    names = named_layers("flax", layers, usual if spec.num_layers > 1 else [""])
    found: dict[str, Array] = {}
    for p, layer in enumerate(pseudo_layers):
        k, direction = divmod(p, spec.num_dirs)
        name = names[k] if not names[k] or names[k].endswith("/") else names[k] + "/"
        path = name + (("forward_rnn/", "backward_rnn/")[direction] if spec.num_dirs == 2 else "") + "cell/"
        found |= {path + leaf: array for leaf, array in _written(spec.mode, layer, api, optimized).items()}
    return found


def _leaf(key: str) -> tuple[str, str] | None:
    match = _KEY.fullmatch(key)
    return (match[1] or "", match[2].replace("if_/", "if/")) if match else None


def _read_stacked(named: Named, cells: list[Cell], num_dirs: int, activation: str) -> tuple[RNNMode, list[PseudoLayer]]:
    """Read nnx's OptimizedLSTMCell, GRUCell and SimpleCell: gates side by side in two matrices."""
    U, columns = named.shape(cells[0].key("dense_h/kernel"), 2)
    inputs = named.shape(cells[0].key("dense_i/kernel"), 2)[0]
    mode = mode_of("flax", cells[0].key("dense_h/kernel"), columns, U, activation)
    found = []
    for p, cell in enumerate(cells):
        rows = inputs if p < num_dirs else num_dirs * U
        W = from_columns("flax", mode, named.take(cell.key("dense_i/kernel"), rows, columns))
        R = from_columns("flax", mode, named.take(cell.key("dense_h/kernel"), U, columns))
        leaf = "dense_h/bias" if mode is RNNMode.LSTM else "dense_i/bias"
        bias = None
        if leaf in cells[0].keys:
            bias = from_rows("flax", mode, named.take(cell.key(leaf), columns))
        found.append(PseudoLayer(W, R, None, bias) if mode is RNNMode.LSTM else PseudoLayer(W, R, bias, None))
    return mode, found


def _read_apart(named: Named, cells: list[Cell], num_dirs: int, activation: str) -> tuple[RNNMode, list[PseudoLayer]]:
    """Read linen's cells and nnx's LSTMCell: one matrix per gate."""
    first = cells[0]
    if {"if/kernel", "in/kernel"} <= first.keys.keys():
        named.refuse(first.keys["if/kernel"], "looks like MGUCell, which has no counterpart in cuDNN")
    tells = {"hg/kernel": RNNMode.LSTM, "ii/kernel": RNNMode.LSTM, "hz/kernel": RNNMode.GRU, "ir/kernel": RNNMode.GRU}
    mode = next((tells[leaf] for leaf in tells if leaf in first.keys), plain_mode("flax", activation))
    letters = list(FLAX_LETTERS.get(mode, [""]))
    U = named.shape(first.key(f"h{letters[0]}/kernel"), 2)[1]
    inputs = named.shape(first.key(f"i{letters[0]}/kernel"), 2)[0]
    has_bias = any(leaf.endswith("bias") for leaf in first.keys)
    found = []
    for p, cell in enumerate(cells):

        def gates(side: str, what: str, *shape: int, over: Sequence[str] = letters, cell: Cell = cell) -> list[Array]:
            return [named.take(cell.key(f"{side}{letter}/{what}"), *shape).T for letter in over]

        rows = inputs if p < num_dirs else num_dirs * U
        W = from_list("flax", mode, gates("i", "kernel", rows, U))
        R = from_list("flax", mode, gates("h", "kernel", U, U))
        bW = bR = None
        if has_bias and mode is not RNNMode.LSTM:
            bW = from_list("flax", mode, gates("i", "bias", U))
        if has_bias and mode is RNNMode.LSTM:
            bR = from_list("flax", mode, gates("h", "bias", U))
        if has_bias and mode is RNNMode.GRU:
            new = gates("h", "bias", U, over=letters[2])[0]
            bR = from_list("flax", mode, [np.zeros_like(new), np.zeros_like(new), new])
        found.append(PseudoLayer(W, R, bW, bR))
    return mode, found


def _written(mode: RNNMode, layer: PseudoLayer, api: str, optimized: bool) -> dict[str, Array]:
    if mode is RNNMode.RNN_RELU:
        raise ConvertError("flax", "mode 'rnn_relu'", "SimpleCell's activation is a function beside the params: tanh")
    if api == "nnx" and (mode is not RNNMode.LSTM or optimized):
        return _written_stacked(mode, layer)
    letters = list(FLAX_LETTERS.get(mode, [""]))
    found: dict[str, Array] = {}
    for side, gates in (("i", layer.W), ("h", layer.R)):
        for letter, gate in zip(letters, to_list("flax", mode, gates), strict=True):
            underscore = "_" if api == "nnx" and side + letter == "if" else ""
            found[f"{side}{letter}{underscore}/kernel"] = np.ascontiguousarray(gate.T)
    side = "h" if mode is RNNMode.LSTM else "i"
    biases = to_list("flax", mode, layer.sum_of_biases)
    if mode is RNNMode.GRU:
        biases[2] = to_list("flax", mode, layer.input_bias)[2]
        found["hn/bias"] = to_list("flax", mode, layer.recurrent_bias)[2]
    return found | {f"{side}{letter}/bias": bias for letter, bias in zip(letters, biases, strict=True)}


def _written_stacked(mode: RNNMode, layer: PseudoLayer) -> dict[str, Array]:
    if mode is RNNMode.GRU and layer.recurrent_bias[GRUGate.NEW].any():
        why = "nnx GRUCell has no place for it: it stands inside r * (...), so it cannot join the input bias"
        raise ConvertError("flax", "the recurrent bias of the new gate", why)
    return {
        "dense_i/kernel": to_columns("flax", mode, layer.W),
        "dense_h/kernel": to_columns("flax", mode, layer.R),
        f"dense_{'h' if mode is RNNMode.LSTM else 'i'}/bias": to_rows("flax", mode, layer.sum_of_biases),
    }
