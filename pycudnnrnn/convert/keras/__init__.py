"""Keras: `LSTM`, `GRU`, `SimpleRNN`, `Bidirectional` (Keras 2 and 3), and `CuDNNLSTM`, `CuDNNGRU` (Keras 2)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array, Form, PseudoLayer, RowKind, Tensor, apart, stack
from pycudnnrnn.convert._exchange import Canonical, assemble, split
from pycudnnrnn.convert._named import Named, flag, mode_of, plain_mode
from pycudnnrnn.convert._orders import order_of
from pycudnnrnn.convert._stack import CellKeys, find_cells, named_layers
from pycudnnrnn.convert.keras import archive, h5
from pycudnnrnn.convert.keras.archive import read_keras
from pycudnnrnn.convert.keras.config import called, model_of, settings_in
from pycudnnrnn.convert.keras.h5 import read_h5, write_h5
from pycudnnrnn.convert.keras.used import split_name, used_layers
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "read_h5", "read_keras", "read_settings", "to_canonical", "write_h5"]
__dir__ = __all__.copy

_CELL: Final = re.compile(r"cell(?:_[0-9]+)?$")
_USUAL: Final[dict[str, Any]] = {
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "reset_after": True,
    "go_backwards": False,
}
_CLASSES: Final = {
    RNNMode.LSTM: "lstm", RNNMode.GRU: "gru", RNNMode.RNN_TANH: "simple_rnn", RNNMode.RNN_RELU: "simple_rnn"
}  # fmt: skip


def to_canonical(
    arrays: Any,
    *,
    layers: Sequence[str] | None = None,
    activation: str | None = None,
    recurrent_activation: str | None = None,
    reset_after: bool | None = None,
    go_backwards: bool | None = None,
) -> Canonical:
    """Read `kernel`, `recurrent_kernel` and `bias` of one layer, or of a stack of layers under paths.

    A key is what Keras calls the variable (`w.path`), what `read_h5` or `read_keras` gives, or the bare name. A Dense
    and its like are left out where recurrent layers have a cell in their paths, as they have since TensorFlow 2.
    Whether a layer is CuDNNLSTM or CuDNNGRU shows in the size of its bias.

    What `read_keras` and `read_h5` return has the file's configuration beside the arrays. With it, the layers have to
    be a stack in the model: each reads what the one before it gave, with nothing between them that changes numbers
    when the model is not trained (Dropout does not). **Arrays alone cannot show this.** From any other dict
    (`dict(arrays)`, the variables of a model, a `.weights.h5`) recurrent layers become a stack, whatever is between
    them in the model: give `layers` if it has more than them.

    Args:
        arrays: a dict of arrays.
        layers: the names of the layers, in order; the others are left out. Default: every recurrent layer. For the
            names in a file see `read_settings`. A name of several layers, such as a model's in the model, means all.
        activation: what the layers were made with, as are the next three. Default: what the file's configuration
            says; without one "tanh".
        recurrent_activation: default without a configuration: "sigmoid", the only one that cuDNN has.
        reset_after: of a GRU. Default without a configuration: True. The bias shows a False, too.
        go_backwards: default without a configuration: False.

    The one bias of LSTM and SimpleRNN becomes cuDNN's single input bias, which it is exactly. GRU and the CuDNN layers
    have two, kept apart. `use_bias=False` is bias mode none. A Bidirectional layer has to concatenate (its default).

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, layers that have no order, that are no stack in
            the file's model, or of which it does not say what they were made with, or a layer that cuDNN has no RNN
            for: a reset-before GRU, another activation, one that only runs backwards.

    Source: keras.layers (3.15); tf.compat.v1.keras.layers.CuDNNLSTM (2.15).
    """
    given = {
        "activation": activation, "recurrent_activation": recurrent_activation, "reset_after": reset_after,
        "go_backwards": go_backwards,
    }  # fmt: skip
    used = used_layers(arrays, layers)
    layers = used.layers or layers
    made = _USUAL | used.settings | {key: value for key, value in given.items() if value is not None}
    plain = plain_mode("keras", made["activation"])
    if made["recurrent_activation"] != "sigmoid":
        why = f"cuDNN has only 'sigmoid', not {shorten(made['recurrent_activation'])}"
        raise ConvertError("keras", "recurrent_activation", why)
    if flag("keras", "go_backwards", made["go_backwards"]):
        raise ConvertError("keras", "go_backwards", "no RNN of cuDNN's only runs backwards: reverse the input instead")
    reset_after = flag("keras", "reset_after", made["reset_after"])
    named = Named("keras", arrays)
    cells, num_dirs = find_cells(named, _only_recurrent(named), layers, None)
    U, columns = named.shape(cells[0].key("recurrent_kernel"), 2)
    inputs = named.shape(cells[0].key("kernel"), 2)[0]
    mode = mode_of("keras", cells[0].key("recurrent_kernel"), columns, U, made["activation"])
    if mode in (RNNMode.LSTM, RNNMode.GRU) and plain is RNNMode.RNN_RELU:
        raise ConvertError("keras", "activation", f"cuDNN has no {str(mode)!r} with 'relu', only with 'tanh'")
    if mode is RNNMode.GRU and not reset_after:
        raise ConvertError("keras", "reset_after", _RESET_BEFORE)
    bias_shape = _bias_shape(named, mode, cells[0], columns)
    cudnn = bias_shape == (2 * columns,) and mode in (RNNMode.LSTM, RNNMode.GRU)
    form = _form(mode, biases=bias_shape is not None, cudnn=cudnn)
    found = []
    for p, cell in enumerate(cells):
        rows = inputs if p < num_dirs else num_dirs * U
        shapes = {"kernel": (rows, columns), "recurrent_kernel": (U, columns), "bias": bias_shape or ()}
        own = {t.name: named.take(cell.key(t.name), *shapes[t.name]) for t in form}
        own |= {"bias": own["bias"].reshape(-1)} if "bias" in own else {}
        found.append(apart(form, _from_cudnn(own, U) if cudnn else own, columns // U))
    named.finish()
    return assemble("keras", mode, found, num_dirs)


def read_settings(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Read what each recurrent layer of a `.keras` or an older `.h5` was made with: keywords of `to_canonical`.

    They are by layer, in the model's order: by its name, or by its path of names through models in the model where the
    name alone leads to other layers, too. A `.weights.h5` does not say it, and gives nothing.

    Raises:
        ConvertError: not such a file, a configuration that is not JSON, or a Bidirectional layer that does not
            concatenate, or whose directions differ.
        MissingDependencyError: h5py is not installed, which an `.h5` needs.
    """
    recurrent = {layer.path: layer for layer in model_of(_read_config(path)).walk() if layer.is_recurrent}
    names = called(recurrent)
    return {names[layer.path]: settings_in(layer.made_with()) for layer in recurrent.values()}


