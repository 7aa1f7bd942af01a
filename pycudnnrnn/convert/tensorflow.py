"""TensorFlow 1.x: the variables of `CudnnCompatibleLSTMCell`, `CudnnCompatibleGRUCell` and `BasicRNNCell`.

The names are those that tf.contrib.cudnn_rnn wrote to checkpoints. Beside them stand, where there are two biases a
gate, TF 1.3's `bias_cudnn_0` and `bias_cudnn_1`: TF keeps only the sum, and with them the way back is bit for bit.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from pycudnnrnn.convert._canonical import Array, Canonical, PseudoLayer, assemble, split
from pycudnnrnn.convert._gates import from_columns, from_rows, to_columns, to_rows
from pycudnnrnn.convert._named import Named, plain_mode
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

_CELLS: Final = {
    RNNMode.LSTM: "cudnn_compatible_lstm_cell",
    RNNMode.GRU: "cudnn_compatible_gru_cell",
    RNNMode.RNN_TANH: "basic_rnn_cell",
    RNNMode.RNN_RELU: "basic_rnn_cell",
}
_KEY: Final = re.compile(
    r"(?:rnn/multi_rnn_cell/cell_(?P<uni>[0-9]{1,6})"
    r"|stack_bidirectional_rnn/cell_(?P<bi>[0-9]{1,6})/bidirectional_rnn/(?:fw|bw))"
    rf"/(?P<cell>{'|'.join(sorted(set(_CELLS.values())))})/.+"
)
_FW_BW: Final = ("fw", "bw")
_NEW_BIASES: Final = ("candidate/input_projection/bias", "candidate/hidden_projection/bias")


def to_canonical(arrays: Any, *, prefix: str = "", activation: str = "tanh") -> Canonical:
    """Read the variables under a scope, with its slash: "cudnn_lstm/".

    One bias a gate becomes cuDNN's single input bias. The GRU's candidate has two, so its biases are double: the gates'
    go into the input bias whole. So they are where the pair `bias_cudnn_0`, `bias_cudnn_1` stands beside `bias`; it
    counts when its sum is `bias`, which a cell trained further changes. `activation` is BasicRNNCell's. A
    `projection/kernel` gives the LSTM a projection. A first layer whose kernel has no rows for the input is skip input.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, or another activation.

    Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (r1.15); r1.3 for the pair.
    """
    named = Named("tensorflow", arrays, prefix)
    matches = [match for key in named if (match := _KEY.fullmatch(key))]
    if not matches:
        named.refuse("rnn/multi_rnn_cell/cell_0/...", "missing, and so is every other variable of a cell")
    cells = {match["cell"] for match in matches}
    if len(cells) > 1:
        named.refuse(matches[0][0], f"expecting one kind of cell, got {', '.join(sorted(cells))}")
    num_dirs = 1 + any(match["bi"] for match in matches)
    num_layers = 1 + max(int(match["uni"] or match["bi"]) for match in matches)
    mode = next(mode for mode, cell in _CELLS.items() if cell in cells)
    mode = plain_mode("tensorflow", activation) if mode is RNNMode.RNN_TANH else mode
    paths = [_path(mode, layer, direction, num_dirs) for layer in range(num_layers) for direction in range(num_dirs)]
    read = _read_gru if mode is RNNMode.GRU else _read_one_kernel
    layers, skip = read(named, mode, paths, num_dirs)
    named.finish()
    return assemble("tensorflow", mode, layers, num_dirs, skip=skip)


def from_canonical(c: Canonical, *, prefix: str = "", keep_biases_apart: bool = True) -> dict[str, Array]:
    """Write the variables of the cells; `prefix` (a scope with its slash) goes before every name.

    `keep_biases_apart=False` leaves out `bias_cudnn_0` and `bias_cudnn_1`, which TF's cells do not have.

    Raises:
        ConvertError: cell clipping.
    """
    if not isinstance(prefix, str):
        raise ConvertError("tensorflow", "prefix", f"expecting a string, got {type(prefix).__name__}")
    write = _write_gru if isinstance(c, Canonical) and c.spec.mode is RNNMode.GRU else _write_one_kernel
    found: dict[str, Array] = {}
    for p, layer in enumerate(split("tensorflow", c, projection=True, skip=True)):
        path = prefix + _path(c.spec.mode, *divmod(p, c.spec.num_dirs), c.spec.num_dirs)
        found |= {path + name: array for name, array in write(c.spec.mode, layer, keep_biases_apart).items()}
    return found


def _path(mode: RNNMode, layer: int, direction: int, num_dirs: int) -> str:
    if num_dirs == 1:
        return f"rnn/multi_rnn_cell/cell_{layer}/{_CELLS[mode]}/"
    return f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{_FW_BW[direction]}/{_CELLS[mode]}/"


def _read_one_kernel(named: Named, mode: RNNMode, paths: list[str], num_dirs: int) -> tuple[list[PseudoLayer], bool]:
    """Read the LSTM, or the plain cells: [x, h] times one kernel."""
    G = 4 if mode is RNNMode.LSTM else 1
    rows, columns = named.shape(f"{paths[0]}kernel", 2)
    projected = f"{paths[0]}projection/kernel" in named
    if columns % G:
        named.refuse(f"{paths[0]}kernel", f"expecting a multiple of {G} columns, got {columns}")
    U = columns // G
    P = named.shape(f"{paths[0]}projection/kernel", 2)[1] if projected else U
    if rows < P:
        named.refuse(f"{paths[0]}kernel", f"expecting at least {P} rows, got {rows}")
    layers = []
    for p, path in enumerate(paths):
        inputs = rows - P if p < num_dirs else num_dirs * P
        kernel = from_columns("tensorflow", mode, named.take(f"{path}kernel", inputs + P, columns))
        biases = _read_pair(named, path, columns) if f"{paths[0]}bias" in named else (None, None)
        bW, bR = (None if bias is None else from_rows("tensorflow", mode, bias) for bias in biases)
        projection = named.take(f"{path}projection/kernel", U, P).T if projected else None
        layers.append(PseudoLayer(kernel[..., :inputs], kernel[..., inputs:], bW, bR, projection))
    return layers, rows == P


def _read_gru(named: Named, _: RNNMode, paths: list[str], num_dirs: int) -> tuple[list[PseudoLayer], bool]:
    """Read the GRU: r and u in one kernel, the candidate's two halves apart."""
    rows, columns = named.shape(f"{paths[0]}gates/kernel", 2)
    U = columns // 2
    if columns % 2 or rows < U:
        named.refuse(f"{paths[0]}gates/kernel", f"expecting [inputs + units, 2 * units], got shape {(rows, columns)}")
    layers = []
    for p, path in enumerate(paths):
        inputs = rows - U if p < num_dirs else num_dirs * U
        gates = named.take(f"{path}gates/kernel", inputs + U, 2 * U).T.reshape(2, U, inputs + U)
        new_W = named.take(f"{path}candidate/input_projection/kernel", inputs, U).T
        new_R = named.take(f"{path}candidate/hidden_projection/kernel", U, U).T
        W = np.concatenate([*gates[..., :inputs], new_W])
        R = np.concatenate([*gates[..., inputs:], new_R])
        biases = _read_gru_biases(named, paths[0], path, U)
        bW, bR = (None if bias is None else from_rows("tensorflow", RNNMode.GRU, bias) for bias in biases)
        layers.append(
            PseudoLayer(from_rows("tensorflow", RNNMode.GRU, W), from_rows("tensorflow", RNNMode.GRU, R), bW, bR)
        )
    return layers, rows == U


