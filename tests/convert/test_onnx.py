"""ONNX's operators and models, against onnxruntime; and the operators' own test cases from the onnx package."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.oracles import check_both_directions, equal_models, need, random_canonical, run_ours

need("onnx", "onnxruntime")
import onnx  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

FLOAT32 = 3e-6
"""onnxruntime computes these operators in float32."""

plain = specs(input_modes=["linear_input"], clip=False, projection=False, dtypes=["float32"])


def reading(spec):
    if spec.mode == "gru":
        return {"linear_before_reset": 1}
    return {"activations": ["Relu"] * spec.num_dirs} if spec.mode == "rnn_relu" else {}


@examples(200)
@given(plain, st.integers(0, 2**31))
def test_any_model_computes_the_same_in_onnxruntime_and_comes_back(spec, seed):
    check_both_directions("onnx", spec, seed, read=reading(spec), tolerance=FLOAT32)


@examples(100)
@given(plain, st.integers(0, 2**31))
def test_a_written_model_is_read_back_bit_for_bit(spec, seed):
    c = random_canonical(spec, seed)
    back = convert.onnx.from_model(convert.onnx.to_model(c))
    if spec.bias_mode in ("none", "double"):
        equal_models(back, c)
    equal_models(back, convert.onnx.from_model(convert.onnx.to_model(back)))


def torch_export(kind):
    """Build the nodes as torch's exporter does: a Squeeze between layers, Constants for weights."""
    c = random_canonical(RNNSpec(kind.lower() if kind != "RNN" else "rnn_tanh", 2, 4, 3), 2)
    arrays = convert.onnx.from_canonical(c)
    extra = {"linear_before_reset": 1} if kind == "GRU" else {}
    nodes = [helper.make_node("Constant", [], [k], value=numpy_helper.from_array(a)) for k, a in arrays.items()]
    for k, (below, above) in enumerate((("x", "y0"), ("y0_flat", "y1"))):
        nodes.append(
            helper.make_node(kind, [below, f"{k}/W", f"{k}/R", f"{k}/B"], [above], name=f"n{k}", hidden_size=4, **extra)
        )
        nodes.append(helper.make_node("Squeeze", [above, "one"], [f"{above}_flat"]))
    return c, nodes


def model_of(nodes, *constants):
    tensors = [numpy_helper.from_array(array, name) for name, array in constants]
    x = helper.make_tensor_value_info("x", 1, ["T", "B", 3])
    y = helper.make_tensor_value_info("y1_flat", 1, ["T", "B", 4])
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_chain_of_nodes_with_constants_is_read_as_layers(kind):
    c, nodes = torch_export(kind)
    model = model_of(nodes, ("one", np.array([1])))
    onnx.checker.check_model(model)
    equal_models(convert.onnx.from_model(model, nodes=["n0", "n1"]), c)
    one = convert.onnx.from_model(model, nodes=["n1"])
    assert (one.spec.num_layers, one.spec.input_size) == (1, 4)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda nodes: nodes[-2].attribute.append(helper.make_attribute("clip", 3.0)),
            "name the nodes of one stack in",
        ),
        (lambda nodes: nodes[-2].attribute.append(helper.make_attribute("zoneout", 3.0)), "unknown: ['zoneout']"),
        (lambda nodes: nodes[-2].input.__setitem__(1, "x"), "is not a constant of the model: fold the nodes"),
        (lambda nodes: [n.attribute.pop() for n in (nodes[-2], nodes[-4])], "expecting linear_before_reset=1"),
    ],
)
def test_a_model_that_is_no_stack_of_ours_is_named(change, text):
    _, nodes = torch_export("GRU")
    change(nodes)
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(model_of(nodes, ("one", np.array([1]))), nodes=["n0", "n1"])
    assert text in str(caught.value)


def test_a_stack_of_more_than_ten_layers_is_in_the_order_of_their_numbers():
    c = random_canonical(RNNSpec("rnn_tanh", 11, 4, 4), 1)
    equal_models(convert.onnx.to_canonical(convert.onnx.from_canonical(c)), c)
    shuffled = dict(sorted(convert.onnx.from_canonical(c).items()))
    equal_models(convert.onnx.to_canonical(shuffled), c)


@pytest.mark.parametrize("state", [0.0, 0.5])
@pytest.mark.parametrize(("kind", "names"), [("RNN", ["h"]), ("LSTM", ["h", "c"])])
def test_a_state_that_the_model_holds_is_not_dropped_unless_it_is_zero(kind, names, state):
    c, nodes = torch_export(kind)
    nodes[-2].input.extend(["", *names])
    values = [(name, np.full((1, 2, 4), state * (name == names[-1]), "f4")) for name in names]
    model = model_of(nodes, ("one", np.array([1])), *values)
    if state:
        text = rf"initial_{names[-1]} of node 'n1': '{names[-1]}' is a constant of the model and not 0"
        with pytest.raises(ConvertError, match=text):
            convert.onnx.from_model(model, nodes=["n0", "n1"])
    else:
        equal_models(convert.onnx.from_model(model, nodes=["n0", "n1"]), c)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({b"linear_before_reset": b"linear_before_re\xffet", b"hidden_size": b"hidden_sizf"}, "unknown: "),
        ({b"bidirectional": b"bidirectiona\xff"}, "direction"),
        ({b"bidirectional\xa0\x01\x03": b"bidirectional\xa0\x01\x02"}, "direction"),  # of the type INT
    ],
)
def test_attributes_that_are_damaged_are_named(changes, text):
    c = random_canonical(RNNSpec("gru", 1, 4, 3, direction="bidirectional"), 1)
    data = convert.onnx.to_model(c).SerializeToString()
    for old, new in changes.items():
        assert old in data
        data = data.replace(old, new)
    with pytest.raises(ConvertError) as caught:
        convert.onnx.from_model(onnx.ModelProto.FromString(data))
    assert text in str(caught.value)


