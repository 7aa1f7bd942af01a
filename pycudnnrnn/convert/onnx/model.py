"""RNN nodes in an ONNX model: found and read as one stack, or written as a whole model."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import needs, shorten
from pycudnnrnn._forms import Array
from pycudnnrnn.convert.onnx.graph import NAME_THEM, Graph, name_of, warn_of_call_inputs
from pycudnnrnn.convert.stacks import STACKS, Stack
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode, RNNSpec

_OPERATORS: Final = {RNNMode.LSTM: "LSTM", RNNMode.GRU: "GRU", RNNMode.RNN_TANH: "RNN", RNNMode.RNN_RELU: "RNN"}
_INPUTS: Final = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_ATTRIBUTES: Final = frozenset({
    "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget", "layout",
    "linear_before_reset", "output_sequence",
})  # fmt: skip
_OF_NO_WEIGHT: Final = frozenset({"hidden_size", "layout", "output_sequence"})
"""The attributes that repeat R's shape, or describe only the input and output."""

_LISTED: Final = 1000
"""Most characters of a list of nodes to choose from."""

_OPSET: Final = 17
"""The operators compute the same since 14. Every runtime of recent years reads 17."""

_IR: Final = 8

_PRODUCER: Final = "pycudnnrnn"
_NODE: Final = "layer_{}"
_WRITTEN: Final = frozenset({
    "Cast", "Concat", "Equal", "Expand", "GRU", "LSTM", "Less", "RNN", "Reshape", "Shape", "Split", "Transpose",
    "Unsqueeze", "Where",
})  # fmt: skip
"""The producer, the names of the RNN nodes and the operators by which a model of `to_model` is recognised."""


