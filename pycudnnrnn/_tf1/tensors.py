"""TF-canonical form: the names, shapes and stacking in which TF's plain cells store a cuDNN RNN's weights.

Also the way back: which RNNs the variables of a file are, by their names and shapes.

TF stores only the sum of two biases. The two are written in addition to their sum, under TF 1.3's names. A projection
has the name that TF's LSTMCell gives it. Names here are relative: a scope comes before them. All arrays are NumPy's.

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.3 and 1.15; the variable scopes of
tensorflow/python/ops/rnn.py, rnn_cell_impl.py and tensorflow/contrib/rnn (r1.0 to r1.15).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from pycudnnrnn import _assignment
from pycudnnrnn._forms import Array, Form, PseudoLayer, pseudo_layers, stack, unstack
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import BiasMode, GRUGate, InputMode, LSTMGate, PlainGate, RNNMode, RNNSpec

TensorKind = Literal["weight", "bias", "projection", "pair"]

CELL_NAMES: Final = {
    RNNMode.LSTM: "cudnn_compatible_lstm_cell",
    RNNMode.GRU: "cudnn_compatible_gru_cell",
    RNNMode.RNN_TANH: "basic_rnn_cell",
    RNNMode.RNN_RELU: "basic_rnn_cell",
}
"""The names of the cells in TF's variable scopes."""

STACKED_GATES: Final[dict[RNNMode, tuple[int, ...]]] = {
    RNNMode.LSTM: (LSTMGate.INPUT, LSTMGate.NEW, LSTMGate.FORGET, LSTMGate.OUTPUT),
    RNNMode.GRU: (GRUGate.RESET, GRUGate.UPDATE),
    RNNMode.RNN_TANH: (PlainGate.HIDDEN,),
    RNNMode.RNN_RELU: (PlainGate.HIDDEN,),
}
"""Which gates share a kernel, in its order: TF's LSTM has i, c, f, o and cuDNN's i, f, c, o."""


@dataclasses.dataclass(frozen=True)
class TFTensor:
    """One tensor of a checkpoint: its name without scope, shape and kind. The kind "pair" is one of two biases."""

    name: str
    shape: tuple[int, ...]
    kind: TensorKind


def cell_scope(spec: RNNSpec, pseudo_layer: int) -> str:
    """Return TF's scope for the cell of a pseudo-layer, with a slash at the end."""
    layer, direction = divmod(pseudo_layer, spec.num_dirs)
    cell = CELL_NAMES[spec.mode]
    if spec.num_dirs == 1:
        return f"rnn/multi_rnn_cell/cell_{layer}/{cell}/"
    return f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{('fw', 'bw')[direction]}/{cell}/"


def cell_form(spec: RNNSpec) -> Form:
    """Return the tensors of one cell, named within the cell."""
    gates, gru = STACKED_GATES[spec.mode], spec.mode is RNNMode.GRU
    prefix, new = "gates/" if gru else "", [GRUGate.NEW]
    form = [stack(f"{prefix}kernel", "WR", gates, columns=True)]
    if gru:
        form.append(stack("candidate/input_projection/kernel", "W", new, columns=True))
        form.append(stack("candidate/hidden_projection/kernel", "R", new, columns=True))
    if spec.bias_mode is not BiasMode.NONE:
        form.append(stack(f"{prefix}bias", "b", gates))
    if gru and spec.has_input_bias:
        form.append(stack("candidate/input_projection/bias", "bW", new))
    if gru and spec.has_recurrent_bias:
        form.append(stack("candidate/hidden_projection/bias", "bR", new))
    if spec.num_proj:
        form.append(stack("projection/kernel", "P", [0], columns=True))
    if spec.bias_mode is BiasMode.DOUBLE:
        form += [stack(f"{prefix}bias_cudnn_0", "bW", gates), stack(f"{prefix}bias_cudnn_1", "bR", gates)]
    return tuple(form)


def cell_tensors(spec: RNNSpec, layer: int) -> Iterator[TFTensor]:
    """Yield the tensors of one cell of `layer`, named within the cell."""
    skip = layer == 0 and spec.input_mode is InputMode.SKIP_INPUT
    sizes = 0 if skip else spec.layer_input_size(layer), spec.num_units, spec.state_size
    for tensor in cell_form(spec):
        kind: TensorKind = "weight" if tensor.columns else "pair" if "bias_cudnn_" in tensor.name else "bias"
        kind = "projection" if tensor.parts[0][0] == "P" else kind
        yield TFTensor(tensor.name, tensor.shape(*sizes), kind)


