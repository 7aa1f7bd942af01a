"""RNN nodes of an ONNX model: which are read, what they may start from, and that nothing of a model is dropped.

Several nodes are read where the caller names them, and only then. States and lengths belong to a call: a warning names
those that the model holds or computes.
"""

import contextlib
import io
import itertools
import warnings

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn._checks import Assumption
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, need, random_canonical, run_ours

need("onnx", "onnxruntime", "torch")
import onnx.inliner  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

T, B, I, H = 5, 3, 4, 4  # I is H, and T is not B: what is refused runs, and computes something else
CONSTANTS = {"0": [0], "1": [1], "2": [2], "3": [3], "4": [4], "0 0 -1": [0, 0, -1]}
FLOAT32 = 3e-6


def op(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(", "), [output], output, **attributes)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def stack(between, *, directions=1, layout=0, known=(T, B), lengths=("", ""), states="", given=(), tensors=()):
    """Build two LSTM nodes, and between them the nodes that make X, which is read, of Y, which is given.

    `lengths` are those of the two, `states` is the second one's initial h; `given` and `tensors` are more inputs and
    initializers of the model.
    """
    c = random_canonical(RNNSpec("lstm", 2, H, I, direction=("unidirectional", "bidirectional")[directions - 1]), 7)
    common = {"hidden_size": H, "direction": ("forward", "bidirectional")[directions - 1]}
    common |= {"layout": layout} if layout else {}
    low = helper.make_node("LSTM", ["x", "0/W", "0/R", "0/B", lengths[0]], ["Y", "Y_h", "Y_c"], "low", **common)
    inputs = ["X", "1/W", "1/R", "1/B", lengths[1], states]
    high = helper.make_node("LSTM", inputs, ["z"], "high", **common)
    weights = convert.onnx.from_canonical(c) | {name: np.array(value) for name, value in CONSTANTS.items()}
    tensors = [*tensors, *(constant(name, array) for name, array in weights.items())]
    given = [helper.make_tensor_value_info("x", 1, [*(known[::-1] if layout else known), I]), *given]
    given += [helper.make_tensor_value_info(name, 6, [B]) for name in sorted(set(lengths) & {"n"})]
    out = helper.make_tensor_value_info("z", 1, None)
    graph = helper.make_graph([low, *between, high], "g", given, [out], tensors)
    return c, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def worst_error(c, model, lengths=None, **more):
    """Return how far our stack is from what onnxruntime gives for the model; `more` are other inputs of it."""
    x = np.random.default_rng(1).normal(size=(T, B, I)).astype("f4")
    ours = run_ours(c, x, lengths=lengths)[0].reshape(T, B, c.spec.num_dirs, H)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    (z,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x, **more})
    return np.abs(z.swapaxes(1, 2) - ours).max()


BOTH = ["low", "high"]
LISTED = (
    r"model: has 2 RNN nodes: name the nodes of one stack in `nodes`, in its order; .* nodes=\['low', 'high'\], or "
    "-s nodes=low,high on the command line$"
)

SQUEEZED, X = op("Squeeze", "Y, 1", "s"), op("Squeeze", "Y, 1", "X")
SIDE_BY_SIDE = op("Transpose", "Y", "Yt", perm=[0, 2, 1, 3])
JOINED = {
    "torch, two directions": ([SIDE_BY_SIDE, op("Reshape", "Yt, 0 0 -1", "X")], {"directions": 2}),
    "a relu": ([SQUEEZED, op("Relu", "s", "X")], {}),
}


@pytest.mark.parametrize("name", JOINED)
def test_two_nodes_are_read_where_they_are_named_and_how_they_are_joined_is_the_callers(name):
    between, options = JOINED[name]
    c, model = stack(between, **options)
    assert (worst_error(c, model) <= FLOAT32) == (name != "a relu")
    with pytest.raises(ConvertError, match=LISTED):
        convert.onnx.from_model(model)
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)
    one = convert.onnx.from_model(model, nodes=["high"])
    assert one.weights[0].tobytes() == c.weights[len(c.weights) // 2].tobytes()


def test_a_model_of_ours_that_was_changed_is_not_read_without_names():
    model = convert.onnx.to_model(stack([SQUEEZED, op("Identity", "s", "X")])[0])
    high = next(node for node in model.graph.node if node.name == "layer_1")
    model.graph.node.append(op("Dropout", high.input[0], "other"))
    high.input[0] = "other"
    with pytest.raises(ConvertError, match=r"nodes=\['layer_0', 'layer_1'\], or -s nodes=layer_0,layer_1 "):
        convert.onnx.from_model(model)
    assert convert.onnx.from_model(model, nodes=["layer_0", "layer_1"]).spec.num_layers == 2


@pytest.mark.parametrize("directions", [1, 2])
def test_one_node_is_read_without_a_name_and_with_the_batch_first_the_weights_are_the_same(directions):
    """The second by the operator's text alone: onnxruntime does not run this layout."""
    c, model = stack([op("Reshape", "Y, 0 0 -1", "X")], layout=1, directions=directions)
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)
    del model.graph.node[1:]
    assert convert.onnx.from_model(model).spec == c.spec.replace(num_layers=1)


