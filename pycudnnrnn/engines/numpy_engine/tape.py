"""What one direction of one layer keeps for its backward."""

from __future__ import annotations

from typing import Any

from pycudnnrnn.engines.numpy_engine.weights import Array


class Tape(dict[str, Array]):
    """Arrays with a row for each packed row, by name; `Cell.tape_widths` lists them. Empty where no backward follows.

    "gates" and "h_before" (the state that each step started from) are in every cell's; the rest is the cell's own.
    """

    def at(self, rows: slice) -> Tape:
        """Return a view of some rows."""
        return Tape({name: array[rows] for name, array in self.items()})

    def keep(self, rows: slice, **arrays: Any) -> None:
        """Write to some rows of the arrays with these names, except those that the tape does not have."""
        for name, array in arrays.items():
            if name in self:
                self[name][rows] = array

    def copy(self) -> Tape:
        return Tape({name: array.copy() for name, array in self.items()})
