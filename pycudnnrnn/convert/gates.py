"""The order of gates in each framework, and the arrays of those that stack the gates of two biases.

An order lists cuDNN's gates in the order of the framework's stack. These are the only permutations, except for TF 1.x's
(`_tf1.tensors`). Sources: the frameworks' own classes. tests/convert compares each order with the framework itself,
except for Gluon's and Chainer's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pycudnnrnn._forms import Array, Form, stack
from pycudnnrnn.convert.exchange import Canonical, read_cells, split
from pycudnnrnn.convert.named import Named, mode_of
from pycudnnrnn.convert.stacks import Layers
from pycudnnrnn.spec import GATES, GRUGate, LSTMGate, RNNMode

Order = tuple[int, ...]

_I, _F, _N, _O = LSTMGate.INPUT, LSTMGate.FORGET, LSTMGate.NEW, LSTMGate.OUTPUT
_RESET, _UPDATE, _NEW = GRUGate.RESET, GRUGate.UPDATE, GRUGate.NEW

_ORDERS: Final[dict[str, tuple[Order, Order]]] = {
    # framework: LSTM, GRU
    "pytorch": ((_I, _F, _N, _O), (_RESET, _UPDATE, _NEW)),
    "keras": ((_I, _F, _N, _O), (_UPDATE, _RESET, _NEW)),
    "onnx": ((_I, _O, _F, _N), (_UPDATE, _RESET, _NEW)),
    "flax": ((_I, _F, _N, _O), (_RESET, _UPDATE, _NEW)),
    "equinox": ((_I, _F, _N, _O), (_RESET, _UPDATE, _NEW)),
    "jax_rnn": ((_I, _F, _N, _O), ()),
    "gluon": ((_I, _F, _N, _O), (_RESET, _UPDATE, _NEW)),
    "chainer": ((_I, _F, _N, _O), (_RESET, _UPDATE, _NEW)),
}


def order_of(framework: str, mode: RNNMode) -> Order:
    """Return the framework's order; the plain cells have one gate everywhere."""
    if mode in (RNNMode.LSTM, RNNMode.GRU):
        return _ORDERS[framework][mode is RNNMode.GRU]
    return tuple(GATES[mode])


def form_of(framework: str, mode: RNNMode, *, biases: bool, projection: bool) -> Form:
    """Return the arrays of a cell, by kind."""
    gates = order_of(framework, mode)
    stacks = [stack(kind, kind, gates) for kind in (("W", "R", "bW", "bR") if biases else ("W", "R"))]
    return (*stacks, stack("projection", "P", [0])) if projection else tuple(stacks)


def read(named: Named, kinds: Mapping[str, str], rows: Layers, activation: str) -> Canonical:
    """Take every array of these cells, and nothing else. `kinds` are the names of the arrays of a cell.

    Raises:
        ConvertError: an array is missing, left over or misshapen.
    """
    first = rows[0][0]
    recurrent, projection = first.key(kinds["R"]), first.keys.get(kinds["projection"])
    height, P = named.shape(recurrent, 2)
    U = P if projection is None else named.shape(projection, 2)[1]
    mode = mode_of(named.framework, recurrent, height, U, activation)
    has_biases = any("bias" in part for row in rows for cell in row for part in cell.keys)
    form = form_of(named.framework, mode, biases=has_biases, projection=projection is not None)
    return read_cells(named, mode, tuple(tensor._replace(name=kinds[tensor.name]) for tensor in form), rows)


def write(framework: str, c: Canonical, name: Callable[[str, int, int], str]) -> dict[str, Array]:
    """Return every array in the framework's order, under its name by kind, layer and direction.

    Raises:
        ConvertError: a feature that the framework does not have.
    """
    layers = split(framework, c, projection=True)
    form = form_of(framework, c.spec.mode, biases=bool(c.biases), projection=bool(c.spec.num_proj))
    return {name(t.name, *divmod(p, c.spec.num_dirs)): t.of(layer) for p, layer in enumerate(layers) for t in form}