def _read_gru_biases(named: Named, first: str, path: str, U: int) -> tuple[Array | None, Array | None]:
    names = ["gates/bias", *_NEW_BIASES]
    if not any(first + name in named for name in names):
        return None, None
    gates = _read_pair(named, path + "gates/", 2 * U)
    halves = gates[0], np.zeros_like(gates[0]) if gates[1] is None else gates[1]
    new = [named.take(path + name, U) for name in _NEW_BIASES]
    bW, bR = (np.concatenate([gate, candidate]) for gate, candidate in zip(halves, new, strict=True))
    return bW, bR


def _read_pair(named: Named, stem: str, size: int) -> tuple[Array, Array | None]:
    """Read a bias; apart, if TF 1.3's pair is there.

    A pair whose sum is not the bias is older than the bias, which somebody trained on: then the bias counts alone.
    """
    total = named.take(f"{stem}bias", size)
    space = " " if f"{stem}bias_cudnn 0" in named else "_"  # TF 1.3 wrote a space for the GRU
    if f"{stem}bias_cudnn{space}0" not in named:
        return total, None
    pair = [named.take(f"{stem}bias_cudnn{space}{i}", size) for i in range(2)]
    if np.array_equal(pair[0] + pair[1], total, equal_nan=True):
        return pair[0], pair[1]
    return total, np.zeros_like(total)


def _write_one_kernel(mode: RNNMode, layer: PseudoLayer, apart: bool) -> dict[str, Array]:
    found = {"kernel": to_columns("tensorflow", mode, np.concatenate([layer.W, layer.R], axis=2))}
    if layer.projection is not None:
        found["projection/kernel"] = np.ascontiguousarray(layer.projection.T)
    if layer.biases:
        pair = [None if bias is None else to_rows("tensorflow", mode, bias) for bias in (layer.bW, layer.bR)]
        found |= _written_pair("", to_rows("tensorflow", mode, layer.sum_of_biases), pair if apart else [])
    return found


def _write_gru(mode: RNNMode, layer: PseudoLayer, apart: bool) -> dict[str, Array]:
    U = layer.R.shape[1]
    W, R = (to_rows("tensorflow", mode, gates) for gates in (layer.W, layer.R))
    found = {
        "gates/kernel": np.ascontiguousarray(np.concatenate([W[: 2 * U], R[: 2 * U]], axis=1).T),
        "candidate/input_projection/kernel": np.ascontiguousarray(W[2 * U :].T),
        "candidate/hidden_projection/kernel": np.ascontiguousarray(R[2 * U :].T),
    }
    if layer.biases:
        both = [to_rows("tensorflow", mode, bias) for bias in (layer.input_bias, layer.recurrent_bias)]
        pair = [bias[: 2 * U].copy() for bias in both]
        double = layer.bW is not None and layer.bR is not None
        found |= _written_pair("gates/", pair[0] + pair[1], pair if apart and double else [])
        found |= {name: bias[2 * U :].copy() for name, bias in zip(_NEW_BIASES, both, strict=True)}
    return found


def _written_pair(stem: str, total: Array, pair: list[Any]) -> dict[str, Array]:
    found = {f"{stem}bias": total}
    if pair and all(bias is not None for bias in pair):
        found |= {f"{stem}bias_cudnn_{i}": bias for i, bias in enumerate(pair)}
    return found
