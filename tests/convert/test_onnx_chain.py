"""What stands between the nodes of an ONNX stack: read where onnxruntime computes what a stack does."""

import io

import numpy as np
import pytest

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, need, run_ours

need("onnx", "onnxruntime", "torch")
import onnx  # noqa: E402
import torch  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

from tests.helpers.onnx_stacks import B, H, I, T, op, stack, worst_error  # noqa: E402

FLOAT32 = 3e-6
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
    assert "name the nodes of one stack in `nodes`" in str(caught.value)


@pytest.mark.parametrize(
    ("between", "text"),
    [
        ([op("Reshape", "Y, -1 -1 H", "X")], "got [-1, -1, 4]"),
        ([op("Reshape", "Y, x", "X")], "got a shape that is not known"),
        ([op("Reshape", "Y, 0 0 -1", "X", allowzero=1)], "got [0, 0, -1]"),
        ([op("Gather", "0 0 -1, -9", "g"), op("Reshape", "Y, g", "X")], "got [T*B*H]"),
        ([op("Slice", "0 0 -1", "g", starts=[0], ends=[1]), op("Reshape", "Y, g", "X")], "a shape that is not known"),
        ([op("Reshape", "Y, 9 sizes", "X")], "axes of [T, 1, B, H], got [5, 1, 1, 1, 1, 1, 1, 3, -1]"),
        (
            [op("Squeeze", "Y, 2", "X")],
            "'X' between two nodes: expecting axes of size 1 of [T, 1, B, H], got [2]",
        ),
        ([op("Squeeze", "Y, 4", "X")], "expecting axes of a value of 4, got [4]"),
        ([op("Squeeze", "Y, x", "X")], "expecting constant axes, got others"),
        ([op("Transpose", "Y", "X", perm=[0, 1, 2])], "expecting a perm of 4 axes, got [0, 1, 2]"),
        ([op("Transpose", "Y", "t"), op("Squeeze", "t, 2", "X")], "expecting [T, B, H] from 'low', got [H, B, T]"),
        (
            [op("Cast", "Y", "i", to=7), op("Squeeze", "i, 1", "X")],
            "expecting a floating dtype as wide as that of the weights, got another one",
        ),
        ([op("Cast", "Y", "r", to=10), op("Cast", "r", "w", to=1), op("Squeeze", "w, 1", "X")], "Cast 'r' between"),
        ([op("Cast", "Y", "r", to=16), op("Cast", "r", "w", to=1), op("Squeeze", "w, 1", "X")], "Cast 'r' between"),
        ([helper.make_node("Dropout", ["Y"], ["d", "X"])], "'high': does not read the output of 'low'"),
        ([op("Identity", "Y", "X", domain="ours")], "'high': does not read the output of 'low'"),
        ([op("Identity", "X", "X")], "'high': does not read the output of 'low'"),
        ([op("Relu", "Y", "X")], "'high': does not read the output of 'low'"),
        ([op("Squeeze", "Y_h, 0", "X")], "'high': does not read the output of 'low'"),
    ],
)
def test_what_cannot_be_shown_to_be_the_output_is_refused_by_name(between, text):
    _, model = stack(between, tensors=[numpy_helper.from_array(np.array([-9]), "-9")])
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model)
    assert text in str(caught.value)
    assert "name the nodes of one stack in `nodes`" in str(caught.value)


TABLE = numpy_helper.from_array(np.array([[T, B], [0, 0]]), "table")
COLUMNS = [numpy_helper.from_array(np.array([[one], [two]]), f"{one} over {two}") for one, two in ((B, T), (B, 0))]
COLUMNS += [numpy_helper.from_array(np.array([1, 1]), "ones")]
TURNED = [op("Concat", "b, -1, 4", "shape", axis=0), op("Reshape", "Y, shape", "X")]
"""A Reshape to [B, T, H], where the size "b" is B; it would keep the axes where "b" were T."""

