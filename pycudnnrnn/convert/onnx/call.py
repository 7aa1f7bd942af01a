"""The inputs of an RNN node that belong to a call and not to its weights: initial states and lengths."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert.onnx.graph import Graph
from pycudnnrnn.errors import ConvertError

_PLACES: Final = {"sequence_lens": 4, "initial_h": 5, "initial_c": 6}
"""The positions of these inputs."""

_MOVES: Final = frozenset({
    "Cast", "Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})  # fmt: skip
"""Operators that only move the numbers of their first input (Concat: of all inputs). They turn zeros into zeros."""


_WAY_OUT: Final = "it belongs to the call: clear this input of the node, and pass it to the call"


def check_call_inputs(graph: Graph, nodes: list[Any]) -> None:
    """Check that states and lengths are passed to the call: absent, or an input of the model. A state may be zero.

    They are followed back through nodes that only move numbers. A model input that X comes from is neither.

    Raises:
        ConvertError: a state or lengths that the model contains or computes. The text names the node that gives it.
    """
    given = graph.inputs - _origins(graph, nodes[0].input[0] if nodes[0].input else "")
    for node in nodes:
        for key, place in _PLACES.items():
            names = [name for name in node.input[place : place + 1] if name]
            if key == "sequence_lens" and graph.is_ours:  # computed from the input of that name
                names = []
            for origin in {origin for name in names for origin in _origins(graph, name)}:
                passed = origin in given and graph.constant(origin) is None
                if not passed and (key == "sequence_lens" or not _is_zero(graph, origin)):
                    why = f"{_what_gives(graph, origin, key)}; {_WAY_OUT}"
                    raise ConvertError("onnx", f"{key} of node {shorten(node.name)}", why)


def _origins(graph: Graph, name: str) -> set[str]:
    """Return the values whose numbers a value has, where they begin."""
    found, seen, left = set(), set(), [name]
    while left:
        name = left.pop()
        node = graph.maker(name, _MOVES)
        if node is None:
            found.add(name)
        elif name not in seen:
            left += node.input if node.op_type == "Concat" else node.input[:1]
        seen.add(name)
    return found


def _is_zero(graph: Graph, name: str) -> bool:
    node = graph.maker(name, {"ConstantOfShape"})
    arrays = [graph.constant(name)] if node is None else [graph.array(name, value.t) for value in node.attribute]
    return all(array is not None and not np.any(array) for array in arrays)


def _what_gives(graph: Graph, name: str, key: str) -> str:
    """Describe the source of a state or of lengths that cannot be converted."""
    node, zeros = graph.producer.get(name), "" if key == "sequence_lens" else "zeros or "
    if graph.constant(name) is not None:
        return f"{shorten(name)} is a constant of the model{' and not 0' if zeros else ''}"
    if node is None:
        return f"expecting {zeros}an input other than X's, got {shorten(name)}"
    return f"expecting {zeros}an input of the model, got what {node.op_type} {shorten(node.name or name)} computes"
