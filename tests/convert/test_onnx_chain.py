"""What stands between the nodes of an ONNX stack: read where onnxruntime computes what a stack does."""

import io

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, need, random_canonical, run_ours

need("onnx", "onnxruntime", "torch")
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

FLOAT32 = 3e-6
T, B, I, H = 5, 3, 4, 4  # I is H, and T is not B: what is refused runs, and computes something else
CONSTANTS = {
    "0": [0], "1": [1], "2": [2], "3": [3], "4": [4], "-1": [-1], "-3": [-3], "0 0 -1": [0, 0, -1],
    "T B -1": [T, B, -1], "B T -1": [B, T, -1], "T -1 H": [T, -1, H], "-1 B H": [-1, B, H], "-1 -1 H": [-1, -1, H],
    "0 -1 H": [0, -1, H], "9 sizes": [T, *[1] * 6, B, -1],
}  # fmt: skip


def op(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(", "), [output], output, **attributes)


def stack(between, *, directions=1, layout=0, known=(T, B), above=None, lengths=("", ""), states=""):
    """Build two LSTM nodes, and between them the nodes that make X, which is read, of Y, which is given."""
    c = random_canonical(RNNSpec("lstm", 2, H, I, direction=("unidirectional", "bidirectional")[directions - 1]), 7)
    common = {"hidden_size": H, "direction": ("forward", "bidirectional")[directions - 1]}
    common |= {"layout": layout} if layout else {}
    low = helper.make_node("LSTM", ["x", "0/W", "0/R", "0/B", lengths[0]], ["Y", "Y_h", "Y_c"], "low", **common)
    inputs = ["X", "1/W", "1/R", "1/B", lengths[1], states]
    high = helper.make_node("LSTM", inputs, ["z"], "high", **common | (above or {}))
    tensors = [numpy_helper.from_array(a, name) for name, a in convert.onnx.from_canonical(c).items()]
    tensors += [numpy_helper.from_array(np.array(value), name) for name, value in CONSTANTS.items()]
    given = [helper.make_tensor_value_info("x", 1, [*(known[::-1] if layout else known), I])]
    given += [helper.make_tensor_value_info(name, 6, [B]) for name in sorted(set(lengths) - {""})]
    given += [helper.make_tensor_value_info("state", 1, [directions, B, H])] * (states == "state")
    out = helper.make_tensor_value_info("z", 1, None)
    graph = helper.make_graph([low, *between, high], "g", given, [out], tensors)
    return c, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def worst_error(c, model, layout=0):
    """Return how far our stack is from what onnxruntime gives for the model."""
    x = np.random.default_rng(1).normal(size=(T, B, I)).astype("f4")
    D = c.spec.num_dirs
    zeros = np.zeros((2 * D, B, H), "f4")
    ours = run_ours(c, x, zeros, zeros, [T] * B)[0].reshape(T, B, D, H)
    (z,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x.swapaxes(0, 1) if layout else x})
    z = z.swapaxes(0, 1) if layout else z.swapaxes(1, 2)
    return np.abs(z - ours).max() if z.shape == ours.shape else np.inf


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
def test_what_exporters_write_between_two_layers_is_read_and_computes_the_same(name):
    between, options = RIGHT[name]
    c, model = stack(between, **options)
    assert worst_error(c, model) <= FLOAT32
    equal_models(convert.onnx.from_model(model), c)


SQUEEZED = op("Squeeze", "Y, 1", "s")
JOINED = "a shape that keeps or joins the axes of"
WRONG = {
    "time and batch swapped": (
        [SQUEEZED, op("Transpose", "s", "X", perm=[1, 0, 2])], {},
        "X of node 'high': expecting [T, B, H] from 'low', got [B, T, H]"),
    "the steps twice": (
        [SQUEEZED, op("Concat", "s, s", "X", axis=0)], {}, "Concat 'X' between two nodes: expecting one value, got 2"),
    "directions over the batch": (
        [op("Reshape", "Y, T B -1", "X")], {"directions": 2}, f"expecting {JOINED} [T, D, B, H], got [5, 3, -1]"),
    "directions over the batch, in two steps": (
        [op("Reshape", "Y, 0 -1 H", "r"), op("Reshape", "r, T B -1", "X")], {"directions": 2},
        f"Reshape 'X' between two nodes: expecting {JOINED} [T, D*B, H], got [5, 3, -1]"),
    "a reshape that swaps": (
        [op("Reshape", "Y, B T -1", "X")], {}, f"expecting {JOINED} [T, 1, B, H], got [3, 5, -1]"),
    "a reshape that swaps by computed sizes": (
        [op("Shape", "Y", "sizes"), op("Gather", "sizes, 2", "b"), op("Gather", "sizes, 0", "t"),
         op("Concat", "b, t, -1", "shape", axis=0), op("Reshape", "Y, shape", "X")], {"known": "TB"},
        f"expecting {JOINED} [T, 1, B, H], got [B, T, -1]"),
    "units before directions": (
        [op("Transpose", "Y", "t", perm=[0, 2, 3, 1]), op("Reshape", "t, T B -1", "X")], {"directions": 2},
        "expecting [T, B, D*H] from 'low', got [T, B, H*D]"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_another_thing_of_an_output_is_refused_by_name(name):
    between, options, text = WRONG[name]
    c, model = stack(between, **options)
    assert worst_error(c, model) > 0.01, "the model is no such stack"
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("between", "text"),
    [
        ([op("Reshape", "Y, -1 -1 H", "X")], "got [-1, -1, 4]"),
        ([op("Reshape", "Y, x", "X")], "got a shape that is not known"),
        ([op("Reshape", "Y, 0 0 -1", "X", allowzero=1)], "got [0, 0, -1]"),
        ([op("Reshape", "Y, 9 sizes", "X")], "axes of [T, 1, B, H], got [5, 1, 1, 1, 1, 1, 1, 3, -1]"),
        (
            [op("Squeeze", "Y, 2", "X")],
            "'X' between two nodes: expecting axes of size 1 of [T, 1, B, H], got [2]",
        ),
        ([op("Squeeze", "Y, 4", "X")], "expecting axes of a value of 4, got [4]"),
        ([op("Squeeze", "Y, x", "X")], "expecting constant axes, got others"),
        ([op("Transpose", "Y", "X", perm=[0, 1, 2])], "expecting a perm of 4 axes, got [0, 1, 2]"),
        ([op("Transpose", "Y", "t"), op("Squeeze", "t, 2", "X")], "expecting [T, B, H] from 'low', got [H, B, T]"),
        ([op("Cast", "Y", "i", to=7), op("Squeeze", "i, 1", "X")], "expecting a floating dtype, got another one"),
        ([helper.make_node("Dropout", ["Y"], ["d", "X"])], "'high': does not read the output of 'low'"),
        ([op("Identity", "Y", "X", domain="ours")], "'high': does not read the output of 'low'"),
        ([op("Identity", "X", "X")], "'high': does not read the output of 'low'"),
        ([op("Relu", "Y", "X")], "'high': does not read the output of 'low'"),
        ([op("Squeeze", "Y_h, 0", "X")], "'high': does not read the output of 'low'"),
    ],
)
def test_what_cannot_be_shown_to_be_the_output_is_refused_by_name(between, text):
    _, model = stack(between)
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model)
    assert text in str(caught.value)


