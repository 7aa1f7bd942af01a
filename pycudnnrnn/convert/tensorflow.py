"""TensorFlow 1.x: the variables of `CudnnCompatibleLSTMCell`, `CudnnCompatibleGRUCell` and `BasicRNNCell`.

The names are those that tf.contrib.cudnn_rnn wrote to checkpoints. Beside them stand, where there are two biases
per gate, TF 1.3's `bias_cudnn_0` and `bias_cudnn_1`: TF keeps only the sum, and with them the way back is bit for bit.
Names and stitching are those of layers and saveables.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from pycudnnrnn._tf1.canonical import CELL_NAMES, STACKED_GATES, cell_scope, cell_tensors, from_tf, names_of, tf_tensors
from pycudnnrnn._tf1.canonical import to_tf as stitched
from pycudnnrnn.convert._canonical import Array, Canonical, check_target
from pycudnnrnn.convert._named import Named, flag, plain_mode, under
from pycudnnrnn.errors import ArgumentError, ConvertError
from pycudnnrnn.spec import BiasMode, Direction, InputMode, RNNMode, RNNSpec

_KEY: Final = re.compile(
    r"(?P<scope>rnn/multi_rnn_cell/cell_(?P<uni>[0-9]{1,6})"
    r"|stack_bidirectional_rnn/cell_(?P<bi>[0-9]{1,6})/bidirectional_rnn/(?:fw|bw))"
    rf"/(?P<cell>{'|'.join(sorted(set(CELL_NAMES.values())))})/(?P<name>.+)"
)


def to_canonical(arrays: Any, *, prefix: str = "", activation: str = "tanh") -> Canonical:
    """Read the variables under a scope: "cudnn_lstm", with or without its slash.

    One bias per gate becomes cuDNN's single input bias. The GRU's candidate has two, so its biases are double: those of
    its gates go into the input bias whole. They are double, too, where the pair `bias_cudnn_0`, `bias_cudnn_1`
    stands beside `bias`; it counts when its sum is `bias`, which a cell trained further changes. `activation` is
    BasicRNNCell's. A `projection/kernel` gives the LSTM a projection. A first layer whose kernel has no rows for the
    input is skip input.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, or another activation.

    Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (r1.15); r1.3 for the pair.
    """
    plain_mode("tensorflow", activation)
    named = Named("tensorflow", arrays, prefix)
    spec = _spec_of(named, activation)
    tensors: dict[str, Array] = {}
    for p in range(spec.num_pseudo_layers):
        scope, own = cell_scope(spec, p), list(cell_tensors(spec, p // spec.num_dirs))
        names = {t: next((name for name in names_of(t, scope) if name in named), scope + t.name) for t in own}
        paired = any(names[t] in named for t in own if t.kind == "pair")
        for tensor in own:
            if tensor.kind != "pair" or paired:
                tensors[scope + tensor.name] = named.take(names[tensor], *tensor.shape)
    named.finish()
    dtype = next(iter(tensors.values())).dtype
    weights, biases = from_tf(spec, tensors, halve=False)
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


def _spec_of(named: Named, activation: str) -> RNNSpec:
    """Tell the RNN from the names, and the shapes of the first cell."""
    matches = named.matches(_KEY, "rnn/multi_rnn_cell/cell_0/...")
    cells = {match["cell"] for match in matches}
    if len(cells) > 1:
        named.refuse(matches[0][0], f"expecting one kind of cell, got {', '.join(sorted(cells))}")
    mode = next(mode for mode, cell in CELL_NAMES.items() if cell in cells)
    mode = plain_mode("tensorflow", activation) if mode is RNNMode.RNN_TANH else mode
    bidirectional = any(match["bi"] for match in matches)
    direction = Direction.BIDIRECTIONAL if bidirectional else Direction.UNIDIRECTIONAL
    num_layers = 1 + max(int(match["uni"] or match["bi"]) for match in matches)
    first = cell_scope(RNNSpec(mode, num_layers, 1, 1, direction=direction), 0)
    kernel, G = f"{first}{'gates/' if mode is RNNMode.GRU else ''}kernel", len(STACKED_GATES[mode])
    rows, columns = named.shape(kernel, 2)
    if columns % G:
        named.refuse(kernel, f"expecting a multiple of {G} columns, got {columns}")
    U = columns // G
    P = named.shape(f"{first}projection/kernel", 2)[1] if f"{first}projection/kernel" in named else None
    if rows < (P or U):
        named.refuse(kernel, f"expecting at least {P or U} rows, got {rows}")
    skip = rows == (P or U)
    biases = {match["name"] for match in matches if f"{match['scope']}/{match['cell']}/" == first}
    bias_mode = BiasMode.NONE
    if any("bias" in name for name in biases):
        pair = mode is RNNMode.GRU or any("bias_cudnn" in match["name"] for match in matches)
        bias_mode = BiasMode.DOUBLE if pair else BiasMode.SINGLE_INPUT
    try:
        return RNNSpec(
            mode,
            num_layers,
            U,
            U if skip else rows - (P or U),
            InputMode.SKIP_INPUT if skip else InputMode.LINEAR_INPUT,
            direction,
            num_proj=P,
            bias_mode=bias_mode,
        )
    except ArgumentError as error:
        raise ConvertError("tensorflow", f"{mode} of {U} units", str(error)) from error
