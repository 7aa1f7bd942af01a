"""The reserve of the NumPy engine, in new memory or in a caller's buffer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from pycudnnrnn.engines.numpy_engine.cells import CELLS
from pycudnnrnn.engines.numpy_engine.dropout import drop
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of
from pycudnnrnn.engines.numpy_engine.packing import NO_OUTS, Outs, new_rows, pack, results, sorted_states
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.walk import directions_of, run_back, weight_gradients
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, all_stacks
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

ALIGNMENT_NBYTES: Final = 64
"""Each array of a reserve starts on a cache line."""


@dataclasses.dataclass
class NumpyReserve:
    """One tape per pseudo-layer, each layer's input (layer 0's is the caller's), and the dropout mask of each input.

    `backward_data` leaves the gradients of pre-activations on the tapes, which `backward_weights` reads.
    """

    spec: RNNSpec
    schedule: Schedule
    layout: ParamLayout
    weights: list[Weights]
    tapes: list[Tape]
    inputs: list[Array]
    masks: list[Array | None]
    touched: bool = False

    def copy(self) -> NumpyReserve:
        return dataclasses.replace(self, tapes=[tape.copy() for tape in self.tapes])

    @np.errstate(all="ignore")
    def backward_data(
        self, dy: Array | None, dhy: Array | None, dcy: Array | None, outs: Outs = NO_OUTS
    ) -> tuple[Array, Array, Array | None]:
        spec, schedule, dtype = self.spec, self.schedule, self.spec.compute_dtype.numpy
        cell = cell_of(spec, schedule.num_rows)
        dh, dc = sorted_states(spec, schedule, dhy, dcy, outs)
        d_rows = np.zeros((schedule.num_rows, spec.output_size), dtype) if dy is None else pack(dy, schedule, dtype)
        self.touched = True
        for layer in reversed(range(spec.num_layers)):
            below = new_rows(schedule, spec.layer_input_size(layer), dtype, None if layer else outs[0])
            for direction, steps in directions_of(spec, schedule):
                p = layer * spec.num_dirs + direction
                own = d_rows[:, direction * spec.state_size : (direction + 1) * spec.state_size]
                w = cell.backward_weights(self.weights[p], schedule)
                run_back(cell, w, self.tapes[p], steps, own, dh[p], dc[p], below, adds=direction > 0)
            mask = self.masks[layer]
            if mask is not None:
                drop(below, mask, spec.dropout)
            d_rows = below
        return results(d_rows, dh, dc, spec, schedule, outs)

    @np.errstate(all="ignore")
    def backward_weights(self, out: Array, *, accumulate: bool) -> None:
        spec, dtype = self.spec, self.spec.compute_dtype.numpy
        cell = cell_of(spec, self.schedule.num_rows)
        # The gradient is added at the end. If memory ran out after a part was added, a second try would add that part
        # twice.
        total = np.zeros(out.shape, dtype) if accumulate or out.dtype != dtype else out
        if not self.schedule.num_rows or sum(region.size for region in self.layout.regions) < total.size:
            total[...] = 0
        for p, stacks in enumerate(all_stacks(self.layout, spec)):
            layer, direction = divmod(p, spec.num_dirs)
            sums = {name: stack.read(total) for name, stack in stacks.items()}
            steps = self.schedule.steps[:: -1 if direction else 1]
            weight_gradients(cell, self.tapes[p], steps, self.inputs[layer], sums)
            for name, stack in stacks.items():
                stack.write(total, sums[name])
        if accumulate:
            out[...] = out + total
        elif total is not out:
            out[...] = total


def make_reserve(
    config: CallConfig, layout: ParamLayout, weights: list[Weights], x: Array, buffer: Array | None
) -> NumpyReserve:
    """Return a reserve for packed input rows `x`. Its arrays are parts of `buffer` or of a new one, in a fixed order.

    Shapes:
        x: [rows, I]; buffer: [reserve_nbytes], uint8.
    """
    spec, schedule, drops = config.spec, config.schedule, config.dropout is not None
    if buffer is None:  # one allocation: the system gives a large one large pages, whose first use is faster
        buffer = np.empty(reserve_nbytes(spec, schedule.num_rows, drops=drops), np.uint8)
    start = 0

    def take(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        nonlocal start
        nbytes = math.prod(shape) * dtype.itemsize
        part = buffer[start : start + nbytes].view(dtype).reshape(shape)
        start += _padded(nbytes)
        return part

    found = {name: take(shape, dtype) for name, shape, dtype in _arrays(spec, schedule.num_rows, drops=drops)}
    tapes = [Tape() for _ in range(spec.num_pseudo_layers)]
    for (kind, index, name), array in found.items():
        if kind == "tape":
            tapes[index][name] = array
    layers = range(1, spec.num_layers)
    inputs = [x, *(found["input", layer, ""] for layer in layers)]
    masks = [None, *(found["mask", layer, ""] if drops else None for layer in layers)]
    return NumpyReserve(spec, schedule, layout, weights, tapes, inputs, masks)


def reserve_nbytes(spec: RNNSpec, num_rows: int, *, drops: bool) -> int:
    """Return the bytes of a reserve for packed rows, without layer 0's input."""
    return sum(_padded(math.prod(shape) * dtype.itemsize) for _, shape, dtype in _arrays(spec, num_rows, drops=drops))


def _arrays(
    spec: RNNSpec, rows: int, *, drops: bool
) -> Iterator[tuple[tuple[str, int, str], tuple[int, int], np.dtype[Any]]]:
    dtype = spec.compute_dtype.numpy
    widths = CELLS[spec.mode](spec).tape_widths()  # the same for every cell; `rows` may be a symbol of torch's compiler
    for p in range(spec.num_pseudo_layers):
        for name, width in widths.items():
            yield ("tape", p, name), (rows, width), dtype
    for layer in range(1, spec.num_layers):
        yield ("input", layer, ""), (rows, spec.output_size), dtype
        if drops:
            yield ("mask", layer, ""), (rows, spec.output_size), np.dtype(np.bool_)


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
