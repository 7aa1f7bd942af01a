"""The arrays that the cells work with: the weights in a params buffer, and the tape of a backward."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy.typing as npt

from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.spec import RNNSpec

Array = npt.NDArray[Any]


@dataclasses.dataclass
class Weights:
    """The parameters of one pseudo-layer in the compute dtype, the gates of a kind stacked by rows in id order.

    Shapes:
        R: [G * U, P]; W: [G * U, I], or None under skip input; bW, bR: [G * U] or None; proj: [P, U] or None;
        bias: bW + bR, [G * U] or None, where a cell adds only their sum.
    """

    R: Array
    W: Array | None = None
    bW: Array | None = None
    bR: Array | None = None
    proj: Array | None = None
    bias: Array | None = None


class Tape(dict[str, Array]):
    """What one direction of one layer keeps for its backward.

    Arrays with a row for each packed row, by name; `Cell.tape_widths` lists them. Empty where no backward follows.

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


def stacks_of(spec: RNNSpec) -> list[dict[str, tuple[slice, tuple[int, ...]]]]:
    """Return where the arithmetic layout has the arrays of each pseudo-layer, and their shapes, by name in `Weights`.

    The regions of a kind lie one after the other, in id order. Arrays without elements are left out.
    """
    stacks: list[dict[str, tuple[slice, tuple[int, ...]]]] = [{} for _ in range(spec.num_pseudo_layers)]
    names = {"weight": ("W", "R", "proj"), "bias": ("bW", "bR")}
    for region in arithmetic_layout(spec).regions:
        if region.size:
            stack, name = stacks[region.pseudo_layer], names[region.kind][region.lin_layer_id // spec.num_gates]
            place, shape = stack.get(name, (region.slice, (0,)))
            stack[name] = slice(place.start, region.slice.stop), (shape[0] + region.shape[0], *region.shape[1:])
    return stacks