MISTAKEN = {
    "a size that is cast to a truth value": (
        [op("Shape", "Y", "sizes"), op("Gather", "sizes, 0", "t"), op("Cast", "t", "yes", to=9),
         op("Cast", "yes", "one", to=7), op("Concat", "one, -1, 4", "shape", axis=0), op("Reshape", "Y, shape", "X")],
        {}),
    "the row of a table": (
        [op("Slice", "table, 0, 1", "row"), op("Reshape", "row, -1", "list"), op("Gather", "list, -1", "b"),
         op("Concat", "b, -1, 4", "shape", axis=0), op("Reshape", "Y, shape", "X")], {"tensors": [TABLE]}),
    "the row of a table that is computed": (
        [op("Concat", "T B -1", "flat", axis=0), op("Unsqueeze", "flat, 0", "up"), op("Gather", "up, 0", "row", axis=0),
         op("Reshape", "row, -1", "list"), op("Slice", "list, 1, 2", "b"),
         op("Concat", "b, -1, 4", "shape", axis=0), op("Reshape", "Y, shape", "X")], {}),
    "a product over two axes": (
        [op("Mul", "3 over 5, ones", "four"), op("Reshape", "four, -1", "list"), op("Gather", "list, 1", "b"), *TURNED],
        {"tensors": COLUMNS}),
    "tables put side by side": (
        [op("Concat", "3 over 5, 3 over 0", "four", axis=1), op("Reshape", "four, -1", "list"),
         op("Gather", "list, 1", "b"), *TURNED], {"tensors": COLUMNS}),
    "more sizes than are followed": (
        [op("Concat", ", ".join(["T B"] * 20), "list", axis=0), op("Gather", "list, -1", "b"), *TURNED],
        {"tensors": [numpy_helper.from_array(np.array([T, B]), "T B")]}),
    "every other size": (
        [op("Slice", "B T, 0, 2, 0, 2", "every"), op("Gather", "every, -1", "b"), *TURNED],
        {"tensors": [numpy_helper.from_array(np.array([B, T]), "B T")]}),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKEN)
def test_what_looks_like_the_sizes_of_a_stack_and_is_not_is_refused(name):
    between, options = MISTAKEN[name]
    c, model = stack(between, **options)
    assert worst_error(c, model) > 0.01, "the model is no such stack"
    with pytest.raises(ConvertError, match="'X' between two nodes: expecting"):
        convert.onnx.from_model(model)


@pytest.mark.parametrize("start", ["sizes", "great", "2 3 4"])
def test_sizes_that_double_with_each_node_are_as_short_as_others(start):
    doubling = [op("Mul", f"{k}{start}, {k}{start}", f"{k + 1}{start}") for k in range(16)]
    first = op("Shape", "Y", "0sizes") if start == "sizes" else op("Identity", start, f"0{start}")
    tensors = [numpy_helper.from_array(np.array([2**62] * 4), "great")]
    tensors += [numpy_helper.from_array(np.array([2, 3, 4]), "2 3 4")]
    _, model = stack([first, *doubling, op("Reshape", f"Y, 16{start}", "X")], known="TB", tensors=tensors)
    with pytest.raises(ConvertError, match="expecting a shape that keeps or joins the axes") as caught:
        convert.onnx.from_model(model)
    assert len(str(caught.value)) < 300


def test_a_long_row_of_nodes_is_not_followed_to_its_end():
    row = [op("Identity", f"{k}", f"{k + 1}") for k in range(100, 5000)]
    _, model = stack([op("Identity", "0 0 -1", "100"), *row, op("Reshape", "Y, 5000", "X")])
    with pytest.raises(ConvertError, match="got a shape that is not known"):
        convert.onnx.from_model(model)


def test_how_nodes_that_are_named_are_joined_is_the_callers():
    c, model = stack([op("Relu", "Y", "r"), op("Squeeze", "r, 1", "X")], lengths=("n", "m"))
    with pytest.raises(ConvertError):
        convert.onnx.from_model(model)
    equal_models(convert.onnx.from_model(model, nodes=["low", "high"]), c)


@pytest.mark.parametrize(("dtype", "code"), [("float16", 10), ("float32", 1), ("float64", 11)])
def test_a_cast_to_a_wider_dtype_and_back_is_read(dtype, code):
    """By the operator's text alone for float16, which onnxruntime does not run on a CPU."""
    wide = [op("Cast", "Y", "d", to=11), op("Cast", "d", "back", to=code), op("Squeeze", "back, 1", "X")]
    c, model = stack(wide)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    assert convert.onnx.from_model(model).spec == c.spec.replace(dtype=dtype)


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
        ({"states": "Y_h"}, "initial_h of node 'high': expecting zeros or an input of the model, got what LSTM 'low'"),
        ({"states": "moved"}, "got what LSTM 'low' computes, or name the nodes of one stack in `nodes`; it belongs"),
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
    if text:
        with pytest.raises(ConvertError) as caught:
            convert.onnx.from_model(model)
        assert text in str(caught.value)
        return
    theirs = {name: tensor.detach().numpy() for name, tensor in module.rnn.state_dict().items()}
    equal_models(convert.onnx.from_model(model), convert.pytorch.to_canonical(theirs))
