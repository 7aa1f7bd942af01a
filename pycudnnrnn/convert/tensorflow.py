"""TensorFlow 1.x: the variables of `CudnnCompatibleLSTMCell`, `CudnnCompatibleGRUCell`, `BasicRNNCell` and `LSTMCell`.

The names of the compatible cells are those that tf.contrib.cudnn_rnn wrote to checkpoints. Beside them stand, where
there are two biases per gate, TF 1.3's `bias_cudnn_0` and `bias_cudnn_1`: TF keeps only the sum, and with them the way
back is bit for bit. Names and stitching are those of layers and saveables.
"""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn._tf1.canonical import STACKED_GATES, cell_scope, cell_tensors, from_tf, names_of, tf_tensors
from pycudnnrnn._tf1.canonical import to_tf as stitched
from pycudnnrnn._tf1.models import GRU_CELLS, KEY, LSTM_CELLS, MODES, is_below
from pycudnnrnn.convert._canonical import Array, Canonical, check_target
from pycudnnrnn.convert._named import Named, flag, plain_mode, under
from pycudnnrnn.errors import ArgumentError, ConvertError
from pycudnnrnn.spec import BiasMode, Direction, InputMode, LSTMGate, RNNMode, RNNSpec


def to_canonical(
    arrays: Any, *, prefix: str = "", activation: str | None = None, forget_bias: float | None = None
) -> Canonical:
    """Read the variables of a checkpoint under a scope.

    One bias per gate becomes cuDNN's single input bias. The GRU's candidate has two, so its biases are double: the
    gates' go into the input bias whole. So they are where the pair `bias_cudnn_0`, `bias_cudnn_1` stands beside `bias`;
    it counts when its sum is `bias`, which a cell trained further changes. A `projection/kernel` gives the LSTM a
    projection. A first layer whose kernel has no rows for the input is skip input.

    What is of no cell is left out, and a warning names it: slots of optimizers, `opaque_kernel`, other layers.

    Args:
        arrays: the variables by name, as `checkpoint.read_tensorflow` gives them.
        prefix: the scope, with or without its slash: "cudnn_lstm".
        activation: "tanh" or "relu", which has to be said for `BasicRNNCell`: CudnnRNNTanh and CudnnRNNRelu write the
            same names.
        forget_bias: what `LSTMCell`, `BasicLSTMCell` and `LSTMBlockCell` add to the forget gate when they run, which is
            added to its bias here. None is their own default, 1.0, and a warning says so.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen; another activation; `GRUCell`, whose reset gate
            comes before the product.

    Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (r1.15), r1.3 for the pair;
    tensorflow/python/ops/rnn_cell_impl.py (r1.15).
    """
    if activation is not None:
        plain_mode("tensorflow", activation)
    named = Named("tensorflow", arrays, prefix)
    spec, cell, scopes = _spec_of(named, activation)
    tensors: dict[str, Array] = {}
    taken: set[str] = set()
    for p, theirs in enumerate(scopes):
        own = list(cell_tensors(spec, p // spec.num_dirs))
        names = {t: next((name for name in names_of(theirs + t.name) if name in named), theirs + t.name) for t in own}
        paired = any(names[t] in named for t in own if t.kind == "pair")
        for tensor in own:
            if tensor.kind != "pair" or paired:
                tensors[cell_scope(spec, p) + tensor.name] = named.take(names[tensor], *tensor.shape)
                taken.add(names[tensor])
    aside = named.set_aside(lambda key: not key.startswith(tuple(scopes)) or is_below(key, taken))
    named.finish()
    if aside:
        warnings.warn(f"left out, since they are of no cell: {aside}", UserWarning, stacklevel=2)
    dtype = next(iter(tensors.values())).dtype
    weights, biases = from_tf(spec, tensors, halve=False)
    if cell in LSTM_CELLS:
        biases = _with_forget_bias(biases, cell, forget_bias)
    elif forget_bias is not None:
        raise ConvertError("tensorflow", "forget_bias", f"{cell} adds nothing to its forget gate")
    return Canonical(spec.replace(dtype=dtype), tuple(map(np.array, weights)), tuple(map(np.array, biases)))


def from_canonical(c: Canonical, *, prefix: str = "", keep_biases_apart: bool = True) -> dict[str, Array]:
    """Write the variables of the cells; `prefix` (a scope, with or without its slash) goes before every name.

    `keep_biases_apart=False` leaves out `bias_cudnn_0` and `bias_cudnn_1`, which TF's cells do not have.

    Raises:
        ConvertError: cell clipping.
    """
    check_target("tensorflow", c, projection=True)
    apart = flag("tensorflow", "keep_biases_apart", keep_biases_apart) and c.spec.bias_mode is BiasMode.DOUBLE
    if c.spec.mode is RNNMode.GRU and c.biases:
        c = c.double_biases()  # its candidate has two biases in TF, whatever the gates have
    arrays = stitched(c.spec, c.weights, c.biases)
    found = {t.name: arrays[t.name] for t in tf_tensors(c.spec) if t.kind != "pair" or apart}
    return under("tensorflow", prefix, found)


def _spec_of(named: Named, activation: str | None) -> tuple[RNNSpec, str, list[str]]:
    """Tell the RNN from the names, and the shapes of the first cell; return its cell, and the scope of each, too."""
    matches = named.matches(KEY, "rnn/multi_rnn_cell/cell_0/...")
    kinds = {match["cell"] for match in matches}
    if len(kinds) > 1:
        named.refuse(matches[0][0], f"expecting one kind of cell, got {', '.join(sorted(kinds))}")
    (cell,) = kinds
    if cell in GRU_CELLS:
        named.refuse(matches[0][0], "another cell: its reset gate comes before the product, cuDNN's after it")
    bidirectional = any(match["side"] for match in matches)
    scopes: dict[tuple[int, str], str] = {}
    for match in matches:
        if match["apart"] not in {None, "0"}:
            named.refuse(match[0], "each direction has layers of its own, where in cuDNN each layer sees both below it")
        scope = f"{match['scope']}/{match['cell']}/"
        other = scopes.setdefault((int(match["uni"] or match["bi"] or 0), match["side"] or ""), scope)
        if other != scope or bidirectional is not bool(match["side"]):
            named.refuse(match[0], f"of another RNN than {shorten(named.prefix + other)}: convert one at a time")
    num_layers, sides = 1 + max(layer for layer, _ in scopes), ("fw", "bw") if bidirectional else ("",)
    order = [scopes.get((layer, side), "") for layer in range(num_layers) for side in sides]
    if "" in order:
        named.refuse(matches[0][0], f"of {len(order)} cells by their numbers, number {order.index('')} is missing")
    return _read_shapes(named, _mode_of(cell, activation), order, matches), cell, order


def _mode_of(cell: str, activation: str | None) -> RNNMode:
    mode = MODES[cell]
    if mode is not RNNMode.RNN_TANH:
        return mode
    if activation is None:
        why = "nothing says whether it is of CudnnRNNTanh or CudnnRNNRelu, which write the same: 'tanh' or 'relu'"
        raise ConvertError("tensorflow", "activation", why)
    return plain_mode("tensorflow", activation)


def _read_shapes(named: Named, mode: RNNMode, scopes: list[str], matches: list[re.Match[str]]) -> RNNSpec:
    first, bidirectional = scopes[0], bool(matches[0]["side"])
    kernel, G = f"{first}{'gates/' if mode is RNNMode.GRU else ''}kernel", len(STACKED_GATES[mode])
    rows, columns = named.shape(kernel, 2)
    if columns % G:
        named.refuse(kernel, f"expecting a multiple of {G} columns, got {columns}")
    U = columns // G
    P = named.shape(f"{first}projection/kernel", 2)[1] if f"{first}projection/kernel" in named else None
    if rows < (P or U):
        named.refuse(kernel, f"expecting at least {P or U} rows, got {rows}")
    skip = rows == (P or U)
    biases = {match["name"] for match in matches if match[0].startswith(first)}
    bias_mode = BiasMode.NONE
    if any("bias" in name for name in biases):
        pair = mode is RNNMode.GRU or any("bias_cudnn" in match["name"] for match in matches)
        bias_mode = BiasMode.DOUBLE if pair else BiasMode.SINGLE_INPUT
    try:
        return RNNSpec(
            mode,
            len(scopes) // (2 if bidirectional else 1),
            U,
            U if skip else rows - (P or U),
            InputMode.SKIP_INPUT if skip else InputMode.LINEAR_INPUT,
            Direction.BIDIRECTIONAL if bidirectional else Direction.UNIDIRECTIONAL,
            num_proj=P,
            bias_mode=bias_mode,
        )
    except ArgumentError as error:
        raise ConvertError("tensorflow", f"{mode} of {U} units", str(error)) from error


def _with_forget_bias(biases: list[Array], cell: str, forget_bias: float | None) -> list[Array]:
    """Add what the cell adds when it runs; its one bias per gate is the input's."""
    if forget_bias is None:
        forget_bias = 1.0
        text = (
            f"{cell} adds forget_bias to its forget gate when it runs: 1.0, its default, was added to that gate's bias"
        )
        warnings.warn(f"{text}; forget_bias=... says another", UserWarning, stacklevel=3)
    if not isinstance(forget_bias, (int, float)) or isinstance(forget_bias, bool) or not math.isfinite(forget_bias):
        raise ConvertError("tensorflow", f"forget_bias {shorten(forget_bias)}", "expecting a finite number")
    each = len(STACKED_GATES[RNNMode.LSTM])
    forget = range(int(LSTMGate.FORGET), len(biases), each)
    return [(b + b.dtype.type(forget_bias)) if i in forget else b for i, b in enumerate(biases)]
