"""The connection from one RNN node of an ONNX model to the next: each has to read the output of the one before it.

Axes are written in the letters of `sizes`: the output [T, D, B, H] of a node of one direction is ["T", "", "B", "H"],
and the input of the next node in a bidirectional stack is ["T", "B", "DH"].
"""

from __future__ import annotations

import itertools
from typing import Any, Final, NoReturn

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert.onnx.call import check_lengths, check_states
from pycudnnrnn.convert.onnx.graph import NAME_THEM, Graph
from pycudnnrnn.convert.onnx.sizes import MOST, Size, Sizes, number, numbers
from pycudnnrnn.errors import ConvertError

_BETWEEN: Final = frozenset({
    "Cast", "Concat", "Dropout", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"
})  # fmt: skip
"""Operators allowed between two nodes of a stack: they move numbers and do not change them."""

_HOLDING: Final = {"float16": {1, 10, 11}, "bfloat16": {1, 11, 16}, "float32": {1, 11}, "float64": {11}}
"""The dtypes that a Cast may turn outputs into, in TensorProto's numbers, by the weights' dtype: without loss."""

_RANK_MOST: Final = 8
"""Most axes of a value, because all ways in which a Reshape can cut its letters are tried."""


def check_chain(graph: Graph, nodes: list[Any], attributes: dict[str, Any], *, named: bool) -> None:
    """Check that each node reads the output of the one before it, with the axes of a stack.

    `attributes` are those of each node. If the caller `named` the nodes, their connections are not checked.

    Raises:
        ConvertError: a node that reads or may read something else, that starts from a state which no call can give, or
            that runs over other steps.
    """
    chain = _Chain(graph, nodes[0], attributes)
    check_states(graph, nodes, named=named)
    check_lengths(graph, nodes, chain.sizes, "T", named=named)
    for before, after in () if named else itertools.pairwise(nodes):
        chain.check(before, after)


