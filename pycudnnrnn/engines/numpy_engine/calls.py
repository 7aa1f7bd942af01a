"""Calls of one kind on the NumPy engine: everything that depends on the RNN, the sizes and the lengths, made once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
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
    `states`: the names of initial and final states, and their widths. `has_views`: whether the stacks of params are
    views of its buffer; `reads_in_place`: whether `read` returns these. `reserve_parts`: the arrays of a reserve, and
    where each begins; `reserve_nbytes`: 0 if none is kept.
    """

    def __init__(self, spec: RNNSpec, schedule: Schedule, layout: ParamLayout, *, keeps: bool, drops: bool) -> None:
        """`keeps`: whether a reserve is kept; `drops`: whether dropout acts."""
        self.spec, self.schedule, self.layout, self.keeps = spec, schedule, layout, keeps
        self.cell, self.packing = cell_of(spec, schedule.num_rows), Packing(spec, schedule)
        self.directions, self.stacks = directions_of(spec, schedule), all_stacks(layout, spec)
        names = [field.name for field in dataclasses.fields(Weights)]
        self._views = [
            [(stacks[name].span, stacks[name].shape) if name in stacks else None for name in names]
            for stacks in self.stacks
        ]
        self.has_views = all(stack.span for stacks in self.stacks for stack in stacks.values())
        self.reads_in_place = spec.dtype is spec.compute_dtype and self.has_views
        self.has_padding = sum(region.size for region in layout.regions) < layout.size
        self.reserve_parts, self.reserve_nbytes = list[tuple[Part, int]](), 0
        for part in reserve_parts(spec, schedule.num_rows, drops=drops) if keeps else ():
            self.reserve_parts.append((part, self.reserve_nbytes))
            self.reserve_nbytes += part.nbytes
        self._shapes, self._dtype = shapes(spec, schedule.data_axes, schedule.B), spec.dtype.numpy
        self.states = [("hx", "hy", spec.state_size), *([("cx", "cy", spec.num_units)] if spec.has_cell_state else [])]

    def new(self, names: tuple[Name, ...]) -> list[Array | None]:
        """Return new arrays for the caller; None for those that the cell does not have."""
        return [None if (shape := self._shapes[name]) is None else new(shape, self._dtype) for name in names]

    def read(self, params: Array) -> list[Weights]:
        """Return the weights of each pseudo-layer in a params buffer, in the compute dtype."""
        if self.reads_in_place:
            return self.views(params)
        return list(self.copies(params))

    def copies(self, buffer: Array) -> Iterator[Weights]:
        """Yield the stacks of each pseudo-layer, in the compute dtype."""
        dtype = self.cell.dtype
        for stacks in self.stacks:
            yield Weights(**{name: stack.read(buffer).astype(dtype, copy=False) for name, stack in stacks.items()})

    def views(self, buffer: Array) -> list[Weights]:
        """Return the stacks of each pseudo-layer as views of a buffer with the layout of params."""
        parts: list[list[Any]] = [[view and buffer[view[0]].reshape(view[1]) for view in each] for each in self._views]
        return [Weights(*each) for each in parts]


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