def _read_config(path: str | os.PathLike[str]) -> Any:
    return (archive if Path(path).suffix == ".keras" else h5).read_config(path)


def from_canonical(c: Canonical, *, layers: Sequence[str] | None = None, cudnn: bool = False) -> dict[str, Array]:
    """Write the variables, named and ordered as Keras does: `model.set_weights(list(d.values()))` takes them.

    The names are "lstm/lstm_cell/kernel", "bidirectional_1/forward_lstm_1/lstm_cell/kernel" and so on, with `layers` in
    place of the outer names. `cudnn=True` writes Keras 2's CuDNNLSTM or CuDNNGRU. One-bias layers hold the sum.
    Absent biases are left out (`use_bias=False`), or zeros in the CuDNN layers; skip input becomes identity matrices.

    Raises:
        ConvertError: a projection, cell clipping, or a plain cell where `cudnn=True`.
    """
    pseudo_layers = split("keras", c)
    spec = c.spec
    if flag("keras", "cudnn", cudnn) and spec.mode not in (RNNMode.LSTM, RNNMode.GRU):
        raise ConvertError("keras", "cudnn", f"there are only CuDNNLSTM and CuDNNGRU, and this is {str(spec.mode)!r}")
    inner = f"cu_dnn{_CLASSES[spec.mode]}" if cudnn else _CLASSES[spec.mode]
    outer = "bidirectional" if spec.num_dirs == 2 else inner
    names = named_layers("keras", layers, [_numbered(outer, k) for k in range(spec.num_layers)])
    found: dict[str, Array] = {}
    for p, layer in enumerate(pseudo_layers):
        k, direction = divmod(p, spec.num_dirs)
        path = names[k] + "/"
        if spec.num_dirs == 2:
            path += f"{('forward', 'backward')[direction]}_{_numbered(inner, k)}/"
        path += "" if cudnn else f"{inner}_cell/"
        found |= {path + name: array for name, array in _written(spec.mode, layer, cudnn=cudnn).items()}
    return found


