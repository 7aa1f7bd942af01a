"""States and lengths that an ONNX model holds, and RNN nodes outside of its main graph: nothing of them is dropped."""

import numpy as np
import pytest

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, need

need("onnx", "onnxruntime")
import onnx.inliner  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

from tests.helpers.onnx_stacks import B, H, T, op, stack, worst_error  # noqa: E402

FLOAT32 = 3e-6
BOTH = ["low", "high"]
X = op("Squeeze", "Y, 1", "X")
STATE = (1, B, H)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def floats(name, *shape):
    return helper.make_tensor_value_info(name, 1, shape)


def full(kind, value):
    """Return a ConstantOfShape of a state's shape."""
    return op(kind, "shape", "s", value=constant("v", np.array([value], "f4")))


SHAPE = constant("shape", np.array(STATE))
HALF = constant("half", np.full((1, 1, H), 0.5, "f4"))
NONE = constant("none", np.zeros((1, 1, H), "f4"))
ORDER = constant("order", np.array([0, 0, 0]))
"""Indices of a batch of B that all mean the first row."""

HELD = {
    "an initializer": ([op("Identity", "half", "i"), op("Expand", "i, shape", "s")], [HALF, SHAPE]),
    "expanded": ([op("Expand", "half, shape", "s")], [HALF, SHAPE]),
    "tiled": ([op("Tile", "half, times", "s")], [HALF, constant("times", np.array([1, B, 1]))]),
    "of a shape": ([full("ConstantOfShape", 0.5)], [SHAPE]),
    "floats": ([helper.make_node("Constant", [], ["f"], value_floats=[0.5] * H), op("Expand", "f, shape", "s")],
               [SHAPE]),
    "a float": ([helper.make_node("Constant", [], ["f"], value_float=0.5), op("Expand", "f, shape", "s")], [SHAPE]),
    "a value": ([helper.make_node("Constant", [], ["f"], value=HALF), op("Expand", "f, shape", "s")], [SHAPE]),
    "an int": ([helper.make_node("Constant", [], ["i"], value_int=1), op("Cast", "i", "f", to=1),
                op("Expand", "f, shape", "s")], [SHAPE]),
    "cast": ([op("Cast", "d", "s", to=1)], [constant("d", np.full(STATE, 0.5))]),
    "joined": ([op("Expand", "none, shape", "e"), op("Slice", "e, 0, 1, 1", "one"), op("Expand", "half, shape", "h"),
                op("Slice", "h, 1, 3, 1", "two"), op("Concat", "one, two", "s", axis=1)], [NONE, HALF, SHAPE]),
    "cut": ([op("Expand", "half, shape", "e"), op("Concat", "e, e", "two", axis=0), op("Slice", "two, 1, 2, 0", "s")],
            [HALF, SHAPE]),
    "chosen": ([op("Expand", "half, shape", "e"), op("Gather", "e, order", "s", axis=1)], [HALF, SHAPE, ORDER]),
    "moved": ([op("Expand", "half, shape", "e"), op("Transpose", "e", "t", perm=[1, 0, 2]),
               op("Reshape", "t, shape", "s")], [HALF, SHAPE]),
    "parted": ([op("Expand", "half, shape", "e"), helper.make_node("Split", ["e"], ["a", "b"], axis=2, name="p"),
                op("Concat", "a, b", "s", axis=2)], [HALF, SHAPE]),
    "computed": ([full("ConstantOfShape", 0.0), op("Cos", "s", "c")], [SHAPE]),
    "computed of an input": ([op("Slice", "x, 0, 1, 0", "a"), op("Tanh", "a", "s")], []),
    "the input itself": ([op("Slice", "x, 0, 1, 0", "s")], []),
}  # fmt: skip
GIVERS = {
    "an int": "'i' is a constant", "cast": "'d' is a constant", "a float": "'f' is a constant",
    "floats": "'f' is a constant", "a value": "'f' is a constant", "of a shape": "ConstantOfShape 's' computes",
    "computed": "Cos 'c' computes", "computed of an input": "Tanh 's' computes",
    "the input itself": "an input of the model that X does not come from, got 'x'",
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_a_state_that_a_model_holds_is_refused_by_the_name_of_what_gives_it(name):
    nodes, tensors = HELD[name]
    c, model = stack([X, *nodes], states="c" if name == "computed" else "s", tensors=tensors)
    assert worst_error(c, model) > 0.01, "the state counts"
    for given, key, nodes in ((model, "h", BOTH), (alone(model), "h", None), (of_c(model), "c", BOTH)):
        with pytest.raises(ConvertError) as caught:
            convert.onnx.from_model(given, nodes=nodes)
        assert f"initial_{key} of node 'high': " in str(caught.value)
        assert GIVERS.get(name, "'half' is a constant") in str(caught.value)
        assert "pass it to the call" in str(caught.value)


def alone(model):
    """Return the model of the second node by itself, which reads x."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    (low,) = (node for node in found.graph.node if node.name == "low")
    found.graph.node.remove(low)
    (high,) = (node for node in found.graph.node if node.name == "high")
    high.input[0] = "x"
    return found


def of_c(model):
    """Return the model whose second node starts from the state as c."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    (high,) = (node for node in found.graph.node if node.name == "high")
    high.input[:] = [*high.input[:5], "", high.input[5]]
    return found


ZEROS = {
    "of a shape": ([op("ConstantOfShape", "shape", "s")], [SHAPE]),
    "of a shape, written": ([full("ConstantOfShape", 0.0)], [SHAPE]),
    "torch": ([op("Shape", "x", "sizes"), op("Gather", "sizes, 1", "b"), op("Concat", "1, b, 4", "wide", axis=0),
               op("Expand", "none, wide", "s")], [NONE]),
    "torch, two layers": ([op("ConstantOfShape", "two", "both"), op("Slice", "both, 1, 2, 0", "s")],
                          [constant("two", np.array([2, B, H]))]),
    "torch, one number": ([helper.make_node("Constant", [], ["f"], value_float=0.0), op("Expand", "f, shape", "s")],
                          [SHAPE]),
    "an initializer": ([op("Identity", "zeros", "s")], [constant("zeros", np.zeros(STATE, "f4"))]),
    "minus 0": ([op("Identity", "zeros", "s")], [constant("zeros", np.full(STATE, -0.0, "f4"))]),
    "joined": ([op("Expand", "none, shape", "e"), op("Concat", "e", "s", axis=1)], [NONE, SHAPE]),
}  # fmt: skip


@pytest.mark.parametrize("name", ZEROS)
def test_a_state_that_is_shown_to_be_zero_is_read(name):
    nodes, tensors = ZEROS[name]
    c, model = stack([X, *nodes], states="s", tensors=tensors)
    assert worst_error(c, model) <= FLOAT32
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


def test_a_state_that_the_caller_gives_is_read_wherever_it_is_moved():
    c, model = stack([X, op("Slice", "given, 1, 2, 0", "s")], states="s", given=[floats("given", 2, B, H)])
    assert worst_error(c, model, given=np.zeros((2, B, H), "f4")) <= FLOAT32
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


SPARSE = helper.make_sparse_tensor(constant("v", np.array([0.5], "f4")), constant("i", np.array([0])), [B * H])


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([helper.make_node("Constant", [], ["s"], "s", value=NONE, domain="ours")], "what Constant 's' computes"),
        ([helper.make_node("Constant", [], ["s"], "s", value=NONE, value_float=0.5)], "what Constant 's' computes"),
        ([helper.make_node("Constant", [], ["s"], "s", sparse_value=SPARSE)], "what Constant 's' computes"),
        ([helper.make_node("Constant", [], ["s"], "s", value_string="0")], "what Constant 's' computes"),
        ([op("ConstantOfShape", "shape", "s", domain="ours")], "what ConstantOfShape 's' computes"),
        ([helper.make_node("Split", ["none"], ["a", "s"], "s", domain="ours")], "what Split 's' computes"),
        ([helper.make_node("Identity", ["none"], ["a", "s"], "s")], "what Identity 's' computes"),
        ([op("Add", "none, none", "s")], "what Add 's' computes"),
        ([], "that X does not come from, got 's'"),
    ],
)
def test_a_state_that_is_not_understood_is_refused_by_the_name_of_what_gives_it(nodes, text):
    _, model = stack([X, *nodes], states="s", given=[floats("given", *STATE)], tensors=[NONE, SHAPE])
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model, nodes=BOTH)
    wanted = f" {text}" if text.startswith("that") else f", got {text}"
    assert f"initial_h of node 'high': expecting zeros or an input of the model{wanted}" in str(caught.value)


