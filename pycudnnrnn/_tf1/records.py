"""What a layer records of its calls: TF's "nodes" and losses, without keeping arrays alive."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

from pycudnnrnn import _locks
from pycudnnrnn._checks import check_int
from pycudnnrnn.errors import StateError

NODES_MAX: Final = 256
"""Most records that a layer keeps: the first call's and the latest ones'."""


class NodeError(StateError, AttributeError):
    """A layer has no such array, shape or call. TF raises an `AttributeError`, so `hasattr` works."""


class Node:
    """One call of a layer: its shapes, and weak references to its arrays."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.input_shapes = [tuple(array.shape) for array in inputs]
        self.output_shapes = [tuple(array.shape) for array in outputs]
        self._inputs, self._outputs = ([weakref.ref(array) for array in arrays] for arrays in (inputs, outputs))

    @property
    def input_tensors(self) -> list[Any]:
        """The input arrays, while other references keep them alive.

        Raises:
            StateError: one of them no longer exists.
        """
        return self._alive("input", self._inputs)

    @property
    def output_tensors(self) -> list[Any]:
        """The output arrays, while other references keep them alive.

        Raises:
            StateError: one of them no longer exists.
        """
        return self._alive("output", self._outputs)

    @staticmethod
    def _alive(what: str, references: list[weakref.ref[Any]]) -> list[Any]:
        arrays = _alive(references)
        if len(arrays) < len(references):
            raise NodeError(f"an {what} array of this call is gone: a layer records its calls without keeping arrays")
        return arrays


class Nodes:
    """The calls of one layer, by number. Each method returns one item, or a list of several."""

    def __init__(self, name: str) -> None:
        self._layer = name
        self._nodes: dict[int, Node] = {}
        self._count = 0
        self._lock = _locks.lock()  # threads may share a layer

    def add(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Record a call."""
        node = Node(inputs, outputs)
        with self._lock:
            if len(self._nodes) == NODES_MAX:  # in a child that was forked between two of these lines it may be gone
                self._nodes.pop(self._count - NODES_MAX + 1, None)
            self._nodes[self._count] = node
            self._count += 1

    def list(self) -> list[Node]:
        with self._lock:
            return list(self._nodes.values())

    def at(self, index: int, which: str) -> Any:
        """Return an attribute of call number `index`.

        Raises:
            StateError: the layer was never called, or this record was dropped.
            ArgumentError: fewer calls than that.
        """
        if not self._count:
            raise NodeError(f"the layer {self._layer!r} has never been called: it has no {which.replace('_', ' ')}")
        index = check_int("node_index", index, 0, self._count - 1)
        if index not in self._nodes:
            raise StateError(f"the record of call {index} was dropped: the first and the latest calls are kept")
        items = getattr(self._nodes[index], which)
        return items[0] if len(items) == 1 else items

    def only(self, which: str) -> Any:
        """Return an attribute of the only call.

        Raises:
            AttributeError: no call, or several.
        """
        if self._count > 1:
            how = "ask for one call, with get_..._at(node_index)"
            raise NodeError(f"the layer {self._layer!r} was called {self._count} times: {how}")
        return self.at(0, which)

    def same(self, which: str) -> Any:
        """Return the shapes of all recorded calls, if they are the same.

        Raises:
            AttributeError: no call, or calls with different shapes.
        """
        shapes = [getattr(node, which) for node in self.list()]
        if any(one != shapes[0] for one in shapes):
            raise NodeError(f"the layer {self._layer!r} was called with several {which.replace('_', ' ')}")
        return self.at(0, which)


class Losses:
    """The losses of one layer, in the order in which they came."""

    def __init__(self) -> None:
        self.unconditional: list[Any] = []
        self._conditional: list[tuple[list[weakref.ref[Any]], Any]] = []

    def add(self, losses: Any, inputs: Any) -> None:
        """Add one loss or several; with `inputs` they are dropped with the last of those arrays."""
        for loss in losses if isinstance(losses, (list, tuple)) else [losses]:
            if inputs is None:
                self.unconditional.append(loss)
            else:
                self._conditional.append(([weakref.ref(array) for array in flatten(inputs)], loss))

    def standing(self, inputs: Any = None) -> list[Any]:
        """Return the losses of these inputs, or of any inputs that still exist."""
        ids = None if inputs is None else [id(array) for array in flatten(inputs)]
        return [
            loss
            for references, loss in self._conditional
            if any(ids is None or id(array) in ids for array in _alive(references))
        ]

    def forget_dead(self) -> None:
        self._conditional = [(references, loss) for references, loss in self._conditional if _alive(references)]


def flatten(structure: Any) -> list[Any]:
    """Return the arrays of nested tuples and lists, in order."""
    if isinstance(structure, (tuple, list)):
        return [array for item in structure for array in flatten(item)]
    return [structure]


def _alive(references: Sequence[weakref.ref[Any]]) -> list[Any]:
    return [array for array in (reference() for reference in references) if array is not None]