def test_an_attribute_that_a_function_would_be_given_is_refused():
    model = convert.onnx.to_model(random_canonical(RNNSpec("gru", 1, 4, 3), 1))
    next(node for node in model.graph.node if node.op_type == "GRU").attribute[0].ref_attr_name = "outer"
    with pytest.raises(ConvertError, match="cannot be read: 'Cannot get value of reference"):
        convert.onnx.from_model(model)


def test_what_the_operators_do_not_take_is_not_written():
    for changes, text in (
        ({"dtype": "bfloat16"}, "not bfloat16"),
        ({"num_proj": 2}, "num_proj"),
        ({"cell_clip": 1.0}, "cell_clip"),
    ):
        with pytest.raises(ConvertError, match=text):
            convert.onnx.to_model(random_canonical(RNNSpec("lstm", 1, 4, 3, **changes), 1))


def test_nodes_of_two_kinds_or_of_none_are_refused():
    _, lstm = torch_export("LSTM")
    _, gru = torch_export("GRU")
    for nodes, names, text in (
        ([*lstm[:-2], *gru[-2:]], ["n0", "n1"], "GRU, LSTM: name the nodes of one stack"),
        (lstm[:-4], None, "no LSTM, GRU or RNN node"),
    ):
        with pytest.raises(ConvertError, match=text):
            convert.onnx.from_model(model_of(nodes, ("one", np.array([1]))), nodes=names)


def test_external_data_is_never_opened(tmp_path):
    model = convert.onnx.to_model(random_canonical(RNNSpec("lstm", 1, 4, 3), 1))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    loaded = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with pytest.raises(ConvertError, match="keeps its data in another file"):
        convert.onnx.from_model(loaded)
    for tensor in loaded.graph.initializer:
        tensor.data_location = onnx.TensorProto.DEFAULT  # and still has the file's name
    with pytest.raises(ConvertError, match="keeps its data in another file"):
        convert.onnx.from_model(loaded)


def backend_cases():
    """Return the operators' own cases. Their weights are nearly constant: they check equations, not gate orders."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other operators' cases overflow on purpose while they are built
        from onnx.backend.test.case import node
        from onnx.backend.test.case.node import gru, lstm, rnn  # noqa: F401  imported, each adds its cases alone

    kinds = ("test_lstm_", "test_gru_", "test_simple_rnn_", "test_rnn_")
    return [case for case in node._NodeTestCases if case.name.startswith(kinds) and "expanded" not in case.name]


NOT_CUDNN = {"test_lstm_with_peepholes": "peepholes", "test_gru_seq_length": "linear_before_reset"}


@pytest.mark.parametrize("case", backend_cases(), ids=lambda case: case.name)
def test_the_operators_own_cases_give_their_results(case):
    node = case.model.graph.node[0]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    for inputs, outputs in case.data_sets:
        given = dict(zip(filter(None, node.input), inputs, strict=True))
        names = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
        given = {key: given[name] for key, name in zip(names, node.input, strict=False) if name}
        x, arrays = given["X"], {key: given[key] for key in "WRBP" if key in given}
        reverse = attributes.get("direction") == b"reverse"
        # The gru cases leave linear_before_reset at 0, and agree all the same where r meets a zero: no state, no bias
        keywords = {"linear_before_reset": 1} if node.op_type == "GRU" and case.name not in NOT_CUDNN else {}
        if case.name in NOT_CUDNN:
            with pytest.raises(ConvertError, match=NOT_CUDNN[case.name]):
                convert.onnx.to_canonical(arrays, **keywords)
            continue
        c = convert.onnx.to_canonical(arrays, **keywords)
        x = x.swapaxes(0, 1) if attributes.get("layout") else x
        x = x[::-1].copy() if reverse else x
        states = np.zeros((c.spec.num_dirs, x.shape[1], c.spec.num_units), x.dtype)
        y, hy, cy = run_ours(c, np.ascontiguousarray(x), states, states, [len(x)] * x.shape[1])
        y = (y[::-1] if reverse else y).reshape(*y.shape[:2], c.spec.num_dirs, -1).swapaxes(1, 2)
        places = [place for place, name in zip((y, hy, cy), node.output, strict=False) if name]
        assert places
        for ours, theirs in zip(places, outputs, strict=True):
            if attributes.get("layout"):
                ours = ours.swapaxes(0, 1) if ours.ndim == 3 else ours.transpose(2, 0, 1, 3)  # noqa: PLW2901
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-7)


def test_there_are_as_many_cases_as_there_were():
    assert len(backend_cases()) >= 18
