"""The inputs of an RNN node that belong to a call and not to its weights: initial states and lengths."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert.onnx.graph import Graph, name_of
from pycudnnrnn.errors import ConvertError

_PLACES: Final = {"sequence_lens": 4, "initial_h": 5, "initial_c": 6}
"""The positions of these inputs in an RNN node."""

_MOVES: Final = frozenset({
    "Cast", "Concat", "Expand", "Gather", "Identity", "If", "Reshape", "Slice", "Split", "Squeeze", "Tile", "TopK",
    "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
"""Operators that only move the numbers of their first input (Concat: of all inputs, Where: of all but the first).

An If gives the outputs of one of its branches.
"""


def check_call_inputs(nodes: list[tuple[Graph, Any]]) -> None:
    """Check that the states and lengths of these nodes come from the caller.

    A state has to be absent, zero, or an input of the model that X does not come from. Lengths have to be absent, an
    input of the model, or all steps: made from the shape of a value, or equal to the first size of X. Both are followed
    back through nodes that only move numbers.

    Raises:
        ConvertError: the model contains or computes one. The text names what gives it.
    """
    data = set().union(*(_origins(graph, name) for graph, node in nodes for name in node.input[:1]))
    for graph, node in nodes:
        for key, place in _PLACES.items():
            is_state = key != "sequence_lens"
            for name in _origins(graph, *node.input[place : place + 1]):
                array, given = graph.constant(name), name in graph.inputs
                if is_state:
                    is_fine = _is_zero(graph, name) or (given and array is None and name not in data)
                else:  # a negative length means none: `to_model` writes it as the default
                    is_fine = given and (array is None or bool((array < 0).all()))
                    is_fine = is_fine or graph.producer_of(name, {"Shape"}) is not None
                    is_fine = is_fine or (array is not None and {*array.flat} == {graph.steps(node.input[0])})
                if not is_fine:
                    why = f"{_expected(graph, name, is_state=is_state)}; it belongs to the call: clear this input of "
                    why += f"the node (node.input[{place}] = ''), and pass it to the call"
                    raise ConvertError("onnx", f"{key} of node {shorten(name_of(node))}", why)


def _origins(graph: Graph, *names: str) -> set[str]:
    """Return the values whose numbers are moved into these values."""
    found: set[str] = set()
    seen: set[str] = set()
    left = [name for name in names if name]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        node = graph.producer_of(name, _MOVES)
        if node is None:
            found.add(name)
        elif node.op_type == "Concat":
            left += node.input
        elif node.op_type == "If":
            k = list(node.output).index(name)
            left += [branch.g.output[k].name for branch in node.attribute if k < len(branch.g.output)]
        else:
            left += node.input[1:] if node.op_type == "Where" else node.input[:1]
    return found


def _is_zero(graph: Graph, name: str) -> bool:
    node = graph.producer_of(name, {"ConstantOfShape"})
    arrays = [graph.constant(name)] if node is None else [graph.array(name, value.t) for value in node.attribute]
    return all(array is not None and not np.any(array) for array in arrays)


def _expected(graph: Graph, name: str, *, is_state: bool) -> str:
    """Describe the source of a state or of lengths, and what it should be."""
    node = graph.producer.get(name)
    if graph.constant(name) is not None:
        return f"{shorten(name)} is a constant of the model" + (" and not 0" if is_state else "")
    wanted = "zeros or an input of the model" if is_state else "an input of the model or the number of steps"
    if node is None:
        return f"expecting {wanted} that X does not come from, got {shorten(name)}"
    return f"expecting {wanted}, got what {node.op_type} {shorten(node.name or name)} computes"
