"""The way from one RNN node of an ONNX model to the next: whether each reads what the one before it gave, and no other.

A letter stands for an axis: T, D, B and H of a node's output, I of what the first node reads. An axis of a value is a
string of the letters that lie in it side by side, "" where its size is 1: the output [T, D, B, H] of a node of one
direction is ["T", "", "B", "H"], and what the next node of a bidirectional stack reads is ["T", "B", "DH"].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from pycudnnrnn._checks import shorten
from pycudnnrnn.errors import ConvertError

_BETWEEN: Final = frozenset({
    "Cast", "Concat", "Dropout", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"
})  # fmt: skip
"""What may stand between two nodes of a stack: it moves numbers, and changes none."""

_FLOATING: Final = frozenset({1, 10, 11, 16})
"""FLOAT, FLOAT16, DOUBLE and BFLOAT16 of TensorProto: what a Cast may make."""

_MOST: Final = 32
"""Most nodes in a row that are followed, and most sizes of a list."""

_RANK_MOST: Final = 8
"""Most axes of a value: how a Reshape can cut its letters is tried out."""

_SEQUENCE_LENS: Final = 4
_STATES: Final = slice(5, 7)
"""Where the inputs of an RNN node are that are neither X nor weights."""

_Size = tuple[int, str]
"""A size as a number times the letters whose sizes are not known, in the order of the alphabet."""

_Sizes = Sequence[_Size | int | None]
"""What a Reshape is given: sizes, 0 and -1 as they stand, and None for a number that is not known."""


def check_chain(
    graph: Any, nodes: list[Any], attributes: dict[str, Any], ints_of: Callable[[str], list[int] | None]
) -> None:
    """Refuse nodes of which one does not read, in the axes of a stack, what the one before it gave.

    `attributes` are those of each node; `ints_of` returns the integers of a constant of the model.

    Raises:
        ConvertError: a node that reads something else, that may read something else, that starts from a state of
            another one, or that runs over other steps.
    """
    if len(nodes) == 1:
        return
    _check_steps(graph, nodes)
    chain = _Chain(graph, nodes, attributes, ints_of)
    chain.check_states(nodes)
    for before, after in itertools.pairwise(nodes):
        chain.check(before, after)


def _check_steps(graph: Any, nodes: list[Any]) -> None:
    lengths = [node.input[_SEQUENCE_LENS] if len(node.input) > _SEQUENCE_LENS else "" for node in nodes]
    given = {value.name for value in graph.input}
    for node, name in zip(nodes, lengths, strict=True):
        if bool(name) != bool(lengths[0]) or (name != lengths[0] and {name, lengths[0]} <= given):
            why = f"expecting {lengths[0] or 'none'!r} as for {shorten(nodes[0].name)}, got {name or 'none'!r}"
            raise ConvertError("onnx", f"sequence_lens of node {shorten(node.name)}", why)


class _Chain:
    """The values of a graph whose axes are known."""

    def __init__(
        self, graph: Any, nodes: list[Any], attributes: dict[str, Any], ints_of: Callable[[str], list[int] | None]
    ) -> None:
        self._producer = {output: node for node in graph.node for output in node.output if output}
        self._ints_of = ints_of
        self._shapes: dict[str, _Sizes | None] = {}
        way = "BT" if attributes["layout"] else "TB"
        reads = self._read_by(nodes[0], [*way, "I"])
        self._numbers = self._declared(graph, reads)
        self._numbers["D"] = 2 if attributes.get("direction") == "bidirectional" else 1
        units = attributes.get("hidden_size")
        if type(units) is int and units > 0:
            self._numbers["H"] = units
        self._axes = {name: self._named(axes) for name, axes in reads.items()}
        self._given = self._named([*way, "D", "H"] if attributes["layout"] else ["T", "D", "B", "H"])
        self._wanted = self._named([*way, "DH"])

    def check_states(self, nodes: list[Any]) -> None:
        """Refuse a node that starts from what another one of them ended with: a stack's states are the call's."""
        rnn = {output: node for node in nodes for output in node.output if output}
        for node in nodes:
            names, seen = [*node.input[_STATES]], set()
            while names:
                name = names.pop()
                if name in rnn:
                    why = f"expecting a state of the call, got one that {shorten(rnn[name].name)} computes"
                    raise ConvertError("onnx", f"initial state of node {shorten(node.name)}", why)
                maker = self._producer.get(name)
                if maker is not None and maker.op_type != "Shape" and name not in seen:  # a size is no state
                    seen.add(name)
                    names += maker.input

    def check(self, before: Any, after: Any) -> None:
        """Refuse what is between two nodes, unless it is shown to give the second one the input of a stack."""
        path: list[Any] = []
        name = after.input[0] if after.input else ""
        while not before.output or name != before.output[0]:
            node = self._between(name)
            if node is None or len(path) == _MOST:
                why = f"does not read the output of {shorten(before.name)}: name the nodes of one stack in `nodes`"
                raise ConvertError("onnx", f"node {shorten(after.name)}", why)
            path.append(node)
            name = node.input[0]
        axes = self._axes[name] = self._given
        for node in reversed(path):
            axes = self._axes[node.output[0]] = self._after(node, axes)
        if axes != self._wanted:
            why = f"expecting {_text(self._wanted)} from {shorten(before.name)}, got {_text(axes)}"
            raise ConvertError("onnx", f"X of node {shorten(after.name)}", why)

    def _between(self, name: str) -> Any:
        """Return the node that gives a value, if it is of those that may stand between two of a stack."""
        node = self._producer.get(name)
        if node is None or node.op_type not in _BETWEEN or node.domain not in {"", "ai.onnx"}:
            return None
        return node if node.input and name == node.output[0] else None

    def _read_by(self, node: Any, axes: list[str]) -> dict[str, list[str]]:
        """Return the axes of what a node reads, and of what that was before it was transposed."""
        name = node.input[0] if node.input else ""
        found = {name: axes}
        for _ in range(_MOST):
            maker = self._between(name)
            if maker is None or maker.op_type not in {"Cast", "Identity", "Transpose"}:
                break
            if maker.op_type == "Transpose":
                perm = _perm(maker, len(axes))
                axes = [axes[perm.index(k)] for k in range(len(axes))]
            name = maker.input[0]
            found[name] = axes
        return found

    def _declared(self, graph: Any, reads: dict[str, list[str]]) -> dict[str, int]:
        """Return the sizes that the model says of values whose axes are known."""
        found: dict[str, int] = {}
        for value in (*graph.input, *graph.value_info):
            axes, dims = reads.get(value.name), value.type.tensor_type.shape.dim
            if axes is not None and len(axes) == len(dims):
                found |= {axis: dim.dim_value for axis, dim in zip(axes, dims, strict=True) if dim.dim_value > 0}
        return found

    def _named(self, axes: list[str]) -> list[str]:
        return ["".join(letter for letter in axis if self._numbers.get(letter) != 1) for axis in axes]

    def _after(self, node: Any, axes: list[str]) -> list[str]:
        """Return the axes of what a node gives, from those of what it reads."""
        kind, rank = node.op_type, len(axes)
        if kind == "Concat" and len(node.input) != 1:
            _refuse(node, f"expecting one value, got {len(node.input)}")
        if kind == "Cast" and _number(node, "to", 0) not in _FLOATING:
            _refuse(node, "expecting a floating dtype, got another one")
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
        given = _numbers(node, "axes")
        if given is None and len(node.input) > 1 and node.input[1]:
            given = self._ints_of(node.input[1]) or _refuse(node, "expecting constant axes, got others")
        if given is None:
            return None
        rank += len(given) if more else 0
        places = {k % rank if -rank <= k < rank else rank for k in given}
        if len(places) != len(given) or rank in places or rank > _RANK_MOST:
            _refuse(node, f"expecting axes of a value of {rank}, got {shorten(given)}")
        return sorted(places)

    def _reshaped(self, node: Any, axes: list[str]) -> list[str]:
        """Return the axes after a Reshape: the letters in their order, cut where the sizes say."""
        sizes = self._sizes(node.input[1]) if len(node.input) > 1 else None
        letters, own = "".join(axes), [self._size(axis) for axis in axes]
        if sizes and not _number(node, "allowzero", 0):
            sizes = [own[k] if size == 0 and k < len(own) else size for k, size in enumerate(sizes)]
        wanted = [None if size == -1 else size for size in sizes or []]
        if 0 < len(wanted) <= _RANK_MOST and wanted.count(None) <= 1:  # what one is, follows from the others
            for cuts in itertools.combinations_with_replacement(range(len(letters) + 1), len(wanted) - 1):
                parts = [letters[start:end] for start, end in itertools.pairwise((0, *cuts, len(letters)))]
                if all(size in (None, self._size(part)) for size, part in zip(wanted, parts, strict=True)):
                    return parts
        got = "a shape that is not known" if sizes is None else f"[{', '.join(map(_size_text, sizes))}]"
        return _refuse(node, f"expecting a shape that keeps or joins the axes of {_text(axes)}, got {got}")

    def _size(self, axis: str) -> _Size:
        known = math.prod(self._numbers.get(letter, 1) for letter in axis)
        return known, "".join(sorted(letter for letter in axis if letter not in self._numbers))

    def _sizes(self, name: str, depth: int = 0) -> _Sizes | None:
        """Return the integers that a Reshape is given, as far as they are constants or come from a Shape."""
        if name not in self._shapes:
            self._shapes[name] = None  # where a graph has a circle
            ints = self._ints_of(name)
            sizes = self._computed(name, depth) if ints is None else [(n, "") if n > 0 else n for n in ints]
            self._shapes[name] = sizes if sizes is None or len(sizes) <= _MOST else None
        return self._shapes[name]

    def _computed(self, name: str, depth: int) -> _Sizes | None:
        """Return integers as exporters compute them: parts of shapes, joined and multiplied."""
        node = self._producer.get(name)
        if node is None or not node.input or depth == _MOST:
            return None
        kind = node.op_type
        if kind == "Shape":
            axes = self._axes.get(node.input[0])
            part = slice(_number(node, "start", 0), _number(node, "end", None))
            return None if axes is None else [self._size(axis) for axis in axes][part]
        first = self._sizes(node.input[0], depth + 1)
        if kind in {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"}:  # of a list or of one number
            return first
        if kind == "Concat":
            parts = [self._sizes(part, depth + 1) for part in node.input]
            return None if None in parts else [size for part in parts if part is not None for size in part][: _MOST + 1]
        others = [self._sizes(part, depth + 1) for part in node.input[1:]]
        if first is None or not others or None in others:
            return None
        numbers = [self._ints_of(part) for part in node.input[1:]]
        if kind == "Gather" and numbers[0] is not None:
            return [first[k] if -len(first) <= k < len(first) else None for k in numbers[0]]
        if kind == "Slice" and numbers[2:] in ([], [[0]], [[0], [1]]) and all(n and len(n) == 1 for n in numbers[:2]):
            return first[numbers[0][0] : numbers[1][0]]  # type: ignore[index]  # they are lists of one
        if kind == "Mul" and others[0] is not None and len(others[0]) == len(first):
            return [_product(a, b) for a, b in zip(first, others[0], strict=True)]
        return None


def _product(a: _Size | int | None, b: _Size | int | None) -> _Size | None:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] * b[0], "".join(sorted(a[1] + b[1]))
    return None


def _perm(node: Any, rank: int) -> list[int]:
    perm = _numbers(node, "perm")
    perm = [*range(rank)][::-1] if perm is None else perm
    return perm if sorted(perm) == [*range(rank)] else _refuse(node, f"expecting a perm of {rank} axes, got {perm}")


def _number(node: Any, name: str, usual: Any) -> Any:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), usual)


def _numbers(node: Any, name: str) -> list[int] | None:
    return next(([*attribute.ints] for attribute in node.attribute if attribute.name == name), None)


def _refuse(node: Any, why: str) -> NoReturn:
    raise ConvertError("onnx", f"{node.op_type} {shorten(node.name or node.output[0])} between two nodes", why)


def _text(axes: list[str]) -> str:
    return f"[{', '.join('*'.join(axis) or '1' for axis in axes)}]"


def _size_text(size: _Size | int | None) -> str:
    if isinstance(size, tuple):
        return "*".join([str(size[0]), *size[1]]) if size[0] != 1 or not size[1] else "*".join(size[1])
    return "?" if size is None else str(size)