class _Chain:
    """The values of a graph whose axes are known."""

    def __init__(self, graph: Graph, first: Any, attributes: dict[str, Any]) -> None:
        self._graph = graph
        weights = graph.constant(first.input[1]) if len(first.input) > 1 else None
        self._holding = set() if weights is None else _HOLDING.get(weights.dtype.name, set())
        way = "BT" if attributes["layout"] else "TB"
        reads = self._read_by(first, [*way, "I"])
        self._numbers = self._declared(reads)
        self._numbers["D"] = 2 if attributes.get("direction") == "bidirectional" else 1
        units = attributes.get("hidden_size")
        if type(units) is int and units > 0:
            self._numbers["H"] = units
        self.sizes = Sizes(graph, {name: self._named(axes) for name, axes in reads.items()}, self._numbers)
        self._given = self._named([*way, "D", "H"] if attributes["layout"] else ["T", "D", "B", "H"])
        self._wanted = self._named([*way, "DH"])

    def check(self, before: Any, after: Any) -> None:
        """Check that the nodes between two RNN nodes give the second one the input of a stack."""
        path: list[Any] = []
        name = after.input[0] if after.input else ""
        while not before.output or name != before.output[0]:
            node = self._graph.maker(name, _BETWEEN)
            if node is None or len(path) == MOST:
                why = f"does not read the output of {shorten(before.name)}: {NAME_THEM}"
                raise ConvertError("onnx", f"node {shorten(after.name)}", why)
            path.append(node)
            name = node.input[0]
        axes = self.sizes.axes[name] = self._given
        for node in reversed(path):
            axes = self.sizes.axes[node.output[0]] = self._after(node, axes)
        if axes != self._wanted:
            why = f"expecting {_text(self._wanted)} from {shorten(before.name)}, got {_text(axes)}; {NAME_THEM}"
            raise ConvertError("onnx", f"X of node {shorten(after.name)}", why)

    def _read_by(self, node: Any, axes: list[str]) -> dict[str, list[str]]:
        """Return the axes of a node's input, now and before it was transposed."""
        name = node.input[0] if node.input else ""
        found = {name: axes}
        for _ in range(MOST):
            maker = self._graph.maker(name, {"Cast", "Identity", "Transpose"})
            if maker is None:
                break
            if maker.op_type == "Transpose":
                perm = _perm(maker, len(axes))
                axes = [axes[perm.index(k)] for k in range(len(axes))]
            name = maker.input[0]
            found[name] = axes
        return found

    def _declared(self, reads: dict[str, list[str]]) -> dict[str, int]:
        """Return the sizes that the model declares for values whose axes are known."""
        found: dict[str, int] = {}
        for value in self._graph.described:
            axes, dims = reads.get(value.name), value.type.tensor_type.shape.dim
            if axes is not None and len(axes) == len(dims):
                found |= {axis: dim.dim_value for axis, dim in zip(axes, dims, strict=True) if dim.dim_value > 0}
        return found

    def _named(self, axes: list[str]) -> list[str]:
        return ["".join(letter for letter in axis if self._numbers.get(letter) != 1) for axis in axes]

    def _after(self, node: Any, axes: list[str]) -> list[str]:
        """Return the axes of a node's output, from those of its input."""
        kind, rank = node.op_type, len(axes)
        if kind == "Concat" and len(node.input) != 1:
            _refuse(node, f"expecting one value, got {len(node.input)}")
        if kind == "Cast" and number(node, "to", 0) not in self._holding:
            _refuse(node, "expecting a floating dtype as wide as that of the weights, got another one")
        if kind == "Transpose":
            return [axes[k] for k in _perm(node, rank)]
        if kind == "Squeeze":
            gone = self._places(node, rank)
            gone = [k for k, axis in enumerate(axes) if not axis] if gone is None else gone
            if any(axes[k] for k in gone):
                _refuse(node, f"expecting axes of size 1 of {_text(axes)}, got {gone}")
            return [axis for k, axis in enumerate(axes) if k not in gone]
        if kind == "Unsqueeze":
            new = self._places(node, rank, more=True) or []
            left = iter(axes)
            return ["" if k in new else next(left) for k in range(rank + len(new))]
        return self._reshaped(node, axes) if kind == "Reshape" else axes

    def _places(self, node: Any, rank: int, *, more: bool = False) -> list[int] | None:
        """Return the `axes` of a Squeeze or an Unsqueeze, from the front; None where it has none."""
        given = numbers(node, "axes")
        if given is None and len(node.input) > 1 and node.input[1]:
            given = self._graph.ints(node.input[1]) or _refuse(node, "expecting constant axes, got others")
        if given is None:
            return None
        rank += len(given) if more else 0
        places = {k % rank if -rank <= k < rank else rank for k in given}
        if len(places) != len(given) or rank in places or rank > _RANK_MOST:
            _refuse(node, f"expecting axes of a value of {rank}, got {shorten(given)}")
        return sorted(places)

    def _reshaped(self, node: Any, axes: list[str]) -> list[str]:
        """Return the axes after a Reshape: the letters in their order, cut according to the sizes."""
        sizes = self.sizes.of_list(node.input[1]) if len(node.input) > 1 else None
        letters, own = "".join(axes), [self.sizes.of_axis(axis) for axis in axes]
        if sizes and not number(node, "allowzero", 0):
            sizes = [own[k] if size == 0 and k < len(own) else size for k, size in enumerate(sizes)]
        wanted = [None if size == -1 else size for size in sizes or []]
        if 0 < len(wanted) <= _RANK_MOST and wanted.count(None) <= 1:  # the others determine it
            for cuts in itertools.combinations_with_replacement(range(len(letters) + 1), len(wanted) - 1):
                parts = [letters[start:end] for start, end in itertools.pairwise((0, *cuts, len(letters)))]
                if all(size in (None, self.sizes.of_axis(part)) for size, part in zip(wanted, parts, strict=True)):
                    return parts
        got = "a shape that is not known" if sizes is None else f"[{', '.join(map(_size_text, sizes))}]"
        return _refuse(node, f"expecting a shape that keeps or joins the axes of {_text(axes)}, got {got}")


def _perm(node: Any, rank: int) -> list[int]:
    perm = numbers(node, "perm")
    perm = [*range(rank)][::-1] if perm is None else perm
    return (
        perm
        if sorted(perm) == [*range(rank)]
        else _refuse(node, f"expecting a perm of {rank} axes, got {shorten(perm)}")
    )


def _refuse(node: Any, why: str) -> NoReturn:
    about = f"{node.op_type} {shorten(node.name or node.output[0])} between two nodes"
    raise ConvertError("onnx", about, f"{why}; {NAME_THEM}")


def _text(axes: list[str]) -> str:
    return f"[{', '.join('*'.join(axis) or '1' for axis in axes)}]"


def _size_text(size: Size | int | None) -> str:
    if isinstance(size, tuple):
        return "*".join([str(size[0]), *size[1]]) if size[0] != 1 or not size[1] else "*".join(size[1])
    return "?" if size is None else str(size)
