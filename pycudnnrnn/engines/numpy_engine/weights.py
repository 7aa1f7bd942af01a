"""A params buffer as the arrays that the cells work with."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

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
        W: [G * U, I], or None under skip input; R: [G * U, P]; bW, bR: [G * U] or None; proj: [P, U] or None.
    """

    W: Array | None
    R: Array
    bW: Array | None
    bR: Array | None
    proj: Array | None

    @property
    def bias(self) -> Array | None:
        """The sum of the biases that exist."""
        if self.bW is None or self.bR is None:
            return self.bR if self.bW is None else self.bW
        return self.bW + self.bR


@dataclasses.dataclass(frozen=True)
class Stack:
    """Regions of one kind and pseudo-layer, stacked by rows in id order; none where the spec has none."""

    regions: tuple[Region, ...]

    def __bool__(self) -> bool:
        return self.size > 0

    @functools.cached_property
    def size(self) -> int:
        return sum(region.size for region in self.regions)

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        first, *_ = self.regions
        return (len(self.regions) * first.shape[0], *first.shape[1:])

    @functools.cached_property
    def span(self) -> slice | None:
        """Where the regions are, if they lie one after the other."""
        if all(a.slice.stop == b.offset for a, b in itertools.pairwise(self.regions)):
            return slice(self.regions[0].offset, self.regions[-1].slice.stop)
        return None

    def read(self, params: Array, dtype: np.dtype[Any]) -> Array:
        """The regions' values: a view of `params` where that can be."""
        if self.span is None:
            stacked = np.concatenate([params[region.slice] for region in self.regions])
        else:
            stacked = params[self.span]
        return stacked.reshape(self.shape).astype(dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class Stacks:
    """The regions of one pseudo-layer, by what they multiply."""

    W: Stack
    R: Stack
    bW: Stack
    bR: Stack
    proj: Stack

    def by_name(self) -> dict[str, Stack]:
        """Those that there are."""
        return {field.name: stack for field in dataclasses.fields(self) if (stack := getattr(self, field.name))}


@functools.lru_cache(maxsize=256)
def all_stacks(layout: ParamLayout, spec: RNNSpec) -> list[Stacks]:
    gates = spec.num_gates

    own: defaultdict[tuple[int, str], list[Region]] = defaultdict(list)
    for region in layout.regions:
        own[region.pseudo_layer, region.kind].append(region)

    def pick(p: int, kind: str, first: int, last: int) -> Stack:
        return Stack(tuple(r for r in own[p, kind] if first <= r.lin_layer_id < last))

    return [
        Stacks(
            pick(p, "weight", 0, gates),
            pick(p, "weight", gates, 2 * gates),
            pick(p, "bias", 0, gates),
            pick(p, "bias", gates, 2 * gates),
            pick(p, "weight", 2 * gates, 2 * gates + 1),
        )
        for p in range(spec.num_pseudo_layers)
    ]


def load_weights(layout: ParamLayout, params: Array, spec: RNNSpec) -> list[Weights]:
    """Read a params buffer into the arrays that the cells work with."""
    dtype = spec.compute_dtype.numpy

    def read(stack: Stack) -> Array | None:
        return stack.read(params, dtype) if stack else None

    return [
        Weights(read(s.W), s.R.read(params, dtype), read(s.bW), read(s.bR), read(s.proj))
        for s in all_stacks(layout, spec)
    ]
