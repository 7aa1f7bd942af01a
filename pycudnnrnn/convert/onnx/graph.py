"""An ONNX model's main graph: which node gives a value, and which values are constants of the model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
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


class Graph:
    """The main graph of a model, with its values by name."""

    def __init__(self, onnx: Any, model: Any) -> None:
        self.nodes = model.graph.node
        self.inputs = {value.name for value in model.graph.input}
        self.producer = {name: node for node in self.nodes for name in node.output if name}
        self.rnns = [node for node in self.nodes if node.op_type in OPERATORS and is_onnx(node)]
        self._onnx = onnx
        self._model = model
        self._constants = self._find_constants()

    def producer_of(self, name: str, kinds: Collection[str]) -> Any:
        """Return the node that gives a value, if it is one of ONNX's own operators of these kinds and has inputs.

        Only the first output of a node counts, and every output of a Split: a Dropout's second one is its mask.
        """
        node = self.producer.get(name)
        if node is None or node.op_type not in kinds or not is_onnx(node) or not node.input:
            return None
        return node if name == node.output[0] or node.op_type == "Split" else None

    def constant(self, name: str) -> Array | None:
        """Return a constant of the model; None if there is none of this name.

        Raises:
            ConvertError: it cannot be read.
        """
        found = self._constants.get(name)
        if isinstance(found, self._onnx.TensorProto):
            return self.array(name, found)
        return None if found is None else np.array(found)

    def check_all_seen(self) -> None:
        """Check that all RNNs are nodes of the main graph, not in a body, a function or another domain.

        Raises:
            ConvertError: one is not. The text names the first.
        """
        functions = [node for function in self._model.functions for node in function.node]
        bodies = _in_bodies([*self.nodes, *functions])
        others = [node for node in self.nodes if node.op_type not in OPERATORS or not is_onnx(node)]
        for node in (*others, *functions, *bodies):
            if _RECURRENT.search(str(node.op_type)):  # bytes, if it is not UTF-8
                what = ".".join(part for part in (str(node.domain), str(node.op_type)) if part)
                why = f"{shorten(what)} is not read: expecting ONNX's own LSTM, GRU and RNN nodes in the main graph"
                way_out = f"to read those, {NAME_THEM}; onnx.inliner.inline_local_functions(model) inlines functions"
                raise ConvertError("onnx", f"node {shorten(node.name)}", f"{why}; {way_out}")

    def _find_constants(self) -> dict[str, Any]:
        """Return initializers and the values of Constant nodes, by name: tensors, numbers or lists of numbers."""
        found: dict[str, Any] = {tensor.name: tensor for tensor in self._model.graph.initializer}
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


def _in_bodies(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield the nodes in the bodies of these nodes: of an If, Loop or Scan."""
    for node in nodes:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from body.node
                yield from _in_bodies(body.node)
