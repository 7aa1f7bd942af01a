"""Gates in and out of a framework's stack, against slices written out by hand."""

import numpy as np

from pycudnnrnn._forms import apart, stack
from pycudnnrnn.convert._orders import order_of
from pycudnnrnn.spec import GRUGate, LSTMGate, RNNMode

U, I = 3, 5
STACKED = np.arange(3.0 * U * I).reshape(I, 3 * U)


def form(framework, mode, *, columns=False):
    gates = order_of(framework, mode)
    return stack("w", "W", gates, columns=columns), stack("r", "R", gates, columns=columns)


def test_columns_are_taken_apart_in_cudnns_order_and_turned_and_put_together_again():
    keras = form("keras", RNNMode.GRU, columns=True)  # Keras has update, reset, new
    layer = apart(keras, {"w": STACKED, "r": np.zeros((U, 3 * U))}, 3)
    for gate, place in ((GRUGate.UPDATE, 0), (GRUGate.RESET, 1), (GRUGate.NEW, 2)):
        assert np.array_equal(layer.W[gate], STACKED[:, place * U : (place + 1) * U].T)
    back = keras[0].of(layer)
    assert np.array_equal(back, STACKED)
    assert back.flags.c_contiguous
    assert not np.shares_memory(back, STACKED)


def test_rows_are_taken_apart_in_cudnns_order():
    rows = np.arange(4.0 * U * I).reshape(4 * U, I)
    onnx = form("onnx", RNNMode.LSTM)  # ONNX has input, output, forget, cell
    layer = apart(onnx, {"w": rows, "r": np.zeros((4 * U, U))}, 4)
    for gate, place in ((LSTMGate.INPUT, 0), (LSTMGate.OUTPUT, 1), (LSTMGate.FORGET, 2), (LSTMGate.NEW, 3)):
        assert np.array_equal(layer.W[gate], rows[place * U : (place + 1) * U])
    assert np.array_equal(onnx[0].of(layer), rows)