def test_sizes_count_only_where_the_model_says_them():
    between = [op("Reshape", "Y, T B -1", "X")]
    c, model = stack(between)
    equal_models(convert.onnx.from_model(model), c)
    with pytest.raises(ConvertError, match=r"got \[5, 3, -1\]"):
        convert.onnx.from_model(stack(between, known="TB")[1])


def test_with_the_batch_first_it_stays_first():
    """By the operator's text alone: onnxruntime does not run this layout."""
    for directions in (1, 2):
        c, model = stack([op("Reshape", "Y, 0 0 -1", "X")], layout=1, directions=directions)
        equal_models(convert.onnx.from_model(model), c)
    _, model = stack([SIDE_BY_SIDE, op("Reshape", "Yt, 0 0 -1", "X")], layout=1, directions=2)
    with pytest.raises(ConvertError, match=r"expecting \[B, T, D\*H\] from 'low', got \[B, D, T\*H\]"):
        convert.onnx.from_model(model)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"above": {"layout": 1}}, "the nodes of one stack have equal ones"),
        ({"layout": 2}, "layout of node 'low': expecting 0 or 1, got 2"),
        ({"lengths": ("n", "")}, "sequence_lens of node 'high': expecting 'n' as for 'low', got 'none'"),
        ({"lengths": ("", "n")}, "sequence_lens of node 'high': expecting 'none' as for 'low', got 'n'"),
        ({"lengths": ("n", "m")}, "sequence_lens of node 'high': expecting 'n' as for 'low', got 'm'"),
        ({"states": "Y_h"}, "initial state of node 'high': expecting a state of the call, got one that 'low' computes"),
        ({"states": "moved"}, "got one that 'low' computes"),
    ],
)
def test_nodes_that_differ_in_what_else_they_read_are_no_stack(options, text):
    _, model = stack([SQUEEZED, op("Identity", "s", "X"), op("Cast", "Y_h", "moved", to=1)], **options)
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model)
    assert text in str(caught.value)


def test_states_of_the_call_and_zeros_of_an_outputs_size_are_read():
    zeros = [SQUEEZED, op("Identity", "s", "X"), op("Shape", "Y_h", "sizes"), op("ConstantOfShape", "sizes", "zeros")]
    for options in ({"states": "state"}, {"states": "zeros"}, {"lengths": ("n", "n")}):
        c, model = stack(zeros, **options)
        equal_models(convert.onnx.from_model(model), c)


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
    ("between", "right"),
    [
        (lambda y: y, True),
        (lambda y: y.reshape(y.size(0), y.size(1), -1), True),
        (lambda y: y.transpose(0, 1), False),
        (lambda y: y.reshape(y.size(1), y.size(0), -1), False),
    ],
    ids=["nothing", "reshape", "transpose", "a reshape that swaps"],
)
def test_what_torch_itself_exports_is_read_where_it_is_a_stack(between, right, dynamic, batch_first, bidirectional):
    module, file = Modules(between, batch_first, bidirectional).eval(), io.BytesIO()
    x = torch.randn(T, B, I, generator=torch.Generator().manual_seed(1))
    axes = {"x": {0: "first", 1: "second"}} if dynamic else None
    torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"], dynamic_axes=axes)
    model = onnx.load_model_from_string(file.getvalue())
    if not right:
        with pytest.raises(ConvertError, match="expecting"):
            convert.onnx.from_model(model)
        return
    c = convert.onnx.from_model(model)
    x, theirs = x.numpy(), module(x).detach().numpy()
    x, theirs = (a.swapaxes(0, 1).copy() if batch_first else a for a in (x, theirs))
    zeros = np.zeros((c.spec.num_pseudo_layers, x.shape[1], H), "f4")
    assert c.spec.num_layers == 3
    assert np.abs(run_ours(c, x, zeros, None, [len(x)] * x.shape[1])[0] - theirs).max() <= FLOAT32
