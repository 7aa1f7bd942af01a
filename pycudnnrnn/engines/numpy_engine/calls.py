"""Calls of one kind on the NumPy engine: everything that depends on the RNN, the sizes and the lengths, made once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn._arrays import ALIGNMENT_NBYTES, new
from pycudnnrnn.engines.numpy_engine.cells import CELLS, Array, Steps, Weights
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of
from pycudnnrnn.engines.numpy_engine.packing import Packing
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.passes import Name, shapes
from pycudnnrnn.schedule import Schedule, Step, grouped
from pycudnnrnn.spec import RNNSpec

BLOCK_ROWS: Final = 2048
BLOCK_ROWS_A_UNIT: Final = 2
"""A block has BLOCK_ROWS packed rows, or for many units BLOCK_ROWS_A_UNIT for each unit. It limits the memory that
inference takes for gates, and the terms that a float32 sum adds one after the other."""

Blocks = list[tuple[slice, Steps]]
"""The packed rows of each block, and its steps, whose rows are counted from the first of these."""


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
    `states`: the names of initial and final states, and their widths. `order`: the elements of a params buffer in the
    order of the arithmetic layout, in which the cells read them; None if they have it. `reads_in_place`: whether `read`
    returns views of the buffer. `reserve_parts`: the arrays of a reserve, and where each begins, on a cache line;
    `reserve_nbytes`: 0 if none is kept.
    """

    def __init__(self, spec: RNNSpec, schedule: Schedule, layout: ParamLayout, *, keeps: bool, drops: bool) -> None:
        """`keeps`: whether a reserve is kept; `drops`: whether dropout acts."""
        self.spec, self.schedule, self.keeps = spec, schedule, keeps
        self.cell, self.packing = cell_of(spec, schedule.num_rows, len(schedule.steps)), Packing(spec, schedule)
        columns: list[slice | None] = [None]
        if spec.num_dirs == 2:
            columns = [slice(spec.state_size), slice(spec.state_size, None)]
        walks = schedule.steps, schedule.steps[::-1]
        self.directions = [(part, list(blocks_of(spec, walk))) for part, walk in zip(columns, walks, strict=False)]
        self.order: Array | None = None
        if layout != arithmetic_layout(spec):
            places = np.arange(layout.size)
            self.order = np.concatenate([places[region.slice] for region in layout.regions])
        names = [field.name for field in dataclasses.fields(Weights)]
        self._views = [list(map(stacks.get, names)) for stacks in stacks_of(spec)]
        self.reads_in_place = spec.dtype is spec.compute_dtype and self.order is None
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
        if not self.reads_in_place:
            params = (params if self.order is None else params[self.order]).astype(self.cell.dtype, copy=False)
        return self.views(params)

    def views(self, buffer: Array) -> list[Weights]:
        """Return the weights of each pseudo-layer as views of a buffer in the arithmetic layout."""
        parts: list[list[Any]] = [[view and buffer[view[0]].reshape(view[1]) for view in each] for each in self._views]
        return [Weights(*each) for each in parts]


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


def blocks_of(spec: RNNSpec, steps: Sequence[Step]) -> Iterator[tuple[slice, Steps]]:
    """Cut steps into blocks."""
    for block in grouped(steps, max(BLOCK_ROWS, BLOCK_ROWS_A_UNIT * spec.num_units)):
        first, last = min(block)[0], max(block)[1]
        yield slice(first, last), Steps((slice(low - first, high - first), slice(high - low)) for low, high in block)
