"""ONNX models of several nodes: their names say which of them are one stack."""

import io

import numpy as np
import pytest

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, need, run_ours

need("onnx", "onnxruntime", "torch")
import onnx  # noqa: E402
import torch  # noqa: E402
from onnx import helper  # noqa: E402

from tests.helpers.onnx_stacks import B, H, I, T, op, stack, worst_error  # noqa: E402

FLOAT32 = 3e-6
LAYERS = ["low", "high"]


@pytest.mark.parametrize("directions", [1, 2])
def test_several_nodes_are_read_where_they_are_named_and_the_error_has_the_list(directions):
    side_by_side = [op("Transpose", "Y", "Yt", perm=[0, 2, 1, 3]), op("Reshape", "Yt, 0 0 -1", "X")]
    c, model = stack(side_by_side, directions=directions)
    assert worst_error(c, model) <= FLOAT32
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model)
    wanted = "model: has 2 RNN nodes: name those of one stack, in its order: nodes=['low', 'high']"
    assert str(caught.value) == f"onnx: {wanted}"
    equal_models(convert.onnx.from_model(model, nodes=LAYERS), c)


BETWEEN = {
    "a dropout that is on": [
        helper.make_node("Dropout", ["Y", "half", "yes"], ["d"], "d"), op("Squeeze", "d, 1", "X"),
    ],
    "a squeeze that takes the time, too": [op("Squeeze", "Y", "X")],
    "a relu": [op("Relu", "Y", "r"), op("Squeeze", "r, 1", "X")],
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
def test_nothing_between_two_nodes_is_read_through(name):
    _, model = stack(BETWEEN[name])
    with pytest.raises(ConvertError, match="name those of one stack"):
        convert.onnx.from_model(model)


def test_how_nodes_that_are_named_are_joined_is_the_callers():
    c, model = stack([op("Relu", "Y", "r"), op("Squeeze", "r, 1", "X")], lengths=("n", "m"))
    equal_models(convert.onnx.from_model(model, nodes=LAYERS), c)


def test_a_written_model_is_read_without_names_only_as_it_was_written():
    c, _ = stack([op("Squeeze", "Y, 1", "X")])
    for lengths in (False, True):
        model = convert.onnx.to_model(c, sequence_lens=lengths)
        equal_models(convert.onnx.from_model(model), c)
    model.producer_name = "another"
    with pytest.raises(ConvertError, match="name those of one stack"):
        convert.onnx.from_model(model)
    model.producer_name = "pycudnnrnn"
    next(node for node in model.graph.node if node.name == "layer_1").name = "other"
    with pytest.raises(ConvertError, match=r"nodes=\['layer_0', 'other'\]"):
        convert.onnx.from_model(model)


def test_a_layout_with_the_batch_first_is_the_calls():
    for directions in (1, 2):
        c, model = stack([op("Reshape", "Y, 0 0 -1", "X")], layout=1, directions=directions)
        equal_models(convert.onnx.from_model(model, nodes=LAYERS), c)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"above": {"layout": 1}}, "the nodes of one stack have equal ones"),
        ({"layout": 2}, "layout of node 'low': expecting 0 or 1, got 2"),
        ({"states": "Y_h"}, "initial_h of node 'high': expecting zeros or an input of the model, got what LSTM 'low'"),
        ({"states": "moved"}, "got what LSTM 'low' computes; it belongs to the call"),
    ],
)
def test_nodes_that_differ_or_start_from_another_one_are_no_stack(options, text):
    _, model = stack([op("Squeeze", "Y, 1", "X"), op("Cast", "Y_h", "moved", to=1)], **options)
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model, nodes=LAYERS)
    assert text in str(caught.value)


def test_states_of_the_call_and_zeros_of_an_outputs_size_are_read():
    zeros = [op("Squeeze", "Y, 1", "X"), op("Shape", "Y_h", "sizes"), op("ConstantOfShape", "sizes", "zeros")]
    for options in ({"states": "state"}, {"states": "zeros"}, {"lengths": ("n", "n")}):
        c, model = stack(zeros, **options)
        equal_models(convert.onnx.from_model(model, nodes=LAYERS), c)


