"""Gates in and out of a framework's stack, against slices written out by hand."""

import numpy as np

from pycudnnrnn.convert._gates import from_columns, from_list, from_rows, to_columns, to_list, to_rows
from pycudnnrnn.spec import GRUGate, LSTMGate, RNNMode

U, I = 3, 5
STACKED = np.arange(3.0 * U * I).reshape(I, 3 * U)


def test_columns_are_taken_apart_in_cudnns_order_and_turned():
    gates = from_columns("keras", RNNMode.GRU, STACKED)  # Keras has update, reset, new
    assert gates.shape == (3, U, I)
    for gate, place in ((GRUGate.UPDATE, 0), (GRUGate.RESET, 1), (GRUGate.NEW, 2)):
        assert np.array_equal(gates[gate], STACKED[:, place * U : (place + 1) * U].T)


def test_columns_are_put_together_again_contiguously():
    back = to_columns("keras", RNNMode.GRU, from_columns("keras", RNNMode.GRU, STACKED))
    assert np.array_equal(back, STACKED)
    assert back.flags.c_contiguous


def test_rows_are_taken_apart_in_cudnns_order():
    rows = np.arange(4.0 * U * I).reshape(4 * U, I)
    gates = from_rows("onnx", RNNMode.LSTM, rows)  # ONNX has input, output, forget, cell
    for gate, place in ((LSTMGate.INPUT, 0), (LSTMGate.OUTPUT, 1), (LSTMGate.FORGET, 2), (LSTMGate.NEW, 3)):
        assert np.array_equal(gates[gate], rows[place * U : (place + 1) * U])
    assert np.array_equal(to_rows("onnx", RNNMode.LSTM, gates), rows)


def test_a_list_of_gates_is_reordered_and_copied():
    arrays = [np.full((2,), float(i)) for i in range(3)]
    gates = from_list("onnx", RNNMode.GRU, arrays)  # ONNX has update, reset, new
    assert gates[:, 0].tolist() == [1, 0, 2]
    back = to_list("onnx", RNNMode.GRU, gates)
    assert [array[0] for array in back] == [0, 1, 2]
    assert not any(np.shares_memory(array, gates) for array in back)
