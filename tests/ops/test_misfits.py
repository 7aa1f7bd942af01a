"""Calls in another cell's order of arguments: the error names the argument that is meant, and what the cell takes."""

import inspect

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnRNNTanh, ops
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
    keywords_only = "sequence_lengths=None, time_major=True"
    keywords_only += ", keep_reserve=None, checkpoint_every=None" if way == "forward" else ""
    takes = f"{type(op).__name__} takes (input_data, {states}, params, is_training=True, *, {keywords_only})"
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


ABOUT_EACH_CALL, THIS_MANY = "each call takes its own", "it is num_units here"
HINTS = {
    # what is called; its keywords; the name that is refused; what is said of it
    "an op in torch's words": (lambda k: ops.CudnnLSTM(1, input_size=4, **k), {"hidden_size": 8}, THIS_MANY),
    "a layer in torch's words": (lambda k: CudnnLSTM(1, **k), {"hidden_size": 8}, THIS_MANY),
    "a layer in Keras' words": (lambda k: CudnnGRU(1, **k), {"units": 8}, THIS_MANY),
    "directions": (lambda k: ops.CudnnGRU(1, 8, 4, **k), {"bidirectional": True}, "direction='bidirectional'"),
    "a projection": (lambda k: CudnnLSTM(1, 8, **k), {"proj_size": 2}, "it is num_proj of an LSTM here"),
    "a GRU's projection": (lambda k: ops.CudnnGRU(1, 8, 4, **k), {"num_proj": 2}, "only an LSTM has a projection"),
    "a GRU layer's clip": (lambda k: CudnnGRU(1, 8, **k), {"cell_clip": 1.0}, "only an LSTM has a cell state"),
    "no bias": (lambda k: CudnnGRU(1, 8, **k), {"bias": False}, "bias_mode='none'"),
    "relu": (lambda k: CudnnRNNTanh(1, 8, **k), {"nonlinearity": "relu"}, "CudnnRNNRelu are two classes"),
    "an op's batch first": (lambda k: ops.CudnnGRU(1, 8, 4, **k), {"batch_first": True}, "it is time_major=False here"),
    "an op's time major": (lambda k: ops.CudnnGRU(1, 8, 4, **k), {"time_major": False}, ABOUT_EACH_CALL),
    "a layer's lengths": (lambda k: CudnnGRU(1, 8, **k), {"sequence_lengths": [1]}, ABOUT_EACH_CALL),
    "a layer's input": (lambda k: CudnnGRU(1, 8, **k), {"input_size": 4}, "from build(input_shape)"),
    "an op's call": (lambda k: L(X, None, None, PL, **k), {"batch_first": True}, "it is time_major=False here"),
    "an op's forward": (lambda k: L.forward(X, None, None, PL, **k), {"lengths": [5, 5]}, "it is sequence_lengths"),
    "a layer's call": (lambda k: CudnnLSTM(1, 4)(X, **k), {"batch_first": True}, "it is time_major=False here"),
    "a layer's call with states": (lambda k: CudnnGRU(1, 4)(X, **k), {"hx": H}, "initial_state of a layer"),
    "what nobody calls so": (lambda k: CudnnGRU(1, 4)(X, **k), {"speed": 3}, ""),
}  # fmt: skip


@pytest.mark.parametrize("what", HINTS)
def test_a_name_of_elsewhere_is_answered_with_what_it_is_here_and_with_all_that_is_taken(what):
    call, keywords, hint = HINTS[what]
    (name,) = keywords
    with pytest.raises(ArgumentTypeError) as caught:
        call(keywords)
    error = caught.value
    assert error.argument == name
    assert error.expected.startswith("no such argument (" if hint else "no such argument: Cudnn")
    assert hint in error.expected
    assert "_WithoutCellState" not in str(error)
    owner, _, arguments = error.expected.partition(": Cudnn")[2].partition(" takes (")
    assert owner in {"LSTM", "GRU", "RNNTanh"}
    assert name not in {argument.strip().partition("=")[0] for argument in arguments.split(",")}
    assert "time_major=True" in arguments if "call" in what or "forward" in what else "bias_mode='double'" in arguments


def test_a_constructor_says_what_is_missing_too_much_or_there_twice():
    takes = "CudnnGRU takes (num_layers, num_units, input_size, input_mode='linear_input', direction='unidirectional', "
    for arguments, keywords, name, expected in (
        ((1,), {"input_size": 3}, "num_units", "a value: "),
        ((1, 2, 3), {"num_units": 2}, "num_units", "one: "),
        ((1, 2, 3, "linear_input", "unidirectional", "float32", 0.0, 0, 7), {}, "argument 9", "no such argument: "),
    ):
        with pytest.raises(ArgumentTypeError) as caught:
            ops.CudnnGRU(*arguments, **keywords)
        assert (caught.value.argument, caught.value.expected.startswith(expected + takes)) == (name, True)


def test_a_type_error_from_within_a_call_stays_what_it_is():
    def refuse(shape, dtype):
        raise TypeError("not today")

    class Odd(CudnnGRU):
        def call(self, inputs, **more):
            raise TypeError(f"inside, with {sorted(more)}")

    with pytest.raises(TypeError, match=r"^not today$"):
        CudnnGRU(1, 4, kernel_initializer=refuse)(X)
    with pytest.raises(TypeError, match=r"^inside, with \['batch_first'\]$"):
        Odd(1, 4)(X, batch_first=True)
    with pytest.raises(ArgumentTypeError, match=r"^Invalid num_layers: 'one', expecting an integer$"):
        ops.CudnnGRU("one", 4, 3)


@pytest.mark.parametrize("kind", [CudnnGRU, CudnnLSTM, ops.CudnnGRU, ops.CudnnLSTM])
def test_help_shows_the_arguments_themselves(kind):
    names = list(inspect.signature(kind).parameters)
    assert names[:2] == ["num_layers", "num_units"]
    assert {"arguments", "keywords"}.isdisjoint(names)


def test_a_warning_of_a_constructor_points_to_its_caller():
    with pytest.warns(UserWarning, match="has no effect with one layer") as caught:
        ops.CudnnGRU(1, 4, 3, dropout=0.5)
    assert caught[0].filename == __file__
