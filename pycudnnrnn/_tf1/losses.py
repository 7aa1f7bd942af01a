"""The losses of a layer: those that stay, and those that are dropped with their inputs."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any


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