class Started(torch.nn.Module):
    """Two layers of torch's that start from something, or have lengths."""

    def __init__(self, run):
        super().__init__()
        self.rnn = torch.nn.GRU(I, H, 2)
        self.learned = torch.nn.Parameter(torch.full((2, 1, H), 0.5))
        self.run = run

    def forward(self, x, h, lengths):
        return self.run(self, x, h, lengths)


def packed(module, x, _, lengths):
    of_steps = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    return torch.nn.utils.rnn.pad_packed_sequence(module.rnn(of_steps)[0])[0]


STARTS = {
    "given": (lambda module, x, h, _: module.rnn(x, h)[0], ""),
    "zeros": (lambda module, x, *_: module.rnn(x, x.new_zeros(2, x.size(1), H))[0], ""),
    "lengths": (packed, ""),
    "repeated": (lambda module, x, *_: module.rnn(x, module.learned.repeat(1, x.size(1), 1))[0],
                 r"each call: initial_h of node '.*GRU' \(from 'learned'\), initial_h of "),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("start", STARTS)
def test_of_what_torch_starts_from_a_warning_names_what_is_neither_the_callers_nor_zero(start):
    run, text = STARTS[start]
    module, file = Started(run).eval(), io.BytesIO()
    given = (torch.zeros(T, B, I), torch.zeros(2, B, H), torch.tensor([T, 1, 2]))
    axes = {"x": {0: "T", 1: "B"}, "h": {1: "B"}} if start != "lengths" else None
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(module, given, file, dynamo=False, input_names=["x", "h", "lengths"], dynamic_axes=axes)
    model = onnx.load_model_from_string(file.getvalue())
    nodes = [node.name for node in model.graph.node if node.op_type == "GRU"]
    theirs = {name: tensor.detach().numpy() for name, tensor in module.rnn.state_dict().items()}
    with pytest.warns(Assumption, match=text) if text else contextlib.nullcontext():
        equal_models(convert.onnx.from_model(model, nodes=nodes), convert.pytorch.to_canonical(theirs))


STATE = (1, B, H)


def floats(name, *shape):
    return helper.make_tensor_value_info(name, 1, shape)


SHAPE = constant("shape", np.array(STATE))
HALF = constant("half", np.full((1, 1, H), 0.5, "f4"))
NONE = constant("none", np.zeros((1, 1, H), "f4"))
HELD = {
    "an initializer": ([op("Identity", "half", "i"), op("Expand", "i, shape", "s")], "half"),
    "of a shape": ([op("ConstantOfShape", "shape", "s", value=constant("v", np.array([0.5], "f4")))],
                   "s"),
    "a sum": ([op("Expand", "none, shape", "e"), op("Add", "e, e", "s")], "s"),
    "the input itself": ([op("Slice", "x, 0, 1, 0", "s")],
                         "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_a_state_that_a_model_holds_is_not_read_and_a_warning_names_what_gives_it(name):
    nodes, source = HELD[name]
    c, model = stack([X, *nodes], states="s", tensors=[HALF, NONE, SHAPE])
    assert worst_error(c, model) > 0.01 or name == "a sum", "the state counts"
    high = next(node for node in model.graph.node if node.name == "high")
    for key, inputs in (("c", [*high.input[:5], "", "s"]), ("h", [*high.input[:5], "s"])):
        high.input[:] = inputs
        with pytest.warns(Assumption) as caught:
            equal_models(convert.onnx.from_model(model, nodes=BOTH), c)
        (warning,) = caught
        assert str(warning.message).endswith(f": initial_{key} of node 'high' (from '{source}')")
    high.input[5] = ""
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


ZEROS = {
    "of a shape": [op("ConstantOfShape", "shape", "s")],
    "zero where it is left out": [op("Identity", "optional", "s")],
    "given, and moved": [op("Slice", "given, 1, 2, 0", "s")],
}  # fmt: skip


@pytest.mark.parametrize("name", ZEROS)
def test_a_state_that_is_shown_to_be_zero_or_that_the_caller_gives_is_read(name):
    tensors = [NONE, SHAPE, constant("optional", np.full(STATE, -0.0, "f4"))]
    given = [floats("optional", *STATE), floats("given", 2, B, H)]
    c, model = stack([X, *ZEROS[name]], states="s", tensors=tensors, given=given)
    assert worst_error(c, model, given=np.zeros((2, B, H), "f4")) <= FLOAT32
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


CUT = constant("cut", np.array([T, 2, 1], "i4"))
EVERY = [op("Shape", "x", "sizes"), op("Slice", "sizes, 0, 1", "t"), op("Slice", "sizes, 1, 2", "b"),
         op("Cast", "t", "t32", to=6), op("Tile", "t32, b", "every")]  # fmt: skip
"""What tf2onnx writes where a cell has no lengths."""


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        (("cut", ""), "not read, .* each call: sequence_lens of node 'low' .from 'cut'.$"),
        (("n", "cut"), ": sequence_lens of node 'high' .from 'cut'.$"),
        (("", "least"), ": sequence_lens of node 'high' .from 'least'.$"),
    ],
)  # fmt: skip
def test_lengths_that_a_model_holds_or_computes_are_named_in_a_warning(lengths, text):
    nodes = [*EVERY[:4], op("Min", "t32, two", "least")]
    c, model = stack([X, *nodes], lengths=lengths, tensors=[CUT, constant("two", np.array([2], "i4"))])
    of_call = [T, 1, 3] if "n" in lengths else [T] * B
    given = {"n": np.array(of_call, "i4")} if "n" in lengths else {}
    if "cut" in lengths:
        assert worst_error(c, model, lengths=of_call, **given) > 0.001, "the lengths count"
    with pytest.warns(Assumption, match=text):
        equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


@pytest.mark.parametrize("lengths", [("every", ""), ("n", "same n")])
def test_lengths_that_are_made_from_a_shape_or_are_the_callers_are_read(lengths):
    nodes = [op("Cast", "n", "long", to=7), op("Cast", "long", "same n", to=6)] if "n" in lengths else EVERY
    c, model = stack([X, *nodes], lengths=lengths, known=("T", "B"))
    given = {"n": np.array([T, 2, 1], "i4")} if "n" in lengths else {}
    assert worst_error(c, model, lengths=[T, 2, 1] if given else None, **given) <= FLOAT32
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


def elsewhere(place):
    """Return a model of two layers, of which the second is not a node of the main graph."""
    c, model = stack([X])
    (high,) = (node for node in model.graph.node if node.name == "high")
    model.graph.node.remove(high)
    if place == "function":
        inner = helper.make_node("LSTM", ["a", "w", "r", "b"], ["y"], "inside", hidden_size=H)
        opset = [helper.make_opsetid("", 17)]
        model.functions.append(helper.make_function("ours", "Layer", ["a", "w", "r", "b"], ["y"], [inner], opset))
        model.graph.node.append(helper.make_node("Layer", ["X", "1/W", "1/R", "1/B"], ["z"], domain="ours"))
        model.opset_import.append(helper.make_opsetid("ours", 1))
    else:
        model.graph.node.append(helper.make_node(place, ["X"], ["z"], "other", domain="com.microsoft"))
    return c, model


@pytest.mark.parametrize(
    ("place", "text", "way"),
    [
        ("function", "has 'LSTM', which is not read", "inline_local_functions"),
        ("LSTM", "has 'com.microsoft.LSTM', which is not read", "`nodes`"),
        (
            "DynamicQuantizeLSTM",
            "has 'com.microsoft.DynamicQuantizeLSTM', which is not read: .*has quantized weights",
            "`nodes`",
        ),
    ],
)
def test_a_layer_outside_of_the_main_graph_is_not_passed_over(place, text, way):
    c, model = elsewhere(place)
    if place == "function":
        assert worst_error(c, model) <= FLOAT32, "it is the second layer"
    with pytest.raises(ConvertError, match=f"{text}.*{way}"):
        convert.onnx.from_model(model)
    assert convert.onnx.from_model(model, nodes=["low"]).spec.num_layers == 1
    if place == "function":  # as the error advises
        whole = onnx.inliner.inline_local_functions(model)
        names = [node.name for node in whole.graph.node if node.op_type == "LSTM"]
        equal_models(convert.onnx.from_model(whole, nodes=names), c)


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan"])
def test_nodes_in_bodies_are_read_by_their_names(kind):
    """silero-vad has one LSTM in each branch of an If. The weights may be constants of the body or around it."""
    c, model = stack([X])
    (high,) = (node for node in model.graph.node if node.name == "high")
    high.name = ""
    model.graph.node.remove(high)
    (recurrent,) = (tensor for tensor in model.graph.initializer if tensor.name == "1/R")
    model.graph.initializer.remove(recurrent)
    deep = helper.make_graph([high], "deep", [], [], [recurrent])
    body = helper.make_graph([helper.make_node("If", ["yes"], ["z"], "deeper", then_branch=deep)], "body", [], [])
    inner = {"then_branch" if kind == "If" else "body": body}
    model.graph.node.append(helper.make_node(kind, [], ["z2"], "outer", **inner))
    equal_models(convert.onnx.from_model(model, nodes=["low", "z"]), c)
    with pytest.raises(ConvertError, match=r"has 2 RNN nodes: .* nodes=\['low', 'z'\], or -s nodes=low,z "):
        convert.onnx.from_model(model)
    (low,) = (node for node in model.graph.node if node.name == "low")
    model.graph.node.remove(low)
    assert convert.onnx.from_model(model).spec == c.spec.replace(num_layers=1, input_size=H), "the only one"


FOLDED = {
    "Transpose, Slice": lambda name, array: (
        [op("Slice", "a, 0, 1, 2", "s"), op("Transpose", "s", name, perm=[2, 0, 1])],
        {"a": np.concatenate([array.transpose(1, 2, 0), array.transpose(1, 2, 0) + 1], 2)}),
    "Concat, Identity, Squeeze": lambda name, array: (
        [op("Identity", "a", "same"), op("Squeeze", "b, 0", "flat"), op("Concat", "same, flat", name, axis=1)],
        {"a": array[:, :2], "b": array[None, :, 2:]}),
    "Split": lambda name, array: (
        [helper.make_node("Split", ["a"], ["other", name], axis=1, num_outputs=2)],
        {"a": np.concatenate([array + 1, array], 1)}),
}  # fmt: skip


@pytest.mark.parametrize("what", FOLDED)
def test_weights_that_nodes_make_of_constants_are_computed(what):
    """keras2onnx, torch's exporter and silero-vad: the oracle is onnxruntime, which runs the same nodes."""
    c, model = stack([X])
    (old,) = (tensor for tensor in model.graph.initializer if tensor.name == "1/R")
    nodes, tensors = FOLDED[what]("1/R", numpy_helper.to_array(old))
    model.graph.initializer.remove(old)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    if what == "Split":
        model.opset_import[0].version = 18
    assert worst_error(c, model) <= FLOAT32
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


def test_what_a_small_file_would_blow_up_is_not_computed():
    _, model = stack([X])
    (old,) = (tensor for tensor in model.graph.initializer if tensor.name == "1/W")
    model.graph.initializer.remove(old)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4 * H, 1), "f4"), "0th"))
    names = ["0th", *(f"{k}th" for k in range(1, 20)), "1/W"]
    for k, (below, above) in enumerate(itertools.pairwise(names)):
        model.graph.node.insert(k, op("Concat", f"{below}, {below}", above, axis=2))
    with pytest.raises(ConvertError, match="is made of more bytes than the model has"):
        convert.onnx.from_model(model, nodes=BOTH)
    model.graph.node[0].input[:] = ["1/W", "1/W"]  # a cycle
    with pytest.raises(ConvertError, match="is not a constant of the model"):
        convert.onnx.from_model(model, nodes=BOTH)


