"""Several RNN nodes of an ONNX model are read where the caller names them, and only then."""

import ast
import io

import numpy as np
import pytest

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, need, run_ours

need("onnx", "onnxruntime", "torch")
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
from onnx import numpy_helper  # noqa: E402

from tests.helpers.onnx_stacks import B, H, I, T, op, stack, worst_error  # noqa: E402

FLOAT32 = 3e-6
BOTH = ["low", "high"]
LISTED = r"model: has 2 RNN nodes: name the nodes of one stack in `nodes`, in its order; .* nodes=\['low', 'high'\]$"
SIDE_BY_SIDE = op("Transpose", "Y", "Yt", perm=[0, 2, 1, 3])
OF_COMPUTED_SIZES = [
    SIDE_BY_SIDE, op("Shape", "Yt", "sizes"),
    *(op("Slice", f"sizes, {k}, {k + 1}", f"size {k}") for k in range(4)),
    op("Mul", "size 2, size 3", "units"), op("Reshape", "units, -1", "width"),
    op("Concat", "size 0, size 1, width", "shape", axis=0), op("Reshape", "Yt, shape", "X"),
]  # fmt: skip
"""What torch.onnx.export(dynamo=True) writes of sizes that it does not know."""

RIGHT = {
    "torch": ([op("Squeeze", "Y, 1", "X")], {}),
    "torch, two directions": ([SIDE_BY_SIDE, op("Reshape", "Yt, 0 0 -1", "X")], {"directions": 2}),
    "torch, fixed sizes": ([SIDE_BY_SIDE, op("Reshape", "Yt, T B -1", "X")], {"directions": 2}),
    "torch, computed sizes": (OF_COMPUTED_SIZES, {"known": "TB"}),
    "torch, computed sizes, two directions": (OF_COMPUTED_SIZES, {"known": "TB", "directions": 2}),
    "tf2onnx": ([op("Squeeze", "Y, 1", "s"), op("Transpose", "s", "t", perm=[1, 0, 2]),
                 op("Transpose", "t", "X", perm=[1, 0, 2])], {}),
    "no axes": ([op("Squeeze", "Y", "X")], {}),
    "an axis from the end": ([op("Squeeze", "Y, -3", "X")], {}),
    "a reshape for a squeeze": ([op("Reshape", "Y, T -1 H", "X")], {}),
    "a reshape that leaves the time open": ([op("Reshape", "Y, -1 B H", "X")], {}),
    "an axis more and less": ([op("Squeeze", "Y, 1", "s"), op("Unsqueeze", "s, -1", "u"),
                               op("Squeeze", "u, 3", "X")], {}),
    "other dtypes": ([op("Squeeze", "Y, 1", "s"), op("Cast", "s", "d", to=11), op("Cast", "d", "X", to=1)], {}),
    "nothing": ([op("Identity", "Y", "i"), op("Dropout", "i", "d"), op("Concat", "d", "c", axis=0),
                 op("Squeeze", "c, 1", "X")], {}),
    "sizes of the input": ([SIDE_BY_SIDE, op("Shape", "x", "sizes"), op("Gather", "sizes, 0", "t"),
                            op("Gather", "sizes, 1", "b"), op("Concat", "t, b, -1", "shape", axis=0),
                            op("Reshape", "Yt, shape", "X")], {"directions": 2, "known": "TB"}),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_named_nodes_compute_the_same_with_what_exporters_write_between_them(name):
    between, options = RIGHT[name]
    c, model = stack(between, **options)
    assert worst_error(c, model) <= FLOAT32
    with pytest.raises(ConvertError, match=LISTED):
        convert.onnx.from_model(model)
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


SQUEEZED = op("Squeeze", "Y, 1", "s")
WRONG = {
    "time and batch swapped": ([SQUEEZED, op("Transpose", "s", "X", perm=[1, 0, 2])], {}),
    "the steps twice": ([SQUEEZED, op("Concat", "s, s", "X", axis=0)], {}),
    "directions over the batch": ([op("Reshape", "Y, T B -1", "X")], {"directions": 2}),
    "a relu": ([SQUEEZED, op("Relu", "s", "X")], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_nodes_that_are_no_stack_are_not_read_as_one_without_names(name):
    between, options = WRONG[name]
    c, model = stack(between, **options)
    assert worst_error(c, model) > 0.01, "the model is no such stack"
    with pytest.raises(ConvertError, match=LISTED):
        convert.onnx.from_model(model)


def test_a_dropout_that_acts_outside_training_is_not_read_as_a_stack():
    tensors = [numpy_helper.from_array(np.array(0.5, "f4"), "ratio"), numpy_helper.from_array(np.array(True), "acts")]
    _, model = stack([op("Dropout", "Y, ratio, acts", "d"), op("Squeeze", "d, 1", "X")], tensors=tensors)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    once, again = (session.run(None, {"x": np.ones((T, B, I), "f4")})[0] for _ in range(2))
    assert np.abs(once - again).max() > 0.001, "it acts"
    with pytest.raises(ConvertError, match=LISTED):
        convert.onnx.from_model(model)


def test_a_squeeze_without_axes_which_drops_the_time_of_one_step_is_not_read_as_a_stack():
    _, model = stack([op("Squeeze", "Y", "X")], known=("T", "B"))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert session.run(None, {"x": np.ones((T, B, I), "f4")})[0].shape == (T, 1, B, H)
    with pytest.raises(Exception, match="must have 3 dimensions only"):
        session.run(None, {"x": np.ones((1, B, I), "f4")})
    with pytest.raises(ConvertError, match=LISTED):
        convert.onnx.from_model(model)


@pytest.mark.parametrize("kind", ["Dropout", "Squeeze", "Relu"])
def test_a_model_of_ours_that_was_changed_is_not_read_without_names(kind):
    model = convert.onnx.to_model(stack([SQUEEZED, op("Identity", "s", "X")])[0])
    high = next(node for node in model.graph.node if node.name == "layer_1")
    model.graph.node.append(op(kind, high.input[0], "other"))
    high.input[0] = "other"
    with pytest.raises(ConvertError, match=r"nodes=\['layer_0', 'layer_1'\]$"):
        convert.onnx.from_model(model)
    assert convert.onnx.from_model(model, nodes=["layer_0", "layer_1"]).spec.num_layers == 2


def test_the_names_of_ours_in_the_model_of_another_are_no_proof():
    _, model = stack([op("Transpose", "Y", "t", perm=[0, 2, 1, 3]), op("Reshape", "t, 0 0 -1", "X")])
    for k, node in enumerate(node for node in model.graph.node if node.op_type == "LSTM"):
        node.name = f"layer_{k}"
    with pytest.raises(ConvertError, match=r"nodes=\['layer_0', 'layer_1'\]$"):
        convert.onnx.from_model(model)


@pytest.mark.parametrize("directions", [1, 2])
def test_one_node_is_read_without_a_name(directions):
    c, model = stack([], directions=directions)
    del model.graph.node[1:]
    assert convert.onnx.from_model(model).spec == c.spec.replace(num_layers=1)


def test_how_nodes_that_are_named_are_joined_is_the_callers():
    c, model = stack([op("Relu", "Y", "r"), op("Squeeze", "r, 1", "X")], lengths=("n", "m"))
    with pytest.raises(ConvertError, match=LISTED):
        convert.onnx.from_model(model)
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


@pytest.mark.parametrize(("dtype", "code"), [("float16", 10), ("float32", 1), ("float64", 11)])
def test_each_dtype_of_the_operators_is_read(dtype, code):
    """By the operator's text alone for float16, which onnxruntime does not run on a CPU."""
    wide = [op("Cast", "Y", "d", to=11), op("Cast", "d", "back", to=code), op("Squeeze", "back, 1", "X")]
    c, model = stack(wide)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    assert convert.onnx.from_model(model, nodes=BOTH).spec == c.spec.replace(dtype=dtype)


def test_with_the_batch_first_the_weights_are_the_same():
    """By the operator's text alone: onnxruntime does not run this layout."""
    for directions in (1, 2):
        c, model = stack([op("Reshape", "Y, 0 0 -1", "X")], layout=1, directions=directions)
        equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"states": "Y_h"}, "initial_h of node 'high': expecting zeros or an input of the model, got what LSTM 'low'"),
        ({"states": "moved"}, "got what LSTM 'low' computes; it belongs to the call: clear this input of the node"),
    ],
)
def test_nodes_that_differ_in_what_else_they_read_are_no_stack(options, text):
    _, model = stack([SQUEEZED, op("Identity", "s", "X"), op("Cast", "Y_h", "moved", to=1)], **options)
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model, nodes=BOTH)
    assert text in str(caught.value)


