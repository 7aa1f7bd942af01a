"""Which RNNs a TensorFlow checkpoint contains, found by the names of its variables.

Source: variable scopes of tensorflow/python/ops/rnn.py and tensorflow/contrib/rnn/python/ops/rnn.py (r1.15).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pycudnnrnn._tf1.tensors import CELL_NAMES, STACKED_GATES
from pycudnnrnn.spec import RNNMode

LSTM_CELLS: Final = ("lstm_cell", "basic_lstm_cell", "lstm_block_cell")
"""TF's own cells: the equations of the compatible cell, with a number added to the forget gate at run time."""

GRU_CELLS: Final = ("gru_cell", "gru_block_cell")
"""TF's own cells, whose equations differ from cuDNN's."""

MODES: Final = {cell: mode for mode, cell in reversed(CELL_NAMES.items())} | dict.fromkeys(LSTM_CELLS, RNNMode.LSTM)
"""The mode that runs each cell. The plain cell's name does not tell CudnnRNNTanh from CudnnRNNRelu."""

KEY: Final = re.compile(
    r"(?P<scope>rnn(?:/multi_rnn_cell/cell_(?P<uni>[0-9]{1,6}))?"
    r"|(?:stack_bidirectional_rnn/cell_(?P<bi>[0-9]{1,6})/)?bidirectional_rnn/(?P<side>fw|bw)"
    r"(?:/multi_rnn_cell/cell_(?P<apart>[0-9]{1,6}))?)"
    rf"/(?P<cell>{'|'.join(sorted({*MODES, *GRU_CELLS}))})/(?P<name>(?s:.+))"
)
"""A variable of a cell, from where TF's scopes for cells begin."""

_ANYWHERE: Final = re.compile(rf"(?:^|(?<=/))(?:{KEY.pattern})\Z")


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


def find_models(shapes: Mapping[str, tuple[int, ...]]) -> list[FoundRNN]:
    """Return the RNNs whose first kernel exists, in the order of their scopes."""
    layers: dict[tuple[str, str, int], int] = {}
    kernels: dict[tuple[str, str, int], int] = {}
    for name, shape in shapes.items():
        match = _ANYWHERE.search(name)
        if match is None:
            continue
        own = (name[: match.start()], match["cell"], 2 if match["side"] else 1)
        if match["name"] in {"kernel", "gates/kernel"} and len(shape) == 2:
            layers[own] = max(layers.get(own, 0), 1 + int(match["uni"] or match["bi"] or match["apart"] or 0))
            columns = shape[1] // (2 if "gru" in own[1] else len(STACKED_GATES[MODES[own[1]]]))
            kernels.setdefault(own, columns)
    return [FoundRNN(*own[:2], layers[own], own[2], kernels[own]) for own in sorted(layers)]


def is_below(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is a slot of one of `names`, as optimizers and averages make them: "kernel/Adam"."""
    return any(name[:i] in names for i, character in enumerate(name) if character == "/")