@functools.lru_cache(maxsize=256)
def tf_tensors(spec: RNNSpec) -> tuple[TFTensor, ...]:
    """List every tensor of `spec` in TF's order: all weights, all biases, then those that TF does not write."""
    tensors = [
        dataclasses.replace(tensor, name=cell_scope(spec, p) + tensor.name)
        for p in range(spec.num_pseudo_layers)
        for tensor in cell_tensors(spec, p // spec.num_dirs)
    ]
    order = ("weight", "bias", "projection", "pair")
    return tuple(sorted(tensors, key=lambda tensor: order.index(tensor.kind)))


_PAIR: Final = re.compile(r"(gates/)?bias_cudnn_([01])\Z")


def names_of(written: str) -> list[str]:
    """Return every name that a tensor may have in a file; the one that we write comes first.

    Source: TF 1.3 wrote a space in the pairs' names for the GRU; its place in the scope is not certain.
    """
    spaced = (_PAIR.sub(pattern, written) for pattern in (r"\1bias_cudnn \2", r"bias_cudnn \2"))
    return list(dict.fromkeys((written, *spaced)))


def look_up(spec: RNNSpec, in_file: Container[str], full: Callable[[str], str]) -> Iterator[tuple[TFTensor, str]]:
    """Yield the tensors of an RNN, each with its name in the file, or with the name that is missing.

    `full` returns the full name of a relative one. Pairs that are absent are left out.
    """
    for tensor in tf_tensors(spec):
        names = names_of(full(tensor.name))
        name_in_file = next((name for name in names if name in in_file), None)
        if name_in_file is not None or tensor.kind != "pair":
            yield tensor, name_in_file or names[0]


def to_tf(spec: RNNSpec, weights: Sequence[Array], biases: Sequence[Array]) -> dict[str, Array]:
    """Stitch cuDNN-canonical lists into TF's tensors, in the order of `tf_tensors`.

    Shapes:
        weights: [rows, cols]; biases: [num_units]; kernels: [cols, gates * rows].
    """
    form, layers = cell_form(spec), pseudo_layers(spec, weights, biases)
    named = {cell_scope(spec, p) + tensor.name: tensor.of(layer) for p, layer in enumerate(layers) for tensor in form}
    return {tensor.name: named[tensor.name] for tensor in tf_tensors(spec)}


def from_tf(
    spec: RNNSpec, tensors: Mapping[str, Array], dtype: np.dtype[Any] | None = None, *, halve: bool = True
) -> tuple[list[Array], list[Array]]:
    """Split TF's tensors into cuDNN-canonical (weights, biases). The pairs of biases may be absent.

    A pair is used if its sum is the bias stored with it. Otherwise the bias is used, since training may have changed
    it: it is halved as TF does, or with `halve=False` becomes the input bias unhalved. All are cast to `dtype` after
    that decision; None leaves each as it is.

    Raises:
        ArgumentError: a tensor has another shape, or no real numbers.
    """
    arrays: dict[str, Array] = {}
    for tensor, name in look_up(spec, tensors, str):
        _assignment.check_real_dtype(name, tensors[name])
        if tensors[name].shape != tensor.shape:
            raise ArgumentError(name, f"{tensor.shape}", tensors[name].shape, aspect="shape")
        arrays[tensor.name] = tensors[name]
    layers = []
    for p in range(spec.num_pseudo_layers):
        scope = cell_scope(spec, p)
        of_cell = {name.removeprefix(scope): array for name, array in arrays.items() if name.startswith(scope)}
        layers.append(_unstacked(spec, of_cell, dtype, halve=halve))
    return [array for layer in layers for array in layer.weights], [array for layer in layers for array in layer.biases]


@np.errstate(all="ignore")  # an overflow to infinity counts as the sum, too
def _unstacked(spec: RNNSpec, tensors: dict[str, Array], dtype: np.dtype[Any] | None, *, halve: bool) -> PseudoLayer:
    form, bias = cell_form(spec), "gates/bias" if spec.mode is RNNMode.GRU else "bias"
    names = [f"{bias}_cudnn_{i}" for i in range(2)]
    pair = [tensors[name] for name in names if name in tensors]
    # Before the cast, which rounds a sum otherwise.
    is_sum = len(pair) == 2 and np.array_equal(pair[0] + pair[1], tensors[bias], equal_nan=True)
    cast = {name: array.astype(dtype or array.dtype, copy=False) for name, array in tensors.items()}
    if spec.bias_mode is not BiasMode.DOUBLE:
        return unstack(form, cast, spec.num_gates, sums="bW" if spec.has_input_bias else "bR")
    if not is_sum:
        half = (cast[bias] / 2).astype(cast[bias].dtype)
        parts = [half, half] if halve else [cast[bias], np.zeros_like(cast[bias])]
        cast |= dict(zip(names, parts, strict=True))
    return unstack(tuple(t for t in form if t.name != bias), cast, spec.num_gates)


def snake_case(name: str) -> str:
    """Turn a class's name into a scope's as TF does: CudnnRNNTanh is cudnn_rnn_tanh."""
    split = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", split).lower()


MODES: Final = {cell: mode for mode, cell in reversed(CELL_NAMES.items())}
"""The mode of each cell of tf.contrib.cudnn_rnn. A cell of any other name is one of TF's own LSTMs.

Those have the equations of the compatible cell, with a number added to the forget gate at run time. The plain cell's
name does not tell CudnnRNNTanh from CudnnRNNRelu.
"""

AVERAGE: Final = "/ExponentialMovingAverage"
"""What follows a variable's name in the name of its average over the training."""

_VARIABLE: Final = re.compile(
    r"(?P<scope>(?s:(?:.*?/)?))(?P<name>(?:gates/|candidate/|candidate/(?:input|hidden)_projection/|projection/)?"
    r"(?:kernel|weights|bias|biases|bias_cudnn[_ ][01]|recurrent_kernel|w_[fio]_diag|wc[ifo]))"
)

_SINCE_1_2: Final = {"weights": "kernel", "biases": "bias"}

_PLACE: Final = re.compile(
    r"(?P<above>(?s:.*?))"
    r"(?P<within>rnn(?:/multi_rnn_cell)?|multi_rnn_cell|stack_bidirectional_rnn|bidirectional_rnn)"
    r"(?:/cell_(?P<layer>[0-9]{1,6})(?:_attention/attention)?)?(?:/bidirectional_rnn)?(?:/(?P<side>fw|bw))?"
    r"(?:/multi_rnn_cell/cell_(?P<apart>[0-9]{1,6}))?/[^/]+"
)
"""The scope of a cell, from where TF's scopes for stacks and directions begin."""

_CELL: Final = re.compile(r".*(?:lstm|gru|rnn).*|fw|bw", re.IGNORECASE)
"""The last part of a scope that shows by its name that it is a cell."""


class Cell(NamedTuple):
    """A cell: its scope, and the names of its variables by the names that TF gives them since 1.2.

    - `kind`: the class, in the scope's words.
    - `above`, `within`: the scope up to "rnn" and the like, with its slash, and that word. A cell without one is above
      itself.
    - `apart`: each direction has layers of its own.
    - `certain`: the name is that of a cell. Otherwise only the shapes are, and a dense layer may have these.
    """

    scope: str
    names: dict[str, str]
    kind: str
    num_units: int
    above: str
    within: str
    layer: int
    side: str
    apart: bool
    certain: bool


class StoredRNN(NamedTuple):
    """An RNN among the variables. `scope` is the part of the names before "rnn/" and the like, with its slash."""

    scope: str
    cell: str
    num_layers: int
    num_dirs: int
    num_units: int

    def __str__(self) -> str:
        ways = "bidirectional" if self.num_dirs == 2 else "unidirectional"
        return f"{self.scope!r}: {self.cell}, {self.num_layers} x {self.num_units} units, {ways}"


def find_cells(shapes: Mapping[str, tuple[int, ...]], *, averages: bool = False) -> list[Cell]:
    """Return the cells whose first kernel exists, in the order of their names, or with `averages` those of averages."""
    scopes: dict[str, dict[str, str]] = {}
    for name in sorted(shapes):
        match = _VARIABLE.fullmatch(name.removesuffix(AVERAGE))
        if match and name.endswith(AVERAGE) is averages:
            folder, slash, word = match["name"].rpartition("/")
            scopes.setdefault(match["scope"], {})[folder + slash + _SINCE_1_2.get(word, word)] = name
    cells = []
    for scope, names in scopes.items():
        last = scope.rstrip("/").rpartition("/")[2]
        kind = re.sub(r"_[0-9]+\Z", "", last)
        gates = 2 if "gates/kernel" in names else 1 if MODES.get(kind) is RNNMode.RNN_TANH else 4
        shape = shapes[names.get("gates/kernel", names.get("kernel", next(iter(names.values()))))]
        if {"kernel", "gates/kernel"}.isdisjoint(names) or "recurrent_kernel" in names or len(shape) != 2:
            continue
        certain = _CELL.fullmatch(last) is not None
        might_be = (
            shape[1] % gates == 0 and shape[0] > shape[1] // gates and shapes.get(names.get("bias", "")) == shape[1:]
        )
        if certain or might_be:
            match = _PLACE.fullmatch(scope.rstrip("/"))
            above, within = (match["above"], match["within"].partition("/")[0]) if match else (scope, "")
            layer, side, apart = match.group("layer", "side", "apart") if match else ("", "", "")
            place = above, within, int(layer or apart or 0), side or "", bool(apart and int(apart))
            cells.append(Cell(scope, names, kind, shape[1] // gates, *place, certain))
    return cells


def find_models(shapes: Mapping[str, tuple[int, ...]]) -> list[StoredRNN]:
    """Return the RNNs whose first kernel exists, in the order of their scopes."""
    models: dict[tuple[str, str, int], StoredRNN] = {}
    for cell in find_cells(shapes):
        model = cell.above, cell.kind, 2 if cell.side else 1
        layers = max(models[model].num_layers if model in models else 0, 1 + cell.layer)
        if cell.certain and cell.above[-1:] in {"", "/"}:
            models[model] = StoredRNN(*model[:2], layers, model[2], cell.num_units)
    return [models[model] for model in sorted(models)]


def is_below(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is a slot of one of `names`, as optimizers and averages make them: "kernel/Adam"."""
    return any(name[:i] in names for i, character in enumerate(name) if character == "/")
