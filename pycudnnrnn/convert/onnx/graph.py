"""The graphs of an ONNX model: which node gives a value, and which values are constants of it or of the caller."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import Assumption, shorten, some, warn
from pycudnnrnn._forms import Array
from pycudnnrnn.errors import ConvertError

OPERATORS: Final = frozenset({"LSTM", "GRU", "RNN"})

NAME_THEM: Final = "name the nodes of one stack in `nodes`"
"""The advice for a model whose RNN nodes are not one stack."""

_DOMAINS: Final = frozenset({"", "ai.onnx"})
"""The two names of the domain that has ONNX's own operators."""

_RECURRENT: Final = re.compile("lstm|gru|rnn", re.IGNORECASE)
"""Parts of the names of recurrent operators and functions, such as com.microsoft's DynamicQuantizeLSTM."""

_MOVES: Final = frozenset({"Cast", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that only move the numbers of their first input."""

_FOLDED: Final = _MOVES | {"Concat", "Constant"}
"""Operators whose result is computed if all of their inputs are constants: exporters put them before weights."""

_REPEATS: Final = _MOVES | {"Expand", "Gather", "Tile", "TopK"}
"""Operators between what a caller gives and the node that takes it: torch sorts lengths by TopK."""

_DEEPEST: Final = 100
"""Most nodes, one after the other, between a constant and a weight, or what the caller gives and an RNN."""

_OF_A_CALL: Final = {"sequence_lens": 4, "initial_h": 5, "initial_c": 6}
"""The positions of the inputs of an RNN node that belong to a call and not to its weights."""


class Graph:
    """The main graph of a model, or a body in it, with its values and those around it by name."""

    def __init__(self, onnx: Any, model: Any, graph: Any = None, around: Graph | None = None) -> None:
        graph = model.graph if graph is None else graph
        self.nodes = graph.node
        self.inputs: set[str] = {value.name for value in graph.input} | (around.inputs if around else set())
        self.producer = {name: node for node in self.nodes for name in node.output if name}
        self.producer = (around.producer if around else {}) | self.producer
        self.rnns = [node for node in self.nodes if node.op_type in OPERATORS and is_onnx(node)]
        self._onnx = onnx
        self._model = model
        self._graph = graph
        self.constants: dict[str, Any] = dict(around.constants) if around else {}
        self.constants |= {tensor.name: tensor for tensor in graph.initializer}
        inner = [body for node in self.nodes for a in node.attribute for body in (a.g, *a.graphs) if body.node]
        self._bodies = [Graph(onnx, model, body, self) for body in inner]

    def all_rnns(self) -> list[tuple[Graph, Any]]:
        """Return the RNN nodes of this graph and of the bodies in it, each with its graph."""
        return [(self, node) for node in self.rnns] + [pair for body in self._bodies for pair in body.all_rnns()]

    def producer_of(self, name: str, kinds: Collection[str]) -> Any:
        """Return the node that gives a value, if it is one of ONNX's own operators of these kinds.

        Only the first output of a node counts, and every one of a Split: a Dropout's second one is its mask.
        """
        node = self.producer.get(name)
        if node is None or node.op_type not in kinds or not is_onnx(node):
            return None
        return node if name == node.output[0] or node.op_type == "Split" else None

    def origin(self, name: str) -> str:
        """Return the value whose numbers are moved or repeated into this value."""
        for _ in range(_DEEPEST):
            node = self.producer_of(name, _REPEATS)
            name = node.input[0] if node is not None and node.input else name
        return name

    def constant(self, name: str, depth: int = 0) -> Array | None:
        """Return a constant of the model, or what nodes compute from constants alone; None for any other value.

        Raises:
            ConvertError: it cannot be read or computed.
        """
        if name not in self.constants:
            self.constants[name] = None  # also for a node that needs its own result
            node = self.producer_of(name, _FOLDED) if depth < _DEEPEST else None
            inputs = {i: self.constant(i, depth + 1) for i in node.input if i} if node is not None else {}
            if node is not None and all(array is not None for array in inputs.values()):
                self.constants[name] = self._computed(node, name, inputs)
        value = self.constants[name]
        return self.array(name, value) if isinstance(value, self._onnx.TensorProto) else value

    def unread(self) -> list[str]:
        """Return the recurrent operators of other domains, and those in functions, which are not read."""
        nodes = [node for function in self._model.functions for node in function.node]
        nodes += [node for node in self.nodes if node not in self.rnns]
        recurrent = [node for node in nodes if _RECURRENT.search(str(node.op_type))]  # bytes, if it is not UTF-8
        return [".".join(filter(None, (str(node.domain), str(node.op_type)))) for node in recurrent]

    def _computed(self, node: Any, name: str, inputs: dict[str, Any]) -> Array:
        """Return what a node gives for these inputs, by onnx.reference."""
        helper = self._onnx.helper
        held = [self.array(name, attribute.t) for attribute in node.attribute if attribute.HasField("t")]
        if sum(array.nbytes for array in (*inputs.values(), *held)) > self._model.ByteSize():
            raise ConvertError("onnx", shorten(name), "is made of more bytes than the model has")
        tensors = [self._onnx.numpy_helper.from_array(array, i) for i, array in inputs.items()]
        graph = helper.make_graph([node], "one", [], [helper.make_empty_tensor_value_info(name)], tensors)
        model = helper.make_model(graph, opset_imports=self._model.opset_import)
        try:
            (array,) = self._onnx.reference.ReferenceEvaluator(model).run(None, {})
        except Exception as error:  # whatever NumPy and the evaluator raise
            raise ConvertError("onnx", shorten(name), f"cannot be computed: {shorten(str(error))}") from error
        return np.asarray(array)

    def array(self, name: str, tensor: Any) -> Array:
        """Return a tensor of the model as an array; `name` is for the error.

        Raises:
            ConvertError: it cannot be read, or its data are in another file.
        """
        if tensor.data_location == self._onnx.TensorProto.EXTERNAL:
            why = "keeps its data in another file, which is not opened: onnx.save(onnx.load(path), path) makes one file"
            raise ConvertError("onnx", shorten(name), why)
        try:
            array: Array = self._onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, AttributeError, MemoryError) as error:
            raise ConvertError("onnx", shorten(name), f"is not a readable tensor: {error}") from error
        return array


def warn_of_call_inputs(nodes: list[tuple[Graph, Any]]) -> None:
    """Warn of states and lengths that the model holds or computes: they are not read, since they belong to a call.

    No warning where the caller gives them (an input of the model that X does not come from), for a state of zeros, and
    for lengths that are made from the shape of a value.
    """
    data = {graph.origin(name) for graph, node in nodes for name in node.input[:1]}
    unread = []
    for graph, node in nodes:
        for key, place in _OF_A_CALL.items():
            for name in map(graph.origin, filter(None, node.input[place : place + 1])):
                array, source = graph.constant(name), graph.producer.get(name)
                if source is not None and source.op_type == "ConstantOfShape":
                    array = graph.array(name, source.attribute[0].t) if source.attribute else np.zeros(1)
                is_callers = array is None and name in graph.inputs and name not in data
                is_usual = array is not None and not np.any(array) and key != "sequence_lens"
                is_all = source is not None and source.op_type == "Shape" and key == "sequence_lens"
                if not (is_callers or is_usual or is_all):
                    unread.append(f"{key} of node {shorten(name_of(node))} (from {shorten(name)})")
    if unread:
        warn(f"not read, since it belongs to each call: {some(unread, str)}", Assumption)


def is_onnx(node: Any) -> bool:
    """Return True if a node is one of ONNX's own operators."""
    return node.domain in _DOMAINS


def name_of(node: Any) -> str:
    """Return the name of a node, or of its first output if it has none."""
    return str(node.name or next(filter(None, node.output), ""))
