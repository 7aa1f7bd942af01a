"""The arrays that the cells work with: the weights in a params buffer, and the tape of a backward."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _locks
from pycudnnrnn.layout import ParamLayout, Region
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


@dataclasses.dataclass(frozen=True)
class Stack:
    """Regions of one kind and pseudo-layer, stacked by rows in id order."""

    regions: tuple[Region, ...]

    @_locks.cached_property
    def shape(self) -> tuple[int, ...]:
        first, *_ = self.regions
        return (len(self.regions) * first.shape[0], *first.shape[1:])

    @_locks.cached_property
    def span(self) -> slice | None:
        """Where the regions are, if they lie one after the other."""
        if all(a.slice.stop == b.offset for a, b in itertools.pairwise(self.regions)):
            return slice(self.regions[0].offset, self.regions[-1].slice.stop)
        return None

    def read(self, buffer: Array) -> Array:
        """Return the regions' values from a buffer with the layout of params: a view if the regions are contiguous."""
        if self.span is None:
            return np.concatenate([buffer[region.slice] for region in self.regions]).reshape(self.shape)
        return buffer[self.span].reshape(self.shape)

    def write(self, buffer: Array, values: Array) -> None:
        """Write values to the regions if `read` returned a copy; a view needs nothing."""
        if self.span is None:
            for region, part in zip(self.regions, np.split(values, len(self.regions)), strict=True):
                buffer[region.slice] = part.reshape(-1)


def all_stacks(layout: ParamLayout, spec: RNNSpec) -> list[dict[str, Stack]]:
    """Return the stacks of each pseudo-layer that have elements, by their name in `Weights`."""
    by_layer: list[defaultdict[str, list[Region]]] = [defaultdict(list) for _ in range(spec.num_pseudo_layers)]
    names = {"weight": ("W", "R", "proj"), "bias": ("bW", "bR")}
    for region in layout.regions:
        if region.size:
            by_layer[region.pseudo_layer][names[region.kind][region.lin_layer_id // spec.num_gates]].append(region)
    return [
        {
            name: Stack(tuple(sorted(regions, key=lambda region: region.lin_layer_id)))
            for name, regions in stacks.items()
        }
        for stacks in by_layer
    ]
