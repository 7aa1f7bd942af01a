"""Calls in another cell's order of arguments: the error names the argument that is meant, and what the cell takes."""

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError

L, G = ops.CudnnLSTM(1, 4, 3), ops.CudnnGRU(1, 4, 3)
PL, PG = L.init_params(), G.init_params()
X, H = np.ones((5, 2, 3), np.float32), np.ones((1, 2, 4), np.float32)
NONE_SUCH, NOTHING = "no such argument", "an array, or None for zeros"

SHAPE = "an array of shape (1, 2, 4)"

MISFITS = {
    # op; arguments; keywords; what the error names; what it expects there; what it says came
    "an LSTM's call": (G, (X, H, H, PG), {}, "input_c", NONE_SUCH, SHAPE),
    "an LSTM's call with zeros": (G, (X, None, None, PG), {}, "input_c", NONE_SUCH, "None"),
    "an LSTM's call to the end": (G, (X, H, H, PG, False), {}, "input_c", NONE_SUCH, SHAPE),
    "an LSTM's call, params by name": (G, (X, None, H), {"params": PG}, "input_c", NONE_SUCH, SHAPE),
    "c by name": (G, (X, H, PG), {"input_c": H}, "input_c", NONE_SUCH, SHAPE),
    "no h": (G, (X, PG), {}, "input_h", NOTHING, "nothing"),
    "no h, params by name": (G, (X,), {"params": PG}, "input_h", NOTHING, "nothing"),
    "no h, and a bool": (G, (X, PG, True), {}, "input_h", NOTHING, "nothing"),
    "a GRU's call": (L, (X, H, PL), {}, "input_c", NOTHING, "nothing"),
    "a GRU's call to the end": (L, (X, H, PL, False), {}, "input_c", NOTHING, "nothing"),
    "a GRU's call with a keyword": (L, (X, H, PL), {"is_training": False}, "input_c", NOTHING, "nothing"),
    "no states": (L, (X, PL), {}, "input_h", NOTHING, "nothing"),
    "no states by name": (L, (), {"input_data": X, "params": PL}, "input_h", NOTHING, "nothing"),
    "no params": (L, (X, H, H), {}, "params", "an array", "nothing"),
    "nothing at all": (L, (), {}, "input_data", "an array", "nothing"),
    "one too many": (L, (X, H, H, PL, True, 7), {}, "argument 6", NONE_SUCH, "7"),
    "a name that is not there": (L, (X, H, H, PL), {"training": True}, "training", NONE_SUCH, "True"),
    "one by position and by name": (L, (X, H, H, PL), {"input_h": H}, "input_h", "one", "two, by position and by name"),
}  # fmt: skip


@pytest.mark.parametrize("way", ["__call__", "forward"])
@pytest.mark.parametrize("what", MISFITS)
def test_a_call_that_fits_another_cell_says_which_argument_is_meant_and_what_this_cell_takes(what, way):
    op, arguments, keywords, name, expected, got = MISFITS[what]
    states = "input_h, input_c" if op is L else "input_h"
    takes = f"{type(op).__name__} takes (input_data, {states}, params, is_training=True)"
    with pytest.raises(ArgumentTypeError) as caught:
        getattr(op, way)(*arguments, **keywords)
    assert (caught.value.argument, str(caught.value.got)) == (name, got)
    assert caught.value.expected == f"{expected}: {takes}"


def test_other_errors_stay_what_they_are():
    with pytest.raises(ArgumentTypeError, match=r"Invalid is_training: 1, expecting a Python bool$"):
        G(X, H, PG, 1)
    with pytest.raises(ArgumentTypeError, match="Invalid input_data: <class 'list'>, expecting a NumPy"):
        G([1.0], H, PG)
    with pytest.raises(ArgumentTypeError, match="Invalid input_data: <class 'list'>, expecting a NumPy"):
        L([1.0], PL, H, PL)
    with pytest.raises(ArgumentError, match="Invalid params shape: "):
        G(X, H, H)


LAYER_CALLS = {
    "training": (X, None, 1),
    "inputs dtype": (X.astype("f8"),),
    "inputs shape": (X[0],),
    "initial_state[0] shape": (X, (H[:, :1], H)),
    "initial_state[1] shape": (X, (H, H[:, :1])),
    "initial_state[1]": (X, (H, [1.0])),
}


@pytest.mark.parametrize("what", LAYER_CALLS)
def test_a_layers_errors_name_the_layers_arguments(what):
    layer = CudnnLSTM(1, 4)
    layer.build((None, None, 3))
    for call in (layer, layer.forward):
        with pytest.raises(ArgumentError, match=rf"^Invalid {what.replace('[', chr(92) + '[')}: "):
            call(*LAYER_CALLS[what])


def test_a_layers_backward_names_the_layers_arguments():
    layer = CudnnLSTM(1, 4)
    fwd = layer.forward(X)
    wrong = H[:, :1]
    for name, given in {
        r"d_outputs": (X, None),
        r"d_states\[0\]": (None, (wrong, H)),
        r"d_states\[1\]": (None, (H, wrong)),
        r"d_states": (None, wrong),
        r"d_output_c": (None, H, wrong),
    }.items():
        with pytest.raises(ArgumentError, match=rf"^Invalid {name} shape: "):
            fwd.backward(*given)
    with pytest.raises(ArgumentError, match=r"^Invalid d_output shape: "):
        fwd.backward_data(X)
    assert fwd.backward(fwd.outputs, fwd.states).params is not None
    kept_nothing = layer.forward(X, training=False)
    with pytest.raises(RuntimeError, match="run it with training=True or keep_reserve=True"):
        kept_nothing.backward(fwd.outputs)
    with pytest.raises(ArgumentTypeError, match="Invalid training: 1"):
        layer.capture(5, 2, 1)
    gru = CudnnGRU(1, 4)
    with pytest.raises(ArgumentError, match=r"^Invalid initial_state\[0\] shape: "):
        gru(X, (wrong,))
