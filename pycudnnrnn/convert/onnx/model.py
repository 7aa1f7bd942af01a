"""RNN nodes in an ONNX model: found and read as one stack, or written as a model of their own."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn.convert.onnx.chain import check_chain
from pycudnnrnn.errors import ConvertError, MissingDependencyError
from pycudnnrnn.spec import RNNMode, RNNSpec

_OPERATORS: Final = {RNNMode.LSTM: "LSTM", RNNMode.GRU: "GRU", RNNMode.RNN_TANH: "RNN", RNNMode.RNN_RELU: "RNN"}
_INPUTS: Final = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_ATTRIBUTES: Final = frozenset({
    "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget", "layout",
    "linear_before_reset", "output_sequence",
})  # fmt: skip
_INTS_MOST: Final = 32
"""Most integers that a constant between two nodes may hold: shapes and axes are short."""

_OPSET: Final = 17
"""The operators have not changed in what they compute since 14; 17 is read by every runtime of recent years."""

_IR: Final = 8


def read_nodes(model: Any, nodes: list[str] | None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of the nodes as `to_canonical` reads them, and the attributes that are its keywords."""
    onnx = _onnx()
    if not isinstance(model, onnx.ModelProto):
        raise ConvertError("onnx", "model", f"expecting an onnx.ModelProto, got {type(model).__name__}")
    graph = model.graph
    found = [node for node in graph.node if node.op_type in set(_OPERATORS.values()) and node.domain in {"", "ai.onnx"}]
    if nodes is not None:
        by_name = {node.name: node for node in found}
        missing = [name for name in nodes if name not in by_name]
        if missing or not nodes:
            raise ConvertError("onnx", shorten(missing), f"no such RNN node among {shorten(sorted(by_name))}")
        found = [by_name[name] for name in nodes]
    if not found:
        raise ConvertError("onnx", "model", "has no LSTM, GRU or RNN node")
    if len({node.op_type for node in found}) > 1:
        raise ConvertError("onnx", "model", f"has nodes of several kinds: {sorted({node.op_type for node in found})}")
    constants = _constants(onnx, graph)
    arrays: dict[str, Array] = {}
    settings = [_attributes(onnx, node) for node in found]
    if any(setting != settings[0] for setting in settings):
        raise ConvertError("onnx", "attributes", f"the nodes of one stack have equal ones, got {shorten(settings)}")
    if nodes is None:
        check_chain(graph, found, settings[0], lambda name: _ints(onnx, name, constants))
    settings[0].pop("layout")  # which axis is the batch: the weights are the same
    for k, node in enumerate(found):
        for key, name in zip(_INPUTS, node.input, strict=False):
            if key in "WRBP" and name:
                if name not in constants:
                    raise ConvertError("onnx", f"{key} of node {shorten(node.name)}", "is not a constant of the model")
                arrays[f"{k}/{key}"] = _array(onnx, name, constants[name])
            elif key.startswith("initial") and name in constants and _array(onnx, name, constants[name]).any():
                why = "is a constant of the model and not 0; a state belongs to the call here: pass it there"
                raise ConvertError("onnx", f"{key} of node {shorten(node.name)}", why)
    units = settings[0].pop("hidden_size", None)
    if units is not None and any(a.ndim == 3 and a.shape[2] != units for k, a in arrays.items() if k.endswith("R")):
        raise ConvertError("onnx", "hidden_size", f"is {units}, and R has other columns")
    return arrays, settings[0]