@pytest.mark.parametrize("value", [0, 1])
def test_peepholes_of_zeros_are_none_and_others_are_refused(value):
    c, model = stack([X], tensors=[constant("P", np.full((1, 3 * H), value, "f4"))])
    for node in model.graph.node[0], model.graph.node[-1]:
        node.input[:] = [*node.input[:4], "", "", "", "P"]
    if value:
        with pytest.raises(ConvertError, match="peepholes"):
            convert.onnx.from_model(model, nodes=BOTH)
    else:
        assert worst_error(c, model) <= FLOAT32
        equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


@pytest.mark.parametrize("nodes", ["low", [], ["low", 3], ["other"], ["low", "low"]])
def test_names_of_nodes_have_to_be_those_of_nodes(nodes):
    texts = r"expecting a list of names|no such RNN node among \['high', 'low'\]|a node is listed twice: "
    with pytest.raises(ConvertError, match=texts):
        convert.onnx.from_model(stack([X])[1], nodes=nodes)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda node: node.attribute.append(helper.make_attribute("clip", 3.0)), "nodes of one stack have equal ones"),
        (lambda node: node.attribute.append(helper.make_attribute("zoneout", 3.0)), r"unknown: \['zoneout'\]"),
        (lambda node: node.input.__setitem__(1, "x"), "W of node 'high': is an input of the model, which"),
        (lambda node: node.input.__setitem__(1, "X"), "W of node 'high': is not a constant of the model: f"),
        (lambda node: setattr(node, "name", "low"), "2 RNN nodes have this name"),
    ],
)  # fmt: skip
def test_named_nodes_that_are_no_stack_of_equal_nodes_are_refused(change, text):
    _, model = stack([X])
    change(model.graph.node[-1])
    with pytest.raises(ConvertError, match=text):
        convert.onnx.from_model(model, nodes=BOTH)
