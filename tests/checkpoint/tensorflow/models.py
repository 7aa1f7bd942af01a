"""The models whose checkpoints TensorFlow writes for the tests: their names say what they are."""

from typing import NamedTuple

from tests.helpers.pairwise import pairwise

KINDS = ("lstm", "rnn_tanh", "rnn_relu")
"""TF 2 has nothing of the compatible GRU: tests/convert/test_orders.py has its equations."""

T, B, INPUT_SIZE, NUM_UNITS, NUM_PROJ = 6, 3, 3, 4, 2

LENGTHS = (6, 2, 5)

SCOPES = {"lstm": "cudnn_lstm", "rnn_tanh": "cudnn_rnn_tanh", "rnn_relu": "cudnn_rnn_relu"}
"""Where TF's layers put their variables when they are called; one that is built before has none around it."""


class Model(NamedTuple):
    """What one checkpoint holds. `cell` is one of TF's own in the place of the compatible one."""

    kind: str
    num_layers: int = 1
    bidirectional: bool = False
    scope: str = ""
    cell: str = ""
    multi: bool = True
    num_proj: int | None = None

    @property
    def name(self):
        parts = [self.cell or self.kind, str(self.num_layers), "both" if self.bidirectional else "one"]
        more = {"alone": not self.multi, "proj": self.num_proj, "scope": self.scope}
        return "-".join([*parts, *(word for word, present in more.items() if present)])


CUDNN = [
    Model(kind, num_layers, both, SCOPES[kind] if called else "")
    for kind, num_layers, both, called in pairwise(KINDS, (1, 2, 3), (False, True), (False, True))
]
"""What `CudnnLSTM` and the others write, by layers that were called, and that were built before they were called."""

OWN_CELLS = [
    Model("lstm", 1, cell="lstm_cell", multi=False),
    Model("lstm", 1, True, cell="lstm_cell", multi=False),
    Model("lstm", 2, True, cell="lstm_cell"),
    Model("lstm", 2, cell="lstm_cell", num_proj=NUM_PROJ),
    Model("lstm", 2, cell="basic_lstm_cell"),
    Model("rnn_tanh", 1, multi=False),
]
"""TF's own cells, which are no layer's but compute what cuDNN does."""

WRITTEN = [*CUDNN, Model("lstm", 2, num_proj=NUM_PROJ)]
"""What is written here, and TensorFlow's saver restores."""