def test_a_constant_without_a_name_is_no_ones_constant():
    unnamed = [helper.make_node("Constant", [], [""], value_ints=[2]) for _ in range(2)]
    c, model = stack([X, *unnamed])
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_state_that_may_be_left_out_is_read_where_it_is_zero_then(value):
    tensors = [constant("given", np.full(STATE, value, "f4"))]
    c, model = stack([X, op("Identity", "given", "s")], states="s", given=[floats("given", *STATE)], tensors=tensors)
    assert (worst_error(c, model) <= FLOAT32) == (value == 0)
    if value:
        with pytest.raises(ConvertError, match="'given' is a constant of the model and not 0"):
            convert.onnx.from_model(model, nodes=BOTH)
    else:
        equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


def test_a_part_that_starts_from_another_one_is_read_once_its_state_is_cleared():
    c, model = stack([X, op("Identity", "Y_h", "s")], states="s")
    for nodes in (["high"], BOTH):
        with pytest.raises(ConvertError, match=r"got what LSTM 'low' computes.*clear this input") as caught:
            convert.onnx.from_model(model, nodes=nodes)
    assert "clear this input of the node (node.input[5] = '')" in str(caught.value)
    (node,) = (node for node in model.graph.node if node.name == "high")
    node.input[5] = ""
    assert convert.onnx.from_model(model, nodes=["high"]).weights[0].tobytes() == c.weights[8].tobytes()


