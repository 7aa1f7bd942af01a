"""Calls in another cell's order of arguments: the error names the argument that is meant, and what the cell takes."""

import re

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, ops
from pycudnnrnn.errors import ArgumentError

L, G = ops.CudnnLSTM(1, 4, 3), ops.CudnnGRU(1, 4, 3)
PL, PG = L.init_params(), G.init_params()
X, H = np.ones((5, 2, 3), np.float32), np.ones((1, 2, 4), np.float32)

STATES = "; input_h and input_c are two arguments here; taken are (input_data, input_h, input_c, params, "
MISFITS = {
    # op; arguments; keywords; what the error says
    "an LSTM's call": (G, (X, H, H, PG), {}, r"^Invalid is_training: an array of shape .*a Python bool: 'gru' has no"),
    "an LSTM's call with zeros": (G, (X, None, None, PG), {}, r"_c, its arrays are \(input_data, input_h, params\)$"),
    "an LSTM's call to the end": (G, (X, H, H, PG, False), {}, r"takes from 4 to 5 positional arguments but 6 were"),
    "c by name": (G, (X, H, PG), {"input_c": H}, r"^CudnnGRU\..*keyword argument 'input_c'.*; input_c: only an LSTM"),
    "no h": (G, (X, PG), {}, "missing 1 required positional argument: 'params'"),
    "a GRU's call": (L, (X, H, PL), {}, "missing 1 required positional argument: 'params'"),
    "no states": (L, (X, PL), {}, "missing 2 required positional arguments: 'input_c' and 'params'"),
    "torch's call": (L, (X, (H, H), PL), {}, re.escape("positional argument: 'params'" + STATES)),
    "torch's call, params by name": (L, (X, (H, H)), {"params": PL}, re.escape("argument: 'input_c'" + STATES)),
}  # fmt: skip


@pytest.mark.parametrize("way", ["__call__", "forward"])
@pytest.mark.parametrize("what", MISFITS)
def test_a_call_that_fits_another_cell_names_the_argument_that_is_meant(what, way):
    op, arguments, keywords, text = MISFITS[what]
    with pytest.raises(TypeError, match=text):
        getattr(op, way)(*arguments, **keywords)


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
    with pytest.raises(ArgumentError, match=r"^Invalid initial_state\[0\] shape: "):
        CudnnGRU(1, 4)(X, (wrong,))


THIS_MANY = "it is num_units here"
HINTS = {
    # what is called; its keywords; the name that is refused; what is said of it
    "an op in torch's words": (lambda k: ops.CudnnLSTM(1, input_size=4, **k), {"hidden_size": 8}, THIS_MANY),
    "directions": (lambda k: ops.CudnnGRU(1, 8, 4, **k), {"bidirectional": True}, "direction='bidirectional'"),
    "a GRU's projection": (lambda k: ops.CudnnGRU(1, 8, 4, **k), {"num_proj": 2}, "only an LSTM has a projection"),
    "a device": (lambda k: ops.CudnnLSTM(1, 8, 4, **k), {"device": "cuda"}, "runs where its arrays are"),
    "a layer's input": (lambda k: CudnnGRU(1, 8, **k), {"input_size": 4}, "from build(input_shape)"),
    "a layer's call": (lambda k: CudnnLSTM(1, 4)(X, **k), {"batch_first": True}, "it is time_major=False here"),
    "an activation": (lambda k: ops.CudnnRNNTanh(1, 8, 4, **k), {"activation": "relu"}, "CudnnRNNRelu are two"),
    "an op's call": (lambda k: ops.CudnnGRU(1, 8, 4)(X, H, None, **k), {"training": True}, "is_training of an op"),
    "a layer's backward": (lambda k: CudnnLSTM(1, 4).forward(X).backward(**k), {"d_output": X}, "it is d_outputs"),
    "what nobody calls so": (lambda k: CudnnGRU(1, 4)(X, **k), {"speed": 3}, ""),
}  # fmt: skip


@pytest.mark.parametrize("what", HINTS)
def test_a_name_of_elsewhere_is_answered_with_what_it_is_here_and_with_all_that_is_taken(what):
    call, keywords, hint = HINTS[what]
    (name,) = keywords
    with pytest.raises(TypeError) as caught:
        call(keywords)
    refused, *hints, taken = str(caught.value).split("; ")
    assert f"got an unexpected keyword argument '{name}'" in refused
    assert [text.partition(": ")[0] for text in hints] == ([name] if hint else [])
    assert hint in "".join(hints)
    first = {"an op's call": "input_data, input_h", "a layer's backward": "d_outputs=None"}
    first |= dict.fromkeys(("a layer's call", "what nobody calls so"), "inputs, initial_state=None")
    assert taken.startswith(f"taken are ({first.get(what, 'num_layers')}, ")
    assert name not in {argument.strip().partition("=")[0] for argument in taken.split(",")}
    assert "->" not in taken, "names and defaults, and no types"
