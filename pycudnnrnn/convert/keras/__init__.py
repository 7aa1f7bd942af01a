"""Keras: `LSTM`, `GRU`, `SimpleRNN`, `Bidirectional` (Keras 2 and 3), and `CuDNNLSTM`, `CuDNNGRU` (Keras 2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from pycudnnrnn._checks import Assumption, shorten, warn
from pycudnnrnn._forms import Array, Form, PseudoLayer, RowKind, Tensor, stack, unstack
from pycudnnrnn.convert.exchange import Canonical, assemble, split
from pycudnnrnn.convert.gates import order_of
from pycudnnrnn.convert.keras.config import config_of
from pycudnnrnn.convert.keras.files import read, write_h5
from pycudnnrnn.convert.keras.used import used_layers
from pycudnnrnn.convert.named import Named, flag, mode_of, plain_mode
from pycudnnrnn.convert.stacks import Cell, layer_names, named_layers
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "read", "to_canonical", "write_h5"]
__dir__ = __all__.copy

_USUAL: Final[dict[str, Any]] = {
    "activation": "tanh", "recurrent_activation": "sigmoid", "reset_after": True, "go_backwards": False
}  # fmt: skip
_CLASSES: Final = {
    RNNMode.LSTM: "lstm", RNNMode.GRU: "gru", RNNMode.RNN_TANH: "simple_rnn", RNNMode.RNN_RELU: "simple_rnn"
}  # fmt: skip


def to_canonical(
    arrays: Any,
    *,
    layers: Sequence[str | tuple[str, str]] | None = None,
    activation: Literal["tanh", "relu"] | None = None,
    recurrent_activation: Literal["sigmoid"] | None = None,
    reset_after: bool | None = None,
    go_backwards: bool | None = None,
) -> Canonical:
    """Read one recurrent layer of Keras, or several that form a stack.

    The layers are `LSTM`, `GRU`, `SimpleRNN`, each possibly in `Bidirectional`, and Keras 2's `CuDNNLSTM` and
    `CuDNNGRU`, which the size of the bias shows. A model that masks steps needs `sequence_lengths` in each call of the
    op, and a Bidirectional layer that does not concatenate needs its merge by the caller: warnings say so.

    - The one bias of LSTM and SimpleRNN becomes cuDNN's single input bias. GRU and the CuDNN layers have two biases,
      which stay separate. `use_bias=False` gives bias mode "none".
    - Layers without a recurrent kernel, such as Dense, are left out.
    - `read` returns the arrays together with the configuration of a file of a whole model. With it, several layers are
      read without names only from a Sequential model, with only layers between them that do nothing outside training
      (Dropout). From any other model, name the layers of one stack in `layers`. The error lists the names to choose
      from. Anything that the model computes between the named layers is ignored.
    - A layer that is stateful, called more than once or called with initial states is read with a warning: an op takes
      states in each call.
    - **Arrays by themselves cannot show this.** From any other dict (`dict(arrays)`, the variables of a model, a
      `.weights.h5`) the recurrent layers become a stack, even if the model has other layers between them. A warning
      lists what was assumed of the layers, as the keywords that say it. A file of weights from Keras before 2.3, whose
      gates were hard_sigmoid by default, needs `recurrent_activation`.

    Args:
        arrays: a dict of `kernel`, `recurrent_kernel` and `bias`, under Keras's paths (`w.path`), under the names that
            `read` returns, or by themselves for one layer.
        layers: names of the layers to read, in order; the others are left out. The name of a model within the model
            means all its layers. Without a configuration, a pair (forward, backward) of names means both directions of
            a layer. None: the only recurrent layer, or those of a Sequential model. Default: None.
        activation: the layers' argument, "tanh" or "relu" (SimpleRNN). None: the file's configuration, or "tanh"
            without one. Default: None.
        recurrent_activation: the layers' argument; cuDNN has only "sigmoid". None: the file's configuration, or
            "sigmoid" without one. Default: None.
        reset_after: a GRU's argument; cuDNN has only True. None: the file's configuration, or True without one; the
            shape of the bias shows a False, too. Default: None.
        go_backwards: the layers' argument; cuDNN has only False. None: the file's configuration, or False without one.
            Default: None.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: a key that is missing or unexpected, an array of the wrong shape, names that do not give the order
            of the layers, a file of several layers without `layers`, a layer whose arguments the file does not contain,
            or a layer that cuDNN does not have: a reset-before GRU, another activation, one that only runs backwards.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> arrays = {"kernel": np.ones((3, 16)), "recurrent_kernel": np.ones((4, 16))}
        >>> arrays |= {"bias": np.ones(16)}
        >>> usual = {"activation": "tanh", "recurrent_activation": "sigmoid"}
        >>> convert.keras.to_canonical(arrays, go_backwards=False, **usual).spec
        RNNSpec('lstm', 1, 4, 3, dtype='float64', bias_mode='single_input')

    Source: keras.layers (3.15); tf.compat.v1.keras.layers.CuDNNLSTM (2.15).
    """
    keywords = {
        "activation": activation, "recurrent_activation": recurrent_activation, "reset_after": reset_after,
        "go_backwards": go_backwards,
    }  # fmt: skip
    named = Named("keras", arrays)
    config = config_of(arrays)
    rows, settings = used_layers(named, config, layers)
    cells, num_dirs = [cell for row in rows for cell in row], len(rows[0])
    arguments = _USUAL | settings | {key: value for key, value in keywords.items() if value is not None}
    plain = plain_mode("keras", arguments["activation"])
    if arguments["recurrent_activation"] != "sigmoid":
        why = f"cuDNN has only 'sigmoid', not {shorten(arguments['recurrent_activation'])}"
        raise ConvertError("keras", "recurrent_activation", why)
    if flag("keras", "go_backwards", arguments["go_backwards"]):
        raise ConvertError("keras", "go_backwards", "no RNN of cuDNN's only runs backwards: reverse the input instead")
    reset_after = flag("keras", "reset_after", arguments["reset_after"])
    U, columns = named.shape(cells[0].key("recurrent_kernel"), 2)
    inputs = named.shape(cells[0].key("kernel"), 2)[0]
    mode = mode_of("keras", cells[0].key("recurrent_kernel"), columns, U, arguments["activation"])
    if mode in (RNNMode.LSTM, RNNMode.GRU) and plain is RNNMode.RNN_RELU:
        raise ConvertError("keras", "activation", f"cuDNN has no {str(mode)!r} with 'relu', only with 'tanh'")
    if mode is RNNMode.GRU and not reset_after:
        raise ConvertError("keras", "reset_after", _RESET_BEFORE)
    bias_shape = _bias_shape(named, mode, cells[0], columns)
    cudnn = bias_shape == (2 * columns,) and mode in (RNNMode.LSTM, RNNMode.GRU)
    if config is None:
        has_gates = mode in (RNNMode.LSTM, RNNMode.GRU)
        used = [] if cudnn else ["activation", "recurrent_activation"] if has_gates else ["activation"]
        used += ["reset_after"] if mode is RNNMode.GRU and bias_shape is None else []
        assumed = [f"{key}={_USUAL[key]!r}" for key in (*used, "go_backwards") if keywords[key] is None]
        if "recurrent_activation='sigmoid'" in assumed:
            _check_version(getattr(arrays, "version", ""))
        if layers is None and len(rows) > 1:
            assumed.append(f"layers={layer_names(row[0] for row in rows)!r}")
        if assumed:
            warn(f"the arrays do not contain how their layers were made: read with {', '.join(assumed)}", Assumption)
    form = _form(mode, biases=bias_shape is not None, cudnn=cudnn)
    pseudo_layers = []
    for p, cell in enumerate(cells):
        height = inputs if p < num_dirs else num_dirs * U
        shapes = {"kernel": (height, columns), "recurrent_kernel": (U, columns), "bias": bias_shape or ()}
        variables = {t.name: named.take(cell.key(t.name), *shapes[t.name]) for t in form}
        variables |= {"bias": variables["bias"].reshape(-1)} if "bias" in variables else {}
        pseudo_layers.append(unstack(form, _from_cudnn(variables, U) if cudnn else variables, columns // U))
    named.finish()
    return assemble("keras", mode, pseudo_layers, num_dirs)


def from_canonical(c: Canonical, *, layers: Sequence[str] | None = None, cudnn: bool = False) -> dict[str, Array]:
    """Write the variables with Keras's names, in Keras's order: `model.set_weights(list(d.values()))` takes them.

    The names are "lstm/lstm_cell/kernel", "bidirectional_1/forward_lstm_1/lstm_cell/kernel" and so on. Layers with one
    bias get the sum of the two. Absent biases are left out (`use_bias=False`), or are zeros in the CuDNN layers. Skip
    input becomes identity matrices.

    Args:
        c: the model to write: its spec, weights and biases.
        layers: names of the layers to write, in order, in place of "lstm", "lstm_1" or "bidirectional" ... None: these
            names. Default: None.
        cudnn: True writes Keras 2's CuDNNLSTM or CuDNNGRU. Default: False.

    Returns:
        The arrays by name, as a dict of NumPy arrays.

    Raises:
        ConvertError: a projection or cell clipping, which Keras does not have, or a tanh or relu RNN with `cudnn=True`.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> arrays = convert.keras.from_canonical(c, layers=["encoder"])
        >>> list(arrays)[0], list(arrays.values())[0].shape
        ('encoder/lstm_cell/kernel', (3, 16))
    """
    pseudo_layers = split("keras", c)
    spec = c.spec
    if flag("keras", "cudnn", cudnn) and spec.mode not in (RNNMode.LSTM, RNNMode.GRU):
        raise ConvertError("keras", "cudnn", f"there are only CuDNNLSTM and CuDNNGRU, and this is {str(spec.mode)!r}")
    inner = f"cu_dnn{_CLASSES[spec.mode]}" if cudnn else _CLASSES[spec.mode]
    outer = "bidirectional" if spec.num_dirs == 2 else inner
    names = named_layers("keras", layers, [_numbered(outer, k) for k in range(spec.num_layers)])
    arrays: dict[str, Array] = {}
    for p, layer in enumerate(pseudo_layers):
        k, direction = divmod(p, spec.num_dirs)
        path = names[k] + "/"
        if spec.num_dirs == 2:
            path += f"{('forward', 'backward')[direction]}_{_numbered(inner, k)}/"
        path += "" if cudnn else f"{inner}_cell/"
        arrays |= {path + name: array for name, array in _written(spec.mode, layer, cudnn=cudnn).items()}
    return arrays


def _check_version(version: str) -> None:
    """Check that a file of weights alone is not of a Keras whose gates had another activation unless told otherwise."""
    numbers = re.match(r"([0-9]{1,6})\.([0-9]{1,6})", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < (2, 3):
        which = " (TF 1's tf.keras; in TF 2.0 and 2.1 it is sigmoid)" if version.endswith("-tf") else ""
        why = f"the file is of Keras {version}, whose LSTM and GRU have hard_sigmoid gates by default{which}, which "
        why += "cuDNN does not have: if the layers were made with sigmoid, give recurrent_activation='sigmoid'"
        raise ConvertError("keras", "recurrent_activation", why)


_RESET_BEFORE: Final = (
    "the GRU resets before the recurrent product, and cuDNN's after it: they compute different things, and no weights "
    "make them equal"
)


def _bias_shape(named: Named, mode: RNNMode, cell: Cell, columns: int) -> tuple[int, ...] | None:
    if "bias" not in cell.keys:
        return None
    shapes: dict[RNNMode, list[tuple[int, ...]]] = {
        RNNMode.LSTM: [(columns,), (2 * columns,)],
        RNNMode.GRU: [(2, columns), (2 * columns,)],
    }
    allowed = shapes.get(mode, [(columns,)])
    key = cell.keys["bias"]
    shape = named.shape(key, 1, 2)
    if shape in allowed:
        return shape
    if mode is RNNMode.GRU and shape == (columns,):
        named.refuse(key, f"has shape {shape}: {_RESET_BEFORE}")
    return named.refuse(key, f"expecting shape {' or '.join(map(str, allowed))}, got {shape}")


def _form(mode: RNNMode, *, biases: bool, cudnn: bool = False) -> Form:
    """Return the variables of a layer. CuDNNLSTM's and CuDNNGRU's are those after `_from_cudnn`."""
    gates = order_of("keras", mode)
    kernels = stack("kernel", "W", gates, columns=True), stack("recurrent_kernel", "R", gates, columns=True)
    kinds: tuple[RowKind, ...] = ("bW", "bR") if cudnn or mode is RNNMode.GRU else ("b",)
    bias = Tensor("bias", tuple((kind, gate) for kind in kinds for gate in gates))
    return (*kernels, bias) if biases else kernels


def _from_cudnn(variables: dict[str, Array], units: int) -> dict[str, Array]:
    """Return the arrays of a CuDNN layer with its matrices as in the other layers of Keras.

    A gate's block in a CuDNN layer is the memory of cuDNN's matrix [U, rows], reshaped to [rows, U]. In the other
    layers it is the transpose.
    """
    return {
        name: np.hstack([block.reshape(units, -1).T for block in np.split(a, a.shape[1] // units, axis=1)])
        if "kernel" in name else a
        for name, a in variables.items()
    }  # fmt: skip


def _written(mode: RNNMode, layer: PseudoLayer, *, cudnn: bool) -> dict[str, Array]:
    arrays = {t.name: t.of(layer) for t in _form(mode, biases=cudnn or bool(layer.biases), cudnn=cudnn)}
    if cudnn:  # what `_from_cudnn` undoes
        for name, matrices in (("kernel", layer.W), ("recurrent_kernel", layer.R)):
            blocks = [matrices[gate].reshape(-1, len(matrices[gate])) for gate in order_of("keras", mode)]
            arrays[name] = np.hstack(blocks)
    elif "bias" in arrays and mode is RNNMode.GRU:
        arrays["bias"] = arrays["bias"].reshape(2, -1)
    return arrays


def _numbered(name: str, k: int) -> str:
    return f"{name}_{k}" if k else name
