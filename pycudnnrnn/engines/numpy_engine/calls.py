"""Calls of one kind on the NumPy engine: everything that depends on the RNN, the sizes and the lengths, made once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn._arrays import new
from pycudnnrnn.engines.numpy_engine.cells import CELLS
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of
from pycudnnrnn.engines.numpy_engine.packing import Packing
from pycudnnrnn.engines.numpy_engine.walk import directions_of
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, all_stacks
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import Name, shapes
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

ALIGNMENT_NBYTES: Final = 64
"""Each array of a reserve starts on a cache line."""


class Part(NamedTuple):
    """One array of a reserve: on the "tape" of a pseudo-layer, by name, or the "input" or the "mask" of a layer."""

    kind: str
    number: int
    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Its bytes, with the padding after it."""
        return -(-math.prod(self.shape) * self.dtype.itemsize // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES


class Calls:
    """What all calls of one kind share. Nothing in it changes, so threads may share it.

    `directions`: the columns of each direction in a layer's output (None: all of them) and its blocks of steps.
    `states`: the names of initial and final states, and their widths. `reads_in_place`: whether `read` returns views
    of params. `reserve_nbytes`: 0 if no reserve is kept.
    """

    def __init__(self, spec: RNNSpec, schedule: Schedule, layout: ParamLayout, *, keeps: bool, drops: bool) -> None:
        """`keeps`: whether a reserve is kept; `drops`: whether dropout acts."""
        self.spec, self.schedule, self.layout, self.keeps = spec, schedule, layout, keeps
        self.cell, self.packing = cell_of(spec, schedule.num_rows), Packing(spec, schedule)
        self.directions, self.stacks = directions_of(spec, schedule), all_stacks(layout, spec)
        self._views = [[(name, stack.span, stack.shape) for name, stack in stacks.items()] for stacks in self.stacks]
        spans = [span for views in self._views for _, span, _ in views]
        self.reads_in_place = spec.dtype is spec.compute_dtype and None not in spans
        self.reserve_parts = list(reserve_parts(spec, schedule.num_rows, drops=drops)) if keeps else []
        self.reserve_nbytes = sum(part.nbytes for part in self.reserve_parts)
        self._shapes, self._dtype = shapes(spec, schedule.data_axes, schedule.B), spec.dtype.numpy
        self.states = [("hx", "hy", spec.state_size), *([("cx", "cy", spec.num_units)] if spec.has_cell_state else [])]

    def new(self, names: tuple[Name, ...]) -> list[Array | None]:
        """Return new arrays for the caller; None for those that the cell does not have."""
        return [None if (shape := self._shapes[name]) is None else new(shape, self._dtype) for name in names]

    def read(self, params: Array) -> list[Weights]:
        """Return the weights of each pseudo-layer in a params buffer, in the compute dtype."""
        if self.reads_in_place:
            return [Weights(**{name: params[at].reshape(shape) for name, at, shape in views}) for views in self._views]
        dtype = self.cell.dtype
        return [
            Weights(**{name: stack.read(params).astype(dtype, copy=False) for name, stack in stacks.items()})
            for stacks in self.stacks
        ]

    def forward_weights(self, weights: list[Weights]) -> Iterable[Weights]:
        """Return weights as a forward takes them, from the first pseudo-layer to the last; each is made when taken."""
        return map(self.cell.forward_weights, weights)

    def held_weights(self, weights: list[Weights]) -> list[Weights]:
        """Return copies of weights for many forwards."""
        return list(map(self.cell.held_weights, weights))

    def backward_weights(self, weights: list[Weights]) -> Iterable[Weights]:
        """Return weights as a backward takes them: the last layer first, its directions in their order."""
        D, layers = self.spec.num_dirs, range(self.spec.num_layers)
        return map(self.cell.backward_weights, [w for k in reversed(layers) for w in weights[k * D : k * D + D]])


def reserve_nbytes(spec: RNNSpec, num_rows: int, *, drops: bool) -> int:
    """Return the bytes of a reserve for packed rows, without layer 0's input; `num_rows` may be a symbol of torch's."""
    return sum(part.nbytes for part in reserve_parts(spec, num_rows, drops=drops))


def reserve_parts(spec: RNNSpec, rows: int, *, drops: bool) -> Iterator[Part]:
    """Yield the arrays of a reserve, in their order."""
    dtype, widths = spec.compute_dtype.numpy, CELLS[spec.mode](spec).tape_widths()  # the same for every cell
    for p in range(spec.num_pseudo_layers):
        for name, width in widths.items():
            yield Part("tape", p, name, (rows, width), dtype)
    for layer in range(1, spec.num_layers):
        yield Part("input", layer, "", (rows, spec.output_size), dtype)
        if drops:
            yield Part("mask", layer, "", (rows, spec.output_size), np.dtype(np.bool_))