_RESET_BEFORE: Final = (
    "the GRU resets before the recurrent product, and cuDNN's after it: they compute different things, and no weights "
    "make them equal"
)


def _bias_shape(named: Named, mode: RNNMode, cell: CellKeys, columns: int) -> tuple[int, ...] | None:
    if "bias" not in cell.keys:
        return None
    shapes: dict[RNNMode, list[tuple[int, ...]]] = {
        RNNMode.LSTM: [(columns,), (2 * columns,)],
        RNNMode.GRU: [(2, columns), (2 * columns,)],
    }
    allowed = shapes.get(mode, [(columns,)])
    key = cell.keys["bias"]
    shape = named.any_shape(key)
    if shape in allowed:
        return shape
    if mode is RNNMode.GRU and shape == (columns,):
        named.refuse(key, f"has shape {shape}: {_RESET_BEFORE}")
    return named.refuse(key, f"expecting shape {' or '.join(map(str, allowed))}, got {shape}")


def _form(mode: RNNMode, *, biases: bool, cudnn: bool = False) -> Form:
    """Return the variables of a layer; CuDNNLSTM's and CuDNNGRU's as they are after `_from_cudnn`."""
    gates = order_of("keras", mode)
    kernels = stack("kernel", "W", gates, columns=True), stack("recurrent_kernel", "R", gates, columns=True)
    kinds: tuple[RowKind, ...] = ("bW", "bR") if cudnn or mode is RNNMode.GRU else ("b",)
    bias = Tensor("bias", tuple((kind, gate) for kind in kinds for gate in gates))
    return (*kernels, bias) if biases else kernels


def _from_cudnn(own: dict[str, Array], units: int) -> dict[str, Array]:
    """Read CuDNNLSTM's matrices: each gate's block holds cuDNN's own matrix, in cuDNN's order of elements.

    So the recurrent block is that matrix, and the input block is its memory in another shape, not its transpose.
    """
    own = dict(own)
    for name in ("kernel", "recurrent_kernel"):
        rows = len(own[name])
        blocks = np.split(own[name], own[name].shape[1] // units, axis=1)
        own[name] = np.concatenate([block.reshape(units, rows).T for block in blocks], axis=1)
    return own


def _written(mode: RNNMode, layer: PseudoLayer, *, cudnn: bool) -> dict[str, Array]:
    G, (U, inputs) = len(layer.W), layer.W[0].shape
    found = {t.name: t.of(layer) for t in _form(mode, biases=cudnn or bool(layer.biases), cudnn=cudnn)}
    if cudnn:  # each block the memory of cuDNN's matrix: what `_from_cudnn` undoes
        for name, rows in (("kernel", inputs), ("recurrent_kernel", U)):
            blocks = np.split(found[name], G, axis=1)
            found[name] = np.hstack([np.ascontiguousarray(block.T).reshape(rows, U) for block in blocks])
    elif "bias" in found and mode is RNNMode.GRU:
        found["bias"] = found["bias"].reshape(2, -1)
    return found


def _only_recurrent(named: Named) -> Callable[[str], tuple[str, str] | None]:
    """Return `split_name` for the recurrent layers' keys alone, and leave other layers out where paths tell them apart.

    A Dense has a kernel and a bias, too. Since TF 2 what is recurrent stands in a cell; before, only the recurrent
    kernel told it.
    """
    recurrent = {leaf[0] for key in named if (leaf := split_name(key)) and leaf[1] == "recurrent_kernel"}

    def in_cell(path: str) -> bool:
        return any(map(_CELL.search, path.split("/")))

    def leaf_of(key: str) -> tuple[str, str] | None:
        leaf = split_name(key)
        return leaf if leaf and (not leaf[0] or leaf[0] in recurrent or in_cell(leaf[0])) else None

    if recurrent and all(map(in_cell, recurrent)):
        named.drop(lambda key: in_cell(key) or "/" not in key)
    return leaf_of


def _numbered(name: str, k: int) -> str:
    return f"{name}_{k}" if k else name
