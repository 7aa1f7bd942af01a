"""A params buffer as the arrays that the cells work with."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _locks
from pycudnnrnn.layout import ParamLayout, Region
from pycudnnrnn.spec import RNNSpec

Array = npt.NDArray[Any]


def write_or_add(part: Callable[..., Array], out: Array, *, adds: bool) -> None:
    """Write what `part(out=...)` computes to `out`, or add it."""
    if adds:
        out += part()
    else:
        part(out=out)


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
    found: list[defaultdict[str, list[Region]]] = [defaultdict(list) for _ in range(spec.num_pseudo_layers)]
    names = {"weight": ("W", "R", "proj"), "bias": ("bW", "bR")}
    for region in layout.regions:
        if region.size:
            found[region.pseudo_layer][names[region.kind][region.lin_layer_id // spec.num_gates]].append(region)
    return [
        {name: Stack(tuple(sorted(regions, key=lambda region: region.lin_layer_id))) for name, regions in own.items()}
        for own in found
    ]
