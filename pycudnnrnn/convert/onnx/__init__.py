"""ONNX: the LSTM, GRU and RNN operators, as arrays, as nodes of a model, and as a model to write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array, Form, RowKind, Tensor, unstack
from pycudnnrnn.convert.exchange import Canonical, assemble, split
from pycudnnrnn.convert.gates import order_of
from pycudnnrnn.convert.named import Named, flag, mode_of
from pycudnnrnn.convert.onnx.model import model_of, read_nodes
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "from_model", "to_canonical", "to_model"]
__dir__ = __all__.copy

_KEY: Final = re.compile(r"(?:([0-9]{1,6})/)?([WRBP])")
_DIRECTIONS: Final = {"forward": 1, "bidirectional": 2}


def to_canonical(
    arrays: Any,
    *,
    direction: Literal["forward", "bidirectional"] | None = None,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    linear_before_reset: int = 0,
    clip: float | None = None,
    input_forget: int = 0,
) -> Canonical:
    """Read the inputs W, R and B of one LSTM, GRU or RNN node, or of a chain of nodes.

    The keywords are the operator's attributes, with the operator's defaults. The operator itself follows from the
    shapes. Without B the bias mode is "none".

    Args:
        arrays: "W", "R" and "B" of one node, or "0/W", "0/R", "0/B", "1/W" ... of a chain.
        direction: "forward" or "bidirectional". None: W's shape decides. Default: None.
        activations: the activations of each direction, as in ["Relu"], which gives the relu RNN. None: the operator's
            defaults. Default: None.
        activation_alpha: parameters of the activations. cuDNN's have none. Default: None.
        activation_beta: as `activation_alpha`. Default: None.
        linear_before_reset: must be 1 for a GRU: cuDNN's reset gate acts after the recurrent product. Default: 0.
        clip: must be None: cuDNN cannot bound the sums that go into the gates. Default: None.
        input_forget: must be 0: cuDNN does not couple the input and forget gates. Default: 0.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: an array that is missing, unexpected or of the wrong shape, or a feature that cuDNN does not have:
            peepholes (a P that is not zero), `clip`, `input_forget`, other activations, a reset-before GRU, only the
            reverse direction.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> arrays = {"W": np.ones((1, 12, 3)), "R": np.ones((1, 12, 4))}
        >>> arrays |= {"B": np.ones((1, 24))}
        >>> c = convert.onnx.to_canonical(arrays, linear_before_reset=1)
        >>> c.spec
        RNNSpec('gru', 1, 4, 3, dtype='float64')

    Source: ONNX operators LSTM, GRU and RNN, opset 22.
    """
    named = Named("onnx", arrays)
    matches = [match for key in named if (match := _KEY.fullmatch(key))]
    prefixes = sorted({match[1] for match in matches if match[1]}, key=int)
    layers = [f"{prefix}/" for prefix in prefixes] or [""]
    if prefixes and [int(prefix) for prefix in prefixes] != list(range(len(prefixes))):
        named.refuse(f"{layers[-1]}W", f"expecting layers 0 to {len(prefixes) - 1} without a gap")
    D, rows, I = named.shape(f"{layers[0]}W", 3)
    U = named.shape(f"{layers[0]}R", 3)[2]
    _check_direction(direction, D)
    relu = activations is not None and _lower(activations)[:1] == ["relu"]
    mode = mode_of("onnx", f"{layers[0]}R", rows, U, "relu" if relu else "tanh")
    _check_activations(mode, D, activations, activation_alpha, activation_beta)
    _check_gates(mode, linear_before_reset, clip, input_forget)
    form = _form(mode, biases=f"{layers[0]}B" in named)
    cells = []
    for k, layer in enumerate(layers):
        if f"{layer}P" in named and mode is RNNMode.LSTM and np.any(named.take(f"{layer}P", D, 3 * U)):
            named.refuse(f"{layer}P", "holds peepholes, which cuDNN's LSTM does not have")
        stacked = {t.name: named.take(f"{layer}{t.name}", D, *t.shape(D * U if k else I, U, U)) for t in form}
        cells += [unstack(form, {name: array[d] for name, array in stacked.items()}, rows // U) for d in range(D)]
    named.finish()
    return assemble("onnx", mode, cells, D)


def from_canonical(c: Canonical) -> dict[str, Array]:
    """Write W, R and B of one node, or "0/W" ... of a chain of nodes. `to_model` writes a whole model.

    B is left out if there are no biases. A single bias becomes a pair with zeros, and skip input becomes identity
    matrices. The nodes need attributes that arrays do not contain: `linear_before_reset=1` for a GRU, `activations` for
    a relu RNN.

    Args:
        c: the model to write: its spec, weights and biases.

    Returns:
        The arrays by name, as a dict of NumPy arrays.

    Raises:
        ConvertError: a projection, or cell clipping: the operator's clip bounds the gates, not the cell.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> arrays = convert.onnx.from_canonical(c)
        >>> {name: array.shape for name, array in arrays.items()}
        {'W': (1, 16, 3), 'R': (1, 16, 4), 'B': (1, 32)}
    """
    layers = split("onnx", c)
    spec, form = c.spec, _form(c.spec.mode, biases=bool(c.biases))
    arrays: dict[str, Array] = {}
    for k in range(spec.num_layers):
        directions = layers[k * spec.num_dirs : (k + 1) * spec.num_dirs]
        path = f"{k}/" if spec.num_layers > 1 else ""
        arrays |= {path + t.name: np.stack([t.of(layer) for layer in directions]) for t in form}
    return arrays


def from_model(model: Any, *, nodes: list[str] | None = None) -> Canonical:
    """Read an LSTM, GRU or RNN node of a model, or several as the layers of one stack.

    A model with one RNN node, and any model that `to_model` wrote, needs no names. For any other model, list the nodes
    of one stack in `nodes`. They may be in the body of an If, Loop or Scan. A node without a name is called by its
    first output. The error lists the nodes to choose from. Anything that the model computes between the named nodes is
    ignored. W, R, B and P are constants, or made from constants by nodes that only move numbers.

    Initial states and lengths are not read, since they belong to a call. A warning names those that the model itself
    holds or computes.

    Args:
        model: an `onnx.ModelProto` with its weights in it (no external data).
        nodes: names of the nodes to read, in the order of the layers. None: the only RNN node of the model, or all
            nodes of a model of `to_model`. Default: None.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: no RNN node, or none of this name; without `nodes`, several nodes, or an RNN in a function or of
            another domain; named nodes that differ in their kind or attributes; weights that are not constants of the
            model; an unknown attribute; a feature that `to_canonical` rejects.
        MissingDependencyError: onnx is not installed.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(2, num_units=4, input_size=3)
        >>> weights, biases = op.params_to_canonical(op.init_params(seed=0))
        >>> model = convert.onnx.to_model(convert.Canonical(op.spec, weights, biases))
        >>> convert.onnx.from_model(model).spec
        RNNSpec('lstm', 2, 4, 3)
        >>> convert.onnx.from_model(model, nodes=["layer_1"]).spec
        RNNSpec('lstm', 1, 4, 4)

    Source: ONNX operators LSTM, GRU and RNN, opset 22.
    """
    arrays, attributes = read_nodes(model, nodes)
    return to_canonical(arrays, **attributes)


def to_model(c: Canonical, *, batch_first: bool = False, states: bool = False, sequence_lens: bool = False) -> Any:
    """Write an `onnx.ModelProto` that computes what the op computes, for any T and B of at least 1.

    **The time comes first:** `input` is [T, B, I] and `output` [T, B, D * U], unless `batch_first=True` makes them
    [B, T, I] and [B, T, D * U]. Data in the other order run as well, and give wrong numbers.

    The other inputs are optional, and only there if they are asked for:

    - `initial_h` [L * D, B, U], default zeros, with `states=True`;
    - `initial_c` [L * D, B, U], default zeros, for the LSTM only, with `states=True`;
    - `sequence_lens` [B] as int32, default T steps each, with `sequence_lens=True`.

    onnxruntime lists the optional inputs under `get_overridable_initializers()`, and prints a warning for each when it
    loads the model.

    The other outputs are `output_h` [L * D, B, U] and, for the LSTM only, `output_c` [L * D, B, U]. A sequence of
    length 0 ends in its initial states, as in the op. T is the number of steps, B of sequences, I of inputs, L of
    layers, D of directions, U of units.

    Args:
        c: the spec, weights and biases.
        batch_first: whether the batch is the first axis of `input` and `output`. Default: False.
        states: whether the model has the inputs `initial_h` and `initial_c`. Default: False.
        sequence_lens: whether the model has the input `sequence_lens`. Default: False.

    Returns:
        The model, of ONNX opset 17.

    Raises:
        ConvertError: a model that `from_canonical` rejects, or bfloat16, which the operators do not take.
        MissingDependencyError: onnx is not installed.

    Example:
        >>> import numpy as np, onnxruntime
        >>> from pycudnnrnn import convert, ops
        >>> onnxruntime.set_default_logger_severity(3)  # no warnings about optional inputs
        >>> op = ops.CudnnLSTM(2, num_units=4, input_size=3)
        >>> weights, biases = op.params_to_canonical(op.init_params(seed=0))
        >>> model = convert.onnx.to_model(convert.Canonical(op.spec, weights, biases), states=True)
        >>> session = onnxruntime.InferenceSession(model.SerializeToString())
        >>> x = np.ones((5, 2, 3), "float32")
        >>> output, h, cell = session.run(None, {"input": x})
        >>> output.shape
        (5, 2, 4)
        >>> output, h, cell = session.run(None, {"input": x, "initial_h": h, "initial_c": cell})

    Source: ONNX operators LSTM, GRU and RNN, opset 22; ONNX IR: an input with an initializer is optional.
    """
    options = {"batch_first": batch_first, "states": states, "sequence_lens": sequence_lens}
    return model_of(from_canonical(c), c.spec, **{key: flag("onnx", key, value) for key, value in options.items()})


def _form(mode: RNNMode, *, biases: bool) -> Form:
    """Return the arrays of one direction."""
    kinds: tuple[tuple[str, tuple[RowKind, ...]], ...] = (("W", ("W",)), ("R", ("R",)), ("B", ("bW", "bR")))
    gates = order_of("onnx", mode)
    return tuple(Tensor(n, tuple((k, g) for k in rows for g in gates)) for n, rows in kinds if biases or n != "B")


def _check_direction(direction: Any, num_dirs: int) -> None:
    if direction == "reverse":
        why = "no RNN of cuDNN's only runs backwards: convert it as 'forward', and reverse its input and output in time"
        raise ConvertError("onnx", "direction 'reverse'", why)
    if direction is not None and (not isinstance(direction, str) or _DIRECTIONS.get(direction) != num_dirs):
        raise ConvertError("onnx", "direction", f"W has {num_dirs} direction(s), and this says {shorten(direction)}")


def _check_activations(mode: RNNMode, num_dirs: int, activations: Any, alpha: Any, beta: Any) -> None:
    usual = {RNNMode.LSTM: ["sigmoid", "tanh", "tanh"], RNNMode.GRU: ["sigmoid", "tanh"]}
    expected = usual.get(mode, [mode.removeprefix("rnn_")]) * num_dirs
    if activations is not None and _lower(activations) != expected:
        raise ConvertError("onnx", "activations", f"cuDNN has only {expected}, not {shorten(activations)}")
    for name, value in {"activation_alpha": alpha, "activation_beta": beta}.items():
        if value is not None and value not in ([], ()):
            raise ConvertError("onnx", name, "cuDNN's activations take no parameter")


def _check_gates(mode: RNNMode, linear_before_reset: Any, clip: Any, input_forget: Any) -> None:
    if clip is not None:
        raise ConvertError("onnx", "clip", "bounds the sums that go into the gates; cuDNN bounds only the cell state")
    for name, value in {"linear_before_reset": linear_before_reset, "input_forget": input_forget}.items():
        if type(value) is not int:
            raise ConvertError("onnx", name, f"expecting 0 or 1, got {shorten(value)}")
    if input_forget:
        raise ConvertError("onnx", "input_forget", "cuDNN's LSTM does not couple the input and forget gates")
    if mode is RNNMode.GRU and linear_before_reset != 1:
        why = "expecting linear_before_reset=1 (that is cuDNN's GRU; with the operator's default 0 the reset comes "
        why += "before the recurrent product, which cuDNN does not have)"
        raise ConvertError("onnx", "linear_before_reset", why)


def _lower(activations: Any) -> list[str]:
    if isinstance(activations, str) or not isinstance(activations, (list, tuple)):
        raise ConvertError("onnx", "activations", f"expecting a list of names, got {shorten(activations)}")
    return [str(name).lower() for name in activations]
