"""The order of gates in each framework: the only permutations there are, except for TF 1.x's (`_tf1.canonical`).

An order says which of cuDNN's gates stands at each place of the framework's stack. Sources: the frameworks' own
classes, each order run against the framework itself in tests/convert, but for Gluon's and Chainer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pycudnnrnn.spec import GRUGate, LSTMGate, PlainGate, RNNMode

Array = npt.NDArray[Any]
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

FLAX_LETTERS: Final = {RNNMode.LSTM: "ifgo", RNNMode.GRU: "rzn"}
"""How Flax names the gates, in the order above."""


def order_of(framework: str, mode: RNNMode) -> Order:
    """Return the framework's order; the plain cells have one gate everywhere."""
    if mode in (RNNMode.LSTM, RNNMode.GRU):
        return _ORDERS[framework][mode is RNNMode.GRU]
    return (PlainGate.HIDDEN,)


def from_rows(framework: str, mode: RNNMode, stacked: Array) -> Array:
    """Split gates stacked on the first axis, and put them in cuDNN's order.

    Shapes:
        stacked: [G * U, ...]; result: [G, U, ...].
    """
    order = order_of(framework, mode)
    blocks = stacked.reshape(len(order), len(stacked) // len(order), *stacked.shape[1:])
    gates = np.empty_like(blocks)
    gates[list(order)] = blocks
    return gates


def to_rows(framework: str, mode: RNNMode, gates: Array) -> Array:
    """Undo `from_rows`."""
    return gates[list(order_of(framework, mode))].reshape(len(gates) * gates.shape[1], *gates.shape[2:])


def from_columns(framework: str, mode: RNNMode, stacked: Array) -> Array:
    """Split gates stacked side by side, columns = output, and put them in cuDNN's order and orientation.

    Shapes:
        stacked: [I, G * U]; result: [G, U, I].
    """
    return from_rows(framework, mode, stacked.T)


def to_columns(framework: str, mode: RNNMode, gates: Array) -> Array:
    """Undo `from_columns`."""
    return np.ascontiguousarray(to_rows(framework, mode, gates).T)


def from_list(framework: str, mode: RNNMode, arrays: Sequence[Array]) -> Array:
    """Put the arrays, one per gate, in cuDNN's order."""
    gates = [arrays[0]] * len(arrays)
    for gate, array in zip(order_of(framework, mode), arrays, strict=True):
        gates[gate] = array
    return np.stack(gates)


def to_list(framework: str, mode: RNNMode, gates: Array) -> list[Array]:
    """Undo `from_list`."""
    return [gates[gate].copy() for gate in order_of(framework, mode)]