def model_of(arrays: dict[str, Array], spec: RNNSpec, *, sequence_lens: bool) -> Any:
    """Write the model around the arrays that `onnx.from_canonical` gives for a spec."""
    onnx = _onnx()
    if spec.dtype == "bfloat16":
        raise ConvertError("onnx", "dtype", "the operators take float16, float32 and float64, not bfloat16")
    helper = onnx.helper
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    states = ["h", "c"] if spec.has_cell_state else ["h"]
    L, D, U = spec.num_layers, spec.num_dirs, spec.num_units
    attributes: dict[str, Any] = {"hidden_size": U, "direction": "bidirectional" if D == 2 else "forward"}
    if spec.mode is RNNMode.GRU:
        attributes["linear_before_reset"] = 1
    if spec.mode is RNNMode.RNN_RELU:
        attributes["activations"] = ["Relu"] * D
    path = {k: f"{k}/" if L > 1 else "" for k in range(L)}
    nodes = []
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    initializers.append(onnx.numpy_helper.from_array(np.array([0, 0, D * U], np.int64), "joined"))
    initializers.append(onnx.numpy_helper.from_array(np.array([D] * L, np.int64), "per_layer"))
    nodes += [
        helper.make_node("Split", [f"initial_{s}", "per_layer"], [f"{k}/initial_{s}" for k in range(L)], axis=0)
        for s in states
    ]
    below = "input"
    for k in range(L):
        bias = f"{path[k]}B" if f"{path[k]}B" in arrays else ""
        inputs = [below, f"{path[k]}W", f"{path[k]}R", bias, "sequence_lens" if sequence_lens else ""]
        inputs += [f"{k}/initial_{s}" for s in states]
        outputs = [f"{k}/Y", *(f"{k}/Y_{s}" for s in states)]
        nodes.append(helper.make_node(_OPERATORS[spec.mode], inputs, outputs, name=f"layer_{k}", **attributes))
        nodes.append(helper.make_node("Transpose", [f"{k}/Y"], [f"{k}/Y_side_by_side"], perm=[0, 2, 1, 3]))
        below = "output" if k == L - 1 else f"{k}/output"
        nodes.append(helper.make_node("Reshape", [f"{k}/Y_side_by_side", "joined"], [below]))
    nodes += [helper.make_node("Concat", [f"{k}/Y_{s}" for k in range(L)], [f"output_{s}"], axis=0) for s in states]

    def value(name: str, *shape: Any, kind: int = dtype) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    graph_inputs = [value("input", "T", "B", spec.input_size), *(value(f"initial_{s}", L * D, "B", U) for s in states)]
    if sequence_lens:
        graph_inputs.append(value("sequence_lens", "B", kind=onnx.TensorProto.INT32))
    graph_outputs = [value("output", "T", "B", D * U), *(value(f"output_{s}", L * D, "B", U) for s in states)]
    graph = helper.make_graph(nodes, "rnn", graph_inputs, graph_outputs, initializers)
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name="pycudnnrnn")
    onnx.checker.check_model(model)
    return model


def _attributes(onnx: Any, node: Any) -> dict[str, Any]:
    about = f"attributes of node {shorten(node.name)}"
    unknown = sorted({str(attribute.name) for attribute in node.attribute if attribute.name not in _ATTRIBUTES})
    if unknown:
        raise ConvertError("onnx", about, f"unknown: {unknown}")
    try:
        found = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    except ValueError as error:  # a function's parameter, or of no type
        raise ConvertError("onnx", about, f"cannot be read: {shorten(str(error))}") from error
    found.pop("output_sequence", None)
    if found.setdefault("layout", 0) not in (0, 1):
        raise ConvertError("onnx", f"layout of node {shorten(node.name)}", f"expecting 0 or 1, got {found['layout']}")
    if "direction" in found:
        found["direction"] = _text(found["direction"])
    if isinstance(found.get("activations"), list):
        found["activations"] = [_text(name) for name in found["activations"]]
    return found


def _text(value: Any) -> Any:
    """Return a string attribute as text; what is not one stays as it is, to be refused as any other value."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _constants(onnx: Any, graph: Any) -> dict[str, Any]:
    """Return every tensor that the graph holds, by name: initializers, and what Constant nodes give.

    Raises:
        ConvertError: two of one name.
    """
    found: dict[str, Any] = {}

    def add(name: str, tensor: Any) -> None:
        if name in found:
            raise ConvertError("onnx", shorten(name), "is the name of two constants of the model")
        found[name] = tensor

    for tensor in graph.initializer:
        add(tensor.name, tensor)
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value" and attribute.type == onnx.AttributeProto.TENSOR:
                tensor = attribute.t
            elif attribute.name in {"value_int", "value_ints"}:
                ints = attribute.i if attribute.name == "value_int" else attribute.ints
                tensor = onnx.numpy_helper.from_array(np.array(ints, np.int64))
            else:
                continue
            for name in node.output:
                add(name, tensor)
    return found


def _ints(onnx: Any, name: str, constants: dict[str, Any]) -> list[int] | None:
    """Return the integers of a short constant; None where there is none of this name."""
    if name not in constants:
        return None
    array = _array(onnx, name, constants[name])
    return [int(n) for n in array.flat] if array.dtype.kind == "i" and array.size <= _INTS_MOST else None


def _array(onnx: Any, name: str, tensor: Any) -> Array:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise ConvertError("onnx", shorten(name), "keeps its data in another file, which is not opened")
    if any(size < 0 for size in tensor.dims):  # onnx would work the size out
        raise ConvertError("onnx", shorten(name), f"has a negative size: {shorten(list(tensor.dims))}")
    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AttributeError, MemoryError) as error:
        raise ConvertError("onnx", shorten(name), f"is not a readable tensor: {error}") from error
    return array


def _onnx() -> Any:
    try:
        import onnx  # noqa: PLC0415  optional
        import onnx.checker  # noqa: PLC0415
        import onnx.helper  # noqa: PLC0415
        import onnx.numpy_helper  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError("onnx", "convert", "reading or writing ONNX models") from error
    return onnx