def read_nodes(model: Any, nodes: list[str] | None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of the nodes as `to_canonical` reads them, and the attributes that are its keywords."""
    onnx = onnx_package()
    if not isinstance(model, onnx.ModelProto):
        why = f"expecting an onnx.ModelProto, got {type(model).__name__}; onnx.load(path) reads one"
        raise ConvertError("onnx", "model", why)
    graph = Graph(onnx, model)
    chosen = _all_nodes(graph, model) if nodes is None else _named_nodes(graph, nodes)
    arrays: dict[str, Array] = {}
    settings = [_attributes(onnx, node) for _, node in chosen]
    if any(setting != settings[0] for setting in settings):
        why = f"the nodes of one stack have equal ones, got {shorten(settings)}; {NAME_THEM}"
        raise ConvertError("onnx", "attributes", why)
    if model.producer_name != _PRODUCER:  # `to_model` computes the default of its lengths
        warn_of_call_inputs(chosen)
    for k, (inner, node) in enumerate(chosen):
        for key, name in zip(_INPUTS, node.input, strict=False):
            if key in "WRBP" and name:
                array = inner.constant(name)
                if array is None:
                    why = "is not a constant of the model: fold the nodes that compute it into one, as onnxruntime's "
                    why += "optimized_model_filepath does"
                    if name in inner.inputs:
                        why = "is an input of the model, which does not contain it: give the array to onnx.to_canonical"
                    raise ConvertError("onnx", f"{key} of node {shorten(name_of(node))}", why)
                arrays[f"{k}/{key}"] = array
    return arrays, settings[0]


def stacks(model: Any) -> list[Stack]:
    """Return the RNN nodes of a model, for a list to choose from."""
    return [Stack({"nodes": [name_of(node)]}, 1) for _, node in Graph(onnx_package(), model).all_rnns()]


def _all_nodes(graph: Graph, model: Any) -> list[tuple[Graph, Any]]:
    """Return the one RNN node of a model, or those that `to_model` wrote."""
    names = [name_of(node) for _, node in graph.all_rnns()]
    if others := graph.unread():
        why = f"has {shorten(others[0])}, which is not read: expecting ONNX's own LSTM, GRU and RNN nodes"
        why += ", and this one has quantized weights" if "Quantize" in others[0] else ""
        why += "; onnx.inliner.inline_local_functions(model) inlines functions" if model.functions else ""
        raise ConvertError("onnx", "model", f"{why}; to read others, {NAME_THEM}, of nodes={shorten(names)}")
    if not names:
        why = "has no LSTM, GRU or RNN node"
        if any("weight_hh" in tensor.name for tensor in model.graph.initializer):
            why += "; it spells out an RNN of PyTorch in smaller ones, whose weights convert.pytorch reads: "
            why += "{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}"
        raise ConvertError("onnx", "model", why)
    is_ours = model.producer_name == _PRODUCER and names == [_NODE.format(k) for k in range(len(names))]
    is_ours = is_ours and all(node.op_type in _WRITTEN for node in graph.nodes)
    if len(names) > 1 and not is_ours:
        why = f"has {len(names)} RNN nodes: {NAME_THEM}, in its order; the model's are nodes={shorten(names, _LISTED)}"
        why += f", or -s nodes={shorten(','.join(names), _LISTED)[1:-1]} on the command line"
        raise ConvertError("onnx", "model", why)
    return graph.all_rnns()


def _named_nodes(graph: Graph, names: Any) -> list[tuple[Graph, Any]]:
    """Return the RNN nodes of these names."""
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise ConvertError("onnx", "nodes", f"expecting a list of names of nodes, got {shorten(names)}")
    rnns = graph.all_rnns()
    chosen = [(inner, node) for name in names for inner, node in rnns if name_of(node) == name]
    for name in names:
        count = sum(name_of(node) == name for _, node in rnns)
        if count != 1:
            why = f"{count} RNN nodes have this name: give each its own, node.name = ..."
            why = why if count else f"no such RNN node among {shorten(sorted({name_of(node) for _, node in rnns}))}"
            raise ConvertError("onnx", f"nodes {shorten(name)}", why)
    if len(set(names)) != len(names):
        raise ConvertError("onnx", "nodes", f"a node is listed twice: {shorten(names)}")
    return chosen


def model_of(
    arrays: dict[str, Array], spec: RNNSpec, *, sequence_lens: bool, states: bool, batch_first: bool = False
) -> Any:
    """Write the model around the arrays that `onnx.from_canonical` returns for a spec."""
    onnx = onnx_package()
    if spec.dtype == "bfloat16":
        raise ConvertError("onnx", "dtype", "the operators take float16, float32 and float64, not bfloat16")
    helper = onnx.helper
    node = helper.make_node
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    all_states = ["h", "c"] if spec.has_cell_state else ["h"]
    initial = all_states if states else []
    L, D, U = spec.num_layers, spec.num_dirs, spec.num_units
    attributes: dict[str, Any] = {"hidden_size": U, "direction": "bidirectional" if D == 2 else "forward"}
    if spec.mode is RNNMode.GRU:
        attributes["linear_before_reset"] = 1
    if spec.mode is RNNMode.RNN_RELU:
        attributes["activations"] = ["Relu"] * D
    path = {k: f"{k}/" if L > 1 else "" for k in range(L)}
    held = arrays | {"joined": np.array([0, 0, D * U]), "per_layer": np.array([D] * L), "1": np.array([1])}
    held |= {f"initial_{s}": np.zeros((L * D, 1, U), spec.dtype) for s in initial}  # for any batch
    below, last = ("input/time_first", "output/time_first") if batch_first else ("input", "output")
    nodes = [node("Transpose", ["input"], [below], perm=[1, 0, 2])] if batch_first else []
    if states or sequence_lens:
        nodes.append(node("Shape", [below], ["batch"], start=1, end=2))
        nodes.append(node("Concat", ["1", "batch", "1"], ["wide"], axis=0))
    for s in initial:
        nodes.append(node("Expand", [f"initial_{s}", "wide"], [f"all/initial_{s}"]))
        nodes.append(node("Split", [f"all/initial_{s}", "per_layer"], [f"{k}/initial_{s}" for k in range(L)], axis=0))
    if sequence_lens:
        held |= {"sequence_lens": np.array([-1], np.int32), "0": np.array([0], np.int32)}
        nodes += [
            node("Shape", [below], ["steps"], start=0, end=1),
            node("Cast", ["steps"], ["all_steps"], to=onnx.TensorProto.INT32),
            node("Less", ["sequence_lens", "0"], ["not_given"]),
            node("Where", ["not_given", "all_steps", "sequence_lens"], ["given"]),
            node("Expand", ["given", "batch"], ["lengths"]),
            node("Equal", ["lengths", "0"], ["empty_row"]),
            node("Unsqueeze", ["empty_row", "1"], ["empty"]),
        ]
    for k in range(L):
        bias = f"{path[k]}B" if f"{path[k]}B" in arrays else ""
        inputs = [below, f"{path[k]}W", f"{path[k]}R", bias, "lengths" if sequence_lens else ""]
        inputs += [f"{k}/initial_{s}" for s in initial]
        outputs = [f"{k}/Y", *(f"{k}/Y_{s}" for s in all_states)]
        nodes.append(node(_OPERATORS[spec.mode], inputs, outputs, name=_NODE.format(k), **attributes))
        nodes.append(node("Transpose", [f"{k}/Y"], [f"{k}/Y_side_by_side"], perm=[0, 2, 1, 3]))
        below = last if k == L - 1 else f"{k}/output"
        nodes.append(node("Reshape", [f"{k}/Y_side_by_side", "joined"], [below]))
    if batch_first:
        nodes.append(node("Transpose", [last], ["output"], perm=[1, 0, 2]))
    for s in all_states:
        joined = f"all/Y_{s}" if sequence_lens and states else f"output_{s}"
        nodes.append(node("Concat", [f"{k}/Y_{s}" for k in range(L)], [joined], axis=0))
        if sequence_lens and states:  # of a sequence without steps the operators return 0, the op its initial state
            nodes.append(node("Where", ["empty", f"all/initial_{s}", joined], [f"output_{s}"]))

    def value(name: str, *shape: Any, kind: int = dtype) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    axes = ("B", "T") if batch_first else ("T", "B")
    graph_inputs = [value("input", *axes, spec.input_size)]
    graph_inputs += [value(f"initial_{s}", L * D, "B_or_1", U) for s in initial]
    if sequence_lens:
        graph_inputs.append(value("sequence_lens", "B_or_1", kind=onnx.TensorProto.INT32))
    graph_outputs = [value("output", *axes, D * U), *(value(f"output_{s}", L * D, "B", U) for s in all_states)]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "rnn", graph_inputs, graph_outputs, initializers)
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name=_PRODUCER)
    onnx.checker.check_model(model)
    return model


def _attributes(onnx: Any, node: Any) -> dict[str, Any]:
    """Return the attributes of a node that are keywords of `to_canonical`."""
    about = f"attributes of node {shorten(node.name)}"
    unknown = sorted({str(attribute.name) for attribute in node.attribute} - _ATTRIBUTES)  # bytes, if it is not UTF-8
    if unknown:
        raise ConvertError("onnx", about, f"unknown: {shorten(unknown)}")
    try:
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    except ValueError as error:  # a function's parameter, or of no type
        raise ConvertError("onnx", about, f"cannot be read: {shorten(str(error))}") from error
    for name in _OF_NO_WEIGHT & attributes.keys():
        attributes.pop(name)
    attributes["direction"] = _text(attributes.get("direction", "forward"))
    if isinstance(attributes.get("activations"), list):
        attributes["activations"] = [_text(name) for name in attributes["activations"]]
    return attributes


def _text(value: Any) -> Any:
    """Return a string attribute as text. Another value is returned unchanged, and raises an error later."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def onnx_package() -> Any:
    with needs("onnx", "convert", "reading or writing ONNX models"):
        import onnx.reference  # noqa: PLC0415  optional; the other modules come with the package
    return onnx


STACKS["onnx"] = stacks
