"""Which RNNs a TensorFlow checkpoint contains, found by the names and shapes of its variables.

Source: variable scopes of tensorflow/python/ops/rnn.py, rnn_cell_impl.py and tensorflow/contrib/rnn (r1.0 to r1.15).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pycudnnrnn._tf1.tensors import CELL_NAMES
from pycudnnrnn.spec import RNNMode

MODES: Final = {cell: mode for mode, cell in reversed(CELL_NAMES.items())}
"""The mode of each cell of tf.contrib.cudnn_rnn. A cell of any other name is one of TF's own LSTMs.

Those have the equations of the compatible cell, with a number added to the forget gate at run time. The plain cell's
name does not tell CudnnRNNTanh from CudnnRNNRelu.
"""

AVERAGE: Final = "/ExponentialMovingAverage"
"""What follows a variable's name in the name of its average over the training."""

_VARIABLE: Final = re.compile(
    r"(?P<scope>(?s:(?:.*?/)?))(?P<own>(?:gates/|candidate/|candidate/(?:input|hidden)_projection/|projection/)?"
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


class FoundRNN(NamedTuple):
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
            folder, slash, word = match["own"].rpartition("/")
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


def find_models(shapes: Mapping[str, tuple[int, ...]]) -> list[FoundRNN]:
    """Return the RNNs whose first kernel exists, in the order of their scopes."""
    models: dict[tuple[str, str, int], FoundRNN] = {}
    for cell in find_cells(shapes):
        own = cell.above, cell.kind, 2 if cell.side else 1
        layers = max(models[own].num_layers if own in models else 0, 1 + cell.layer)
        if cell.certain and cell.above[-1:] in {"", "/"}:
            models[own] = FoundRNN(*own[:2], layers, own[2], cell.num_units)
    return [models[own] for own in sorted(models)]


def is_below(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is a slot of one of `names`, as optimizers and averages make them: "kernel/Adam"."""
    return any(name[:i] in names for i, character in enumerate(name) if character == "/")
