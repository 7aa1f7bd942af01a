"""The inputs of an RNN node that belong to a call and not to its weights: initial states and lengths."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert.onnx.graph import NAME_THEM, Graph
from pycudnnrnn.convert.onnx.sizes import COUNTING, FLOATING, MOST, Sizes, number
from pycudnnrnn.errors import ConvertError

_SEQUENCE_LENS: Final = 4
_STATES: Final = {"initial_h": 5, "initial_c": 6}
"""The positions of the inputs of an RNN node that belong to a call."""

_MOVES: Final = frozenset({
    "Cast", "Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})  # fmt: skip
"""Operators that only move the numbers of their first input (Concat: of all inputs). They turn zeros into zeros."""

_SAME: Final = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that return the lengths that they read."""

_WAY_OUT: Final = "it belongs to the call: clear this input of the node, and pass it to the call"


def check_states(graph: Graph, nodes: list[Any], *, named: bool) -> None:
    """Check that each initial state is zero, absent, or an input of the model.

    A state is followed back through nodes that only move numbers. A model input that X comes from is not a state. If
    the caller `named` the nodes, the output of another RNN node is one, too: that node is another part of the model.

    Raises:
        ConvertError: another state. The text names the node that gives it.
    """
    given = graph.inputs - _origins(graph, nodes[0].input[0] if nodes[0].input else "")
    if named:
        given |= {name for node in graph.rnns for name in node.output}
    seen: set[str] = set()
    for node in nodes:
        for key, place in _STATES.items():
            names = [name for name in node.input[place : place + 1] if name]
            while names:
                name = names.pop()
                if name in seen:
                    continue
                seen.add(name)
                above = _above(graph, name)
                if above:
                    names += above
                elif not _is_zero(graph, name) and (name not in given or graph.constant(name) is not None):
                    about = f"{key} of node {shorten(node.name)}"
                    raise ConvertError("onnx", about, f"{_what_gives(graph, name)}; {_WAY_OUT}")


def check_lengths(graph: Graph, nodes: list[Any], sizes: Sizes, steps: str, *, named: bool) -> None:
    """Check that lengths come from an input of the model, and are the same for all nodes.

    No lengths means all steps, and so do lengths that are provably all steps. `steps` is the letter of the axis of
    time. If the caller `named` the nodes, they may have different lengths.

    Raises:
        ConvertError: lengths that belong to the model or differ. The text names the first such node.
    """
    size = sizes.of_axis(steps)
    first = None
    for node in nodes:
        about = f"sequence_lens of node {shorten(node.name)}"
        own = _follow(graph, node.input[_SEQUENCE_LENS] if len(node.input) > _SEQUENCE_LENS else "", _SAME)
        one = _follow(graph, own, {*_SAME, "Expand", "Tile"})
        lengths = graph.constant(one)
        if sizes.of_list(one) == [size] or (lengths is not None and not size[1] and (lengths == size[0]).all()):
            own = ""
        elif own and (lengths is not None or not _is_of_an_input(graph, own)):
            what = "a constant of the model" if lengths is not None else "computed from no input of the model"
            why = f"{shorten(one)} is {what} and not shown to be the number of steps; {_WAY_OUT}"
            raise ConvertError("onnx", about, why)
        first = own if first is None else first
        if own != first and not named:
            wanted, got = shorten(first or "none"), shorten(own or "none")
            why = f"expecting {wanted} as for {shorten(nodes[0].name)}, got {got}; {_WAY_OUT}"
            raise ConvertError("onnx", about, why)


def _above(graph: Graph, name: str) -> list[str]:
    """Return the values whose numbers are moved into this one; none if the numbers begin here."""
    node = graph.maker(name, _MOVES)
    if node is None or (node.op_type == "Cast" and number(node, "to", 0) not in FLOATING):
        return []
    return [*node.input] if node.op_type == "Concat" else [node.input[0]]


def _origins(graph: Graph, name: str) -> set[str]:
    """Return a value, and all values whose numbers it has."""
    found, names = set(), [name]
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += _above(graph, name)
    return found


def _is_of_an_input(graph: Graph, name: str) -> bool:
    """Return True if a value is computed from an input of the model. The input's shape does not count."""
    seen, names = set(), [name]
    while names:
        name = names.pop()
        node = graph.producer.get(name)
        if name not in seen and node is not None and node.op_type not in {"Shape", "Size"}:
            names += node.input
        seen.add(name)
    return any(name in graph.inputs for name in seen)


def _follow(graph: Graph, name: str, kinds: Collection[str]) -> str:
    """Return the first value of a chain of nodes of these kinds."""
    for _ in range(MOST):
        node = graph.maker(name, kinds)
        if node is None or (node.op_type == "Cast" and number(node, "to", 0) not in COUNTING):
            break
        name = node.input[0]
    return name


def _is_zero(graph: Graph, name: str) -> bool:
    node = graph.maker(name, {"ConstantOfShape"})
    arrays = [graph.constant(name)] if node is None else [graph.array(name, value.t) for value in node.attribute]
    return all(array is not None and not np.any(array) for array in arrays)


def _what_gives(graph: Graph, name: str) -> str:
    """Describe the source of a state that cannot be converted."""
    node = graph.producer.get(name)
    if graph.constant(name) is not None:
        return f"{shorten(name)} is a constant of the model and not 0"
    if node is None:
        return f"expecting zeros or an input other than X's, got {shorten(name)}"
    hint = f", or {NAME_THEM}" if node in graph.rnns else ""
    return (
        f"expecting zeros or an input of the model, got what {node.op_type} {shorten(node.name or name)} computes{hint}"
    )
