"""Keras: `LSTM`, `GRU`, `SimpleRNN`, `Bidirectional` (Keras 2 and 3), and `CuDNNLSTM`, `CuDNNGRU` (Keras 2)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array, Form, PseudoLayer, RowKind, Tensor, apart, stack
from pycudnnrnn.convert._exchange import Canonical, assemble, split
from pycudnnrnn.convert._named import Named, flag, mode_of, plain_mode, some
from pycudnnrnn.convert._orders import order_of
from pycudnnrnn.convert._stack import CellKeys, find_cells, is_under, named_layers
from pycudnnrnn.convert.keras import archive, h5
from pycudnnrnn.convert.keras.archive import read_keras
from pycudnnrnn.convert.keras.config import called, layers_of, settings_of
from pycudnnrnn.convert.keras.h5 import VARIABLES, read_h5, write_h5
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "read_h5", "read_keras", "read_settings", "to_canonical", "write_h5"]

_KEY: Final = re.compile(r"(?:(.*)/)?(?:(kernel|recurrent_kernel|bias)(?::0)?|(?<=cell/)vars/([0-2]))")
_CELL: Final = re.compile(r"cell(?:_[0-9]+)?$")
_CLASSES: Final = {
    RNNMode.LSTM: "lstm", RNNMode.GRU: "gru", RNNMode.RNN_TANH: "simple_rnn", RNNMode.RNN_RELU: "simple_rnn"
}  # fmt: skip


def to_canonical(
    arrays: Any,
    *,
    layers: Sequence[str] | None = None,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
    reset_after: bool = True,
    go_backwards: bool = False,
) -> Canonical:
    """Read `kernel`, `recurrent_kernel` and `bias` of one layer, or of a stack of layers under paths.

    A key is what Keras calls the variable (`w.path`), what `read_h5` or `read_keras` gives, or the bare name. `layers`
    names the layers in order, and leaves the others out. Without it every recurrent layer counts; a Dense and its like
    are left out where recurrent layers have a cell in their paths, as they have since TensorFlow 2. Whether a layer is
    CuDNNLSTM or CuDNNGRU shows in the size of its bias. `activation`, `recurrent_activation`, `reset_after` and
    `go_backwards` are what the layer was made with: the arrays do not say, but for a reset-before GRU's bias.

    The one bias of LSTM and SimpleRNN becomes cuDNN's single input bias, which it is exactly. GRU and the CuDNN layers
    have two, kept apart. `use_bias=False` is bias mode none. A Bidirectional layer has to concatenate (its default).

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, layers that have no order, or a layer that cuDNN
            has no RNN for: a reset-before GRU, another activation, one that only runs backwards.

    Source: keras.layers (3.15); tf.compat.v1.keras.layers.CuDNNLSTM (2.15).
    """
    plain = plain_mode("keras", activation)
    if not isinstance(recurrent_activation, str) or recurrent_activation != "sigmoid":
        raise ConvertError("keras", "recurrent_activation", f"cuDNN has only 'sigmoid', not {recurrent_activation!r}")
    if flag("keras", "go_backwards", go_backwards):
        raise ConvertError("keras", "go_backwards", "no RNN of cuDNN's only runs backwards: reverse the input instead")
    reset_after = flag("keras", "reset_after", reset_after)
    named = Named("keras", arrays)
    cells, num_dirs = find_cells(named, _only_recurrent(named), layers, None)
    U, columns = named.shape(cells[0].key("recurrent_kernel"), 2)
    inputs = named.shape(cells[0].key("kernel"), 2)[0]
    mode = mode_of("keras", cells[0].key("recurrent_kernel"), columns, U, activation)
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
    settings = settings_of(_read_config(path))
    names = called(settings)
    return {names[layer]: own for layer, own in settings.items()}


def read_settings_of(
    path: str | os.PathLike[str], arrays: Iterable[str], layers: Sequence[str] | None
) -> dict[str, dict[str, Any]]:
    """Read what `read_settings` reads of the layers that will be used: those under the names of `layers`, or all.

    `arrays` are the names of the file's arrays.

    Raises:
        ConvertError: what `read_settings` refuses, or a layer of which a configuration that is there says nothing.
        MissingDependencyError: h5py is not installed, which an `.h5` needs.
    """
    config = _read_config(path)
    settings = settings_of(config)
    names = called(settings)
    kernels = [key for key in arrays if (leaf := _leaf(key)) and leaf[1] == "recurrent_kernel"]
    if layers is not None:
        kernels = [key for key in kernels if any(is_under(key, name) for name in layers)]
    found = layers_of(kernels, settings)
    unsaid = [key for key, layer in found.items() if layer is None]
    if unsaid and config:
        why = (
            "the configuration does not say what this recurrent layer was made with; it does of: "
            f"{some(list(names.values()), shorten) or 'none'}. Name those that are meant in `layers`, or save the "
            "weights alone (.weights.h5) and say it yourself"
        )
        raise ConvertError("keras", shorten(unsaid[0]), why)
    used = set(found.values())
    return {names[layer]: own for layer, own in settings.items() if layer in used}


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
    """Return `_leaf` for the recurrent layers' keys alone, and leave other layers out where paths tell them apart.

    A Dense has a kernel and a bias, too. Since TF 2 what is recurrent stands in a cell; before, only the recurrent
    kernel told it.
    """
    recurrent = {leaf[0] for key in named if (leaf := _leaf(key)) and leaf[1] == "recurrent_kernel"}

    def in_cell(path: str) -> bool:
        return any(map(_CELL.search, path.split("/")))

    def leaf_of(key: str) -> tuple[str, str] | None:
        leaf = _leaf(key)
        return leaf if leaf and (not leaf[0] or leaf[0] in recurrent or in_cell(leaf[0])) else None

    if recurrent and all(map(in_cell, recurrent)):
        named.drop(lambda key: in_cell(key) or "/" not in key)
    return leaf_of


def _leaf(key: str) -> tuple[str, str] | None:
    match = _KEY.fullmatch(key)
    if not match:
        return None
    return match[1] or "", match[2] or VARIABLES[int(match[3])]


def _numbered(name: str, k: int) -> str:
    return f"{name}_{k}" if k else name