def test_a_state_that_a_model_holds_is_not_dropped_where_its_node_is_named():
    _, model = stack([X, op("Expand", "half, shape", "s")], states="s", tensors=[HALF, SHAPE])
    with pytest.raises(ConvertError, match="'half' is a constant of the model and not 0"):
        convert.onnx.from_model(model, nodes=["high"])
    assert convert.onnx.from_model(model, nodes=["low"]).spec.num_layers == 1


CUT = constant("cut", np.array([T, 2, 1], "i4"))
EVERY = [op("Shape", "x", "sizes"), op("Slice", "sizes, 0, 1", "t"), op("Slice", "sizes, 1, 2", "b"),
         op("Cast", "t", "t32", to=6), op("Tile", "t32, b", "every")]  # fmt: skip
"""What tf2onnx writes where a cell has no lengths."""


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        (
            ("cut", "cut"),
            "sequence_lens of node 'low': 'cut' is a constant of the model; it belongs to the call: clear",
        ),
        (("", "cut"), "sequence_lens of node 'high': 'cut' is a constant"),
        (("n", "cut"), "sequence_lens of node 'high': 'cut' is a constant"),
        (("shorter", "shorter"), "'two' is a constant"),
        (("at most", "at most"), "an input of the model or the number of steps, got what Min 'least' computes"),
        (("", "given"), "'given' is a constant"),
        (("", "least"), "got what Min 'least' computes"),
    ],
)
def test_lengths_that_a_model_holds_or_computes_are_refused(lengths, text):
    nodes = [op("Expand", "two, 3", "shorter")]
    nodes += [*EVERY[:4], op("Min", "t32, two", "least"), op("Expand", "least, b", "at most")]
    tensors = [CUT, constant("two", np.array([2], "i4")), constant("given", np.array([2] * B, "i4"))]
    given = [helper.make_tensor_value_info("given", 6, [B])]
    c, model = stack([X, *nodes], lengths=lengths, tensors=tensors, given=given)
    if "least" not in lengths:
        own = [T, 1, 3] if "n" in lengths else [T] * B
        given = {"n": np.array(own, "i4")} if "n" in lengths else {}
        assert worst_error(c, model, lengths=own, **given) > 0.001, "the lengths count"
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model, nodes=BOTH)
    assert text in str(caught.value)
    assert "node.input[4] = ''" in str(caught.value)


@pytest.mark.parametrize("lengths", [("every", ""), ("n", "same n")])
def test_lengths_that_are_made_from_a_shape_or_are_the_callers_are_read(lengths):
    nodes = [op("Cast", "n", "long", to=7), op("Cast", "long", "same n", to=6)] if "n" in lengths else EVERY
    c, model = stack([X, *nodes], lengths=lengths, known=("T", "B"))
    given = {"n": np.array([T, 2, 1], "i4")} if "n" in lengths else {}
    assert worst_error(c, model, lengths=[T, 2, 1] if given else None, **given) <= FLOAT32
    equal_models(convert.onnx.from_model(model, nodes=BOTH), c)


def body():
    """Return a graph with the second layer, which reads X of the graph around it."""
    node = helper.make_node("LSTM", ["X", "1/W", "1/R", "1/B"], ["inner"], "inside", hidden_size=H)
    return helper.make_graph(
        [node, op("Identity", "inner", "result")], "body", [], [helper.make_tensor_value_info("result", 1, None)]
    )


