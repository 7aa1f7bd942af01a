"""The order of gates in each framework: the only permutations, except for TF 1.x's (`_tf1.tensors`).

An order lists cuDNN's gates in the order of the framework's stack. Sources: the frameworks' own classes. tests/convert
compares each order with the framework itself, except for Gluon's and Chainer's.
"""

from __future__ import annotations

from typing import Final

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