def names_in(model):
    return [node.name for node in model.graph.node if node.op_type in {"LSTM", "GRU", "RNN"}]


class Modules(torch.nn.Module):
    """Three layers in two modules of torch's."""

    def __init__(self, batch_first, bidirectional):
        super().__init__()
        ways = {"batch_first": batch_first, "bidirectional": bidirectional}
        self.low = torch.nn.GRU(I, H, 2, **ways)
        self.high = torch.nn.GRU(H * (1 + bidirectional), H, **ways)

    def forward(self, x):
        return self.high(self.low(x)[0])[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_torch_itself_exports_is_read_by_its_names(dynamic, batch_first, bidirectional):
    module, file = Modules(batch_first, bidirectional).eval(), io.BytesIO()
    x = torch.randn(T, B, I, generator=torch.Generator().manual_seed(1))
    axes = {"x": {0: "first", 1: "second"}} if dynamic else None
    torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"], dynamic_axes=axes)
    model = onnx.load_model_from_string(file.getvalue())
    c = convert.onnx.from_model(model, nodes=names_in(model))
    x, theirs = x.numpy(), module(x).detach().numpy()
    x, theirs = (a.swapaxes(0, 1).copy() if batch_first else a for a in (x, theirs))
    zeros = np.zeros((c.spec.num_pseudo_layers, x.shape[1], H), "f4")
    assert c.spec.num_layers == 3
    assert np.abs(run_ours(c, x, zeros, None, [len(x)] * x.shape[1])[0] - theirs).max() <= FLOAT32


class Started(torch.nn.Module):
    """Two layers of torch's that start from something, and may have lengths."""

    def __init__(self, start):
        super().__init__()
        self.rnn = torch.nn.GRU(I, H, 2)
        self.learned = torch.nn.Parameter(torch.full((2, 1, H), 0.5))
        self.start = start

    def forward(self, x, h, lengths):
        if self.start == "lengths":
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return torch.nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0])[0]
        starts = {
            "given": lambda: h,
            "zeros": lambda: x.new_zeros(2, x.size(1), H),
            "expanded": lambda: self.learned.expand(-1, x.size(1), -1).contiguous(),
            "repeated": lambda: self.learned.repeat(1, x.size(1), 1),
            "computed": lambda: torch.tanh(h),
        }
        return self.rnn(x, starts[self.start]())[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("start", "text"),
    [
        ("given", ""), ("zeros", ""), ("lengths", "got what TopK '/TopK' computes"),
        ("expanded", "'learned' is a constant of the model and not 0"),
        ("repeated", "'learned' is a constant of the model and not 0"), ("computed", "got what Tanh '/Tanh' computes"),
    ],
)  # fmt: skip
def test_what_torch_starts_from_is_read_where_the_caller_gives_it_or_it_is_zero(start, text, dynamic):
    module, file = Started(start).eval(), io.BytesIO()
    given = (torch.zeros(T, B, I), torch.zeros(2, B, H), torch.tensor([T, 1, 2]))
    axes = {"x": {0: "T", 1: "B"}, "h": {1: "B"}, "lengths": {0: "B"}} if dynamic else None
    names = ["x", "h", "lengths"]
    torch.onnx.export(module, given, file, dynamo=False, input_names=names, dynamic_axes=axes)
    model = onnx.load_model_from_string(file.getvalue())
    if text:
        with pytest.raises(ConvertError) as caught:
            convert.onnx.from_model(model, nodes=names_in(model))
        assert text in str(caught.value)
        return
    theirs = {name: tensor.detach().numpy() for name, tensor in module.rnn.state_dict().items()}
    equal_models(convert.onnx.from_model(model, nodes=names_in(model)), convert.pytorch.to_canonical(theirs))