def elsewhere(place):
    """Return a model of two layers, of which the second is not a node of the main graph."""
    c, model = stack([X])
    (high,) = (node for node in model.graph.node if node.name == "high")
    model.graph.node.remove(high)
    if place == "If":
        model.graph.initializer.append(constant("yes", np.array(True)))
        empty = helper.make_graph(
            [op("Identity", "X", "same"), op("Unsqueeze", "same, 1", "other")],
            "other",
            [],
            [helper.make_tensor_value_info("other", 1, None)],
        )
        model.graph.node.append(helper.make_node("If", ["yes"], ["z"], "choice", then_branch=body(), else_branch=empty))
    if place == "Loop":
        loop = helper.make_graph(
            [helper.make_node("LSTM", ["X", "1/W", "1/R", "1/B"], ["inner"], "inside", hidden_size=H),
             op("Identity", "go", "still"), op("Identity", "inner", "result")],
            "loop",
            [helper.make_tensor_value_info("turn", 7, []), helper.make_tensor_value_info("go", 9, []),
             floats("before", None, None, None, None)],
            [helper.make_tensor_value_info("still", 9, []), floats("result", None, None, None, None)],
        )  # fmt: skip
        model.graph.initializer.extend([constant("turns", np.array(1)), constant("yes", np.array(True))])
        model.graph.node.append(op("Unsqueeze", "X, 1", "start"))
        model.graph.node.append(helper.make_node("Loop", ["turns", "yes", "start"], ["z"], "turns", body=loop))
    if place == "function":
        inner = helper.make_node("LSTM", ["a", "w", "r", "b"], ["y"], "inside", hidden_size=H)
        opset = [helper.make_opsetid("", 17)]
        model.functions.append(helper.make_function("ours", "Layer", ["a", "w", "r", "b"], ["y"], [inner], opset))
        model.graph.node.append(helper.make_node("Layer", ["X", "1/W", "1/R", "1/B"], ["z"], domain="ours"))
        model.opset_import.append(helper.make_opsetid("ours", 1))
    if "." in place:
        domain, _, kind = place.rpartition(".")
        model.graph.node.append(helper.make_node(kind, ["X"], ["z"], "other", domain=domain))
    if place == "graphs":
        model.graph.node.append(
            helper.make_node("Choice", ["X"], ["z"], "choice", domain="ours", ways=[body(), body()])
        )
    return c, model


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("If", "node 'inside': 'LSTM' is not read"),
        ("Loop", "node 'inside': 'LSTM' is not read"),
        ("function", "node 'inside': 'LSTM' is not read"),
        ("graphs", "node 'inside': 'LSTM' is not read"),
        ("com.microsoft.DynamicQuantizeLSTM", "'com.microsoft.DynamicQuantizeLSTM' is not read"),
        ("ours.LSTM", "node 'other': 'ours.LSTM' is not read"),
        (".PeepholeLSTM", "node 'other': 'PeepholeLSTM' is not read"),
    ],
)
def test_a_layer_outside_of_the_main_graph_is_not_passed_over(place, text):
    c, model = elsewhere(place)
    if place in {"If", "Loop", "function"}:
        assert worst_error(c, model) <= FLOAT32, "it is the second layer"
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model)
    assert text in str(caught.value)
    assert ("inline_local_functions" if place == "function" else "`nodes`") in str(caught.value)
    assert convert.onnx.from_model(model, nodes=["low"]).spec.num_layers == 1
    with pytest.raises(ConvertError, match=r"no such RNN node among \['low'\]"):
        convert.onnx.from_model(model, nodes=["other"])


def test_a_function_that_is_put_into_the_main_graph_is_read():
    c, model = elsewhere("function")
    whole = onnx.inliner.inline_local_functions(model)
    names = [node.name for node in whole.graph.node if node.op_type == "LSTM"]
    equal_models(convert.onnx.from_model(whole, nodes=names), c)


@pytest.mark.parametrize("nodes", ["low", [], ["low", 3], {"low"}, ["twin"], ["other"]])
def test_names_of_nodes_have_to_be_those_of_one_node_each(nodes):
    _, model = stack([X])
    if nodes == ["twin"]:
        for node in model.graph.node:
            node.name = "twin"
    with pytest.raises(ConvertError, match=r"expecting a list of names|2 RNN nodes have this name|no such RNN node"):
        convert.onnx.from_model(model, nodes=nodes)


def test_names_that_are_no_text_are_names_all_the_same():
    """Protobuf gives what is no UTF-8 as bytes."""
    _, model = stack([X, op("Cosine", "Y", "unused")])
    data = model.SerializeToString().replace(b"high", b"hi\xffh").replace(b"Cosine", b"Cos\xffne")
    model = onnx.ModelProto.FromString(data)
    with pytest.raises(ConvertError, match="has 2 RNN nodes: name the nodes of one stack"):
        convert.onnx.from_model(model)
    with pytest.raises(ConvertError, match="no such RNN node among"):
        convert.onnx.from_model(model, nodes=["other"])
