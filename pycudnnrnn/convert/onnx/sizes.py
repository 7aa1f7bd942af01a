"""The sizes that a model computes from its values' axes, as exporters do for a Reshape.

Letters name axes: T, D, B and H of a node's output, I of the first node's input. An axis of a value is a string of the
letters that are merged in it, "" if its size is 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pycudnnrnn.convert.onnx.graph import Graph

MOST: Final = 32
"""Most nodes in a row that are followed, and most sizes of a list."""

_SIZE_MOST: Final = 2**63 - 1
"""The greatest size that ONNX has: int64's."""

COUNTING: Final = frozenset({1, 6, 7, 11})
"""FLOAT, INT32, INT64 and DOUBLE of TensorProto: a cast to one of them does not change a size."""

FLOATING: Final = frozenset({1, 10, 11, 16})
"""FLOAT, FLOAT16, DOUBLE and BFLOAT16 of TensorProto: the results allowed for a Cast of outputs and states."""

_FROM_ONE: Final = frozenset({"Cast", "Gather", "Identity", "Reshape", "Shape", "Slice", "Squeeze", "Unsqueeze"})
_FROM_MANY: Final = frozenset({"Concat", "Mul"})

Size = tuple[int, str]
"""A size as a number times the letters whose sizes are not known, in the order of the alphabet, each once."""

SizeList = Sequence[Size | int | None]
"""The sizes for a Reshape. 0 and -1 are kept, and None is a number that is not known."""


class _Integers(NamedTuple):
    """Integers in the order of memory, and their number of axes: 0 for a number, 1 for a list."""

    rank: int
    sizes: SizeList


class Sizes:
    """Sizes of the axes of values, and the integers that nodes compute from them.

    Args:
        graph: the main graph.
        axes: the known axes of each value. More are added as they become known.
        numbers: the sizes of letters that the model declares.
    """

    def __init__(self, graph: Graph, axes: dict[str, list[str]], numbers: dict[str, int]) -> None:
        self.axes = axes
        self._graph = graph
        self._numbers = numbers
        self._found: dict[str, _Integers | None] = {}

    def of_axis(self, axis: str) -> Size:
        """Return the size of an axis."""
        known = math.prod(self._numbers.get(letter, 1) for letter in axis)
        return known, "".join(sorted(letter for letter in axis if letter not in self._numbers))

    def of_list(self, name: str) -> SizeList | None:
        """Return the integers of a value, if they are constants or come from a Shape; None if it is unknown."""
        found = self._of(name, 0)
        return None if found is None else found.sizes

    def _of(self, name: str, depth: int) -> _Integers | None:
        if name not in self._found:
            self._found[name] = None  # in case the graph has a cycle
            ints = self._graph.integers(name)
            if ints is None:
                found = self._computed(name, depth)
            else:
                found = _Integers(ints.ndim, [(int(n), "") if n > 0 else int(n) for n in ints.flat])
            self._found[name] = found if found is None or len(found.sizes) <= MOST else None
        return self._found[name]

    def _computed(self, name: str, depth: int) -> _Integers | None:
        """Return integers as exporters compute them: parts of shapes, joined and multiplied."""
        node = self._graph.maker(name, _FROM_ONE | _FROM_MANY)
        if node is None or depth == MOST:
            return None
        if node.op_type == "Shape":
            axes = self.axes.get(node.input[0])
            part = slice(number(node, "start", 0), number(node, "end", None))
            return None if axes is None else _Integers(1, [self.of_axis(axis) for axis in axes][part])
        first = self._of(node.input[0], depth + 1)
        if first is None:
            return None
        if node.op_type in _FROM_ONE:
            return self._moved(node, *first)
        others = [self._of(part, depth + 1) for part in node.input[1:]]
        if any(other is None or other.rank != first.rank for other in others):
            return None
        lists = [first.sizes, *(other.sizes for other in others if other is not None)]
        if node.op_type == "Concat" and first.rank == 1:
            return _Integers(1, [*itertools.islice(itertools.chain.from_iterable(lists), MOST + 1)])
        if node.op_type == "Mul" and len(lists) == 2 and len(lists[0]) == len(lists[1]):
            return _Integers(first.rank, [*map(_product, *lists)])
        return None

    def _moved(self, node: Any, rank: int, sizes: SizeList) -> _Integers | None:
        """Return the integers that a node selects, or reshapes."""
        kind, given = node.op_type, [self._graph.integers(part) for part in node.input[1:]]
        ints = [None if array is None else [int(n) for n in array.flat] for array in given]
        if kind == "Identity" or (kind == "Cast" and number(node, "to", 0) in COUNTING):
            return _Integers(rank, sizes)
        if kind == "Reshape" and ints and ints[0] is not None:
            return _Integers(len(ints[0]), sizes)
        if kind == "Squeeze":
            return _Integers(0, sizes)
        if kind == "Unsqueeze" and len((ints[0] if ints else numbers(node, "axes")) or []) == 1:
            return _Integers(rank + 1, sizes)
        if kind == "Gather" and rank == 1 and given and given[0] is not None:
            found = [sizes[k] if -len(sizes) <= k < len(sizes) else None for k in given[0].flat]
            return _Integers(given[0].ndim, found)
        if kind == "Slice" and rank == 1 and len(ints) >= 2 and ints[2:] in ([], [[0]], [[0], [1]]):
            ends = [n[0] if n and len(n) == 1 else None for n in ints[:2]]
            return None if None in ends else _Integers(1, sizes[slice(*ends)])
        return None


def number(node: Any, name: str, usual: Any) -> Any:
    """Return an attribute that is an integer."""
    return next((attribute.i for attribute in node.attribute if attribute.name == name), usual)


def numbers(node: Any, name: str) -> list[int] | None:
    """Return an attribute that is a list of integers; None if the node has none."""
    return next(([*attribute.ints] for attribute in node.attribute if attribute.name == name), None)


def _product(a: Size | int | None, b: Size | int | None) -> Size | None:
    """Multiply two sizes; None for an impossible result: a letter twice, or more than int64 holds."""
    if not isinstance(a, tuple) or not isinstance(b, tuple) or set(a[1]) & set(b[1]) or a[0] * b[0] > _SIZE_MOST:
        return None
    return a[0] * b[0], "".join(sorted(a[1] + b[1]))
