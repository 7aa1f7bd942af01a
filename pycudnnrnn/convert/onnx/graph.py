"""The graphs of an ONNX model: which node gives a value, and which values are constants of the model."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn.errors import ConvertError

OPERATORS: Final = frozenset({"LSTM", "GRU", "RNN"})

NAME_THEM: Final = "name the nodes of one stack in `nodes`"
"""The advice for a model whose RNN nodes are not one stack."""

_DOMAINS: Final = frozenset({"", "ai.onnx"})
"""The two names of the domain that has ONNX's own operators."""

_RECURRENT: Final = re.compile("lstm|gru|rnn", re.IGNORECASE)
"""Parts of the names of recurrent operators and functions, such as com.microsoft's DynamicQuantizeLSTM."""


_FOLDED: Final = frozenset({
    "Cast", "Concat", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"
})  # fmt: skip
"""Operators whose result is computed if all of their inputs are constants: exporters put them before weights."""


_DEEPEST: Final = 100
"""Most nodes, one after the other, between a constant and a weight."""


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
        self.constants: dict[str, Any] = (around.constants if around else {}) | self._find_constants()
        inner = [body for node in self.nodes for a in node.attribute for body in (a.g, *a.graphs) if body.node]
        self._bodies = [Graph(onnx, model, body, self) for body in inner]
        self._inner = {name: node for body in self._bodies for name, node in body.all_producers().items()}

    def all_producers(self) -> dict[str, Any]:
        """Return the node of each value of this graph, of the bodies in it and of those around it."""
        return self._inner | self.producer

    def all_rnns(self) -> list[tuple[Graph, Any]]:
        """Return the RNN nodes of this graph and of the bodies in it, each with its graph."""
        return [(self, node) for node in self.rnns] + [pair for body in self._bodies for pair in body.all_rnns()]

    def steps(self, name: str) -> int | None:
        """Return the first size of a value, if the model contains it."""
        values = [value for value in (*self._graph.input, *self._graph.value_info) if value.name == name]
        dims = values[0].type.tensor_type.shape.dim if values else ()
        return dims[0].dim_value or None if dims else None

    def producer_of(self, name: str, kinds: Collection[str]) -> Any:
        """Return the node that gives a value, if it is one of ONNX's own operators of these kinds and has inputs.

        Only the first output of a node counts, and every one of a Split or an If: a Dropout's second one is its mask.
        """
        node = self.producer.get(name) or self._inner.get(name)
        if node is None or node.op_type not in kinds or not is_onnx(node) or not node.input:
            return None
        return node if name == node.output[0] or node.op_type in {"Split", "If"} else None

    def constant(self, name: str, depth: int = 0) -> Array | None:
        """Return a constant of the model, or what nodes compute from constants alone; None for any other value.

        Raises:
            ConvertError: it cannot be read or computed.
        """
        if name not in self.constants:
            self.constants[name] = None  # also for a node that needs its own result
            node = self.producer_of(name, _FOLDED) if depth < _DEEPEST else None
            inputs = {i: self.constant(i, depth + 1) for i in node.input if i} if node is not None else {"": None}
            if all(array is not None for array in inputs.values()):
                self.constants[name] = self._computed(node, name, inputs)
        found = self.constants[name]
        if isinstance(found, self._onnx.TensorProto):
            return self.array(name, found)
        return None if found is None else np.array(found)

    def check_all_seen(self) -> None:
        """Check that all RNNs are nodes of the main graph, not in a body, a function or another domain.

        Raises:
            ConvertError: one is not. The text names the first.
        """
        functions = [node for function in self._model.functions for node in function.node]
        others = [node for node in self.nodes if node.op_type not in OPERATORS or not is_onnx(node)]
        bodies = [node for _, node in self.all_rnns()[len(self.rnns) :]]
        for node in (*others, *functions, *bodies):
            if _RECURRENT.search(str(node.op_type)):  # bytes, if it is not UTF-8
                what = ".".join(part for part in (str(node.domain), str(node.op_type)) if part)
                why = f"{shorten(what)} is not read: expecting ONNX's own LSTM, GRU and RNN nodes in the main graph"
                why += ", and this one has quantized weights" if "Quantize" in what else ""
                names = shorten([name_of(node) for _, node in self.all_rnns()])
                way_out = f"to read others, {NAME_THEM}, of nodes={names}"
                way_out += "; onnx.inliner.inline_local_functions(model) inlines functions" * bool(functions)
                raise ConvertError("onnx", f"node {shorten(node.name)}", f"{why}; {way_out}")

    def _computed(self, node: Any, name: str, inputs: dict[str, Any]) -> Array:
        """Return what a node gives for these inputs, by onnx.reference."""
        helper = self._onnx.helper
        if sum(array.nbytes for array in inputs.values()) > self._model.ByteSize():
            raise ConvertError("onnx", shorten(name), "is made of more bytes than the model has")
        tensors = [self._onnx.numpy_helper.from_array(array, i) for i, array in inputs.items()]
        graph = helper.make_graph([node], "one", [], [helper.make_empty_tensor_value_info(name)], tensors)
        model = helper.make_model(graph, opset_imports=self._model.opset_import)
        try:
            (array,) = self._onnx.reference.ReferenceEvaluator(model).run(None, {})
        except Exception as error:  # whatever NumPy and the evaluator raise
            raise ConvertError("onnx", shorten(name), f"cannot be computed: {shorten(str(error))}") from error
        return np.asarray(array)

    def _find_constants(self) -> dict[str, Any]:
        """Return initializers and the values of Constant nodes, by name: tensors, numbers or lists of numbers."""
        found: dict[str, Any] = {tensor.name: tensor for tensor in self._graph.initializer}
        for node in self.nodes:
            if node.op_type == "Constant" and is_onnx(node) and len(node.attribute) == 1:
                (given,) = node.attribute
                values = {"value": given.t, "value_float": given.f, "value_int": given.i}
                values |= {"value_floats": [*given.floats], "value_ints": [*given.ints]}
                found |= {name: values.get(given.name) for name in node.output}  # None: text, or a sparse one
        return found

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


def is_onnx(node: Any) -> bool:
    """Return True if a node is one of ONNX's own operators."""
    return node.domain in _DOMAINS


def name_of(node: Any) -> str:
    """Return the name of a node, or of its first output if it has none."""
    return str(node.name or next(filter(None, node.output), ""))