def test_states_of_the_call_and_zeros_of_an_outputs_size_are_read():
    zeros = [SQUEEZED, op("Identity", "s", "X"), op("Shape", "Y_h", "sizes"), op("ConstantOfShape", "sizes", "zeros")]
    for options in ({"states": "state"}, {"states": "zeros"}, {"lengths": ("n", "n")}):
        c, model = stack(zeros, **options)
        equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


class Modules(torch.nn.Module):
    """Three layers in two modules of torch's, and something between the modules."""

    def __init__(self, between, batch_first, bidirectional):
        super().__init__()
        ways = {"batch_first": batch_first, "bidirectional": bidirectional}
        self.low = torch.nn.GRU(I, H, 2, **ways)
        self.high = torch.nn.GRU(H * (1 + bidirectional), H, **ways)
        self.between = between

    def forward(self, x):
        return self.high(self.between(self.low(x)[0]))[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "between",
    [lambda y: y, lambda y: y.reshape(y.size(0), y.size(1), -1)],
    ids=["nothing", "reshape"],
)
def test_what_torch_itself_exports_is_read_with_the_names_that_the_error_lists(
    between, dynamic, batch_first, bidirectional
):
    module, file = Modules(between, batch_first, bidirectional).eval(), io.BytesIO()
    x = torch.randn(T, B, I, generator=torch.Generator().manual_seed(1))
    axes = {"x": {0: "first", 1: "second"}} if dynamic else None
    torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"], dynamic_axes=axes)
    model = onnx.load_model_from_string(file.getvalue())
    with pytest.raises(ConvertError, match="has 3 RNN nodes: name the nodes of one stack") as caught:
        convert.onnx.from_model(model)
    nodes = ast.literal_eval(str(caught.value).partition("the model's are nodes=")[2])
    c = convert.onnx.from_model(model, nodes=nodes)
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
        ("given", ""), ("zeros", ""), ("lengths", ""), ("expanded", "'learned' is a constant of the model and not 0"),
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
    nodes = [node.name for node in model.graph.node if node.op_type == "GRU"]
    if text:
        with pytest.raises(ConvertError) as caught:
            convert.onnx.from_model(model, nodes=nodes)
        assert text in str(caught.value)
        return
    theirs = {name: tensor.detach().numpy() for name, tensor in module.rnn.state_dict().items()}
    equal_models(convert.onnx.from_model(model, nodes=nodes), convert.pytorch.to_canonical(theirs))
