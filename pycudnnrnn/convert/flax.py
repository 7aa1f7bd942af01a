"""Flax: linen's and nnx's `LSTMCell`, `OptimizedLSTMCell`, `GRUCell` and `SimpleCell`, one or a stack of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from pycudnnrnn._forms import Array, Form, RowKind, stack
from pycudnnrnn.convert.exchange import Canonical, read_cells, split, with_activation
from pycudnnrnn.convert.gates import order_of
from pycudnnrnn.convert.named import Named, flag, mode_of, plain_mode
from pycudnnrnn.convert.stacks import Cell, grouped, layers_by_path, named_layers
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import GRUGate, RNNMode

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_KEY: Final = re.compile(r"(?:(.*)/)?((?:if_|[ih][ifgorzn]?|dense_[ih])/(?:kernel|bias))")
_LETTERS: Final = {RNNMode.LSTM: "ifgo", RNNMode.GRU: "rzn"}
"""The names of the gates, in the order of `order_of`."""

_SIDES: Final[tuple[tuple[str, RowKind], ...]] = (("i", "W"), ("h", "R"))


def to_canonical(
    arrays: Any,
    *,
    layers: Sequence[str] | None = None,
    bidirectional: bool | None = None,
    activation: Literal["tanh", "relu"] | None = None,
) -> Canonical:
    """Read the cells of linen or nnx: `LSTMCell`, `OptimizedLSTMCell`, `GRUCell` or `SimpleCell`, one or a stack.

    The LSTM's one bias becomes cuDNN's single recurrent bias. The one bias of SimpleCell and of nnx's GRU becomes the
    single input bias. The linen GRU keeps the new gate's recurrent bias separate, so it gets double biases.

    Args:
        arrays: linen's `variables["params"]`, or nnx's `nnx.state(model, nnx.Param)`.
        layers: names of the layers to read, in order; the others are left out. None: all of them, in the order of the
            numbers in their names, with a warning if these do not contain "layer". Default: None.
        bidirectional: True reads two cells per layer, forward first, if the names do not contain the direction,
            as in a compact module. None: the names decide. Default: None.
        activation: the activation of SimpleCell, "tanh" or "relu", which the params do not contain. None: "tanh",
            with a warning. Default: None.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: a key that is missing or unexpected, an array of the wrong shape, names that do not give the order
            of the layers, or MGUCell, which cuDNN does not have.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> cell = {"i": {"kernel": np.ones((3, 4)), "bias": np.ones(4)}}
        >>> cell |= {"h": {"kernel": np.ones((4, 4))}}
        >>> c = convert.flax.to_canonical(cell, activation="tanh")
        >>> c.spec
        RNNSpec('rnn_tanh', 1, 4, 3, dtype='float64', bias_mode='single_input')

    Source: flax.linen.recurrent, flax.nnx.nn.recurrent (0.12).
    """
    named = Named("flax", arrays)
    if any("rngs" in key.split("/") for key in named):
        named.advice = "; nnx.state(module, nnx.Param) has only the weights"
    rows = layers_by_path(named, [Cell(*cell) for cell in grouped(named, _leaf).items()], layers, bidirectional)
    first = rows[0][0]
    stacked = "dense_i/kernel" in first.keys or "dense_h/kernel" in first.keys
    mode = _mode_of(named, first, "tanh" if activation is None else activation, stacked=stacked)
    form = _form(mode, stacked=stacked, biases=any(leaf.endswith("bias") for leaf in first.keys))
    return with_activation(read_cells(named, mode, form, rows, sums="bR" if mode is RNNMode.LSTM else "bW"), activation)


def from_canonical(
    c: Canonical,
    *,
    api: Literal["linen", "nnx"] = "linen",
    optimized: bool = False,
    layers: Sequence[str] | None = None,
) -> dict[str, Array]:
    """Write the params of cells, with names joined by slashes: "cell/ii/kernel", "forward_rnn/cell/ii/kernel" ...

    `flax.traverse_util.unflatten_dict(d, sep="/")` makes the tree. The two biases of a gate are summed, except for the
    linen GRU's new gate. Absent biases become zeros, and skip input becomes identity matrices.

    Args:
        c: the model to write: its spec, weights and biases.
        api: "linen" or "nnx", whose names differ. Default: "linen".
        optimized: True writes nnx's OptimizedLSTMCell. linen's has the same params as its LSTMCell. Default: False.
        layers: names of the layers to write, in order. None: "layers_0", "layers_1" ... ("layers/0" ... in nnx), and no
            name for a single layer. Default: None.

    Returns:
        The arrays by name, as a dict of NumPy arrays.

    Raises:
        ConvertError: a projection, cell clipping, relu (an argument of SimpleCell, not an array), or in nnx a GRU whose
            new gate has a recurrent bias.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnRNNTanh(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> arrays = convert.flax.from_canonical(c)
        >>> {name: array.shape for name, array in arrays.items()}
        {'cell/i/kernel': (3, 4), 'cell/h/kernel': (4, 4), 'cell/i/bias': (4,)}
    """
    if api not in ("linen", "nnx"):
        raise ConvertError("flax", "api", f"expecting 'linen' or 'nnx', got {api!r}")
    optimized = flag("flax", "optimized", optimized)
    pseudo_layers = split("flax", c)
    spec = c.spec
    usual = [f"layers{'_' if api == 'linen' else '/'}{k}/" for k in range(spec.num_layers)]
    names = named_layers("flax", layers, usual if spec.num_layers > 1 else [""])
    if spec.mode is RNNMode.RNN_RELU:
        raise ConvertError("flax", "mode 'rnn_relu'", "SimpleCell's activation is a function beside the params: tanh")
    stacked = api == "nnx" and (spec.mode is not RNNMode.LSTM or optimized)
    if stacked and spec.mode is RNNMode.GRU and any(layer.part("bR", GRUGate.NEW).any() for layer in pseudo_layers):
        why = "nnx GRUCell has no place for it: it stands inside r * (...), so it cannot join the input bias"
        raise ConvertError("flax", "the recurrent bias of the new gate", why)
    form = _form(spec.mode, stacked=stacked)
    arrays: dict[str, Array] = {}
    for p, layer in enumerate(pseudo_layers):
        k, direction = divmod(p, spec.num_dirs)
        name = names[k] if not names[k] or names[k].endswith("/") else names[k] + "/"
        path = name + (("forward_rnn/", "backward_rnn/")[direction] if spec.num_dirs == 2 else "") + "cell/"
        arrays |= {path + (t.name.replace("if/", "if_/") if api == "nnx" else t.name): t.of(layer) for t in form}
    return arrays


def _leaf(key: str) -> tuple[str, str] | None:
    match = _KEY.fullmatch(key)
    return (match[1] or "", match[2].replace("if_/", "if/")) if match else None


def _form(mode: RNNMode, *, stacked: bool, biases: bool = True) -> Form:
    """Return linen's cells and nnx's LSTMCell, one matrix per gate; or, `stacked`, nnx's others, two matrices."""
    gates, side = order_of("flax", mode), "h" if mode is RNNMode.LSTM else "i"
    if stacked:
        form = [stack(f"dense_{s}/kernel", k, gates, columns=True) for s, k in _SIDES]
        return (*form, stack(f"dense_{side}/bias", "b", gates)) if biases else tuple(form)
    letters = dict(zip(gates, _LETTERS.get(mode, [""]), strict=True))
    form = [
        stack(f"{s}{letter}/kernel", k, [gate], columns=True) for s, k in _SIDES for gate, letter in letters.items()
    ]
    new = GRUGate.NEW if mode is RNNMode.GRU else None
    if biases and new is not None:
        form.append(stack("hn/bias", "bR", [new]))
    if biases:
        form += [stack(f"{side}{letters[g]}/bias", "bW" if g == new else "b", [g]) for g in gates]
    return tuple(form)


def _mode_of(named: Named, first: Cell, activation: str, *, stacked: bool) -> RNNMode:
    if stacked:
        U, columns = named.shape(first.key("dense_h/kernel"), 2)
        return mode_of("flax", first.key("dense_h/kernel"), columns, U, activation)
    tells = {"hg/kernel": RNNMode.LSTM, "ii/kernel": RNNMode.LSTM, "hz/kernel": RNNMode.GRU, "ir/kernel": RNNMode.GRU}
    return next((tells[leaf] for leaf in tells if leaf in first.keys), plain_mode("flax", activation))
